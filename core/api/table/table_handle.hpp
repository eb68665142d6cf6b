#pragma once
// TableHandle: a table as one handle sees it. It checks calls and splits them between this
// process's part and the others.

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "api/call/calls.hpp"
#include "api/table/mapping.hpp"
#include "api/table/table.hpp"
#include "engine/table/client/operation.hpp"
#include "engine/table/client/plan.hpp"
#include "shard/shard.hpp"
#include "tensor/tensor.hpp"

namespace mv::api {

/// The bytes of a dense table's values that go to each server.
std::vector<base::Filling::Range> ranges_of_servers(const TableSpec& spec, size_t servers);
/// MV_ESHAPE or MV_EDTYPE if `count` elements of `dtype` are not `rows` rows of it.
base::Status check_size(const TableSpec& spec, uint64_t rows, uint64_t count, mv_dtype dtype);
/// MV_ENONFINITE if the table rejects values that are among these, in the memory of the device or, with null, of the host.
base::Status check_finite(const TableSpec& spec, uint64_t rows, const void* values, tensor::Device* device = nullptr);

class TableHandle final : public Table {
 public:
  /// @param own this process's part if callers may access it directly; otherwise null
  TableHandle(Calls& calls, Mappings& mappings, table::TableViewRef table, std::shared_ptr<shard::Shard> own);
  ~TableHandle() override { table_->uses.close(uses_); }

  base::Result<TableInfo> info() override;
  Started add(const Rows& rows, const ConstData& data, const CallOptions& options) override;
  Started add_encoded(const ConstData& gradient, std::byte* residual, const codec::CodecRef& codec, const CallOptions& options) override;
  bool add_here(const shard::Shard::Make& make, base::Status* status) override;
  bool add_here(const std::byte* values, base::Status* status) override;
  shard::OnDevice* on_device_here(bool adds, base::Status* status) override;
  void expect(bool soon) const override;
  bool joins_many() const override { return joins_many_; }
  /// The server that holds all of a table that joins_many().
  size_t home() const { return home_; }
  uint64_t bytes() const { return bytes_; }
  const table::TableViewRef& view() const { return table_; }
  /// Checks that a call on many tables may include this one, and counts the call.
  base::Status join_many(table::Use use);
  Started set(const Rows& rows, const ConstData& data, const CallOptions& options) override;
  Started get(const Rows& rows, const MutableData& data, const CallOptions& options) override;
  bool get_here(std::span<std::byte* const> outs, base::Status* status) override;
  Started get_encoded(const MutableData& data, const codec::CodecRef& codec, const CallOptions& options) override;
  Started get_pieces(std::span<std::byte> out, const codec::CodecRef& codec, const CallOptions& options) override;
  EncodedPieces encoded_pieces(const codec::Codec& codec) const override;
  Started peek(const Rows& rows, const MutableData& data, const CallOptions& options) override;
  Started erase(const Rows& rows, const CallOptions& options) override;
  Started set_updater(const shard::UpdaterSpec& updater, const CallOptions& options) override;
  base::Result<TableStates> states() override;
  base::Status set_states(const TableStates& states) override;
  base::Status clock() override;
  base::Status leave_rounds() override;
  base::Result<Scanned> scan(int64_t cursor, std::span<int64_t> rows, const MutableData& data) override;
  base::Status close() override;
  base::Status destroy() override;

 private:
  /// Values of a change; repeated rows are summed already.
  struct Values {
    const std::byte* bytes = nullptr;
    uint64_t size = 0;
    std::shared_ptr<const void> keep;  ///< null: the caller's memory
    std::shared_ptr<base::Filling> filling = nullptr;  ///< they are still being copied to `bytes`
  };

  Started change(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options);
  Started change_from_host(wire::Write write, const Rows& rows, const ConstData& data, std::shared_ptr<const void> keep, const CallOptions& options);
  base::Status check_change(const Rows& rows, const ConstData& data);
  // Values on a device: table_on_device.cpp
  Started change_from_device(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options);
  Started fetch_to_device(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options);
  shard::OnDevice* shard_on(const tensor::Device& device, const Rows& rows, const void* values) const;
  bool copies_along(const Rows& rows) const;
  Started change_copied_along(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options);
  tensor::Tensor tensor_on(tensor::Device& device, const Rows& rows, const void* values) const;
  base::Status named(const base::Status& status) const;
  template <typename Work>
  Started work_here(const CallOptions& options, const Work& work);
  base::Status check_encoded() const;
  base::Status encode(std::span<const table::ChunkRange> pieces, const ConstData& gradient, std::byte* residual, const codec::Codec& codec,
                      std::byte* out) const;
  void change_own_encoded(std::span<const table::ChunkRange> pieces, const std::byte* encoded, const codec::Codec& codec);
  table::Request change_request(wire::Write write, const CallOptions& options);
  Started start_change(table::Request&& request, const CallOptions& options, const std::function<void()>& own_work);
  Started change_checked(wire::Write write, const Rows& rows, const Values& values, const CallOptions& options);
  void count(table::Use use, table::Path path, const Rows& rows) { uses_.count(use, path, rows.all, rows.count); }
  /// A read of memory, after `needed` adds of this worker to a merging table.
  void count_read(table::Use use, table::Path path, const Rows& rows, uint64_t needed) {
    count(use, path, rows);
    const bool matters = use == table::Use::kGet && table_->consistency == shard::Consistency::kMerge;
    if (matters && table_->adds_at_get.load(std::memory_order_relaxed) != needed) table_->adds_at_get.store(needed, std::memory_order_relaxed);
  }
  Started fetch(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options);
  Started ask_for(bool gated, const Rows& rows, std::span<std::byte> out, const codec::CodecRef& codec, const CallOptions& options, bool keeps_encoded = false);
  bool fetch_in_place(bool gated, const Rows& rows, std::byte* out, const CallOptions& options, base::Status* status);
  uint64_t bytes_of(const Rows& rows) const { return (rows.all ? spec_.rows : rows.count) * spec_.row_bytes(); }
  base::Status check_rows(const Rows& rows) const;
  base::Status check_shape(const Rows& rows, uint64_t count, mv_dtype dtype) const;
  base::Status usable();
  /// Whether an add of all rows affects only this process's shard. Sets `status` to an error if the add is not allowed.
  bool adds_here(base::Status* status);
  base::Status wait_to_begin_anew(base::Nanos patience, const base::Status& why);
  base::Result<bool> fetch_states(size_t server, TableStates& into);
  base::Status send_states(size_t server, const TableStates& states, const shard::Mark* mark);
  bool forget_small(const Rows& rows, const Values& values, wire::Write write, const CallOptions& options, base::Status* status);
  Started finished_here(const CallOptions& options);
  /// A get from this process's part or from mapped segments. False: it needs a message.
  bool fetch_here(table::Use use, const Rows& rows, std::byte* out, const CallOptions& options, base::Status* status);
  /// Waits until the gates of all servers would serve a get made now.
  base::Status wait_for_turn(const CallOptions& options);
  void change_own(wire::Write write, const Rows& rows, const std::byte* values);
  void change_own_part(wire::Write write, const Rows& rows, const std::byte* values);
  void read_own(const Rows& rows, std::byte* out) const;
  /// A get from mapped segments. False: it needs a message.
  bool fetch_mapped(uint64_t needed, const Rows& rows, std::byte* out, const CallOptions& options, base::Status* status);
  bool read_mapped(const Rows& rows, std::byte* out) const;
  uint64_t clock_needed(bool gated) const;
  /// Whether callers may read this process's part now: its clock has reached `needed`.
  bool own_is_open(uint64_t needed) const;
  /// The caller's rows that lie in this process: their numbers here, and their indices in `rows`.
  void own_rows(const Rows& rows, std::vector<int64_t>& ids, std::vector<uint64_t>& from) const;
  size_t own_server() const;

  Calls& calls_;
  const table::TableViewRef table_;
  const TableSpec& spec_;
  const std::shared_ptr<shard::Shard> own_;
  const bool all_own_;  ///< the whole table lies in this process
  const bool changes_own_;  ///< callers change this process's part directly
  const bool is_simple_;    ///< async, dense, and wholly in this process
  const bool joins_many_;   ///< a small key whose shard callers here do not change directly
  const uint32_t home_, bytes_;  ///< of a small key
  const MappingRef mapping_;  ///< null if there is nothing to map
  table::Uses uses_;
};

}  // namespace mv::api
