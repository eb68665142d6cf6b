#include "shard/dense.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include "base/log.hpp"
#include "base/per_thread.hpp"
#include "base/prefetch.hpp"
#include "math/kernels.hpp"
#include "shard/updater/apply.hpp"

namespace mv::shard {

base::Result<std::shared_ptr<Shard>> DenseShard::make(SpecRef described, const Position& place) {
  const Spec& spec = *described;
  const Range rows = part_of(spec, place.servers, place.index);
  const size_t stored_bytes = tensor::dtype_bytes(tensor::storage_dtype(spec.dtype));
  std::unique_ptr<Segment> segment;
  if (place.shared && rows.count > 0 && is_mapped(spec)) {
    auto made = Segment::make(spec, rows.count * spec.cols);
    if (made.ok())
      segment = std::move(made).value();
    else if (static std::atomic<bool> warned{false}; !warned.exchange(true))
      base::log_warn("table \"{}\": {}; other processes will get its values by messages, and so those of later tables, without another warning",
                     spec.name, made.status().text());
  }
  auto memory = base::Memory::make(segment != nullptr ? 0 : rows.count * spec.cols * stored_bytes);
  if (!memory.ok()) return base::error(MV_ENOMEM, "table \"{}\": {}", spec.name, memory.status().text());
  std::shared_ptr<DenseShard> shard(new DenseShard(std::move(described), rows, std::move(memory).value(), std::move(segment), place));
  if (auto status = shard->set_updater(shard->spec_.updater); !status.ok()) return status;
  return std::shared_ptr<Shard>(std::move(shard));
}

DenseShard::DenseShard(SpecRef spec, Range rows, base::Memory memory, std::unique_ptr<Segment> segment,
                       const Position& place)
    : Shard(std::move(spec), rows),
      stored_bytes_(tensor::dtype_bytes(tensor::storage_dtype(spec_.dtype))),
      stripe_elements_(shard::stripe_elements(spec_)),
      memory_(std::move(memory)),
      segment_(std::move(segment)),
      values_(segment_ != nullptr ? segment_->values() : memory_.data()),
      families_(place.families),
      plain_models_(place.models),
      stripes_((elements() + stripe_elements_ - 1) / stripe_elements_) {}

// ------------------------------------------------------------ stripes

namespace {

/// Elements that are processed at a time, so that their second use finds them in a cache.
constexpr uint64_t kPiece = 8192;
/// Rows that are sorted by stripe at a time.
constexpr size_t kSorted = 1 << 14;

/// A thread's scratch memory for sorting.
struct Sorting {
  std::vector<uint32_t> ends, stripes, places;
  std::vector<int64_t> rows;
};

Sorting& sorting() { return base::per_thread<Sorting>(); }

/// Sorts rows by stripe, stably, because a lock for each row costs more than the row. False if sorting does not pay.
bool sort_by_stripe(std::span<const int64_t> rows, uint64_t stripe_rows, size_t stripe_count, Sorting& out) {
  if (rows.size() < 64 || stripe_count > 4 * rows.size()) return false;
  out.stripes.resize(rows.size());
  size_t changes = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    out.stripes[i] = static_cast<uint32_t>(static_cast<uint64_t>(rows[i]) / stripe_rows);
    changes += i > 0 && out.stripes[i] != out.stripes[i - 1] ? 1 : 0;
  }
  if (changes <= stripe_count + rows.size() / 16) return false;
  out.ends.assign(stripe_count + 1, 0);
  for (const uint32_t stripe : out.stripes) ++out.ends[stripe + 1];
  for (size_t i = 1; i <= stripe_count; ++i) out.ends[i] += out.ends[i - 1];
  out.places.resize(rows.size());
  out.rows.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint32_t to = out.ends[out.stripes[i]]++;
    out.places[to] = static_cast<uint32_t>(i);
    out.rows[to] = rows[i];
  }
  return true;
}

}  // namespace

template <typename Work>
void DenseShard::for_neighbours(const Run& some, const Work& work) {
  const uint64_t stripe_rows = stripe_elements_ / spec_.cols;
  const auto stripe_of = [&](size_t i) { return static_cast<uint64_t>(some.rows[i]) / stripe_rows; };
  for (size_t begin = 0; begin < some.rows.size();) {
    size_t end = begin + 1;
    while (end < some.rows.size() && stripe_of(end) == stripe_of(begin)) ++end;
    Stripe& stripe = stripes_[stripe_of(begin)];
    std::lock_guard lock(stripe.mutex);
    const auto rows = some.rows.subspan(begin, end - begin);
    work(stripe,
         some.places != nullptr ? Run{rows, some.first, some.places + begin} : Run{rows, some.first + begin, nullptr});
    begin = end;
  }
}

template <typename Work>
void DenseShard::for_row_runs(std::span<const int64_t> rows, const Work& work) {
  const uint64_t stripe_rows = stripe_elements_ / spec_.cols;
  Sorting& sorted = sorting();
  for (size_t first = 0; first < rows.size(); first += kSorted) {
    const auto some = rows.subspan(first, std::min(kSorted, rows.size() - first));
    if (sort_by_stripe(some, stripe_rows, stripes_.size(), sorted))
      for_neighbours(Run{sorted.rows, first, sorted.places.data()}, work);
    else
      for_neighbours(Run{some, first, nullptr}, work);
  }
}

// ------------------------------------------------------------ changes

void DenseShard::apply(const Model& model, const Step* step, Worker worker, uint64_t first, uint64_t count,
                       const std::byte* values) const {
  if (model.adds) return math::add_bytes(spec_.dtype, at(values_, first), values, count);
  std::byte* const backups = backup(model, worker, false);
  std::array<std::byte*, kMostStates> states;
  const std::vector<base::Memory>& beside = model.beside->states;
  for (size_t i = 0; i < beside.size(); ++i) states[i] = at(beside[i].data(), first);
  const Block block{.count = count,
                    .values = at(values_, first),
                    .states = states.data(),
                    .backup = backups != nullptr ? at(backups, first) : nullptr,
                    .step = step,
                    .first = rows_.first * spec_.cols + first};
  apply_added(*model.updater, spec_.dtype, block, beside.size(), values);
}

void DenseShard::change(Write write, Worker worker, uint64_t first, uint64_t count, const std::byte* values,
                        ChangePart piece) {
  if (write == Write::Add && wants_whole_.load(std::memory_order_relaxed)) {
    const size_t each = spec_.element_bytes();
    if (count == elements()) return add_whole(worker, values);
    return gather(worker, first, count,
                  [&](uint64_t from, uint64_t some, std::byte* out) { std::memcpy(out, values + (from - first) * each, some * each); });
  }
  Steps<ModelRef> steps(piece == ChangePart::kFirst);
  for_stripes(first, count, [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t done) {
    before_change(stripe, from, share);
    const StripeWrite open(segment_.get(), index_of(stripe));
    const std::byte* source = values + done * spec_.element_bytes();
    if (write == Write::Set || copies_.load(std::memory_order_relaxed)) return math::store_bytes(spec_.dtype, at(values_, from), source, share);
    apply(*stripe.model, steps.of(stripe.model), worker, from, share, source);
  });
  holds_more();
}

void DenseShard::add_made(Worker worker, uint64_t first, uint64_t count, const Make& make, ChangePart piece) {
  if (wants_whole_.load(std::memory_order_relaxed)) return gather(worker, first, count, make);
  Steps<ModelRef> steps(piece == ChangePart::kFirst);
  std::vector<std::byte> room;
  for_stripes(first, count, [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t) {
    before_change(stripe, from, share);
    const StripeWrite open(segment_.get(), index_of(stripe));
    if (copies_.load(std::memory_order_relaxed)) return make(from, share, at(values_, from));
    const Updater& updater = *stripe.model->updater;
    const Step* const step = steps.of(stripe.model);
    const uint64_t most = updater.sums() > 0 ? share : kPiece;
    room.resize(std::min(most, share) * spec_.element_bytes());
    for (uint64_t done = 0; done < share; done += most) {
      const uint64_t some = std::min(most, share - done);
      make(from + done, some, room.data());
      apply(*stripe.model, step, worker, from + done, some, room.data());
    }
  });
  holds_more();
}

void DenseShard::change_rows(Write write, Worker worker, std::span<const int64_t> rows, const std::byte* values,
                             ChangePart piece) {
  const uint64_t cols = spec_.cols, row_bytes = spec_.row_bytes();
  Steps<ModelRef> steps(piece == ChangePart::kFirst);
  if (rows.empty() && write == Write::Add) {
    std::lock_guard lock(mutex_);
    steps.of(model_);
  }
  const bool replaces = write == Write::Add && replaces_.load(std::memory_order_relaxed);
  if (replaces) replace_rows(rows, piece);
  if (write == Write::Add && !rows.empty() && wants_whole_.load(std::memory_order_relaxed))
    return add_whole(worker, spread({rows, 0, nullptr}, values).data());
  if (cols > stripe_elements_) {
    for (size_t i = 0; i < rows.size(); ++i)
      change(write, worker, static_cast<uint64_t>(rows[i]) * cols, cols, values + i * row_bytes,
             i == 0 ? piece : ChangePart::kFurther);
    return;
  }
  for_row_runs(rows, [&](Stripe& stripe, const Run& run) {
    if (stripe.unread != nullptr)
      for (const int64_t row : run.rows) before_change(stripe, static_cast<uint64_t>(row) * cols, cols);
    const StripeWrite open(segment_.get(), index_of(stripe));
    const std::byte* const source = values + run.first * row_bytes;
    const math::Chosen chosen{run.rows.data(), run.rows.size(), run.places};
    if (write == Write::Set)
      return math::set_rows(spec_.dtype, values_, cols, chosen, source);
    if (stripe.model->adds)
      return math::add_rows(spec_.dtype, values_, cols, chosen, source);
    const Step* const step = steps.of(stripe.model);
    if (stripe.model->updater->sums() > 0) return change_whole(stripe, step, worker, run, values);
    for (size_t i = 0; i < run.rows.size(); ++i)
      apply(*stripe.model, step, worker, static_cast<uint64_t>(run.rows[i]) * cols, cols,
            values + run.place(i) * row_bytes);
  });
  if (!replaces) holds_more();
}

/// After a change that is no replacement. After its writes: if the flag were cleared before them, a concurrent replacement could set it
/// again and miss them.
void DenseShard::holds_more() {
  if (only_held_.load(std::memory_order_relaxed)) only_held_.store(false, std::memory_order_relaxed);
}

/// Before an add that replaces the table: clears the other rows. Rows of the same add's earlier pieces stay.
void DenseShard::replace_rows(std::span<const int64_t> rows, ChangePart piece) {
  std::lock_guard lock(replacing_);
  if (piece == ChangePart::kFirst) {
    if (only_held_.exchange(true, std::memory_order_relaxed)) {
      zero_rows(held_);
    } else {
      for_stripes(0, elements(), [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t) {
        before_change(stripe, from, share);
        const StripeWrite open(segment_.get(), index_of(stripe));
        std::memset(at(values_, from), 0, share * stored_bytes_);
      });
    }
    held_.clear();
  }
  held_.insert(held_.end(), rows.begin(), rows.end());
}

void DenseShard::zero_rows(std::span<const int64_t> rows) {
  const uint64_t cols = spec_.cols;
  for (const int64_t row : rows)
    for_stripes(static_cast<uint64_t>(row) * cols, cols, [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t) {
      before_change(stripe, from, share);
      const StripeWrite open(segment_.get(), index_of(stripe));
      std::memset(at(values_, from), 0, share * stored_bytes_);
    });
}

// ---- updaters that need the whole tensor

/// A gradient of all rows: the rows of the run, and zeros for the others.
std::vector<std::byte> DenseShard::spread(const Run& run, const std::byte* values) const {
  const uint64_t row_bytes = spec_.row_bytes();
  std::vector<std::byte> gradient(elements() * spec_.element_bytes());
  for (size_t i = 0; i < run.rows.size(); ++i)
    std::memcpy(&gradient[static_cast<uint64_t>(run.rows[i]) * row_bytes], values + run.place(i) * row_bytes,
                row_bytes);
  return gradient;
}

/// Applies the rows of a call to a tensor of one stripe.
void DenseShard::change_whole(Stripe& stripe, const Step* step, Worker worker, const Run& run,
                              const std::byte* values) {
  before_change(stripe, 0, elements());
  apply(*stripe.model, step, worker, 0, elements(), spread(run, values).data());
}

/// Applies a gradient of all rows under all locks: norms are measured before any stripe changes, and set_updater()
/// cannot intervene.
void DenseShard::add_whole(Worker worker, const std::byte* gradient) {
  std::lock_guard lock(mutex_);
  std::vector<std::unique_lock<std::mutex>> locks;
  std::deque<StripeWrite> open;
  locks.reserve(stripes_.size());
  for (Stripe& stripe : stripes_) {
    const uint64_t from = index_of(stripe) * stripe_elements_;
    locks.emplace_back(stripe.mutex);
    before_change(stripe, from, std::min(stripe_elements_, elements() - from));
    open.emplace_back(segment_.get(), index_of(stripe));
  }
  Steps<ModelRef> steps(true);
  apply(*model_, steps.of(model_), worker, 0, elements(), gradient);
  holds_more();
}

/// Collects the pieces of an add and applies them when all have arrived. Pieces are stripes, as in messages. A worker's
/// next add can begin before the last piece of this one arrives.
void DenseShard::gather(Worker worker, uint64_t first, uint64_t count, const Make& make) {
  const size_t each = spec_.element_bytes();
  std::lock_guard lock(gathering_);
  std::deque<Gathered>& adds = gathered_[worker];
  const size_t stripe = first / stripe_elements_;
  auto add = std::ranges::find_if(adds, [&](const Gathered& known) { return !known.has[stripe]; });
  if (add == adds.end())
    add = adds.insert(add, {std::vector<std::byte>(elements() * each), std::vector<bool>(stripes_.size()), elements()});
  make(first, count, &add->gradient[first * each]);
  for (uint64_t from = first; from < first + count; from += stripe_elements_) add->has[from / stripe_elements_] = true;
  add->missing -= std::min(count, add->missing);
  if (add->missing > 0) return;
  add_whole(worker, add->gradient.data());
  adds.erase(add);
}

void DenseShard::forget_pieces(Worker worker) {
  std::lock_guard lock(gathering_);
  gathered_.erase(worker);
}

// ------------------------------------------------------------ reading

std::byte* DenseShard::backup(const Model& model, Worker worker, bool wanted) const {
  if (worker == kNoWorker || !model.updater->keeps_backups()) return nullptr;
  std::lock_guard lock(model.beside->mutex);
  const auto found = model.beside->backups.find(worker);
  if (found != model.beside->backups.end()) return found->second.data();
  if (!wanted) return nullptr;
  auto memory = base::Memory::make(elements() * stored_bytes_);
  if (!memory.ok()) throw std::bad_alloc();
  return model.beside->backups.emplace(worker, std::move(memory).value()).first->second.data();
}

void DenseShard::back_up(const Stripe& stripe, Worker worker, uint64_t first, uint64_t count) const {
  std::byte* const backups = backup(*stripe.model, worker, true);
  if (backups == nullptr) return;
  before_get(stripe, worker, first, count);
  copy_inverted(at(backups, first), at(values_, first), count * stored_bytes_);
}

void DenseShard::read(Worker worker, uint64_t first, uint64_t count, std::byte* out) {
  for_stripes(first, count, [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t done) {
    math::load_bytes(spec_.dtype, at(values_, from), out + done * spec_.element_bytes(), share);
    if (backs_up_.load(std::memory_order_relaxed)) back_up(stripe, worker, from, share);
  });
}

void DenseShard::read_each(Worker worker, std::span<std::byte* const> outs) {
  const size_t each = spec_.element_bytes();
  for_stripes(0, elements(), [&](Stripe& stripe, uint64_t from, uint64_t share, uint64_t) {
    const uint64_t most = outs.size() > 1 ? kPiece : share;
    for (uint64_t done = 0; done < share; done += most) {
      const uint64_t some = std::min(most, share - done), place = (from + done) * each;
      math::load_bytes(spec_.dtype, at(values_, from + done), outs.front() + place, some);
      for (std::byte* const out : outs.subspan(1)) std::memcpy(out + place, outs.front() + place, some * each);
    }
    if (backs_up_.load(std::memory_order_relaxed)) back_up(stripe, worker, from, share);
  });
}

void DenseShard::expect() const {
  constexpr size_t kLines = 4;
  base::prefetch_to_write(stripes_.data());
  for (size_t i = 0; i < kLines; ++i) base::prefetch(values_ + i * 64);
}

void DenseShard::read_rows(Worker worker, std::span<const int64_t> rows, std::byte* out) {
  const uint64_t cols = spec_.cols, row_bytes = spec_.row_bytes();
  if (cols > stripe_elements_) {
    for (size_t i = 0; i < rows.size(); ++i)
      read(worker, static_cast<uint64_t>(rows[i]) * cols, cols, out + i * row_bytes);
    return;
  }
  for_row_runs(rows, [&](Stripe& stripe, const Run& run) {
    std::byte* const target = out + run.first * row_bytes;
    math::gather_rows(spec_.dtype, values_, cols, {run.rows.data(), run.rows.size(), run.places}, target);
    if (!stripe.model->updater->keeps_backups()) return;
    for (const int64_t row : run.rows) back_up(stripe, worker, static_cast<uint64_t>(row) * cols, cols);
  });
}

const std::byte* DenseShard::stored(const Model& model, uint64_t array) const {
  const std::vector<base::Memory>& states = model.beside->states;
  if (array == 0) return values_;
  if (array <= states.size()) return states[array - 1].data();
  std::lock_guard lock(model.beside->mutex);
  const auto found = model.beside->backups.find(static_cast<Worker>(array - states.size() - 1));
  return found != model.beside->backups.end() ? found->second.data() : nullptr;
}

void DenseShard::read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out) {
  for_stripes(first, count, [&](const Stripe& stripe, uint64_t from, uint64_t share, uint64_t done) {
    const std::byte* const source = stored(*stripe.model, array);
    std::byte* const to = out + done * stored_bytes_;
    source != nullptr ? std::memcpy(to, source + from * stored_bytes_, share * stored_bytes_) : std::memset(to, 0, share * stored_bytes_);
  });
}

uint64_t DenseShard::next_stored(uint64_t array) const {
  std::lock_guard lock(mutex_);
  const uint64_t states = model_->beside->states.size();
  if (array < states) return array + 1;
  std::lock_guard beside_lock(model_->beside->mutex);
  const auto next = model_->beside->backups.lower_bound(static_cast<Worker>(array - states));
  return next != model_->beside->backups.end() ? states + 1 + static_cast<uint64_t>(next->first) : 0;
}

base::Result<Scanned> DenseShard::scan(int64_t, size_t, bool) {
  return base::error(MV_EINVAL,
                     "table \"{}\" is {}: it stores all rows; only sparse and key-value tables can be scanned",
                     spec_.name, spec_.describe());
}

// ------------------------------------------------------------ the updater

/// Shared models of updaters without parameters and without state. Any thread.
class PlainModels {
 public:
  DenseShard::ModelRef find(const UpdaterSpec& updater, mv_dtype dtype) {
    if (!updater.parameters.empty()) return nullptr;
    std::lock_guard lock(mutex_);
    const auto known = models_.find({updater.name, dtype});
    return known != models_.end() ? known->second : nullptr;
  }
  void add(const DenseShard::ModelRef& model, mv_dtype dtype) {
    if (!model->spec.parameters.empty() || model->progress != nullptr || model->updater->states() > 0 || model->updater->keeps_backups()) return;
    std::lock_guard lock(mutex_);
    models_.emplace(std::pair(model->spec.name, dtype), model);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, mv_dtype>, DenseShard::ModelRef> models_;
};

std::shared_ptr<PlainModels> make_plain_models() { return std::make_shared<PlainModels>(); }

base::Result<DenseShard::ModelRef> DenseShard::make_model(const UpdaterSpec& updater) const {
  if (plain_models_ != nullptr)
    if (ModelRef plain = plain_models_->find(updater, spec_.dtype)) return plain;
  if (auto status = check_dense(updater, stripes_.size()); !status.ok()) return status;
  auto model = std::make_shared<Model>();
  model->spec = updater;
  model->updater = make_updater(updater, tensor::storage_dtype(spec_.dtype));
  model->adds = updater.name == "add";
  const size_t states = model->updater->states();
  const bool same = model_ != nullptr && model_->spec.name == updater.name;
  if (model->updater->counts()) model->progress = same ? model_->progress : make_progress(updater.name, *model->updater, families_.get());
  if (same && model_->beside->states.size() == states) {
    model->beside = model_->beside;
    return ModelRef(std::move(model));
  }
  model->beside = std::make_shared<Beside>();
  while (model->beside->states.size() < states) {
    auto memory = base::Memory::make(elements() * stored_bytes_);
    if (!memory.ok())
      return base::error(MV_ENOMEM, "table \"{}\", updater {}: {}", spec_.name, updater.name, memory.status().text());
    model->beside->states.push_back(std::move(memory).value());
  }
  if (plain_models_ != nullptr) plain_models_->add(model, spec_.dtype);
  return ModelRef(std::move(model));
}

base::Status DenseShard::set_updater(const UpdaterSpec& updater) {
  const std::scoped_lock lock(gathering_, mutex_);
  auto made = make_model(updater);
  if (!made.ok()) return made.status();
  model_ = std::move(made).value();
  const bool wants_whole = model_->updater->sums() > 0 && stripes_.size() > 1;
  if (!wants_whole) gathered_.clear();
  wants_whole_.store(wants_whole, std::memory_order_relaxed);
  replaces_.store(model_->updater->replaces(), std::memory_order_relaxed);
  copies_.store(replaces_ && tensor::storage_dtype(spec_.dtype) == spec_.dtype, std::memory_order_relaxed);
  backs_up_.store(model_->updater->keeps_backups(), std::memory_order_relaxed);
  if (segment_ != nullptr)
    segment_->head().counts_gets.store(keeps_backups() ? 1 : 0, std::memory_order_release);
  for (Stripe& stripe : stripes_) {
    std::lock_guard stripe_lock(stripe.mutex);
    stripe.model = model_;  // a snapshot is not affected: it keeps its own model and states
  }
  return {};
}

void DenseShard::with_updater(const UseUpdater& use) const {
  std::lock_guard lock(mutex_);
  use(model_->spec, model_->progress.get());
}

bool DenseShard::gathers_pieces() const {
  std::lock_guard lock(gathering_);
  return std::ranges::any_of(gathered_, [](const auto& adds) { return !adds.second.empty(); });
}

Usage DenseShard::usage() const {
  std::lock_guard lock(mutex_);
  const uint64_t each = elements() * stored_bytes_;
  std::lock_guard beside_lock(model_->beside->mutex);
  const uint64_t beside = model_->beside->states.size() + model_->beside->backups.size();
  return {.stored = rows_.count,
          .memory_bytes = each * (1 + beside),
          .state_bytes = each * beside,
          .updates = model_->progress != nullptr ? model_->progress->mark().updates : 0};
}

// ------------------------------------------------------------ shared memory

std::shared_ptr<base::SharedMemory> DenseShard::shared() const {
  return segment_ != nullptr ? segment_->memory() : nullptr;
}

void DenseShard::publish_clock(uint64_t clock) {
  if (segment_ != nullptr) segment_->head().clock.store(clock, std::memory_order_release);
}

void DenseShard::close_to_readers() {
  if (segment_ != nullptr) segment_->head().counts_gets.store(1, std::memory_order_seq_cst);
}

void DenseShard::destroy() {
  Shard::destroy();
  if (segment_ != nullptr) segment_->head().destroyed.store(1, std::memory_order_release);
}

}  // namespace mv::shard
