#include "device/tensors.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/system.hpp"
#include "device/known_block.hpp"
#include "device/scratch.hpp"
#include "device/sum.hpp"
#include "tensor/cast.hpp"

namespace mv::device {

using tensor::Elementwise;
using tensor::Shape;
using tensor::Source;
using tensor::Tensor;

namespace {

/// The sum of doubles on the device, for which `at` has room.
base::Result<double> read_sum(const Stream& stream, const void* terms, size_t count, void* at) {
  if (auto status = device::reduce(stream, MV_SUM, MV_F64, terms, Extent{1, count, 1}, at); !status.ok()) return status;
  double sum = 0;
  if (auto status = stream.copy(&sum, at, sizeof sum); !status.ok()) return status;
  if (auto status = stream.wait(); !status.ok()) return status;
  return sum;
}

/// Launches a kernel that measures a distance in each tile of `count` elements. Returns the sum.
template <typename Work>
base::Result<double> measured(const Stream& stream, mv_device_kernel kernel, Work work, size_t count) {
  if (count == 0) return 0.0;
  Scratch scratch(stream);
  const size_t numbers = 2 * ((count + MV_DEVICE_TILE - 1) / MV_DEVICE_TILE);
  auto squares = scratch.make(numbers * sizeof(double)), sum = scratch.make(sizeof(double));
  if (!squares.ok()) return squares.status();
  if (!sum.ok()) return sum.status();
  work.squares = static_cast<double*>(squares.value());
  if (auto status = stream.launch(kernel, work); !status.ok()) return status;
  return read_sum(stream, squares.value(), numbers, sum.value());
}

/// Repeats elements of one shape along the dimensions of another, to which it broadcasts.
base::Status launch_broadcast(const Stream& stream, mv_dtype dtype, void* out, const Shape& whole, const void* in, const Shape& shape) {
  mv_device_arrange work{};
  work.out = out;
  work.in = in;
  work.count = whole.count();
  work.size = static_cast<uint32_t>(tensor::dtype_bytes(dtype));
  work.dims = whole.dims;
  uint64_t step = 1;
  for (uint32_t i = 1; i <= whole.dims; ++i) {
    const uint32_t d = whole.dims - i;
    const auto own = i <= shape.dims ? static_cast<uint64_t>(shape.lengths[shape.dims - i]) : 1;
    work.lengths[d] = static_cast<uint64_t>(whole.lengths[d]);
    work.steps[d] = own == 1 ? 0 : step;
    step *= own;
  }
  return work.count > 0 ? stream.launch(MV_DEVICE_ARRANGE, work) : base::Status();
}

/// A source as an operand of `dtype`: a single element, or as many as the whole has.
base::Result<mv_device_operand> operand_of(const Stream& stream, Scratch& scratch, const Source& source, mv_dtype dtype, const Shape& whole) {
  mv_device_operand operand{};
  if (source.is_value) {
    operand.is_single = 1;
    tensor::cast_elements(dtype, reinterpret_cast<std::byte*>(operand.value), source.dtype, source.data, 1);
    return operand;
  }
  const size_t count = source.shape.count();
  operand.data = source.data;
  operand.is_single = count == 1;
  if (source.dtype != dtype && count > 0) {
    auto made = scratch.make(count * tensor::dtype_bytes(dtype));
    if (!made.ok()) return made.status();
    if (auto status = device::cast(stream, dtype, made.value(), source.dtype, source.data, count); !status.ok()) return status;
    operand.data = made.value();
  }
  if (count == 1 || count == whole.count()) return operand;
  auto made = scratch.make(whole.count() * tensor::dtype_bytes(dtype));
  if (!made.ok()) return made.status();
  if (auto status = launch_broadcast(stream, dtype, made.value(), whole, operand.data, source.shape); !status.ok()) return status;
  operand.data = made.value();
  return operand;
}

}  // namespace

class TensorDevice::DeviceBlock : public KnownBlock {
 public:
  DeviceBlock(TensorDevice& device, std::byte* data, size_t bytes) : KnownBlock(data, bytes, MemoryKind::kPrivate, device), device_(device) {}
  ~DeviceBlock() override {
    // The calls that led to a failure have reported it, and a destructor can report nothing.
    if (data() != nullptr) device_.device().plugin().release(device_.number(), device_.stream(), data());
  }

 private:
  TensorDevice& device_;
};

class TensorDevice::SpilledBlock : public KnownBlock {
 public:
  SpilledBlock(TensorDevice& device, std::byte* data, size_t bytes) : KnownBlock(data, bytes, MemoryKind::kPrivate, device), device_(device) {}
  ~SpilledBlock() override {
    static_cast<void>(device_.wait());  // its memory is not released in the order of a stream
    device_.device().plugin().release_spilled(device_.number(), data());
  }

 private:
  TensorDevice& device_;
};

class TensorDevice::EndOfCopy final : public tensor::Arrival {
 public:
  explicit EndOfCopy(Event event) : event_(std::move(event)) {}
  ~EndOfCopy() override { static_cast<void>(wait()); }
  base::Status set(const Stream& stream) {
    auto status = event_.record(stream);
    is_under_way_ = status.ok();
    return status;
  }
  base::Status wait() override { return std::exchange(is_under_way_, false) ? event_.wait() : base::Status(); }

 private:
  const Event event_;
  bool is_under_way_ = false;
};

TensorDevice::TensorDevice(Stream own, tensor::Heap& heap)
    : own_(std::move(own)), heap_(heap), name_(own_.device().name()), pinned_(std::make_unique<PinnedMemory>(own_.device(), heap)), graphs_(own_.device()), current_(&own_) {}

base::Result<std::unique_ptr<TensorDevice>> TensorDevice::open(Plugin plugin, int32_t number, tensor::Heap& heap) {
  const auto device = mv::device::Device::open(plugin, number);
  if (!device.ok()) return device.status();
  auto stream = Stream::make(device.value());
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<TensorDevice>(new TensorDevice(std::move(stream).value(), heap));
}

base::Status TensorDevice::wait() { return current().wait(); }

base::Status TensorDevice::order(mv_device_stream after) const { return current().order(Stream::borrow(device(), after)); }

base::Status TensorDevice::follow(mv_device_stream before) const { return Stream::borrow(device(), before).order(current()); }

base::Status TensorDevice::use_stream(mv_device_stream stream) {
  const std::lock_guard lock(mutex_);
  const Stream* next = &own_;
  if (stream != nullptr && stream != own_.handle()) {
    auto& known = borrowed_[stream];
    if (known == nullptr) known = std::make_unique<const Stream>(Stream::borrow(device(), stream));
    next = known.get();
  }
  if (auto status = current().order(*next); !status.ok()) return status;
  current_.store(next, std::memory_order_release);
  return {};
}

base::Result<std::string> TensorDevice::bus() {
  const auto about = device().describe();
  if (!about.ok()) return about.status();
  return std::string(about.value().bus);
}

std::shared_ptr<tensor::Block> TensorDevice::lend(std::byte* data, size_t bytes) {
  return std::make_shared<KnownBlock>(data, bytes, tensor::Block::MemoryKind::kLent, *this);
}

base::Result<std::shared_ptr<tensor::Block>> TensorDevice::allocate(size_t bytes, Content content) {
  const Stream& stream = current();
  const mv::device::Device& on = device();
  void* data = nullptr;
  const size_t room = std::max<size_t>(bytes, 1);  // a tensor without elements has a place, too
  if (auto status = on.check(on.plugin().allocate(on.number(), stream.handle(), room, &data), "allocate"); !status.ok()) return status;
  std::shared_ptr<tensor::Block> block = std::make_shared<DeviceBlock>(*this, static_cast<std::byte*>(data), bytes);
  if (content == Content::kZeros)
    if (auto status = clear(data, bytes); !status.ok()) return status;
  return block;
}

base::Status TensorDevice::clear(void* memory, size_t bytes) const {
  if (bytes == 0) return {};
  return current().launch(MV_DEVICE_FILL, mv_device_fill{.out = memory, .count = bytes, .value = {}, .dtype = MV_U8});
}

/// The bytes that a table may take of what the device has left: a part remains for computations.
base::Result<size_t> TensorDevice::room_for_tables() const {
  constexpr uint64_t kRemains = uint64_t{256} << 20, kPart = 32, kUnit = uint64_t{2} << 20;
  uint64_t unused = 0, all = 0;
  if (auto status = device().check(device().plugin().room(number(), &unused, &all), "tell its memory"); !status.ok()) return status;
  const uint64_t remains = std::max(kRemains, all / kPart);
  return unused > remains ? static_cast<size_t>((unused - remains) / kUnit * kUnit) : 0;
}

/// MV_ENOMEM unless the host has so much memory: what is more than it has would end a process, not this call.
base::Status TensorDevice::check_host_memory(size_t bytes) const {
  constexpr uint64_t kRemains = uint64_t{256} << 20;
  const uint64_t unused = std::min(base::available_memory().value_or(UINT64_MAX), base::granted_memory().value_or(UINT64_MAX));
  if (unused >= kRemains && bytes <= unused - kRemains) return {};
  return base::error(MV_ENOMEM, "{} has no memory for {} of a table, and the host has {}: use more servers, or a smaller table", name_,
                     base::as_bytes(bytes), base::as_bytes(unused));
}

base::Result<TensorDevice::Spilled> TensorDevice::allocate_or_spill(size_t bytes, Spill spill) {
  const auto room = room_for_tables();
  if (!room.ok()) return room.status();
  if (room.value() >= bytes) {
    auto made = allocate(bytes, Content::kZeros);
    if (made.ok()) return Spilled{std::move(made).value()};
    if (made.status().code() != MV_ENOMEM) return made.status();
  }
  uint64_t here = spill == Spill::kRest ? std::min(room.value(), bytes) : 0;
  if (auto status = check_host_memory(bytes - here); !status.ok()) return status;
  void* data = nullptr;
  const mv_status code = device().plugin().allocate_spilled(number(), current().handle(), bytes, &here, &data);
  if (code == MV_ENOSYS) {
    auto made = allocate(bytes, Content::kZeros);
    if (!made.ok()) return made.status();
    return Spilled{std::move(made).value()};
  }
  if (auto status = device().check(code, "use the host's memory"); !status.ok()) return status;
  Spilled spilled{std::make_shared<SpilledBlock>(*this, static_cast<std::byte*>(data), bytes), bytes - here};
  if (auto status = clear(data, bytes); !status.ok()) return status;
  return spilled;
}

base::Result<std::shared_ptr<tensor::Block>> TensorDevice::copy_of(const std::byte* from, size_t bytes) {
  const auto room = room_for_tables();
  if (!room.ok()) return room.status();
  auto copy = room.value() >= bytes ? allocate(bytes, Content::kAnything) : heap_.allocate(bytes, Content::kAnything);
  if (!copy.ok() && copy.status().code() == MV_ENOMEM) copy = heap_.allocate(bytes, Content::kAnything);
  if (!copy.ok()) return copy.status();
  tensor::Block& to = *copy.value();
  const auto status = to.device() != nullptr ? current().copy(to.data(), from, bytes) : to_host(to.data(), from, bytes);
  if (!status.ok()) return status;
  return copy;
}

base::Status TensorDevice::to_host(void* to, const void* from, size_t bytes) {
  const Stream& stream = current();
  if (auto status = stream.copy(to, from, bytes); !status.ok()) return status;
  return stream.wait();
}

base::Result<std::unique_ptr<tensor::Arrival>> TensorDevice::begin_to_host(void* to, const void* from, size_t bytes) {
  const Stream& stream = current();
  auto event = Event::make(device());
  if (!event.ok()) return event.status();
  auto end = std::make_unique<EndOfCopy>(std::move(event).value());  // first: when the copy has begun, nothing may fail
  if (auto status = stream.copy(to, from, bytes); !status.ok()) return status;
  if (auto status = end->set(stream); !status.ok()) {
    static_cast<void>(stream.wait());  // the copy is under way
    return status;
  }
  return std::unique_ptr<tensor::Arrival>(std::move(end));
}

base::Status TensorDevice::from_host(void* to, const void* from, size_t bytes) {
  const Stream& stream = current();
  if (auto status = stream.copy(to, from, bytes); !status.ok()) return status;
  return stream.wait();
}

base::Status TensorDevice::copy_from(tensor::Device& source, void* to, const void* from, size_t bytes) {
  auto& other = static_cast<TensorDevice&>(source);
  const Stream &stream = current(), &theirs = other.current();
  if (&other == this) return stream.copy(to, from, bytes);
  // Their earlier work writes what is copied, and their later work may overwrite it.
  if (auto status = theirs.order(stream); !status.ok()) return status;
  if (auto status = stream.copy(to, from, bytes); !status.ok()) return status;
  return stream.order(theirs);
}

base::Status TensorDevice::fill(const Tensor& out, const std::byte* element) {
  mv_device_fill work{};
  work.out = out.data;
  work.count = out.stored();
  work.dtype = out.dtype;
  std::memcpy(work.value, element, tensor::dtype_bytes(out.dtype));
  return work.count > 0 ? current().launch(MV_DEVICE_FILL, work) : base::Status();
}

base::Status TensorDevice::range(const Tensor& out, double start, double step) {
  return current().launch(MV_DEVICE_RANGE, mv_device_range{out.data, out.stored(), start, step, out.dtype});
}

base::Status TensorDevice::draw(const Tensor& out, const tensor::Draw& numbers) {
  return current().launch(MV_DEVICE_RANDOM, mv_device_random{out.data, out.stored(), numbers.seed, numbers.a, numbers.b, numbers.from,
                                                              numbers.width, numbers.is_normal ? 1 : 0, out.dtype});
}

base::Status TensorDevice::cast(mv_dtype to, void* out, mv_dtype from, const void* in, size_t count) {
  return device::cast(current(), to, out, from, in, count);
}

base::Status TensorDevice::transpose(const Tensor& from, const Tensor& out) {
  mv_device_arrange work{};
  work.out = out.data;
  work.in = from.data;
  work.count = out.stored();
  work.size = static_cast<uint32_t>(tensor::dtype_bytes(out.dtype));
  work.dims = 2;
  work.lengths[0] = static_cast<uint64_t>(out.shape.lengths[0]);
  work.lengths[1] = static_cast<uint64_t>(out.shape.lengths[1]);
  work.steps[0] = 1;
  work.steps[1] = work.lengths[0];
  return work.count > 0 ? current().launch(MV_DEVICE_ARRANGE, work) : base::Status();
}

base::Status TensorDevice::compute(const Elementwise& what, std::span<const Source> sources, const Tensor& out) {
  if (out.stored() == 0) return {};
  const Stream& stream = current();
  Scratch scratch(stream);
  const bool compares = what.shown != what.dtype;
  const mv_dtype widened = tensor::storage_dtype(what.dtype);
  // The library rounds results to `shown` unless the output has the dtype in which they were computed.
  const mv_dtype dtype = what.kind == Elementwise::Kind::kCopy ? out.dtype : !compares && out.dtype == widened ? widened : what.dtype;
  const mv_dtype made = compares ? what.shown : dtype;
  mv_device_operand operands[2] = {};
  for (size_t i = 0; i < sources.size(); ++i) {
    auto operand = operand_of(stream, scratch, sources[i], dtype, out.shape);
    if (!operand.ok()) return operand.status();
    operands[i] = operand.value();
  }
  void* to = out.data;
  if (made != out.dtype) {
    auto room = scratch.make(out.stored() * tensor::dtype_bytes(made));
    if (!room.ok()) return room.status();
    to = room.value();
  }
  base::Status status;
  if (what.kind == Elementwise::Kind::kBinary) {
    status = stream.launch(MV_DEVICE_BINARY, mv_device_binary{to, operands[0], operands[1], out.stored(), what.op, dtype});
  } else if (what.kind == Elementwise::Kind::kUnary) {
    status = stream.launch(MV_DEVICE_UNARY, mv_device_unary{to, operands[0].data, out.stored(), what.op, dtype});
  } else if (operands[0].is_single != 0) {
    status = launch_broadcast(stream, dtype, to, out.shape, operands[0].data, Shape());
  } else if (to != operands[0].data) {
    status = stream.copy(to, operands[0].data, out.stored_bytes());
  }
  if (!status.ok() || made == out.dtype) return status;
  return device::cast(stream, out.dtype, out.data, made, to, out.stored());
}

base::Status TensorDevice::axpy(mv_dtype computed, double alpha, const Tensor& x, const Tensor& y) {
  const size_t count = y.stored();
  if (count == 0) return {};
  const Stream& stream = current();
  Scratch scratch(stream);
  const void* added = x.data;
  const bool widens = tensor::is_floating(x.dtype) && y.dtype == computed;  // by the kernel itself
  if (x.dtype != computed && !widens) {
    auto made = scratch.make(count * tensor::dtype_bytes(computed));
    if (!made.ok()) return made.status();
    if (auto status = device::cast(stream, computed, made.value(), x.dtype, x.data, count); !status.ok()) return status;
    added = made.value();
  }
  void* sums = y.data;
  if (y.dtype != computed) {
    auto made = scratch.make(count * tensor::dtype_bytes(computed));
    if (!made.ok()) return made.status();
    sums = made.value();
    if (auto status = device::cast(stream, computed, sums, y.dtype, y.data, count); !status.ok()) return status;
  }
  auto status = stream.launch(MV_DEVICE_AXPY, mv_device_axpy{sums, added, count, alpha, computed, widens ? x.dtype : computed});
  if (!status.ok() || y.dtype == computed) return status;
  return device::cast(stream, y.dtype, y.data, computed, sums, count);
}

base::Status TensorDevice::merge(const Tensor& out, std::span<const Tensor> values) {
  Sums sums(*this, current());
  sums.add(values, out.data);
  return sums.run();
}

base::Status TensorDevice::add(mv_dtype dtype, void* sums, const void* terms, size_t count) {
  return current().launch(MV_DEVICE_AXPY, mv_device_axpy{sums, terms, count, 1, dtype, dtype});
}

base::Status TensorDevice::divide(mv_dtype dtype, void* values, uint64_t divisor, size_t count) {
  return current().launch(MV_DEVICE_MERGE, mv_device_merge{values, {values}, count, 1, divisor, MV_DEVICE_MERGE_MEAN, dtype});
}

base::Result<double> TensorDevice::mix(mv_dtype dtype, void* dst, const void* src, const void* base, size_t count, double factor) {
  return measured(current(), MV_DEVICE_MIX, mv_device_mix{dst, src, base, nullptr, count, factor, dtype}, count);
}

base::Result<double> TensorDevice::pair_step(mv_dtype dtype, const PairArrays& arrays, size_t count, const math::OuterFactors& factors) {
  const auto& [model, slow, momentum, own, peer] = arrays;
  return measured(current(), MV_DEVICE_PAIR_STEP,
                  mv_device_pair_step{model, slow, momentum, own.slow, own.delta, peer.slow, peer.delta, nullptr, count, factors.alpha, factors.beta,
                                      factors.gamma, dtype},
                  count);
}

base::Status TensorDevice::elastic(mv_dtype dtype, void* values, const void* center, void* difference, size_t count, double alpha) {
  return current().launch(MV_DEVICE_ELASTIC, mv_device_elastic{values, center, difference, count, alpha, dtype});
}

base::Status TensorDevice::outer(const OuterArrays& arrays, math::Outer what, const math::OuterSettings& settings) {
  const auto& [dtype, values, outer, velocity, moved, count] = arrays;
  return current().launch(MV_DEVICE_OUTER, mv_device_outer{values, outer, velocity, moved, count, settings.rate, settings.momentum, settings.mixing,
                                                           static_cast<int32_t>(what), dtype});
}

base::Status TensorDevice::expand(const Factors& factors, const float* from, mv_dtype dtype, void* out) {
  return current().launch(MV_DEVICE_EXPAND, mv_device_expand{out, factors.p, factors.q, from, factors.rows, factors.cols, factors.rank, dtype});
}

base::Status TensorDevice::reduce(int op, const Tensor& of, const tensor::Split& split, const Tensor& result) {
  return device::reduce(current(), op, of.dtype, of.data, Extent{split.outer, split.along, split.inner}, result.data);
}

base::Result<double> TensorDevice::dot(const Tensor& a, const Tensor& b) {
  const size_t count = a.stored();
  if (count == 0) return 0.0;
  const Stream& stream = current();
  Scratch scratch(stream);
  auto products = scratch.make(count * sizeof(double)), sum = scratch.make(sizeof(double));
  if (!products.ok()) return products.status();
  if (!sum.ok()) return sum.status();
  const void* operands[2] = {a.data, b.data};
  for (const auto& [i, of] : {std::pair(0, &a), std::pair(1, &b)}) {
    if (of->dtype == MV_F64) continue;
    auto wide = scratch.make(count * sizeof(double));
    if (!wide.ok()) return wide.status();
    if (auto status = device::cast(stream, MV_F64, wide.value(), of->dtype, of->data, count); !status.ok()) return status;
    operands[i] = wide.value();
  }
  mv_device_binary work{products.value(), {operands[0], {}, 0}, {operands[1], {}, 0}, count, MV_MUL, MV_F64};
  if (auto status = stream.launch(MV_DEVICE_BINARY, work); !status.ok()) return status;
  return read_sum(stream, products.value(), count, sum.value());
}

/// By columns, as cuBLAS has matrices, c's transpose is op(b)' op(a)'.
base::Status TensorDevice::matmul(const Tensor& a, const Tensor& b, int flags, const Tensor& c) {
  if (c.stored() == 0) return {};
  const bool across_a = (flags & MV_TRANSPOSE_A) != 0, across_b = (flags & MV_TRANSPOSE_B) != 0;
  const auto rows = static_cast<uint64_t>(c.shape.lengths[0]), cols = static_cast<uint64_t>(c.shape.lengths[1]);
  const auto inner = static_cast<uint64_t>(a.shape.lengths[across_a ? 0 : 1]);
  if (inner == 0) {
    const std::byte zero[sizeof(double)] = {};
    return fill(c, zero);
  }
  mv_device_blas work{};
  work.transpose_a = across_b;
  work.transpose_b = across_a;
  work.dtype = c.dtype;
  work.rows = cols;
  work.cols = rows;
  work.inner = inner;
  work.a_step = static_cast<uint64_t>(b.shape.lengths[1]);
  work.b_step = static_cast<uint64_t>(a.shape.lengths[1]);
  work.c_step = cols;
  work.a = b.data;
  work.b = a.data;
  work.c = c.data;
  work.alpha = 1;
  return current().blas(work);
}

base::Status TensorDevice::take_rows(const Tensor& out, const Tensor& in, size_t width, std::span<const uint64_t> from,
                                     std::span<const uint64_t> starts) {
  const size_t rows = starts.empty() ? from.size() : starts.size() - 1;
  if (rows * width == 0) return {};
  const Stream& stream = current();
  Scratch scratch(stream);
  const auto picked = scratch.of(from);
  if (!picked.ok()) return picked.status();
  mv_device_take work{out.data, one_array(in.data), picked.value(), nullptr, rows, width, in.dtype};
  if (!starts.empty()) {
    const auto bounds = scratch.of(starts);
    if (!bounds.ok()) return bounds.status();
    work.starts = bounds.value();
  }
  return stream.launch(MV_DEVICE_TAKE, work);
}

base::Status TensorDevice::put_rows(const Tensor& out, const Tensor& in, size_t width, std::span<const uint64_t> to) {
  if (to.size() * width == 0) return {};
  const Stream& stream = current();
  Scratch scratch(stream);
  const auto places = scratch.of(to);
  if (!places.ok()) return places.status();
  return stream.launch(MV_DEVICE_PUT, mv_device_put{one_array(out.data), in.data, places.value(), to.size(), width, in.dtype});
}

base::Result<std::vector<uint8_t>> TensorDevice::used_rows(const Tensor& in, size_t rows, size_t width) {
  std::vector<uint8_t> used(rows);
  if (rows == 0) return used;
  const Stream& stream = current();
  Scratch scratch(stream);
  const auto flags = scratch.make(rows);
  if (!flags.ok()) return flags.status();
  if (auto status = stream.launch(MV_DEVICE_USED, mv_device_used{static_cast<uint8_t*>(flags.value()), in.data, rows, width, in.dtype});
      !status.ok())
    return status;
  if (auto status = to_host(used.data(), flags.value(), rows); !status.ok()) return status;
  return used;
}

base::Result<size_t> TensorDevice::first_nonfinite(std::span<const Floats> arrays) {
  std::vector<uint32_t> found(arrays.size());
  if (arrays.empty()) return size_t{0};
  const Stream& stream = current();
  Scratch scratch(stream);
  const auto flags = scratch.make(arrays.size() * sizeof(uint32_t));
  if (!flags.ok()) return flags.status();
  auto* const flag = static_cast<uint32_t*>(flags.value());
  std::vector<mv_device_nonfinite> works;
  for (const auto& [dtype, data, count] : arrays) works.push_back({flag + works.size(), data, count, dtype, 0});
  if (auto status = stream.launch(MV_DEVICE_FILL, mv_device_fill{flag, arrays.size(), {}, MV_I32}); !status.ok()) return status;
  if (auto status = stream.launch_all(MV_DEVICE_NONFINITE, std::span<const mv_device_nonfinite>(works)); !status.ok()) return status;
  if (auto status = to_host(found.data(), flag, arrays.size() * sizeof(uint32_t)); !status.ok()) return status;
  return static_cast<size_t>(std::ranges::find(found, 1U) - found.begin());
}

base::Result<TensorDevice*> TensorDevices::get(int32_t number) {
  if (number >= 0 && number < kMost)
    if (TensorDevice* const open = opened_[static_cast<size_t>(number)].load(std::memory_order_acquire); open != nullptr) return open;
  const std::lock_guard lock(opening_);
  const auto plugin = the_plugin();
  if (!plugin.ok()) return plugin.status();
  auto made = TensorDevice::open(plugin.value(), number, heap_);
  if (!made.ok()) return made.status();
  auto& slot = opened_[static_cast<size_t>(number)];
  if (slot.load(std::memory_order_acquire) == nullptr) slot.store(made.value().release(), std::memory_order_release);
  if (!any_opened_.exchange(true, std::memory_order_acq_rel) && opened_first_ != nullptr) opened_first_();
  return slot.load(std::memory_order_acquire);
}

base::Result<tensor::Device*> TensorDevices::find(const void* memory) {
  tensor::Device* none = nullptr;
  if (!any_opened()) return none;
  const auto plugin = the_plugin();
  int32_t number = MV_HOST;
  const mv_status located = plugin.ok() ? plugin.value()->locate(memory, &number) : plugin.status().code();
  const base::Status status = located == MV_OK ? base::Status() : plugin.ok() ? base::Status(located, plugin.value()->error()) : plugin.status();
  if (!status.ok()) {  // in a forked child, or after an error of a device: the host computes instead
    const tensor::Device* const known = KnownBlock::find(memory);
    return known != nullptr ? base::error(status.code(), "{}: {}", known->name(), status.text()) : base::Result<tensor::Device*>(none);
  }
  if (number == MV_HOST) return none;
  const auto device = get(number);
  if (!device.ok()) return device.status();
  return static_cast<tensor::Device*>(device.value());
}

bool TensorDevices::may_exist() { return has_plugin(); }

base::Result<int32_t> TensorDevices::count() {
  const auto plugin = the_plugin();
  if (!plugin.ok()) return plugin.status();
  int32_t devices = 0;
  if (const mv_status status = plugin.value()->count(&devices); status != MV_OK) return base::Status(status, plugin.value()->error());
  return devices;
}

}  // namespace mv::device
