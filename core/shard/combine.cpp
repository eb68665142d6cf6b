#include "shard/combine.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/mix.hpp"
#include "base/per_thread.hpp"
#include "math/convert.hpp"
#include "math/kernels.hpp"

namespace mv::shard {

namespace {

/// The hash table has 2 to 4 words for each row, and two or four times as many for few rows. Most ids then find their place empty, which the
/// processor predicts, and the table is still in the L2 or L1 cache.
constexpr size_t kFewRows = 4096, kVeryFewRows = 1024;
constexpr size_t words_for(size_t rows) { return (rows <= kVeryFewRows ? 8 : rows <= kFewRows ? 4 : 2) * rows; }
/// The most scratch memory, in bytes, that a thread keeps for its next call.
constexpr size_t kMostKept = 4 << 20;

template <typename Word>
class Numbering;

template <typename Word>
std::vector<Word>& scratch() { return base::per_thread<std::vector<Word>, Numbering<Word>>(); }

/// Numbers ids in the order of their first appearance, with an open-addressing hash table. A word holds a number plus
/// one and, in the bits above it, a part of the hash, so that few comparisons of ids fail.
template <typename Word>
class Numbering {
 public:
  explicit Numbering(std::span<const int64_t> rows)
      : rows_(rows), bits_(std::bit_width(words_for(rows.size()))), memory_(scratch<Word>()) {
    memory_.assign(size_t{1} << bits_, 0);
    words_ = memory_.data();
  }
  ~Numbering() {
    if (memory_.size() * sizeof(Word) > kMostKept) memory_ = {};
  }

  /// The number of the i-th row's id. A new id gets the number `next`.
  size_t number(size_t i, size_t next, const std::vector<int64_t>& unique) {
    const uint64_t hash = base::mix(static_cast<uint64_t>(rows_[i]));
    const size_t mask = (size_t{1} << bits_) - 1;
    const Word tag = static_cast<Word>(hash) & ~static_cast<Word>(mask);
    for (size_t at = hash >> (64 - bits_);; at = (at + 1) & mask) {
      const Word word = words_[at];
      if (word == 0) {
        words_[at] = tag | static_cast<Word>(next + 1);
        return next;
      }
      const size_t known = static_cast<size_t>(word & mask) - 1;
      if ((word & ~static_cast<Word>(mask)) == tag && id_of(known, unique) == rows_[i]) return known;
    }
  }

 private:
  /// Before the first repeat, `unique` is empty and a number is an index into the rows.
  int64_t id_of(size_t number, const std::vector<int64_t>& unique) const {
    return unique.empty() ? rows_[number] : unique[number];
  }

  const std::span<const int64_t> rows_;
  const int bits_;
  std::vector<Word>& memory_;
  Word* words_;  ///< of memory_
};

/// False if no id is repeated. Otherwise fills `unique`, and the number of each row's id.
template <typename Word>
bool number_rows(std::span<const int64_t> rows, std::vector<int64_t>* unique, std::vector<int64_t>* numbers) {
  Numbering<Word> numbering(rows);
  size_t i = 0;
  while (i < rows.size() && numbering.number(i, i, *unique) == i) ++i;
  if (i == rows.size()) return false;
  numbers->resize(rows.size());
  unique->reserve(rows.size());
  unique->assign(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i));
  for (size_t done = 0; done < i; ++done) (*numbers)[done] = static_cast<int64_t>(done);
  for (; i < rows.size(); ++i) {
    const size_t number = numbering.number(i, unique->size(), *unique);
    if (number == unique->size()) unique->push_back(rows[i]);
    (*numbers)[i] = static_cast<int64_t>(number);
  }
  return true;
}

/// Fills `sums` with the neutral element of addition: for floats -0.0, which preserves the sign of a zero.
void fill_with_neutral(mv_dtype storage, std::vector<std::byte>& sums) {
  std::ranges::fill(sums, std::byte{0});
  if (!tensor::is_floating(storage)) return;
  const size_t each = tensor::dtype_bytes(storage);
  for (size_t last = each - 1; last < sums.size(); last += each) sums[last] = std::byte{0x80};  // -0.0, little-endian
}

}  // namespace

bool combine(const Spec& spec, std::span<const int64_t> rows, const std::byte* values, Combined* out) {
  if (math::strictly_increasing(rows)) return false;
  std::vector<int64_t> unique, numbers;
  const bool repeats = rows.size() < (size_t{1} << 30) ? number_rows<uint32_t>(rows, &unique, &numbers)
                                                       : number_rows<uint64_t>(rows, &unique, &numbers);
  if (!repeats) return false;
  const mv_dtype storage = tensor::storage_dtype(spec.dtype);
  const uint64_t elements = unique.size() * spec.cols;
  std::vector<std::byte> sums(elements * tensor::dtype_bytes(storage));
  fill_with_neutral(storage, sums);
  math::add_rows(spec.dtype, sums.data(), spec.cols, {numbers.data(), numbers.size()}, values);
  out->rows = std::move(unique);
  if (storage == spec.dtype) {
    out->values = std::move(sums);
  } else {
    out->values.resize(elements * spec.element_bytes());
    math::narrow_bytes(spec.dtype, out->values.data(), sums.data(), elements);
  }
  return true;
}

}  // namespace mv::shard
