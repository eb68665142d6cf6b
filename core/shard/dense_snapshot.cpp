#include "shard/dense_snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shard/updater/apply.hpp"

namespace mv::shard {

namespace {
/// The unit of copy-on-write is a 64th of a stripe, about 16 KiB, so that an add to a few rows copies little.
constexpr uint64_t kPieces = 64;
uint64_t piece_elements(uint64_t stripe_elements) { return (stripe_elements + kPieces - 1) / kPieces; }
}  // namespace

void DenseShard::before_change(Stripe& stripe, uint64_t first, uint64_t count) {
  if (stripe.unread == nullptr || count == 0) return;
  const uint64_t begin = index_of(stripe) * stripe_elements_, end = std::min(begin + stripe_elements_, elements());
  if (stripe.kept == 0 && first == begin && first + count == end) {  // a whole stripe, and more may follow
    stripe.unread->expect(begin, end);
    stripe.unread->set_aside(begin, end);
    stripe.kept = ~uint64_t{0};
    return;
  }
  const uint64_t each = piece_elements(stripe_elements_);
  for (uint64_t piece = (first - begin) / each; begin + piece * each < first + count; ++piece) {
    if ((stripe.kept >> piece & 1) != 0) continue;
    stripe.unread->set_aside(begin + piece * each, std::min(begin + (piece + 1) * each, end));
    stripe.kept |= uint64_t{1} << piece;
  }
}

void DenseShard::before_get(const Stripe& stripe, Worker worker, uint64_t first, uint64_t count) const {
  if (stripe.unread != nullptr) stripe.unread->set_got_aside(index_of(stripe), worker, first, count);
}

bool DenseShard::has_snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_taken_;
}

base::Result<std::unique_ptr<Snapshot>> DenseShard::snapshot(Scope scope) {
  std::lock_guard lock(mutex_);
  if (snapshot_taken_) return base::error(MV_ESTATE, "table \"{}\" is already being saved", spec_.name);
  base::Status failed;
  const auto make_aside = [&] {
    auto memory = base::Memory::make(elements() * stored_bytes_, base::Memory::kSmallPages);
    if (!memory.ok()) failed = base::error(MV_ENOMEM, "saving table \"{}\": {}", spec_.name, memory.status().text());
    return memory.ok() ? std::move(memory).value() : base::Memory();
  };
  std::vector<base::Memory> aside;
  while (failed.ok() && aside.size() < 1 + model_->beside->states.size()) aside.push_back(make_aside());
  std::vector<DenseSnapshot::Got> got;
  if (scope == Scope::kAll) {
    std::lock_guard beside_lock(model_->beside->mutex);
    for (const auto& [worker, memory] : model_->beside->backups)
      if (failed.ok()) got.push_back({worker, memory.data(), make_aside(), std::vector<uint64_t>(stripes_.size())});
  }
  if (!failed.ok()) return failed;
  std::unique_ptr<Snapshot> snapshot = std::make_unique<DenseSnapshot>(shared_from_this(), model_, std::move(aside), std::move(got));
  snapshot_taken_ = true;  // not before: without memory for it there is none
  return snapshot;
}

DenseSnapshot::DenseSnapshot(std::shared_ptr<DenseShard> shard, DenseShard::ModelRef model, std::vector<base::Memory> aside, std::vector<Got> got)
    : shard_(std::move(shard)), model_(std::move(model)), aside_(std::move(aside)), got_(std::move(got)) {
  arrays_.push_back(shard_->values_);
  for (const base::Memory& state : model_->beside->states) arrays_.push_back(state.data());
  out_.resize(arrays_.size());
  for (DenseShard::Stripe& stripe : shard_->stripes_) {
    std::lock_guard lock(stripe.mutex);
    stripe.unread = this;
    stripe.kept = 0;
  }
}

DenseSnapshot::~DenseSnapshot() {
  for (DenseShard::Stripe& stripe : shard_->stripes_) {
    std::lock_guard lock(stripe.mutex);
    stripe.unread = nullptr;
  }
  std::lock_guard lock(shard_->mutex_);
  shard_->snapshot_taken_ = false;
}

uint64_t DenseSnapshot::stripe_elements(size_t stripe) const {
  return std::min(shard_->stripe_elements_, shard_->elements() - stripe * shard_->stripe_elements_);
}

void DenseSnapshot::expect(uint64_t first, uint64_t end) {
  const size_t each = shard_->stored_bytes_;
  for (const base::Memory& aside : aside_) aside.expect(first * each, (end - first) * each);
}

void DenseSnapshot::set_aside(uint64_t first, uint64_t end) {
  const size_t begin = first * shard_->stored_bytes_, bytes = (end - first) * shard_->stored_bytes_;
  for (size_t i = 0; i < arrays_.size(); ++i) std::memcpy(aside_[i].data() + begin, arrays_[i] + begin, bytes);
}

void DenseSnapshot::set_got_aside(size_t stripe, Worker worker, uint64_t first, uint64_t count) {
  const auto got = std::ranges::find(got_, worker, &Got::worker);
  if (got == got_.end()) return;
  const uint64_t begin = stripe * shard_->stripe_elements_, end = begin + stripe_elements(stripe), each = piece_elements(shard_->stripe_elements_);
  for (uint64_t piece = (first - begin) / each; begin + piece * each < first + count; ++piece) {
    if ((got->kept[stripe] >> piece & 1) != 0) continue;
    const size_t from = (begin + piece * each) * shard_->stored_bytes_, until = std::min(begin + (piece + 1) * each, end) * shard_->stored_bytes_;
    std::memcpy(got->aside.data() + from, got->memory + from, until - from);
    got->kept[stripe] |= uint64_t{1} << piece;
  }
}

/// copy(stripe, first, end, element of the result) for the stripes of the rows, under the lock of each. `last`: no more is read of these rows.
template <typename Copy>
void DenseSnapshot::for_stripes(bool last, const Copy& copy) {
  const uint64_t cols = shard_->spec().cols, per_stripe = shard_->stripe_elements_, first = row_ * cols, end = first + count_ * cols;
  for (uint64_t from = first; from < end;) {
    const size_t index = from / per_stripe;
    const uint64_t until = std::min(end, (index + 1) * per_stripe);
    DenseShard::Stripe& stripe = shard_->stripes_[index];
    std::lock_guard lock(stripe.mutex);
    copy(stripe, from, until, from - first);
    if (last && until == index * per_stripe + stripe_elements(index)) stripe.unread = nullptr;
    from = until;
  }
}

/// Copies elements first .. end - 1, all of one stripe. Those of the pieces in `kept` come from `aside`.
void DenseSnapshot::copy(const std::byte* memory, const std::byte* aside, uint64_t kept, uint64_t first, uint64_t end, std::byte* out) const {
  const size_t each = shard_->stored_bytes_;
  const uint64_t begin = first / shard_->stripe_elements_ * shard_->stripe_elements_, piece = piece_elements(shard_->stripe_elements_);
  for (uint64_t from = first; from < end;) {
    const uint64_t number = (from - begin) / piece, until = std::min(end, begin + (number + 1) * piece);
    const bool is_kept = (kept >> number & 1) != 0;
    std::memcpy(out + (from - first) * each, (is_kept ? aside : memory) + from * each, (until - from) * each);
    from = until;
  }
}

Rows DenseSnapshot::next_got() {
  const Got& got = got_[next_got_++];
  got_out_.resize(count_ * shard_->spec().cols * shard_->stored_bytes_);
  for_stripes(next_got_ == got_.size(), [&](const DenseShard::Stripe& stripe, uint64_t from, uint64_t until, uint64_t to) {
    copy(got.memory, got.aside.data(), got.kept[shard_->index_of(stripe)], from, until, got_out_.data() + to * shard_->stored_bytes_);
  });
  const uint64_t first = shard_->rows().first + row_;
  return {.first = first, .count = count_, .ids = {}, .values = got_out_, .states = {}, .content = Content::kGot, .worker = got.worker};
}

Rows DenseSnapshot::next() {
  while (count_ > 0 && next_got_ < got_.size())
    if (Rows rows = next_got(); !is_zero(rows.values)) return rows;
  const uint64_t cols = shard_->spec().cols;
  row_ += std::exchange(count_, 0);
  next_got_ = 0;
  // Whole rows: as many as fit into a stripe, or one that spans several stripes.
  count_ = std::min(std::max<uint64_t>(1, shard_->stripe_elements_ / cols), shard_->rows().count - row_);
  for (auto& array : out_) array.resize(count_ * cols * shard_->stored_bytes_);
  for_stripes(got_.empty(), [&](const DenseShard::Stripe& stripe, uint64_t from, uint64_t until, uint64_t to) {
    for (size_t i = 0; i < arrays_.size(); ++i)
      copy(arrays_[i], aside_[i].data(), stripe.kept, from, until, out_[i].data() + to * shard_->stored_bytes_);
  });
  Rows rows{.first = shard_->rows().first + row_, .count = count_, .ids = {}, .values = out_[0], .states = {}};
  for (size_t i = 1; i < out_.size(); ++i) rows.states.emplace_back(out_[i]);
  return rows;
}

// ------------------------------------------------------------ restoring

template <typename Work>
void DenseShard::for_restored(const Restored& rows, const Work& work) {
  const uint64_t begin = std::max(rows.first, rows_.first), end = std::min(rows.first + rows.count, rows_.end());
  if (begin >= end) return;
  const uint64_t cols = spec_.cols, skipped = (begin - rows.first) * cols;
  for_stripes((begin - rows_.first) * cols, (end - begin) * cols, [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t done) {
    before_change(stripe, from, share);
    work(stripe, from, share, (skipped + done) * stored_bytes_);
  });
}

void DenseShard::restore_states(const Stripe& stripe, const Restored& rows, uint64_t from, size_t source, size_t length) const {
  const auto& states = stripe.model->beside->states;
  if (states.size() != rows.states.size()) return;
  for (size_t i = 0; i < states.size(); ++i) std::memcpy(at(states[i].data(), from), rows.states[i].data() + source, length);
}

/// A worker has backups of all elements, zeros at first, so those that are not given are not touched.
base::Status DenseShard::restore_got(const Restored& rows) {
  if (!keeps_backups() || rows.worker < 0)
    return base::error(MV_EINVAL, "table \"{}\": its updater does not keep what workers got", spec_.name);
  for_restored(rows, [&](Stripe& stripe, uint64_t from, uint64_t share, size_t source) {
    std::memcpy(at(backup(*stripe.model, rows.worker, true), from), rows.values.data() + source, share * stored_bytes_);
  });
  return {};
}

base::Status DenseShard::restore(const Restored& rows) {
  const size_t bytes = rows.count * spec_.cols * stored_bytes_;
  const bool fits = rows.content != Content::kAbsent && rows.values.size() == bytes &&
                    std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; });
  if (!fits)
    return base::error(MV_EINVAL, "table \"{}\": {} bytes of values for {} rows", spec_.name, rows.values.size(),
                       rows.count);
  if (rows.content == Content::kGot) return restore_got(rows);
  for_restored(rows, [&](Stripe& stripe, uint64_t from, uint64_t share, size_t source) {
    const StripeWrite open(segment_.get(), index_of(stripe));
    std::memcpy(at(values_, from), rows.values.data() + source, share * stored_bytes_);
    restore_states(stripe, rows, from, source, share * stored_bytes_);
  });
  holds_more();
  return {};
}

base::Status DenseShard::restore_states(const Restored& rows) {
  const size_t bytes = rows.count * spec_.cols * stored_bytes_;
  {
    std::lock_guard lock(mutex_);
    const size_t states = model_->beside->states.size();
    if (rows.states.size() != states)
      return base::error(MV_EDISAGREE, "table \"{}\": its updater, {}, has {} states, not {}", spec_.name, model_->spec.name, states, rows.states.size());
  }
  if (!std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; }))
    return base::error(MV_EINVAL, "table \"{}\": the size of the states does not match {} rows", spec_.name, rows.count);
  for_restored(rows, [&](Stripe& stripe, uint64_t from, uint64_t share, size_t source) {
    restore_states(stripe, rows, from, source, share * stored_bytes_);
  });
  return {};
}

}  // namespace mv::shard
