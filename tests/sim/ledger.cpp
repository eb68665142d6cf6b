#include "ledger.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "numbers.hpp"

namespace mv::sim {

Ledger::Ledger(Timeline& timeline, TablePlan plan, size_t servers, size_t workers)
    : timeline_(timeline),
      plan_(std::move(plan)),
      workers_(workers),
      keyed_(plan_.spec.is_keyed()),
      begun_(workers),
      adds_(workers),
      first_adds_(workers),
      worker_clocks_(workers) {
  const shard::Spec& spec = plan_.spec;
  for (uint64_t index = 0; index < plan_.keys.size(); ++index) {
    index_of_.emplace(plan_.keys[index], index);
    stripes_.push_back({shard::server_of(spec, servers, plan_.keys[index]), index * spec.cols, spec.cols});
  }
  for (size_t server = 0; server < servers && !keyed_; ++server) {
    const shard::Range part = shard::part_of(spec.rows, servers, server);
    const uint64_t elements = part.count * spec.cols, most = shard::stripe_elements(spec);
    for (uint64_t first = 0; first < elements; first += most)
      stripes_.push_back({server, part.first * spec.cols + first, std::min(most, elements - first)});
  }
  touching_.resize(stripes_.size() * workers_);
  known_.resize(stripes_.size() * workers_);
}

size_t Ledger::stripe_of(uint64_t element) const {
  if (keyed_) return row_of(element);
  const auto after = std::upper_bound(stripes_.begin(), stripes_.end(), element,
                                      [](uint64_t e, const Stripe& s) { return e < s.begin; });
  return static_cast<size_t>(after - stripes_.begin()) - 1;
}

bool Ledger::is_counter(uint64_t element) const {
  const size_t stripe = stripe_of(element);
  return !is_owned(stripe) && element - stripes_[stripe].begin < workers_;
}

// ---- adds

std::vector<std::byte> Ledger::initial_values() const {
  if (plan_.initial == 0) return {};
  std::vector<std::byte> out(plan_.spec.bytes());
  put_numbers(plan_.spec.dtype, out, 0, plan_.spec.elements(), [&](uint64_t e) { return is_counter(e) ? 0 : plan_.initial * pattern(e); });
  return out;
}

std::vector<size_t> Ledger::stripes_of(const std::vector<int64_t>& rows) const {
  std::vector<size_t> stripes;
  for (const int64_t row : rows) stripes.push_back(stripe_of(index_of(row) * plan_.spec.cols));
  std::sort(stripes.begin(), stripes.end());
  stripes.erase(std::unique(stripes.begin(), stripes.end()), stripes.end());
  return stripes;
}

void Ledger::add_counter_rows(std::vector<int64_t>& rows, size_t by, bool everyones) const {
  if (keyed_) return;  // they are in the rows themselves
  const std::vector<size_t> touched = stripes_of(rows);
  std::unordered_set<int64_t> there(rows.begin(), rows.end());
  for (const size_t stripe : touched)
    for (size_t worker = everyones ? 0 : by; worker < (everyones ? workers_ : by + 1); ++worker) {
      const auto row = static_cast<int64_t>(row_of(stripes_[stripe].begin + worker));
      if (there.insert(row).second) rows.push_back(row);
    }
}

std::vector<int64_t> Ledger::choose_rows(Random& random, bool many) const {
  const uint64_t fits = shard::kStripeBytes /
                        (2 * (plan_.spec.row_bytes() + sizeof(int64_t)));  // in one message, so that it is atomic
  const auto most = [&] { return keyed_ ? 40 + random.below(40) : 600 + random.below(200); };
  std::vector<int64_t> chosen(many ? std::min(fits, most()) : 1 + random.below(6));
  for (int64_t& row : chosen)
    row = keyed_ ? plan_.keys[random.below(rows())] : static_cast<int64_t>(random.below(rows()));
  add_counter_rows(chosen, 0, true);
  return chosen;
}

std::vector<int64_t> Ledger::owned(size_t by) const {
  std::vector<int64_t> mine;
  for (size_t stripe = plan_.owned_from; stripe < plan_.keys.size(); ++stripe)
    if (owner_of(stripe) == by) mine.push_back(plan_.keys[stripe]);
  return mine;
}

std::vector<int64_t> Ledger::addable(size_t by) const {
  std::vector<int64_t> keys = owned(by);
  const auto shared = static_cast<std::ptrdiff_t>(plan_.owned_from - plan_.untouched);
  keys.insert(keys.end(), plan_.keys.begin(), plan_.keys.begin() + shared);
  return keys;
}

/// Each at most once; callers that add to shards must ensure that.
void Ledger::choose_keys(Add& add, Random& random) const {
  std::vector<int64_t> keys = add.write == shard::Write::Add ? addable(add.by) : owned(add.by);
  for (size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random.below(i)]);
  if (!std::exchange(add.all, false)) keys.resize(std::min<size_t>(keys.size(), 1 + random.below(6)));
  add.rows = std::move(keys);
}

AddRef Ledger::add(size_t by, Random& random, shard::Write write, bool all, uint64_t clock) {
  const auto add = std::make_shared<Add>();
  add->write = write;
  add->by = by;
  add->serial = begun_[by]++;
  add->index = first_adds_[by] + adds_[by].size();
  add->clock = clock;
  add->amount = static_cast<int>(random.between(1, 50));
  add->all = all;
  if (keyed_) {
    choose_keys(*add, random);
  } else if (!all) {
    add->rows.resize(1 + random.below(6));
    for (int64_t& row : add->rows) row = static_cast<int64_t>(random.below(plan_.spec.rows));
    add_counter_rows(add->rows, by, false);
  }
  add->stripes.resize(stripes_.size());
  std::iota(add->stripes.begin(), add->stripes.end(), size_t{0});
  if (!add->all) add->stripes = stripes_of(add->rows);
  if (write == shard::Write::Add) adds_[by].push_back(add);
  for (const size_t stripe : add->stripes) touching_[cell(stripe, by)].push_back(add);
  return add;
}

std::vector<std::byte> Ledger::values(const Add& add) const {
  const shard::Spec& spec = plan_.spec;
  if (add.write == shard::Write::Erase) return {};
  std::vector<std::byte> out(add.all ? spec.bytes() : add.rows.size() * spec.row_bytes());
  if (add.all) {
    for (const Stripe& stripe : stripes_) {
      put_number(spec.dtype, out, stripe.begin + add.by, 1);
      put_numbers(spec.dtype, out, stripe.begin + workers_, stripe.begin + stripe.count, [&](uint64_t e) { return add.amount * pattern(e); });
    }
    return out;
  }
  std::unordered_set<uint64_t> counted;  // a repeated row counts once
  for (size_t i = 0; i < add.rows.size(); ++i)
    for (uint64_t col = 0; col < spec.cols; ++col) {
      const uint64_t e = index_of(add.rows[i]) * spec.cols + col, at = i * spec.cols + col;
      if (!is_counter(e))
        put_number(spec.dtype, out, at, add.amount * pattern(e));
      else if (e - stripes_[stripe_of(e)].begin == add.by && counted.insert(e).second)
        put_number(spec.dtype, out, at, 1);
    }
  return out;
}

void Ledger::acknowledged(const Add& add) {
  for (const size_t stripe : add.stripes) {
    const auto& list = touching_[cell(stripe, add.by)];
    size_t at = list.size();  // from the end: a recent one
    while (at > 0 && list[at - 1].get() != &add) --at;
    uint32_t& known = known_[cell(stripe, add.by)];
    known = std::max(known, static_cast<uint32_t>(at));
  }
}

void Ledger::not_applied(const AddRef& add) {
  std::erase(adds_[add->by], add);
  for (size_t i = add->index - first_adds_[add->by]; i < adds_[add->by].size(); ++i) adds_[add->by][i]->index = first_adds_[add->by] + i;
  for (const size_t stripe : add->stripes) std::erase(touching_[cell(stripe, add->by)], add);
}

void Ledger::settled(size_t worker, size_t begun) {
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe) {
    uint32_t& known = known_[cell(stripe, worker)];
    known = std::max(known, count_while(cell(stripe, worker), &Add::serial, begun));
  }
}

// ---- the rate and the clocks

void Ledger::switches(size_t by) { switch_ = Switch{by, {}, begun_[by], known_}; }

void Ledger::switched() { switch_->begun_then = begun_; }

void Ledger::ticked(size_t worker, uint64_t clock) {
  WorkerClock& worker_clock = worker_clocks_[worker];
  if (worker_clock.state == WorkerClock::kAbsent) {
    check_start(worker, clock);
    worker_clock.state = WorkerClock::kHere;
  }
  worker_clock.clock = clock;
}

uint64_t Ledger::least_told() const {
  uint64_t least = UINT64_MAX;
  for (const WorkerClock& worker_clock : worker_clocks_) {
    const bool is_creating = worker_clock.state == WorkerClock::kAbsent && !worker_clock.is_late;  // for servers, it is at clock 0
    if (is_creating || worker_clock.state == WorkerClock::kHere || worker_clock.state == WorkerClock::kGone)  // they may not know of the loss yet
      least = std::min(least, worker_clock.told);
  }
  return least == UINT64_MAX ? 0 : least;
}

/// Not further behind than the others were when it came, and not ahead of all of them, including those that have left.
void Ledger::check_start(size_t worker, uint64_t clock) {
  if (plan_.spec.staleness <= 0) return;  // servers keep no clocks for it
  uint64_t most = 0;
  for (const WorkerClock& worker_clock : worker_clocks_) most = std::max(most, worker_clock.clock);
  if (clock >= worker_clocks_[worker].least && clock <= most) return;
  timeline_.violated(fmt::format("{} begins \"{}\" at clock {}; the others were at {} .. {}", worker_name(worker),
                                 plan_.spec.name, clock, worker_clocks_[worker].least, most));
}

void Ledger::finished(size_t worker) {
  if (worker_clocks_[worker].state != WorkerClock::kGone) worker_clocks_[worker].state = WorkerClock::kFinished;
}

bool Ledger::may_have_waited_for_lost_worker(const Reading& reading) const {
  return std::any_of(worker_clocks_.begin(), worker_clocks_.end(),
                     [&](const WorkerClock& s) { return s.state == WorkerClock::kGone && s.told < reading.needs; });
}

Reading Ledger::begin(std::string who, size_t by, bool gated, shard::Consistency consistency, uint64_t round, uint64_t clock) const {
  const bool sync = consistency == shard::Consistency::kSync;
  Reading reading;
  reading.who = std::move(who);
  reading.by = by;
  reading.gated = gated;
  reading.low = known_;
  reading.own = gated || !sync ? begun_[by] : 0;  // sync mode's peeks need not wait for own adds
  reading.index = first_adds_[by] + adds_[by].size();
  reading.exact = gated && sync;
  reading.round = round;
  reading.bounded = gated && consistency == shard::Consistency::kStale;
  const auto staleness = static_cast<uint64_t>(std::max<int64_t>(0, plan_.spec.staleness));
  reading.needs = clock > staleness ? clock - staleness : 0;
  for (const WorkerClock& worker_clock : worker_clocks_) reading.told.push_back(worker_clock.told);
  return reading;
}

size_t Ledger::bytes(const Reading& reading) const {
  return (reading.rows.empty() ? rows() : reading.rows.size()) * plan_.spec.row_bytes();
}

}  // namespace mv::sim
