#pragma once
// What a device computes for tensors in its own memory, which the processor does not reach. The functions of this room
// check their arguments, choose dtypes and shapes, and then compute themselves, or let the tensors' device do it. The
// room device/ implements this interface with plug-ins.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "math/local_sgd.hpp"
#include "math/outer_step.hpp"
#include "tensor/communicator.hpp"
#include "tensor/tensor.hpp"

namespace mv::tensor {

/// Elements to read, of a tensor or of a single value.
struct Source {
  mv_dtype dtype;
  Shape shape;
  const std::byte* data;
  bool is_value = false;  ///< a single element in the host's memory
};

/// An element-wise computation. Operands are converted to `dtype`, and halves computed in f32. The results are rounded to
/// `shown`, unless the output has the dtype in which they were computed, and then converted to the output's dtype.
struct Elementwise {
  enum class Kind { kCopy, kUnary, kBinary };
  Kind kind;
  int op = 0;
  mv_dtype dtype;  ///< to which the operands are promoted
  mv_dtype shown;  ///< u8 for comparisons, else `dtype`
};

/// The elements as outer x along x inner. A reduction runs over `along`. Element (o, j, i) is at
/// (o * along + j) * inner + i.
struct Split {
  size_t outer = 1, along = 1, inner = 1;
};

/// Random numbers, see both:: in random-inl.hpp. Integers are `width` ones from `from` on; width 0 means 2^64.
struct Draw {
  int64_t seed;
  bool is_normal = false;
  double a = 0, b = 0;  ///< low and high, or mean and deviation
  int64_t from = 0;
  uint64_t width = 0;
};

/// A copy that is under way. The memory on both sides must stay until it has arrived, for which the destructor waits.
class Arrival {
 public:
  virtual ~Arrival() = default;
  virtual base::Status wait() = 0;
};

/// Computes on tensors in its memory, in the order of the calls. Arguments have been checked: all tensors are in this
/// device's memory, and the shapes and dtypes fit. A call returns before its work is done, unless it gives something to
/// the host. Any thread.
class Device : public Allocator {
 public:
  static constexpr size_t kFastStaging = size_t{64} << 10;
  /// "cuda:0"
  virtual const std::string& name() const = 0;
  virtual int32_t number() const = 0;
  /// The caller's memory on this device.
  virtual std::shared_ptr<Block> lend(std::byte* data, size_t bytes) = 0;

  /// Memory of the host for copies that live for one call: copies to and from it are fast, if it is kFastStaging bytes or more. It is kept for the next
  /// call.
  virtual Allocator& staging() = 0;
  /// Copies bytes to and from the host's memory, which may be used again, or read, on return.
  virtual base::Status to_host(void* to, const void* from, size_t bytes) = 0;
  virtual base::Status from_host(void* to, const void* from, size_t bytes) = 0;
  /// Begins to_host(). It overlaps with the caller's work if `to` is fast memory of staging().
  virtual base::Result<std::unique_ptr<Arrival>> begin_to_host(void* to, const void* from, size_t bytes) = 0;
  /// Copies bytes from the memory of `source`, this device or another one.
  virtual base::Status copy_from(Device& source, void* to, const void* from, size_t bytes) = 0;

  virtual base::Status fill(const Tensor& out, const std::byte* element) = 0;
  virtual base::Status range(const Tensor& out, double start, double step) = 0;
  virtual base::Status draw(const Tensor& out, const Draw& numbers) = 0;
  virtual base::Status cast(mv_dtype to, void* out, mv_dtype from, const void* in, size_t count) = 0;
  virtual base::Status transpose(const Tensor& from, const Tensor& out) = 0;
  virtual base::Status compute(const Elementwise& what, std::span<const Source> sources, const Tensor& out) = 0;
  /// y += alpha * x for dense tensors of one shape, computed in `computed`.
  virtual base::Status axpy(mv_dtype computed, double alpha, const Tensor& x, const Tensor& y) = 0;
  /// out = the sum of dense tensors of its shape and dtype, wherever they are, in their order. Halves are summed as floats and rounded once.
  virtual base::Status merge(const Tensor& out, std::span<const Tensor> values) = 0;

  // Models in plain memory. Floats only.

  /// sums[i] += terms[i], of one dtype.
  virtual base::Status add(mv_dtype dtype, void* sums, const void* terms, size_t count) = 0;
  virtual base::Status divide(mv_dtype dtype, void* values, uint64_t divisor, size_t count) = 0;
  /// math/average.hpp: average_bytes(), or with a base approach_bytes(). Returns the squared distance, which may differ from the host's by
  /// rounding.
  virtual base::Result<double> mix(mv_dtype dtype, void* dst, const void* src, const void* base, size_t count, double factor) = 0;
  /// NoLoCo's step, of f32 or f64: math/outer_step.hpp. Likewise.
  struct PairArrays {
    void *model, *slow, *momentum;
    math::SlowModel own, peer;
  };
  virtual base::Result<double> pair_step(mv_dtype dtype, const PairArrays& arrays, size_t count, const math::OuterFactors& factors) = 0;
  /// difference = alpha * (values - center), values -= difference. The difference may be in the center's memory; both have the storage dtype of
  /// `dtype`.
  virtual base::Status elastic(mv_dtype dtype, void* values, const void* center, void* difference, size_t count, double alpha) = 0;
  /// The outer step of local SGD: math/local_sgd.hpp. The other arrays have the storage dtype of `dtype`, the values'.
  struct OuterArrays {
    mv_dtype dtype;
    void *values, *outer, *velocity, *moved;
    size_t count;
  };
  virtual base::Status outer(const OuterArrays& arrays, math::Outer what, const math::OuterSettings& settings) = 0;
  /// Factors of a matrix in f32: p has rows x rank elements, and q cols x rank.
  struct Factors {
    const float *p, *q;
    size_t rows, cols, rank;
  };
  /// out = p q', or from - p q' unless `from` is null, summed in order.
  virtual base::Status expand(const Factors& factors, const float* from, mv_dtype dtype, void* out) = 0;
  /// Waits for all work so far, and returns its errors.
  virtual base::Status wait() = 0;

  virtual base::Status reduce(int op, const Tensor& of, const Split& split, const Tensor& result) = 0;
  virtual base::Result<double> dot(const Tensor& a, const Tensor& b) = 0;
  /// c = op(a) op(b) for matrices of f32 or f64, row-major: (rows, inner) and (inner, cols), or their transposes.
  virtual bool has_matmul() = 0;
  virtual base::Status matmul(const Tensor& a, const Tensor& b, int flags, const Tensor& c) = 0;

  /// Row i of `out` = the sum of the rows from[starts[i]] .. from[starts[i + 1] - 1] of `in`, in this order; without
  /// `starts`, row from[i]. Both have one dtype, and rows of `width` elements.
  virtual base::Status take_rows(const Tensor& out, const Tensor& in, size_t width, std::span<const uint64_t> from,
                                 std::span<const uint64_t> starts) = 0;
  /// Row to[i] of `out` = row i of `in`.
  virtual base::Status put_rows(const Tensor& out, const Tensor& in, size_t width, std::span<const uint64_t> to) = 0;
  struct Floats {
    mv_dtype dtype;
    const void* data;
    size_t count;
  };
  /// The first of these arrays that holds NaN or infinity; their number if none does.
  virtual base::Result<size_t> first_nonfinite(std::span<const Floats> arrays) = 0;
  /// For each row whether it holds anything but zeros.
  virtual base::Result<std::vector<uint8_t>> used_rows(const Tensor& in, size_t rows, size_t width) = 0;

  /// The library that reduces between devices, "NCCL 2.28.9". MV_ENOSYS, with what to do, if it is missing.
  virtual base::Result<std::string> communicates_by() = 0;
  /// Where the device is in its machine, "0000:3b:00.0"; "" if that is unknown.
  virtual base::Result<std::string> bus() = 0;
  /// For one rank, which gives it to all others.
  virtual base::Result<Communicator::Id> make_communicator_id() = 0;
  /// Begins to make this rank's end of a communicator.
  virtual base::Result<std::unique_ptr<Communicator>> communicate(const Communicator::Id& id, int32_t ranks, int32_t rank) = 0;
};

/// The device of a tensor's memory; null: the host's memory.
inline Device* device_of(const Tensor& tensor) { return tensor.block->device(); }
/// Where results from a tensor are made: the memory of its device, or the heap.
inline Allocator& home_of(const Tensor& tensor, Heap& heap) {
  Device* const device = device_of(tensor);
  return device != nullptr ? static_cast<Allocator&>(*device) : heap;
}
/// "the host" or "cuda:0"
std::string place_of(const Tensor& tensor);
/// MV_EINVAL, naming both places, unless both tensors are in the same one.
base::Status same_place(const char* function, const Tensor& a, const Tensor& b);

/// Copies bytes between two tensors' memory, wherever they are.
base::Status copy_bytes(const Tensor& to, const std::byte* from, Device* source, size_t bytes);
/// Copies bytes of a tensor's memory to the host.
base::Status read_bytes(const Tensor& tensor, const std::byte* from, void* to, size_t bytes);
/// Copies bytes of the host into a tensor's memory.
base::Status write_bytes(const Tensor& tensor, std::byte* to, const void* from, size_t bytes);
/// A copy of the same dtype and shape in other memory.
base::Result<Tensor> move_to(Allocator& allocator, const Tensor& tensor);
/// The tensor itself, or a copy in the host's memory of a device's tensor.
base::Result<Tensor> on_host(const Tensor& tensor);
/// Begins to copy a device's tensor to memory of the host, which the tensor then has instead.
base::Result<std::unique_ptr<Arrival>> begin_on_host(Tensor& tensor, std::shared_ptr<Block> block, std::byte* to);

}  // namespace mv::tensor
