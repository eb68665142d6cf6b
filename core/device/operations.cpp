#include "device/operations.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "tensor/dtype.hpp"

namespace mv::device {

namespace {

/// A stage folds this many neighbours into one, or, the first one of a sum, has so many elements in a chunk.
constexpr uint64_t kChunk = 512;

uint64_t parts(uint64_t count, uint64_t size) { return count / size + (count % size != 0 ? 1 : 0); }

/// Makes memory for `count` elements and launches a kernel into it.
template <typename Work>
base::Status launch_into(const Stream& stream, Memory& to, size_t bytes, mv_device_kernel kernel, Work& work) {
  auto made = Memory::make(stream, bytes);
  if (!made.ok()) return made.status();
  work.out = made.value().as();
  auto status = stream.launch(kernel, work);
  to = std::move(made).value();
  return status;
}

/// Replaces `along` doubles of each row by their pairwise sum.
base::Status sum_pairs(const Stream& stream, uint64_t outer, uint64_t along, Memory& terms) {
  auto total = Memory::make(stream, outer * sizeof(double));
  if (!total.ok()) return total.status();
  const double* rest = nullptr;
  // A group that is not whole ends its level: these are added from the lowest level up. The last level is no whole group.
  for (;;) {
    mv_device_sum work{};
    work.in = terms.as();
    work.rest = rest;
    work.rest_out = total.value().as();
    work.outer = outer;
    work.along = along;
    work.inner = 1;
    work.stage = MV_DEVICE_SUM_PAIRS;
    work.op = MV_SUM;
    work.dtype = MV_F64;
    Memory sums;
    const uint64_t whole = along / kChunk;
    if (auto status = launch_into(stream, sums, std::max<uint64_t>(outer * whole, 1) * sizeof(double), MV_DEVICE_SUM, work); !status.ok())
      return status;
    if (along % kChunk != 0) rest = total.value().as<double>();
    if (whole == 0) break;
    terms = std::move(sums);
    along = whole;
  }
  terms = std::move(total).value();
  return {};
}

base::Status sum_floats(const Stream& stream, int32_t op, mv_dtype dtype, const void* in, const Extent& extent, void* out) {
  const auto [outer, along, inner] = extent;
  Memory sums;
  mv_device_sum work{};
  work.in = in;
  work.outer = outer;
  work.along = along;
  work.inner = inner;
  work.op = op;
  work.dtype = dtype;
  if (inner != 1 || along == 0) {
    work.stage = MV_DEVICE_SUM_COLUMNS;
    if (auto status = launch_into(stream, sums, outer * inner * sizeof(double), MV_DEVICE_SUM, work); !status.ok()) return status;
  } else {
    const uint64_t chunks = parts(along, kChunk);
    work.stage = MV_DEVICE_SUM_CHUNKS;
    if (auto status = launch_into(stream, sums, outer * chunks * sizeof(double), MV_DEVICE_SUM, work); !status.ok()) return status;
    if (auto status = sum_pairs(stream, outer, chunks, sums); !status.ok()) return status;
  }
  work.in = sums.as();
  work.out = out;
  work.stage = MV_DEVICE_SUM_FINISH;
  work.dtype = tensor::is_floating(dtype) ? tensor::storage_dtype(dtype) : mv_dtype{MV_F64};
  return stream.launch(MV_DEVICE_SUM, work);
}

/// Sums of integers, and extremes.
base::Status fold(const Stream& stream, int32_t op, mv_dtype dtype, const void* in, const Extent& extent, void* out) {
  const auto [outer, along, inner] = extent;
  mv_device_fold work{};
  work.in = in;
  work.outer = outer;
  work.along = along;
  work.inner = inner;
  work.op = op;
  work.dtype = dtype;
  const bool is_sum = op == MV_SUM, wants_position = op == MV_ARGMIN || op == MV_ARGMAX;
  Memory values, places;
  const uint64_t results = outer * inner;
  do {
    const uint64_t groups = std::max<uint64_t>(parts(work.along, kChunk), 1), items = groups * results;
    auto positions = Memory::make(stream, is_sum ? 0 : items * sizeof(int64_t));
    if (!positions.ok()) return positions.status();
    work.positions_out = positions.value().as<int64_t>();
    Memory next;
    if (auto status = launch_into(stream, next, items * tensor::dtype_bytes(is_sum ? mv_dtype{MV_I64} : dtype), MV_DEVICE_FOLD, work); !status.ok())
      return status;
    values = std::move(next);
    places = std::move(positions).value();
    work.in = values.as();
    work.positions = places.as<int64_t>();
    work.along = groups;
    if (is_sum) work.dtype = MV_I64;
  } while (work.along > 1);
  return wants_position ? stream.copy(out, places.as(), results * sizeof(int64_t))
                        : stream.copy(out, values.as(), results * tensor::dtype_bytes(work.dtype));
}

struct Formula {
  const char* name;
  uint32_t number;
  size_t states;
  bool has_sums;
};
constexpr Formula kFormulas[] = {
#define XX(number, text, function, batch, states, has_sums) {text, MV_DEVICE_FORMULA_##number, states, has_sums != 0},
    MV_DEVICE_FORMULAS(XX)
#undef XX
};

const Formula* find_formula(const shard::UpdaterSpec& spec) {
  const auto found = std::ranges::find_if(kFormulas, [&](const Formula& one) { return spec.name == one.name; });
  return found != std::end(kFormulas) ? &*found : nullptr;
}
/// The norms of mx.lbsgd are only needed by one of its strategies, but Updater::sums() tells that of a spec.
bool measures(const shard::UpdaterSpec& spec, const Formula& formula) { return formula.has_sums && shard::make_updater(spec, MV_F32)->sums() > 0; }

mv_device_key key_of(const shard::UpdaterSpec& spec, bool counts, const Target& target) {
  mv_device_key key{};
  key.values = target.values;
  key.gradient = target.gradient;
  key.backup = target.backup;
  std::ranges::copy(target.states, key.states);
  key.count = target.count;
  key.first = target.first;
  key.stream = target.step.stream;
  if (counts)
    std::ranges::copy(target.step.numbers, key.numbers);
  else
    std::ranges::copy(spec.parameters, key.numbers);
  return key;
}

static_assert(shard::Step::kNumbers == MV_DEVICE_NUMBERS && shard::Step::kSums == 2);

}  // namespace

base::Status reduce(const Stream& stream, int32_t op, mv_dtype dtype, const void* in, const Extent& extent, void* out) {
  if (op < MV_SUM || op > MV_NORM) return base::error(MV_EINVAL, "reduce: {} is not an mv_tensor_reduce_op", op);
  const bool is_extreme = op >= MV_LEAST && op <= MV_ARGMAX;
  if (extent.outer * extent.inner == 0) return {};
  if (is_extreme && extent.along == 0) return base::error(MV_EINVAL, "reduce: no least or greatest element along an empty dimension");
  if (!is_extreme && (op != MV_SUM || tensor::is_floating(dtype))) return sum_floats(stream, op, dtype, in, extent, out);
  if (extent.along > 0) return fold(stream, op, dtype, in, extent, out);
  return stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = out, .count = extent.outer * extent.inner, .value = {}, .dtype = MV_I64});
}

base::Status cast(const Stream& stream, mv_dtype to, void* out, mv_dtype from, const void* in, uint64_t count) {
  if (count == 0) return {};
  if (to == from) return stream.copy(out, in, count * tensor::dtype_bytes(to));
  return stream.launch(MV_DEVICE_CAST, mv_device_cast{out, in, count, to, from});
}

bool has_formula(const shard::UpdaterSpec& spec) { return find_formula(spec) != nullptr; }

size_t update_launches(const shard::UpdaterSpec& spec) {
  const Formula* formula = find_formula(spec);
  return formula != nullptr && measures(spec, *formula) ? 3 : 1;
}

base::Result<Update> Update::make(const Stream& stream, const shard::UpdaterSpec& spec, mv_dtype dtype, mv_dtype gradient,
                                  std::span<const Target> targets) {
  const Formula* formula = find_formula(spec);
  if (formula == nullptr) return base::error(MV_ENOSYS, "update: devices have no formula for {}", spec.name);
  if ((dtype != MV_F32 && dtype != MV_F64) || !tensor::is_floating(gradient))
    return base::error(MV_EDTYPE, "update: values of {} with gradients of {}: values must be f32 or f64, gradients floats", tensor::dtype_name(dtype),
                       tensor::dtype_name(gradient));
  const auto updater = shard::make_updater(spec, dtype);
  if (!updater->counts() && spec.parameters.size() > MV_DEVICE_NUMBERS)
    return base::error(MV_EINTERNAL, "update: {} has too many parameters", spec.name);
  // Keys and the keys of all tiles travel in one copy.
  size_t key_count = 0;
  uint64_t tiles = 0;
  for (const Target& target : targets) {
    if (target.states.size() != updater->states() || target.states.size() > formula->states)
      return base::error(MV_ESHAPE, "update: {} states given, {} has {}", target.states.size(), spec.name, updater->states());
    key_count += target.count > 0 ? 1 : 0;
    tiles += parts(target.count, MV_DEVICE_TILE);
  }
  Update made(stream);
  if (key_count == 0) return made;
  const size_t key_bytes = key_count * sizeof(mv_device_key);
  std::vector<std::byte> staged(key_bytes + tiles * sizeof(uint32_t));
  auto* key = reinterpret_cast<mv_device_key*>(staged.data());
  auto* tile_key = reinterpret_cast<uint32_t*>(staged.data() + key_bytes);
  uint32_t number = 0;
  for (uint64_t tile = 0; const Target& target : targets) {
    if (target.count == 0) continue;
    *key = key_of(spec, updater->counts(), target);
    key++->first_tile = tile;
    const uint64_t own = parts(target.count, MV_DEVICE_TILE);
    tile_key = std::fill_n(tile_key, own, number++);
    tile += own;
  }
  auto memory = Memory::of(stream, staged.data(), staged.size());
  if (!memory.ok()) return memory.status();
  auto* const bytes = memory.value().as<std::byte>();
  made.keys_ = std::move(memory).value();
  mv_device_update& work = made.work_;
  work.keys = reinterpret_cast<mv_device_key*>(bytes);
  work.tile_keys = reinterpret_cast<const uint32_t*>(bytes + key_bytes);
  work.key_count = key_count;
  work.tiles = tiles;
  work.formula = formula->number;
  work.stage = MV_DEVICE_APPLY;
  work.dtype = dtype;
  work.gradient_dtype = gradient;
  if (!measures(spec, *formula)) return made;
  auto sums = Memory::make(stream, work.tiles * 2 * sizeof(double));
  if (!sums.ok()) return sums.status();
  work.tile_sums = sums.value().as<double>();
  made.sums_ = std::move(sums).value();
  return made;
}

base::Status Update::launch() const {
  if (!keys_) return {};
  mv_device_update work = work_;
  if (sums_)
    for (const int32_t stage : {MV_DEVICE_MEASURE, MV_DEVICE_SUM_TILES}) {
      work.stage = stage;
      if (auto status = stream_->launch(MV_DEVICE_UPDATE, work); !status.ok()) return status;
    }
  work.stage = MV_DEVICE_APPLY;
  return stream_->launch(MV_DEVICE_UPDATE, work);
}

base::Status update(const Stream& stream, const shard::UpdaterSpec& spec, mv_dtype dtype, mv_dtype gradient, std::span<const Target> targets) {
  const auto made = Update::make(stream, spec, dtype, gradient, targets);
  return made.ok() ? made.value().launch() : made.status();
}

base::Status update_rows(const Stream& stream, const shard::UpdaterSpec& spec, mv_dtype dtype, mv_dtype gradient, const RowsTarget& target,
                         const shard::Step* step) {
  const Formula* const formula = find_formula(spec);
  if (formula == nullptr) return base::error(MV_ENOSYS, "update: devices have no formula for {}", spec.name);
  if (target.states.size() > formula->states || (step == nullptr && spec.parameters.size() > MV_DEVICE_NUMBERS))
    return base::error(MV_EINTERNAL, "update: {} has too many states or parameters", spec.name);
  mv_device_update_rows work{};
  work.values = target.values;
  std::ranges::copy(target.states, work.states);
  work.gradient = target.gradient;
  work.backup = target.backup;
  work.rows = target.rows;
  work.count = target.count;
  work.width = target.width;
  if (step != nullptr)
    std::ranges::copy(step->numbers, work.numbers);
  else
    std::ranges::copy(spec.parameters, work.numbers);
  work.formula = formula->number;
  work.dtype = dtype;
  work.gradient_dtype = gradient;
  return stream.launch(MV_DEVICE_UPDATE_ROWS, work);
}

bool has_codec(const codec::Codec& codec) {
  constexpr std::string_view kNames[] = {"1bit", "2bit", "fp16", "bf16", "int8", "topk"};
  return std::ranges::find(kNames, codec.spec().name) != std::end(kNames);
}

namespace {
uint64_t aligned_for_state(uint64_t address) { return (address + alignof(mv_device_top_k_state) - 1) / alignof(mv_device_top_k_state) * alignof(mv_device_top_k_state); }
/// The values that the codec topk sends of `count`.
uint64_t top_of(const codec::Codec& codec, uint64_t count) { return codec.encoded_bytes(count) / (sizeof(uint32_t) + sizeof(float)); }

/// As many structs as a launch takes, roughly. They are made on the stack: when the first array was encoded, nothing may lack memory.
constexpr size_t kTogether = 256;

/// work(some), with arrays that have elements. Numbers of elements that are multiples of 4 come first: kernels for the others differ.
template <typename Array, typename Work>
base::Status for_some(std::span<const Array> arrays, const Work& work) {
  std::array<Array, kTogether> some;
  size_t count = 0;
  base::Status status;
  for (const bool in_fours : {true, false})
    for (const Array& array : arrays) {
      if (array.count == 0 || (array.count % 4 == 0) != in_fours) continue;
      if (count == kTogether && status.ok()) status = work(std::span<const Array>(some.data(), std::exchange(count, 0)));
      if (!status.ok()) return status;
      some[count++] = array;
    }
  return count > 0 ? work(std::span<const Array>(some.data(), count)) : status;
}

/// Launches the kernel with make(array) for all arrays.
template <typename Array, typename Make>
base::Status launch_all(const Stream& stream, mv_device_kernel kernel, std::span<const Array> arrays, const Make& make) {
  return for_some(arrays, [&](std::span<const Array> some) {
    using Work = decltype(make(some.front()));
    std::array<Work, kTogether> works;
    std::ranges::transform(some, works.begin(), make);
    return stream.launch_all(kernel, std::span<const Work>(works.data(), some.size()));
  });
}

base::Status encode_top_k(const Stream& stream, const codec::Codec& codec, std::span<const codec::Encoding> some) {
  std::array<mv_device_top_k, kTogether> works;
  std::array<mv_device_fill, kTogether> states;
  for (size_t i = 0; i < some.size(); ++i) {
    const auto& [gradient, dtype, residual, count, out] = some[i];
    const auto state = reinterpret_cast<mv_device_top_k_state*>(aligned_for_state(reinterpret_cast<uintptr_t>(out) + codec.encoded_bytes(count)));
    auto* const tiles = reinterpret_cast<uint64_t*>(state + 1);
    works[i] = {gradient, residual, reinterpret_cast<uint32_t*>(out), count, top_of(codec, count), state, tiles, 0, 0, dtype, 0};
    states[i] = {state, sizeof(*state), {}, MV_U8};
  }
  auto status = stream.launch_all(MV_DEVICE_FILL, std::span<const mv_device_fill>(states.data(), some.size()));
  const auto then = [&](int32_t stage, uint32_t digit) {
    for (mv_device_top_k& work : works) {
      work.stage = stage;
      work.digit = digit;
    }
    if (status.ok()) status = stream.launch_all(MV_DEVICE_TOP_K, std::span<const mv_device_top_k>(works.data(), some.size()));
  };
  for (uint32_t digit = 0; digit < 3; ++digit) {
    then(digit == 0 ? MV_DEVICE_TOP_K_ADD : MV_DEVICE_TOP_K_COUNT, digit);
    then(MV_DEVICE_TOP_K_FIND, digit);
  }
  for (const int32_t stage : {MV_DEVICE_TOP_K_TILES, MV_DEVICE_TOP_K_PLACES, MV_DEVICE_TOP_K_SEND}) then(stage, 0);
  return status;
}
}  // namespace

size_t encoding_room(const codec::Codec& codec, uint64_t count) {
  const size_t encoded = codec.encoded_bytes(count);
  if (codec.spec().name != "topk") return encoded;
  return encoded + alignof(mv_device_top_k_state) + sizeof(mv_device_top_k_state) + parts(count, MV_DEVICE_TILE) * 2 * sizeof(uint64_t);
}

base::Status encode(const Stream& stream, const codec::Codec& codec, std::span<const codec::Encoding> arrays) {
  using Array = codec::Encoding;
  const auto& [name, parameters] = codec.spec();
  if (name == "1bit" || name == "2bit")
    return launch_all(stream, MV_DEVICE_ENCODE_BITS, arrays, [&](const Array& one) {
      return mv_device_encode_bits{one.gradient, one.residual, reinterpret_cast<uint32_t*>(one.out), one.count, static_cast<float>(parameters.front()),
                                   static_cast<float>(parameters.back()), name == "1bit" ? 1u : 2u, one.dtype};
    });
  if (name == "fp16" || name == "bf16")
    return launch_all(stream, MV_DEVICE_ENCODE_HALF, arrays, [&](const Array& one) {
      return mv_device_encode_half{one.gradient, one.residual, one.out, one.count, name == "fp16" ? MV_F16 : MV_BF16, one.dtype};
    });
  if (name == "topk") return for_some(arrays, [&](std::span<const Array> some) { return encode_top_k(stream, codec, some); });
  if (name != "int8") return base::error(MV_ENOSYS, "encode: devices do not have the codec {}: encode on the host", name);
  const auto block = static_cast<uint64_t>(parameters[0]);
  return launch_all(stream, MV_DEVICE_ENCODE_INT8, arrays, [&](const Array& one) {
    auto* const scales = reinterpret_cast<float*>(one.out);
    auto* const numbers = reinterpret_cast<int8_t*>(scales + parts(one.count, block));
    return mv_device_encode_int8{one.gradient, one.residual, scales, numbers, one.count, block, one.dtype, 0};
  });
}

namespace {
base::Status decode_floats(const Stream& stream, const codec::Codec& codec, std::span<const codec::Decoding> arrays, bool adds) {
  using Array = codec::Decoding;
  const auto& [name, parameters] = codec.spec();
  if (name == "1bit" || name == "2bit")
    return launch_all(stream, MV_DEVICE_DECODE_BITS, arrays, [&](const Array& one) {
      return mv_device_decode_bits{reinterpret_cast<const uint32_t*>(one.encoded), one.values, one.count, static_cast<float>(parameters.back()),
                                   name == "1bit" ? 1u : 2u, adds};
    });
  if (name == "fp16" || name == "bf16") {
    const mv_dtype half = name == "fp16" ? MV_F16 : MV_BF16;
    if (adds)
      return launch_all(stream, MV_DEVICE_AXPY, arrays, [&](const Array& one) { return mv_device_axpy{one.values, one.encoded, one.count, 1, MV_F32, half}; });
    return launch_all(stream, MV_DEVICE_CAST, arrays, [&](const Array& one) { return mv_device_cast{one.values, one.encoded, one.count, MV_F32, half}; });
  }
  if (name == "topk") {
    const auto clear = [](const Array& one) { return mv_device_fill{one.values, one.count, {}, MV_F32}; };
    if (!adds)
      if (auto status = launch_all(stream, MV_DEVICE_FILL, arrays, clear); !status.ok()) return status;
    return launch_all(stream, MV_DEVICE_PUT_TOP_K, arrays, [&](const Array& one) {
      return mv_device_put_top_k{reinterpret_cast<const uint32_t*>(one.encoded), one.values, one.count, top_of(codec, one.count), adds, 0};
    });
  }
  if (name != "int8") return base::error(MV_ENOSYS, "decode: devices do not have the codec {}: decode on the host", name);
  const auto block = static_cast<uint64_t>(parameters[0]);
  return launch_all(stream, MV_DEVICE_DECODE_INT8, arrays, [&](const Array& one) {
    const auto* const scales = reinterpret_cast<const float*>(one.encoded);
    return mv_device_decode_int8{reinterpret_cast<const int8_t*>(scales + parts(one.count, block)), scales, one.values, one.count, block, adds};
  });
}
}  // namespace

base::Status decode(const Stream& stream, const codec::Codec& codec, std::span<const codec::Decoding> arrays, bool adds) {
  if (auto status = decode_floats(stream, codec, arrays, adds); !status.ok()) return status;
  if (std::ranges::none_of(arrays, [](const codec::Decoding& one) { return one.rounded != nullptr; })) return {};
  return launch_all(stream, MV_DEVICE_CAST, arrays, [](const codec::Decoding& one) {
    return mv_device_cast{one.rounded, one.values, one.rounded != nullptr ? one.count : 0, one.dtype, MV_F32};
  });
}

}  // namespace mv::device
