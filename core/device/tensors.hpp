#pragma once
// Tensors in the memory of devices: what tensor::Device asks for, done by a plug-in's kernels.

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "codec/on_device.hpp"
#include "device/communicator.hpp"
#include "device/device.hpp"
#include "device/graphs.hpp"
#include "device/operations.hpp"
#include "device/pinned_memory.hpp"
#include "device/paths.hpp"
#include "tensor/device.hpp"

namespace mv::device {

/// One device and its stream. Blocks of its memory are released in the order of the stream that is used then.
class TensorDevice final : public tensor::Device, public codec::OnDevice {
 public:
  static base::Result<std::unique_ptr<TensorDevice>> open(Plugin plugin, int32_t number, tensor::Heap& heap);

  /// The stream on which work is done from now on: the caller's, or with null the device's own. Work on the one before
  /// is done first.
  base::Status use_stream(mv_device_stream stream);
  mv_device_stream stream() const { return current().handle(); }
  base::Status wait() override;
  /// Lets later work of the given stream begin after all that has been begun here.
  base::Status order(mv_device_stream after) const;
  /// Lets later work here begin after all that has been begun on the given stream.
  base::Status follow(mv_device_stream before) const;
  const mv::device::Device& device() const { return own_.device(); }
  std::shared_ptr<tensor::Block> lend(std::byte* data, size_t bytes) override;
  /// The stream for further computations; see operations.hpp. It stays valid.
  const Stream& current() const { return *current_.load(std::memory_order_acquire); }
  /// For work on this device that callers may repeat.
  Graphs& graphs() { return graphs_; }
  /// For sums on this device, and for copies from it to several others.
  Paths& sum_paths() { return sum_paths_; }
  Paths& broadcast_paths() { return broadcast_paths_; }
  base::Result<std::shared_ptr<tensor::Block>> allocate(size_t bytes, Content content) override;
  /// Memory for a table.
  struct Spilled {
    std::shared_ptr<tensor::Block> block;  ///< of this device
    size_t on_host = 0;                    ///< bytes of it that are in the host's memory
  };
  enum class Spill { kWhole, kRest };
  /// allocate(), of zeros. If the device has no memory for all of it, beside some that remains for computations, kernels and
  /// copies use the host's memory for the rest, or with Spill::kWhole for all. MV_ENOMEM if there is neither.
  base::Result<Spilled> allocate_or_spill(size_t bytes, Spill spill);
  /// A copy of this device's bytes that leaves memory for computations: on the device or on the host.
  base::Result<std::shared_ptr<tensor::Block>> copy_of(const std::byte* from, size_t bytes);
  tensor::Heap& host() override { return heap_; }
  tensor::Allocator& staging() override { return *pinned_; }
  const std::string& name() const override { return name_; }
  int32_t number() const override { return own_.device().number(); }
  base::Status to_host(void* to, const void* from, size_t bytes) override;
  base::Result<std::unique_ptr<tensor::Arrival>> begin_to_host(void* to, const void* from, size_t bytes) override;
  base::Status from_host(void* to, const void* from, size_t bytes) override;
  base::Status copy_from(tensor::Device& source, void* to, const void* from, size_t bytes) override;
  base::Status fill(const tensor::Tensor& out, const std::byte* element) override;
  base::Status range(const tensor::Tensor& out, double start, double step) override;
  base::Status draw(const tensor::Tensor& out, const tensor::Draw& numbers) override;
  base::Status cast(mv_dtype to, void* out, mv_dtype from, const void* in, size_t count) override;
  base::Status transpose(const tensor::Tensor& from, const tensor::Tensor& out) override;
  base::Status compute(const tensor::Elementwise& what, std::span<const tensor::Source> sources, const tensor::Tensor& out) override;
  base::Status axpy(mv_dtype computed, double alpha, const tensor::Tensor& x, const tensor::Tensor& y) override;
  base::Status merge(const tensor::Tensor& out, std::span<const tensor::Tensor> values) override;
  base::Status add(mv_dtype dtype, void* sums, const void* terms, size_t count) override;
  base::Status divide(mv_dtype dtype, void* values, uint64_t divisor, size_t count) override;
  base::Result<double> mix(mv_dtype dtype, void* dst, const void* src, const void* base, size_t count, double factor) override;
  base::Result<double> pair_step(mv_dtype dtype, const PairArrays& arrays, size_t count, const math::OuterFactors& factors) override;
  base::Status elastic(mv_dtype dtype, void* values, const void* center, void* difference, size_t count, double alpha) override;
  base::Status outer(const OuterArrays& arrays, math::Outer what, const math::OuterSettings& settings) override;
  base::Status expand(const Factors& factors, const float* from, mv_dtype dtype, void* out) override;
  base::Status reduce(int op, const tensor::Tensor& of, const tensor::Split& split, const tensor::Tensor& result) override;
  base::Result<double> dot(const tensor::Tensor& a, const tensor::Tensor& b) override;
  bool has_matmul() override { return current().blas({}).code() != MV_ENOSYS; }
  base::Status matmul(const tensor::Tensor& a, const tensor::Tensor& b, int flags, const tensor::Tensor& c) override;
  base::Status take_rows(const tensor::Tensor& out, const tensor::Tensor& in, size_t width, std::span<const uint64_t> from,
                         std::span<const uint64_t> starts) override;
  base::Status put_rows(const tensor::Tensor& out, const tensor::Tensor& in, size_t width, std::span<const uint64_t> to) override;
  base::Result<size_t> first_nonfinite(std::span<const Floats> arrays) override;
  base::Result<std::vector<uint8_t>> used_rows(const tensor::Tensor& in, size_t rows, size_t width) override;
  base::Result<std::string> communicates_by() override { return device::communicates_by(device()); }
  base::Result<std::string> bus() override;
  base::Result<tensor::Communicator::Id> make_communicator_id() override { return device::make_communicator_id(device()); }
  base::Result<std::unique_ptr<tensor::Communicator>> communicate(const tensor::Communicator::Id& id, int32_t ranks, int32_t rank) override {
    return device::communicate(device(), [this] { return stream(); }, id, ranks, rank);
  }

  bool has(const codec::Codec& codec) const override { return has_codec(codec); }
  size_t encoding_room(const codec::Codec& codec, size_t count) const override { return device::encoding_room(codec, count); }
  base::Status encode(const codec::Codec& codec, std::span<const codec::Encoding> arrays) override { return device::encode(current(), codec, arrays); }
  base::Status decode(const codec::Codec& codec, std::span<const codec::Decoding> arrays, bool adds) override {
    return device::decode(current(), codec, arrays, adds);
  }

 private:
  class EndOfCopy;
  class DeviceBlock;
  class SpilledBlock;
  base::Result<size_t> room_for_tables() const;
  base::Status check_host_memory(size_t bytes) const;
  base::Status clear(void* memory, size_t bytes) const;
  TensorDevice(Stream own, tensor::Heap& heap);
  Stream own_;
  tensor::Heap& heap_;
  const std::string name_;
  const std::unique_ptr<PinnedMemory> pinned_;
  Graphs graphs_;
  Paths sum_paths_, broadcast_paths_;
  std::atomic<const Stream*> current_;
  std::mutex mutex_;                                                  ///< guards borrowed_
  std::map<mv_device_stream, std::unique_ptr<const Stream>> borrowed_;  ///< never removed: another thread may still use one
};

/// The devices of this process, each opened when it is first asked for. They are never closed: tensors may outlive
/// everything else. Any thread.
class TensorDevices {
 public:
  static constexpr int32_t kMost = 64;
  /// @param opened  called when the first device is opened, by the thread that does so; may be null
  explicit TensorDevices(tensor::Heap& heap, void (*opened)() = nullptr) : heap_(heap), opened_first_(opened) {}
  /// The device of this number. MV_ENOSYS without a plug-in, a driver or a device; MV_ENOTFOUND for another number.
  base::Result<TensorDevice*> get(int32_t number);
  bool any_opened() const { return any_opened_.load(std::memory_order_acquire); }
  /// The device in whose memory an address is; null: the host's, or no device has been opened here.
  base::Result<tensor::Device*> find(const void* memory);
  /// How many devices there are; an error says why there is none.
  static base::Result<int32_t> count();
  /// Whether this process may have devices: it has a plug-in. Loads nothing.
  static bool may_exist();

 private:
  tensor::Heap& heap_;
  void (*const opened_first_)();
  std::mutex opening_;
  std::array<std::atomic<TensorDevice*>, kMost> opened_{};
  std::atomic<bool> any_opened_{false};
};

}  // namespace mv::device
