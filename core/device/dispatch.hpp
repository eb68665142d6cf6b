#pragma once
// From a kernel's number and struct to its body: the same in every plug-in.

#include <utility>

#include "device/average_bodies.hpp"
#include "device/bodies.hpp"
#include "device/codec_bodies.hpp"
#include "device/keyed_bodies.hpp"
#include "device/row_bodies.hpp"
#include "device/top_k_bodies.hpp"
#include "device/update_bodies.hpp"

namespace mv::device {

/// The text of an error; launch() of a plug-in gives it to the library.
inline constexpr const char* kUnknownWork = "the plug-in has no kernel for this: library and plug-in are of different builds; install them together";

template <int kFirst, int kLast, typename Work>
mv_status with_op(int32_t op, const Work& work) {
  if (op == kFirst) return work(std::integral_constant<int, kFirst>());
  if constexpr (kFirst < kLast)
    return with_op<kFirst + 1, kLast>(op, work);
  else
    return MV_EINVAL;
}
inline bool is_element(mv_dtype dtype) { return dtype > MV_RAW && dtype <= MV_I8; }

template <typename Run>
mv_status dispatch(const mv_device_fill& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) { return run(over(work.count, Fill<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_range& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) { return run(over(work.count, Range<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_cast& work, const Run& run) {
  if (!is_element(work.to)) return MV_EINVAL;
  return math::with_element(work.to, [&]<typename To>(To) {
    return math::with_element(work.from, [&]<typename From>(From) { return run(over(work.count, Cast<To, From>{work})); });
  });
}
template <typename Run>
mv_status dispatch(const mv_device_nonfinite& work, const Run& run) {
  if (!math::is_floating(work.dtype)) return MV_EINVAL;
  return math::with_floating(work.dtype, [&]<typename T>(T) { return run(over(work.count, Nonfinite<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_arrange& work, const Run& run) {
  if (work.dims > MV_MAX_DIMS) return MV_EINVAL;
  if (work.size == 1) return run(over(work.count, Arrange<uint8_t>{work}));
  if (work.size == 2) return run(over(work.count, Arrange<uint16_t>{work}));
  if (work.size == 4) return run(over(work.count, Arrange<uint32_t>{work}));
  return work.size == 8 ? run(over(work.count, Arrange<uint64_t>{work})) : MV_EINVAL;
}
template <typename Run>
mv_status dispatch(const mv_device_unary& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) {
    constexpr int kLast = std::is_integral_v<Computed<T>> ? MV_ABS : MV_LOG;
    return with_op<MV_NEG, kLast>(work.op, [&]<int kOp>(std::integral_constant<int, kOp>) { return run(over(work.count, Unary<T, kOp>{work})); });
  });
}
template <typename Run>
mv_status dispatch(const mv_device_binary& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) {
    return with_op<MV_ADD, MV_GE>(work.op, [&]<int kOp>(std::integral_constant<int, kOp>) -> mv_status {
      if constexpr (kOp == MV_DIV && std::is_integral_v<Computed<T>>)
        return MV_EINVAL;
      else
        return run(over(work.count, Binary<T, kOp>{work}));
    });
  });
}
template <typename Run>
mv_status dispatch(const mv_device_axpy& work, const Run& run) {
  // Floats of any two dtypes, where y is not the narrower one, and integers of one.
  return math::with_element(work.dtype, [&]<typename T>(T) -> mv_status {
    if (work.x_dtype == work.dtype) return run(over(work.count, Axpy<T, T>{work}));
    if constexpr (std::is_floating_point_v<T>) {
      if (math::is_half(work.x_dtype))
        return math::with_half(work.x_dtype, [&]<typename Half>(Half) { return run(over(work.count, Axpy<T, Half>{work})); });
      if (work.x_dtype == MV_F32) return run(over(work.count, Axpy<T, float>{work}));
    }
    return MV_EINVAL;
  });
}
template <typename Run>
mv_status dispatch(const mv_device_mix& work, const Run& run) {
  if (!math::is_floating(work.dtype)) return MV_EINVAL;
  return math::with_floating(work.dtype, [&]<typename T>(T) {
    const auto with = [&]<bool kHasBase>(Mix<T, kHasBase> mix) {
      return work.squares != nullptr ? run(Measured<Mix<T, kHasBase>>{mix}) : run(over(work.count, mix));
    };
    return work.base != nullptr ? with(Mix<T, true>{work}) : with(Mix<T, false>{work});
  });
}
template <typename Run>
mv_status dispatch(const mv_device_pair_step& work, const Run& run) {
  if (work.dtype != MV_F32 && work.dtype != MV_F64) return MV_EINVAL;
  return math::with_float(work.dtype, [&]<typename T>(T) { return run(Measured<PairStep<T>>{{work}}); });
}
template <typename Run>
mv_status dispatch(const mv_device_elastic& work, const Run& run) {
  if (!math::is_floating(work.dtype)) return MV_EINVAL;
  return math::with_floating(work.dtype, [&]<typename T>(T) { return run(over(work.count, Elastic<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_outer& work, const Run& run) {
  if (!math::is_floating(work.dtype)) return MV_EINVAL;
  return math::with_floating(work.dtype, [&]<typename T>(T) { return run(over(work.count, OuterSteps<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_expand& work, const Run& run) {
  if (!math::is_floating(work.dtype)) return MV_EINVAL;
  return math::with_floating(work.dtype, [&]<typename T>(T) { return run(over(work.rows * work.cols, Expand<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_merge& work, const Run& run) {
  if (work.source_count == 0 || work.source_count > MV_DEVICE_SOURCES) return MV_EINVAL;
  return math::with_element(work.dtype, [&]<typename T>(T) {
    constexpr int kLast = std::is_integral_v<Computed<T>> ? MV_DEVICE_MERGE_MAX : MV_DEVICE_MERGE_MEAN;
    return with_op<MV_DEVICE_MERGE_SUM, kLast>(work.op,
                                               [&]<int kOp>(std::integral_constant<int, kOp>) { return run(over(work.count, Merge<T, kOp>{work})); });
  });
}
template <typename Run>
mv_status dispatch(const mv_device_random& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) -> mv_status {
    const uint64_t blocks = parts(work.count, 2);
    if (work.is_normal == 0) return run(over(blocks, Random<T, false>{work}));
    if constexpr (std::is_integral_v<Computed<T>>)
      return MV_EINVAL;
    else
      return run(over(blocks, Random<T, true>{work}));
  });
}
template <typename Run>
mv_status dispatch(const mv_device_sum& work, const Run& run) {
  if (work.stage == MV_DEVICE_SUM_PAIRS) return run(SumPairs{work});
  return math::with_element(work.dtype, [&]<typename T>(T) -> mv_status {
    if (work.stage == MV_DEVICE_SUM_CHUNKS) return run(SumChunks<T>{work});
    if (work.stage == MV_DEVICE_SUM_COLUMNS) return run(over_large(work.outer * work.inner, SumColumns<T>{work}));
    if constexpr (std::is_floating_point_v<T>)
      if (work.stage == MV_DEVICE_SUM_FINISH) return run(over(work.outer * work.inner, SumFinish<T>{work}));
    return MV_EINVAL;
  });
}
template <typename Run>
mv_status dispatch(const mv_device_fold& work, const Run& run) {
  const uint64_t items = work.outer * parts(work.along, kChunk) * work.inner;
  return math::with_element(work.dtype, [&]<typename T>(T) -> mv_status {
    if (work.op != MV_SUM) return run(over_large(items, FoldExtremes<T>{work}));
    if constexpr (std::is_integral_v<Computed<T>>)
      return run(over_large(items, FoldSum<T>{work}));
    else
      return MV_EINVAL;
  });
}
template <typename T, typename Formula, typename Run>
mv_status dispatch_formula(const mv_device_update& work, const Run& run) {
  if (work.stage == MV_DEVICE_APPLY) return run(Update<T, Formula>{work});
  if constexpr (Formula::kHasSums)
    if (work.stage == MV_DEVICE_MEASURE) return run(Measure<T, Formula>{work});
  return MV_EINVAL;
}
template <typename Run>
mv_status dispatch(const mv_device_update& work, const Run& run) {
  if (work.stage == MV_DEVICE_SUM_TILES) return run(SumTiles{work});
  if ((work.dtype != MV_F32 && work.dtype != MV_F64) || !math::is_floating(work.gradient_dtype)) return MV_EINVAL;
  return math::with_float(work.dtype, [&]<typename T>(T) -> mv_status {
    switch (work.formula) {
#define XX(number, text, function, batch, states, has_sums) \
  case MV_DEVICE_FORMULA_##number:                          \
    return dispatch_formula<T, Formula##number>(work, run);
      MV_DEVICE_FORMULAS(XX)
#undef XX
      default:
        return MV_EINVAL;
    }
  });
}
/// run(T()) for the dtype of a gradient that is encoded.
template <typename Run>
mv_status with_gradient(mv_dtype dtype, const Run& run) {
  if (dtype == MV_F32) return run(float());
  return math::is_half(dtype) ? math::with_half(dtype, run) : MV_EINVAL;
}
template <typename Run>
mv_status dispatch(const mv_device_encode_bits& work, const Run& run) {
  return with_gradient(work.gradient_dtype, [&]<typename T>(T) -> mv_status {
    if (work.bits == 1) return run(over(parts(work.count, 32) * 4, EncodeBits<1, T>{work}));
    return work.bits == 2 ? run(over(parts(work.count, 16) * 4, EncodeBits<2, T>{work})) : MV_EINVAL;
  });
}
/// run<adds, in fours>()
template <typename Run>
mv_status with_values(bool adds, bool in_fours, const Run& run) {
  if (adds) return in_fours ? run.template operator()<true, true>() : run.template operator()<true, false>();
  return in_fours ? run.template operator()<false, true>() : run.template operator()<false, false>();
}
template <typename Run>
mv_status dispatch(const mv_device_decode_bits& work, const Run& run) {
  if (work.bits != 1 && work.bits != 2) return MV_EINVAL;
  return with_values(work.adds != 0, work.count % 4 == 0, [&]<bool kAdds, bool kFours>() {
    const uint64_t items = kFours ? work.count / 4 : work.count;
    return work.bits == 1 ? run(over(items, DecodeBits<1, kAdds, kFours>{work})) : run(over(items, DecodeBits<2, kAdds, kFours>{work}));
  });
}
template <typename Run>
mv_status dispatch(const mv_device_encode_half& work, const Run& run) {
  if (!math::is_half(work.dtype)) return MV_EINVAL;
  return math::with_half(work.dtype, [&]<typename T>(T) {
    return with_gradient(work.gradient_dtype, [&]<typename From>(From) { return run(over(work.count, EncodeHalf<T, From>{work})); });
  });
}
template <typename Run>
mv_status dispatch(const mv_device_encode_int8& work, const Run& run) {
  if (work.block == 0 || work.block > UINT32_MAX / 2) return MV_EINVAL;
  return with_gradient(work.gradient_dtype, [&]<typename T>(T) {
    return work.block % 4 == 0 && work.count % 4 == 0 ? run(EncodeInt8<true, T>{work}) : run(EncodeInt8<false, T>{work});
  });
}
template <typename Run>
mv_status dispatch(const mv_device_decode_int8& work, const Run& run) {
  if (work.block == 0) return MV_EINVAL;
  return with_values(work.adds != 0, work.block % 4 == 0 && work.count % 4 == 0, [&]<bool kAdds, bool kFours>() {
    return run(over(kFours ? work.count / 4 : work.count, DecodeInt8<kAdds, kFours>{work}));
  });
}
template <typename Run>
mv_status dispatch(const mv_device_top_k& work, const Run& run) {
  if (work.k == 0 || work.k > work.count || work.digit > 2) return MV_EINVAL;
  switch (work.stage) {
    case MV_DEVICE_TOP_K_ADD:
      return with_gradient(work.gradient_dtype, [&]<typename T>(T) { return run(CountMagnitudes<T>{work}); });
    case MV_DEVICE_TOP_K_COUNT:
      return run(CountMagnitudes<void>{work});
    case MV_DEVICE_TOP_K_FIND:
      return run(FindDigit{work});
    case MV_DEVICE_TOP_K_TILES:
      return run(CountTile{work});
    case MV_DEVICE_TOP_K_PLACES:
      return run(PlaceTiles{work});
    case MV_DEVICE_TOP_K_SEND:
      return run(SendTopK{work});
    default:
      return MV_EINVAL;
  }
}
template <typename Run>
mv_status dispatch(const mv_device_put_top_k& work, const Run& run) {
  return run(over(work.k, PutTopK{work}));
}

template <typename Run>
mv_status dispatch(const mv_device_take& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) { return run(over(work.rows * work.width, Take<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_put& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) { return run(over(work.rows * work.width, Put<T>{work})); });
}
template <typename Run>
mv_status dispatch(const mv_device_update_rows& work, const Run& run) {
  if ((work.dtype != MV_F32 && work.dtype != MV_F64) || !math::is_floating(work.gradient_dtype)) return MV_EINVAL;
  return math::with_float(work.dtype, [&]<typename T>(T) -> mv_status {
    const auto with = [&]<typename Formula>(Formula) -> mv_status {
      if constexpr (Formula::kBatch == 1)
        return run(over(work.count * work.width, UpdateRows<T, Formula>{work}));
      else
        return MV_EINVAL;
    };
    switch (work.formula) {
#define XX(number, text, function, batch, states, has_sums) \
  case MV_DEVICE_FORMULA_##number:                          \
    return with(Formula##number());
      MV_DEVICE_FORMULAS(XX)
#undef XX
      default:
        return MV_EINVAL;
    }
  });
}
template <typename Run>
mv_status dispatch(const mv_device_back_up& work, const Run& run) {
  return run(over(work.count * work.width, BackUp{work}));
}
template <typename Run>
mv_status dispatch(const mv_device_used& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) { return run(over_large(work.rows, Used<T>{work})); });
}

inline bool is_index(const mv_device_index& index) { return index.bits > 0 && index.bits < 32; }
template <typename Run>
mv_status dispatch(const mv_device_lookup& work, const Run& run) {
  return is_index(work.index) ? run(over_large(work.count, Lookup{work})) : MV_EINVAL;
}
template <typename Run>
mv_status dispatch(const mv_device_insert& work, const Run& run) {
  return is_index(work.index) ? run(over_large(work.count, Insert{work})) : MV_EINVAL;
}
template <typename Run>
mv_status dispatch(const mv_device_erase& work, const Run& run) {
  return is_index(work.index) ? run(over_large(work.count, Erase{work})) : MV_EINVAL;
}
template <typename Run>
mv_status dispatch(const mv_device_reindex& work, const Run& run) {
  if (!is_index(work.index) || work.bits == 0 || work.bits > work.index.bits) return MV_EINVAL;
  return run(over_large(uint64_t{1} << work.bits, Reindex{work}));
}
template <typename Run>
mv_status dispatch(const mv_device_initial& work, const Run& run) {
  return math::with_element(work.dtype, [&]<typename T>(T) { return run(over(work.rows * work.width, Initial<T>{work})); });
}

// ------------------------------------------------------------ several structs

/// Whether one launch may compute several bodies of this type: those of which a store's push has one for each key.
template <typename Body>
inline constexpr bool kGathers = false;
template <typename T>
inline constexpr bool kGathers<Nonfinite<T>> = true;
template <typename Item, uint64_t kItems>
inline constexpr bool kGathers<Over<Item, kItems>> = kGathers<Item>;
template <uint32_t kBits, typename T>
inline constexpr bool kGathers<EncodeBits<kBits, T>> = true;
template <uint32_t kBits, bool kAdds, bool kFours>
inline constexpr bool kGathers<DecodeBits<kBits, kAdds, kFours>> = true;
template <typename T, typename From>
inline constexpr bool kGathers<EncodeHalf<T, From>> = true;
template <bool kFours, typename T>
inline constexpr bool kGathers<EncodeInt8<kFours, T>> = true;
template <bool kAdds, bool kFours>
inline constexpr bool kGathers<DecodeInt8<kAdds, kFours>> = true;
template <typename T>
inline constexpr bool kGathers<CountMagnitudes<T>> = true;
template <>
inline constexpr bool kGathers<FindDigit> = true;
template <>
inline constexpr bool kGathers<CountTile> = true;
template <>
inline constexpr bool kGathers<PlaceTiles> = true;
template <>
inline constexpr bool kGathers<SendTopK> = true;
template <>
inline constexpr bool kGathers<PutTopK> = true;
template <typename T>
inline constexpr bool kGathers<Fill<T>> = std::is_same_v<T, float> || std::is_same_v<T, uint8_t>;
template <typename To, typename From>
inline constexpr bool kGathers<Cast<To, From>> = (kIsHalf<To> && std::is_same_v<From, float>) || (kIsHalf<From> && std::is_same_v<To, float>);
template <typename T, typename From>
inline constexpr bool kGathers<Axpy<T, From>> = kIsHalf<From> && std::is_same_v<T, float>;

/// Bodies of one type, as one body: the tiles of the first one, then those of the second one, and so on. It is a kernel's argument, of
/// which devices of CUDA allow 32 KiB.
template <typename Body>
struct Bodies {
  static constexpr uint32_t kMost = (16 << 10) / (sizeof(Body) + sizeof(uint32_t));
  Body bodies[kMost];
  uint32_t ends[kMost];  ///< the first tile behind each body's
  uint32_t count;
  uint64_t tiles() const { return count > 0 ? ends[count - 1] : 0; }
  /// False: it is full.
  bool add(const Body& body) {
    const uint64_t end = tiles() + body.tiles();
    if (count == kMost || (count > 0 && end > INT32_MAX)) return false;
    bodies[count] = body;
    ends[count++] = static_cast<uint32_t>(least(end, UINT32_MAX));
    return true;
  }

 protected:
  /// The body that has a tile, and the number of the tile there.
  MV_BOTH const Body& find(uint64_t& tile) const {
    uint32_t low = 0, high = count - 1;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (tile < ends[middle])
        high = middle;
      else
        low = middle + 1;
    }
    if (low > 0) tile -= ends[low - 1];
    return bodies[low];
  }
};
template <typename Body>
struct Together : Bodies<Body> {
  MV_BOTH void operator()(uint64_t tile, uint32_t lane, uint32_t lanes) const {
    const Body& body = this->find(tile);
    body(tile, lane, lanes);
  }
};
template <typename Body>
  requires(Body::kSteps > 0)
struct Together<Body> : Bodies<Body> {
  static constexpr uint32_t kSteps = Body::kSteps;
  using Shared = typename Body::Shared;
  template <uint32_t kStep>
  MV_BOTH void step(uint64_t tile, uint32_t lane, uint32_t lanes, Shared& shared) const {
    const Body& body = this->find(tile);
    body.template step<kStep>(tile, lane, lanes, shared);
  }
};

/// Runs the bodies of several structs, neighbours of one type together.
template <typename Run>
class Gathering {
 public:
  explicit Gathering(const Run& run) : run_(run) {}
  template <typename Body>
  mv_status add(const Body& body) {
    if (body.tiles() == 0) return MV_OK;
    if constexpr (!kGathers<Body>) {
      return run_(body);
    } else {
      using All = Together<Body>;
      static_assert(sizeof(All) <= sizeof room_ && std::is_trivially_copyable_v<All>);
      auto& all = *reinterpret_cast<All*>(room_);
      if (end_ == &Gathering::end<Body> && all.add(body)) return MV_OK;
      const mv_status status = finish();
      end_ = &Gathering::end<Body>;
      all.count = 0;
      all.add(body);
      return status;
    }
  }
  mv_status finish() { return end_ != nullptr ? (this->*std::exchange(end_, nullptr))() : MV_OK; }

 private:
  template <typename Body>
  mv_status end() {
    const auto& all = *reinterpret_cast<const Together<Body>*>(room_);
    return all.count == 1 ? run_(all.bodies[0]) : run_(all);
  }
  const Run& run_;
  mv_status (Gathering::*end_)() = nullptr;
  alignas(16) unsigned char room_[(16 << 10) + 64];
};

template <typename Work, typename Run>
mv_status dispatch_each(const void* work, uint64_t bytes, const Run& run) {
  if (bytes == 0 || bytes % sizeof(Work) != 0) return MV_EINVAL;
  Gathering<Run> gathering(run);
  mv_status status = MV_OK;
  for (const Work* one = static_cast<const Work*>(work); bytes > 0 && status == MV_OK; ++one, bytes -= sizeof(Work))
    status = dispatch(*one, [&](const auto& body) -> mv_status { return gathering.add(body); });
  return status == MV_OK ? gathering.finish() : status;
}

/// Calls run(body) -> mv_status with the body of a kernel, which has tiles() > 0, or for several structs with some bodies. MV_EINVAL if there
/// is none.
template <typename Run>
mv_status dispatch(uint32_t kernel, const void* work, uint64_t bytes, const Run& run) {
  switch (kernel) {
#define XX(number, name)   \
  case MV_DEVICE_##number: \
    return dispatch_each<mv_device_##name>(work, bytes, run);
    MV_DEVICE_KERNELS(XX)
#undef XX
    default:
      return MV_EINVAL;
  }
}

}  // namespace mv::device
