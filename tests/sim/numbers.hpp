#pragma once
// Values of any dtype in simulated tables, as doubles that represent them exactly.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <polyverso/polyverso.h>

namespace mv::sim {

template <typename Work>
auto with_type(mv_dtype dtype, Work work) {
  switch (dtype) {
    case MV_F32:
      return work(float{});
    case MV_I32:
      return work(int32_t{});
    case MV_I64:
      return work(int64_t{});
    default:
      return work(double{});
  }
}

inline double number_at(mv_dtype dtype, const std::byte* values, uint64_t at) {
  return with_type(dtype, [&](auto number) {
    std::memcpy(&number, values + at * sizeof number, sizeof number);
    return static_cast<double>(number);
  });
}

inline void put_number(mv_dtype dtype, std::span<std::byte> values, uint64_t at, double number) {
  with_type(dtype, [&](auto typed) {
    typed = static_cast<decltype(typed)>(number);
    std::memcpy(values.data() + at * sizeof typed, &typed, sizeof typed);
  });
}

/// Of the elements from begin to end; `number_of` gives each one's.
template <typename NumberOf>
void put_numbers(mv_dtype dtype, std::span<std::byte> values, uint64_t begin, uint64_t end, NumberOf number_of) {
  with_type(dtype, [&](auto typed) {
    for (uint64_t at = begin; at < end; ++at) {
      typed = static_cast<decltype(typed)>(number_of(at));
      std::memcpy(values.data() + at * sizeof typed, &typed, sizeof typed);
    }
  });
}

/// The first of `count` numbers that is not as `is_right(index, number)` wants it; count: all are.
template <typename IsRight>
uint64_t first_wrong(mv_dtype dtype, const std::byte* values, uint64_t count, IsRight is_right) {
  return with_type(dtype, [&](auto number) {
    uint64_t at = 0;
    for (; at < count; ++at) {
      std::memcpy(&number, values + at * sizeof number, sizeof number);
      if (!is_right(at, static_cast<double>(number))) break;
    }
    return at;
  });
}

}  // namespace mv::sim
