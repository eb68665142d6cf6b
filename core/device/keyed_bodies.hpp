#pragma once
// The kernels of work.h that find rows by their ids; see bodies.hpp.

#include <atomic>

#include "base/mix.hpp"
#include "device/row_bodies.hpp"

namespace mv::device {

// Words of an index that several threads of a kernel change.
MV_BOTH inline uint32_t shared_word(const uint32_t* word) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return *static_cast<const volatile uint32_t*>(word);
#else
  return std::atomic_ref(*const_cast<uint32_t*>(word)).load(std::memory_order_relaxed);
#endif
}
/// Whether the word was `expected` and now is `wanted`.
MV_BOTH inline bool replace_word(uint32_t* word, uint32_t expected, uint32_t wanted) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return atomicCAS(word, expected, wanted) == expected;
#else
  return std::atomic_ref(*word).compare_exchange_strong(expected, wanted, std::memory_order_relaxed);
#endif
}

MV_BOTH inline uint32_t low_bits(uint64_t bits) { return (uint32_t{1} << bits) - 1; }
MV_BOTH inline uint64_t id_of(const mv_device_index& index, uint64_t row) { return *row_of<uint64_t>(index.ids, row, 1); }

MV_BOTH inline void enter(const mv_device_index& index, uint64_t hash, uint64_t row) {
  const uint32_t low = low_bits(index.bits), mine = (static_cast<uint32_t>(hash) & ~low) | static_cast<uint32_t>(row + 1);
  for (uint64_t at = hash >> (64 - index.bits);;) {
    const uint32_t word = shared_word(&index.words[at]);
    if (word != MV_DEVICE_EMPTY_WORD && word != MV_DEVICE_ERASED_WORD)
      at = (at + 1) & low;
    else if (replace_word(&index.words[at], word, mine))
      return;
  }
}

/// Item i is an id.
struct Lookup {
  mv_device_lookup work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t id = static_cast<uint64_t>(work.ids[i]), hash = base::mix(id);
    const uint32_t low = low_bits(work.index.bits), tag = static_cast<uint32_t>(hash) & ~low;
    for (uint64_t at = hash >> (64 - work.index.bits);; at = (at + 1) & low) {
      const uint32_t word = work.index.words[at];
      if (word == MV_DEVICE_EMPTY_WORD) break;
      if ((word & ~low) != tag || word == MV_DEVICE_ERASED_WORD) continue;
      const uint64_t row = (word & low) - 1;
      if (id_of(work.index, row) != id) continue;
      work.rows[i] = row;
      if (work.used_at.chunks != nullptr) *row_of<uint32_t>(work.used_at, row, 1) = work.now;
      return;
    }
    work.rows[i] = MV_DEVICE_NO_ROW;
    if (work.misses != nullptr) *work.misses = 1;
  }
};
struct Insert {
  mv_device_insert work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t id = static_cast<uint64_t>(work.ids[i]);
    *row_of<uint64_t>(work.index.ids, work.rows[i], 1) = id;
    enter(work.index, base::mix(id), work.rows[i]);
  }
};
struct Erase {
  mv_device_erase work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t hash = base::mix(static_cast<uint64_t>(work.ids[i]));
    const uint32_t low = low_bits(work.index.bits), mine = (static_cast<uint32_t>(hash) & ~low) | static_cast<uint32_t>(work.rows[i] + 1);
    for (uint64_t at = hash >> (64 - work.index.bits); shared_word(&work.index.words[at]) != MV_DEVICE_EMPTY_WORD; at = (at + 1) & low)
      if (shared_word(&work.index.words[at]) == mine) return static_cast<void>(replace_word(&work.index.words[at], mine, MV_DEVICE_ERASED_WORD));
  }
};
/// Item i is a word of the old index.
struct Reindex {
  mv_device_reindex work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint32_t word = work.from[i];
    if (word == MV_DEVICE_EMPTY_WORD || word == MV_DEVICE_ERASED_WORD) return;
    const uint64_t row = (word & low_bits(work.bits)) - 1;
    enter(work.index, base::mix(id_of(work.index, row)), row);
  }
};
/// Item i is an element.
template <typename T>
struct Initial {
  mv_device_initial work;
  MV_BOTH void operator()(uint64_t i) const {
    const uint64_t row = divided(i, work.width), column = i - row * work.width;
    if (work.unless != nullptr && work.unless[row] != MV_DEVICE_NO_ROW) return;
    T* const out = row_of<T>(work.out, work.to != nullptr ? work.to[row] : row, work.width);
    if (work.range == 0) return static_cast<void>(out[column] = from_bytes<T>(work.value));
    const uint64_t random = base::mix(base::mix(work.seed + static_cast<uint64_t>(work.ids[row])) + column);
    put_as(out, column, work.initial + work.range * (static_cast<double>(random >> 11) * 0x1p-52 - 1));
  }
};

}  // namespace mv::device
