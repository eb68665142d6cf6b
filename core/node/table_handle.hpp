#pragma once
// A table as one handle sees it: checks, the part in this process, the parts elsewhere.

#include <atomic>
#include <memory>
#include <vector>

#include "engine/ps/operation.hpp"
#include "node/node.hpp"
#include "table/shard.hpp"

namespace mv::node {

class MemberNode;

/// MV_ESHAPE, MV_EDTYPE or MV_ENONFINITE if `data` is not `rows` rows for this table.
base::Status check_data(const TableSpec& spec, uint64_t rows, const ConstData& data);

class TableHandle final : public Table {
 public:
  /// @param own this process's part, where its callers may work on it themselves; else null
  TableHandle(MemberNode& node, ps::TableViewRef table, std::shared_ptr<table::Shard> own);

  TableInfo info() const override;
  Started add(const Rows& rows, const ConstData& data, const CallOptions& options) override;
  Started set(const Rows& rows, const ConstData& data, const CallOptions& options) override;
  Started get(const Rows& rows, const MutableData& data, const CallOptions& options) override;
  Started peek(const Rows& rows, const MutableData& data, const CallOptions& options) override;
  base::Status close() override;
  base::Status destroy() override;

 private:
  Started change(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options);
  Started fetch(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options);
  base::Status check_shape(const Rows& rows, uint64_t count, mv_dtype dtype) const;
  base::Status usable();
  bool forget_small(const Rows& rows, const std::byte* values, wire::Write write, const CallOptions& options, base::Status* status);
  Started finished_here(const CallOptions& options);
  void change_own(wire::Write write, const Rows& rows, const std::byte* values);
  void read_own(const Rows& rows, std::byte* out) const;
  /// Which of the caller's rows lie in this process, and their numbers here.
  void own_rows(const Rows& rows, std::vector<int64_t>& ids, std::vector<uint64_t>& from) const;

  MemberNode& node_;
  const ps::TableViewRef table_;
  const TableSpec& spec_;
  const std::shared_ptr<table::Shard> own_;
  const bool all_own_;  ///< the whole table lies in this process
  std::atomic<uint64_t> adds_{0}, gets_{0};
};

}  // namespace mv::node
