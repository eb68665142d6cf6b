#include "engine/table/server/merger.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "base/per_thread.hpp"
#include "codec/values.hpp"
#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/sum.hpp"
#include "shard/combine.hpp"
#include "shard/on_device.hpp"
#include "shard/updater/updater.hpp"

namespace mv::table {

/// Sums up the elements of parts that all have them, in the order of the parts, in their storage dtype.
base::Status Merger::sum_up(const Table& table, Parts parts, uint64_t first, uint64_t count, base::Pool::Block* sum) {
  const mv_dtype dtype = table.spec.dtype, storage = tensor::storage_dtype(dtype);
  *sum = pool_.take(count * tensor::dtype_bytes(storage));
  std::byte* const to = sum->bytes.data();
  for (const HeldChange* part : parts) {
    if (part->codec != nullptr && (part->first != first || part->count != count))
      return base::error(MV_EPROTOCOL, "table \"{}\": the parts of a round do not fit together", table.spec.name);
    const std::byte* const from = part->payload.data() + (first - part->first) * table.spec.element_bytes();
    const bool is_first = part == parts.front();
    if (part->codec != nullptr && is_first)
      codec::decode_values(*part->codec, storage, from, to, count);
    else if (part->codec != nullptr)
      codec::decode_add_values(*part->codec, dtype, from, to, count);
    else if (is_first)
      math::store_bytes(dtype, to, from, count);
    else
      math::add_bytes(dtype, to, from, count);
  }
  return {};
}

/// The sum of parts that all have these elements, in the table's dtype.
base::Status Merger::make_sum(const Table& table, Parts parts, uint64_t first, uint64_t count, base::Pool::Block* sum) {
  const mv_dtype dtype = table.spec.dtype;
  const bool is_wide = tensor::storage_dtype(dtype) == dtype;
  if (is_wide && std::ranges::none_of(parts, [](const HeldChange* part) { return part->codec != nullptr; })) {
    std::vector<const std::byte*> from;
    for (const HeldChange* part : parts) from.push_back(part->payload.data() + (first - part->first) * table.spec.element_bytes());
    *sum = pool_.take(count * table.spec.element_bytes());
    math::sum_bytes(dtype, sum->bytes.data(), from, count);
    return {};
  }
  if (base::Status wrong = sum_up(table, parts, first, count, sum); !wrong.ok() || is_wide) return wrong;
  // Halves were summed up as floats, and are rounded once.
  const base::Pool::Block wide = std::exchange(*sum, pool_.take(count * table.spec.element_bytes()));
  math::narrow_bytes(dtype, sum->bytes.data(), wide.bytes.data(), count);
  return {};
}

/// Adds the sum of parts that all have these elements to the shard; without parts the sum is zero.
base::Status Merger::add_sum(Table& table, Parts parts, shard::Range elements, shard::ChangePart piece) {
  const shard::Spec& spec = table.spec;
  const mv_dtype storage = tensor::storage_dtype(spec.dtype);
  const auto [begin, count] = elements;
  if (parts.empty()) {
    const auto zero = [&](uint64_t, uint64_t some, std::byte* out) { std::memset(out, 0, some * spec.element_bytes()); };
    table.shard->add_made(shard::kNoWorker, begin, count, zero, piece);
    return {};
  }
  if (storage == spec.dtype && std::ranges::none_of(parts, [](const HeldChange* part) { return part->codec != nullptr; })) {
    struct Room : std::vector<const std::byte*> {};
    auto& from = base::per_thread<Room>();
    const auto sum = [&](uint64_t first, uint64_t some, std::byte* out) {  // directly from the parts into the table
      from.clear();
      for (const HeldChange* part : parts) from.push_back(part->payload.data() + (first - part->first) * spec.element_bytes());
      math::sum_bytes(spec.dtype, out, from, some);
    };
    table.shard->add_made(shard::kNoWorker, begin, count, std::ref(sum), piece);
    return {};
  }
  base::Pool::Block added;
  if (base::Status wrong = make_sum(table, parts, begin, count, &added); !wrong.ok()) return wrong;
  table.shard->change(wire::Write::Add, shard::kNoWorker, begin, count, added.bytes.data(), piece);
  return {};
}

/// Applies the parts of a round that are elements: the sum of each element goes through the updater once. Parts of one
/// stripe have the same elements. Parts of long rows overlap in any way, and are processed piece by piece between their
/// ends. If the updater replaces, elements that no part names become zeros.
base::Status Merger::apply_elements(Table& table, Parts parts) {
  const shard::Spec& spec = table.spec;
  const HeldChange& whole = *parts.front();
  if (whole.count == table.shard->elements() && std::ranges::all_of(parts, [&](const HeldChange* part) { return part->count == whole.count; }))
    return add_sum(table, parts, {0, whole.count}, whole.piece);
  std::set<uint64_t> ends;
  for (const HeldChange* part : parts) ends.insert({part->first, part->first + part->count});
  const bool is_all = spec.row_bytes() > shard::stripe_bytes(spec);  // the parts are all of this round
  const bool replaces = is_all && table.shard->updater().name == shard::kReplacing;
  if (replaces) ends.insert({0, table.shard->elements()});
  shard::ChangePart piece = is_all ? shard::ChangePart::kFirst : parts.front()->piece;
  for (auto end = std::next(ends.begin()); end != ends.end(); ++end) {
    const uint64_t first = *std::prev(end), count = *end - first;
    std::vector<const HeldChange*> some;
    std::ranges::copy_if(parts, std::back_inserter(some),
                         [&](const HeldChange* part) { return part->first <= first && *end <= part->first + part->count; });
    if (some.empty() && !replaces) continue;
    if (base::Status wrong = add_sum(table, some, {first, count}, piece); !wrong.ok()) return wrong;
    piece = shard::ChangePart::kFurther;
  }
  return {};
}

/// Whether the sum of these parts can replace them: they are the same elements of one stripe, not encoded.
bool Merger::has_same_elements(const Table& table, Parts parts) const {
  const HeldChange& first = *parts.front();
  return first.rows == 0 && first.count > 0 && table.spec.row_bytes() <= shard::stripe_bytes(table.spec) &&
         std::ranges::all_of(parts, [&](const HeldChange* part) {
           return part->codec == nullptr && part->rows == 0 && part->first == first.first && part->count == first.count;
         });
}

/// Applies the sum of parts in their place.
base::Status Merger::apply_sum(Table& table, const HeldChange& part, std::span<const std::byte> sum) {
  if (sum.size() != part.count * table.spec.element_bytes())
    return base::error(MV_EPROTOCOL, "table \"{}\": the sum of a round has {} bytes in place of {}", table.spec.name, sum.size(),
                       part.count * table.spec.element_bytes());
  table.shard->change(wire::Write::Add, shard::kNoWorker, part.first, part.count, sum.data(), part.piece);
  withheld_.sum_taken();
  return {};
}

base::Status Merger::apply(Table& table, std::span<const rpc::Asked> parts) {
  try {
    return apply_parts(table, parts);
  } catch (const shard::DeviceFailure& failure) {
    if (roster_.has_copy(table.spec)) throw;  // the copy may make this round
    return failure.status();
  }
}

base::Status Merger::apply_parts(Table& table, std::span<const rpc::Asked> parts) {
  struct Room : std::vector<const HeldChange*> {};
  auto& some = base::per_thread<Room>();
  some.clear();
  for (const rpc::Asked& asked : parts)
    if (const HeldChange* const held = held_.changes().find(asked); held != nullptr && held->rows + held->count > 0) some.push_back(held);
  if (some.empty()) {  // rows of other servers only: this still counts as a round
    table.shard->change_rows(wire::Write::Add, shard::kNoWorker, {}, nullptr);
    return {};
  }
  if (const auto sum = withheld_.expected_sum()) return apply_sum(table, *some.front(), *sum);
  if (std::ranges::any_of(some, [&](const HeldChange* part) { return part->payload.size() != table.bytes_of(*part); }))
    return base::error(MV_EPROTOCOL, "table \"{}\": a part of a round came without its values", table.spec.name);
  if (withheld_.notes() && some.size() > 1 && has_same_elements(table, some)) {
    base::Pool::Block sum;
    if (base::Status wrong = make_sum(table, some, some.front()->first, some.front()->count, &sum); !wrong.ok()) return wrong;
    withheld_.summed_up(sum);
    return apply_sum(table, *some.front(), sum.bytes);
  }
  const shard::Spec& spec = table.spec;
  const bool is_long_row = some.front()->rows == 0 && spec.row_bytes() > shard::stripe_bytes(spec);
  if (some.size() == 1 && !is_long_row) return applier_.apply(table, 0, *some.front());
  if (some.front()->rows == 0) return apply_elements(table, some);
  std::vector<int64_t> rows;
  std::vector<std::byte> values;
  for (const HeldChange* part : some) {
    const auto ids = table.take_rows(part->payload, part->rows, roster_);
    if (!ids.ok()) return ids.status();
    rows.insert(rows.end(), ids.value().begin(), ids.value().end());
    const auto theirs = part->payload.subspan(part->rows * sizeof(int64_t));
    values.insert(values.end(), theirs.begin(), theirs.end());
  }
  shard::Combined combined;
  if (shard::combine(spec, rows, values.data(), &combined))
    table.shard->change_rows(wire::Write::Add, shard::kNoWorker, combined.rows, combined.values.data());
  else
    table.shard->change_rows(wire::Write::Add, shard::kNoWorker, rows, values.data());
  return {};
}

}  // namespace mv::table
