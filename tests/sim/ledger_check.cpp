// The ledger's checks of readings.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ledger.hpp"
#include "numbers.hpp"

namespace mv::sim {

/// The values of a reading, by element of the table.
struct Ledger::Values {
  const std::byte* data;
  mv_dtype dtype;
  uint64_t cols;
  const std::unordered_map<uint64_t, size_t>* at = nullptr;  ///< by row: its position; null: as in the table

  uint64_t position(uint64_t element) const { return at != nullptr ? at->at(element / cols) * cols + element % cols : element; }
  double value(uint64_t element) const { return number_at(dtype, data, position(element)); }
};

std::string Ledger::place(size_t stripe) const {
  const std::string what = keyed_ ? fmt::format("key {}", plan_.keys[stripe]) : fmt::format("stripe {}", stripe);
  return fmt::format("{} of table \"{}\" (server {})", what, plan_.spec.name, stripes_[stripe].server);
}

void Ledger::check(const Reading& reading, const std::vector<std::byte>& values) {
  const uint64_t row_bytes = plan_.spec.row_bytes();
  std::unordered_map<uint64_t, size_t> at;
  for (size_t i = 0; i < reading.rows.size(); ++i) at.emplace(index_of(reading.rows[i]), i);
  for (size_t i = 0; i < reading.rows.size(); ++i) {  // repeated rows are equal
    const size_t first = at.at(index_of(reading.rows[i]));
    if (first != i && std::memcmp(values.data() + first * row_bytes, values.data() + i * row_bytes, row_bytes) != 0)
      return timeline_.violated(fmt::format("{}: two values of row {} differ", reading.who, reading.rows[i]));
  }
  if (reading.bounded && !check_clocks(reading)) return;
  const Values all{values.data(), plan_.spec.dtype, plan_.spec.cols, reading.rows.empty() ? nullptr : &at};
  std::vector<size_t> stripes = stripes_of(reading.rows);
  if (reading.rows.empty()) {
    stripes.resize(stripes_.size());
    std::iota(stripes.begin(), stripes.end(), size_t{0});
  }
  std::vector<Count> counts(workers_);
  for (const size_t stripe : stripes) {
    if (is_owned(stripe))
      check_owned(reading, stripe, all);
    else if (check_counters(reading, stripe, all, counts))
      check_elements(reading, stripe, all, counts);
  }
  if (reading.exact && reading.all && compares_bits) note_bits(reading, values);
}

/// Stale-synchronous tables: no worker that takes part is further behind than the table allows.
bool Ledger::check_clocks(const Reading& reading) {
  for (size_t worker = 0; worker < workers_; ++worker) {
    const WorkerClock& worker_clock = worker_clocks_[worker];
    if (worker_clock.state != WorkerClock::kHere || worker_clock.clock >= reading.needs) continue;
    timeline_.violated(fmt::format("{} completed although {} is at clock {}; {} was needed", reading.who,
                                   worker_name(worker), worker_clock.clock, reading.needs));
    return false;
  }
  return true;
}

// ---- the number of a worker's visible changes

/// The number of this worker's changes there that come before the first one whose number is not below `end`.
uint32_t Ledger::count_while(size_t cell, size_t Add::*number, size_t end) const {
  const auto& list = touching_[cell];
  const auto first =
      std::partition_point(list.begin(), list.end(), [&](const AddRef& a) { return (*a).*number < end; });
  return static_cast<uint32_t>(first - list.begin());
}

/// The minimum and maximum of this worker's changes that the reading may show there.
std::pair<uint32_t, uint32_t> Ledger::bounds(const Reading& reading, size_t stripe, size_t worker) const {
  const size_t at = cell(stripe, worker);
  uint32_t low = reading.low[at], high = static_cast<uint32_t>(touching_[at].size());
  if (worker == reading.by) low = std::max(low, count_while(at, &Add::serial, reading.own));
  if (reading.bounded && worker_clocks_[worker].state != WorkerClock::kGone)
    low = std::max(low, count_while(at, &Add::clock, reading.needs));
  if (!reading.exact) return {low, high};
  if (!is_owned(stripe))
    return {count_while(at, &Add::index, reading.index), count_while(at, &Add::index, reading.index)};
  // Sets and erases have the index of the next add: those between the same two gets may be visible or not.
  const auto& list = touching_[at];
  const auto within = [&](const AddRef& a) {
    return a->index + (a->write == shard::Write::Add ? 1 : 0) <= reading.index;
  };
  const auto end = std::partition_point(list.begin(), list.end(), within);
  return {std::max(low, count_while(at, &Add::index, reading.index)), static_cast<uint32_t>(end - list.begin())};
}

/// None if no adds produce such a counter.
std::optional<Ledger::Count> Ledger::decode(double shown) const {
  const double adds = (shown - first_value()) / plan_.effect();
  if (adds < 0 || adds > UINT32_MAX) return std::nullopt;
  const double early = std::floor(adds);
  const double late = plan_.later_rate == 0 ? adds - early : (adds - early) * plan_.effect() / -plan_.later_rate;
  const Count count{static_cast<uint32_t>(early), static_cast<uint32_t>(late)};
  if (late != count.late || (late > 0 && plan_.later_rate == 0)) return std::nullopt;
  return count;
}

bool Ledger::check_counters(const Reading& reading, size_t stripe, const Values& values, std::vector<Count>& counts) {
  for (size_t worker = 0; worker < workers_; ++worker) {
    const double shown = values.value(stripes_[stripe].begin + worker);
    const auto [low, high] = bounds(reading, stripe, worker);
    const std::optional<Count> count = decode(shown);
    counts[worker] = count.value_or(Count());
    if (count.has_value() && counts[worker].all() >= low && counts[worker].all() <= high) continue;
    timeline_.violated(fmt::format("{}: {} shows {} for {}, {} adds; expected {} .. {} (of {} sent)",
                                   reading.who, place(stripe), shown, worker_name(worker), counts[worker].all(), low,
                                   high, touching_[cell(stripe, worker)].size()));
    return false;
  }
  for (size_t worker = 0; worker < workers_; ++worker) {
    const std::string wrong = wrong_rate(stripe, worker, counts);
    if (wrong.empty()) continue;
    timeline_.violated(fmt::format("{}: {} shows {} adds of {} at the first rate and {} at the later one; {}",
                                   reading.who, place(stripe), counts[worker].early, worker_name(worker),
                                   counts[worker].late, wrong));
    return false;
  }
  return true;
}

/// Why these adds of this worker cannot have had these rates; "" if they can.
std::string Ledger::wrong_rate(size_t stripe, size_t worker, const std::vector<Count>& counts) const {
  const Count& count = counts[worker];
  if (!switch_.has_value()) return count.late == 0 ? "" : "no worker has set it";
  const size_t at = cell(stripe, worker);
  if (count.early < std::min(count.all(), switch_->known_before[at])) return "more adds were applied before it was set";
  if (!switch_->begun_then.empty() && count.early > count_while(at, &Add::serial, switch_->begun_then[worker]))
    return "some of them began after it was set";
  const uint32_t own = count_while(cell(stripe, switch_->by), &Add::serial, switch_->own);
  if (worker == switch_->by && count.early != std::min(count.all(), own))
    return fmt::format("it made {} adds before it set the rate", own);
  if (count.late > 0 && counts[switch_->by].all() < own) return "some adds of the worker that set it are missing";
  return "";
}

// ---- sums

/// An element that only one worker changes, after one more change.
double Ledger::after(const Add& change, uint64_t element, double before) const {
  if (change.write == shard::Write::Erase) return plan_.spec.initial;
  const double number = change.amount * pattern(element);
  return change.write == shard::Write::Set ? number : before + number * plan_.effect();
}

/// The row equals the result of some number of its owner's changes.
void Ledger::check_owned(const Reading& reading, size_t stripe, const Values& values) {
  const auto [low, high] = bounds(reading, stripe, owner_of(stripe));
  const auto& list = touching_[cell(stripe, owner_of(stripe))];
  const double tolerance = plan_.fractional ? (high + 2) * 6 * (plan_.spec.dtype == MV_F32 ? 1e-6 : 1e-14) : 0;
  const uint64_t begin = stripes_[stripe].begin;
  std::vector<double> row(stripes_[stripe].count, plan_.spec.initial);
  for (uint32_t changes = 0; changes <= high; ++changes) {
    for (uint64_t col = 0; changes > 0 && col < row.size(); ++col)
      row[col] = after(*list[changes - 1], begin + col, row[col]);
    bool equal = changes >= low;
    for (uint64_t col = 0; equal && col < row.size(); ++col)
      equal = std::abs(values.value(begin + col) - row[col]) <= tolerance * std::abs(row[col]);
    if (equal) return;
  }
  timeline_.violated(fmt::format("{}: {}, which {} alone changes, is {} ...: not the result of {} .. {} of its changes",
                                 reading.who, place(stripe), worker_name(owner_of(stripe)), values.value(begin), low,
                                 high));
}

void Ledger::check_elements(const Reading& reading, size_t stripe, const Values& values,
                            const std::vector<Count>& counts) {
  double everywhere = 0;
  std::unordered_map<uint64_t, double> more;  // by row
  size_t terms = 1;
  for (size_t worker = 0; worker < workers_; ++worker) {
    const auto& list = touching_[cell(stripe, worker)];
    terms += counts[worker].all();
    for (size_t i = 0; i < counts[worker].all(); ++i) {
      const double effect = list[i]->amount * (i < counts[worker].early ? plan_.effect() : -plan_.later_rate);
      if (list[i]->all || keyed_) everywhere += effect;
      for (size_t at = 0; !keyed_ && at < list[i]->rows.size(); ++at)
        more[static_cast<uint64_t>(list[i]->rows[at])] += effect;
    }
  }
  const double tolerance =
      !plan_.fractional ? 0 : static_cast<double>(terms * 6) * (plan_.spec.dtype == MV_F32 ? 1e-6 : 1e-14);
  const auto equal = [&](double shown, double expected) {
    return std::abs(shown - expected) <= tolerance * std::abs(expected);
  };
  double initial = plan_.initial;
  bool may_lack_initial = initial_may_be_lost_;
  for (const auto& [begin, end] : runs_of(reading, stripe)) {
    const auto found = more.find(row_of(begin));
    const double of_row = everywhere + (found != more.end() ? found->second : 0);
    if (std::exchange(may_lack_initial, false) && equal(values.value(begin), of_row * pattern(begin))) initial = 0;
    const double times = initial + of_row, first = first_value();
    const std::byte* const shown = values.data + values.position(begin) * tensor::dtype_bytes(values.dtype);
    const auto expected = [&](uint64_t e) { return first + times * pattern(e); };
    const uint64_t e = begin + first_wrong(values.dtype, shown, end - begin,
                                           [&](uint64_t i, double number) { return equal(number, expected(begin + i)); });
    if (e == end) continue;
    return timeline_.violated(fmt::format("{}: element {} of {} is {}; the adds in its counters sum up to {}", reading.who, e, place(stripe),
                                          values.value(e), expected(e)));
  }
}

/// The elements of a stripe that a reading shows, without the counters, row by row.
std::vector<std::pair<uint64_t, uint64_t>> Ledger::runs_of(const Reading& reading, size_t stripe) const {
  const uint64_t first = stripes_[stripe].begin + workers_, end = stripes_[stripe].begin + stripes_[stripe].count,
                 cols = plan_.spec.cols;
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  const auto note = [&](uint64_t from, uint64_t to) {
    if (from < to) runs.emplace_back(from, to);
  };
  if (keyed_) {
    note(first, end);
    return runs;
  }
  if (reading.rows.empty())
    for (uint64_t row = row_of(first); row * cols < end; ++row)
      note(std::max(first, row * cols), std::min(end, (row + 1) * cols));
  for (const int64_t row : reading.rows)
    note(std::max(first, static_cast<uint64_t>(row) * cols), std::min(end, (static_cast<uint64_t>(row) + 1) * cols));
  return runs;
}

void Ledger::note_bits(const Reading& reading, const std::vector<std::byte>& values) {
  uint64_t hash = 0, word = 0;
  for (size_t at = 0; at < values.size(); at += sizeof word) {
    word = 0;
    std::memcpy(&word, values.data() + at, std::min(sizeof word, values.size() - at));
    hash = Random::mix(hash ^ word);
  }
  const auto& [theirs, who] = bits_.try_emplace(reading.round, hash, reading.who).first->second;
  if (theirs != hash)
    timeline_.violated(fmt::format("get number {} of table \"{}\" gave {} different bits than {}", reading.round + 1,
                                   plan_.spec.name, reading.who, who));
}

// ---- scans

/// Whether a key is stored after this many of this worker's changes of it.
bool Ledger::is_stored(size_t stripe, size_t worker, uint32_t changes) const {
  return changes > 0 && touching_[cell(stripe, worker)][changes - 1]->write != shard::Write::Erase;
}

/// How often a scan may return this key.
std::pair<uint32_t, uint32_t> Ledger::times_allowed(const Reading& reading, size_t stripe) const {
  bool always = false, never = true;
  for (size_t worker = 0; worker < workers_; ++worker) {
    const auto [low, high] = bounds(reading, stripe, worker);
    if (!is_owned(stripe)) {
      always = always || low > 0;
      never = never && high == 0;
    } else if (worker == owner_of(stripe)) {
      always = true;
      for (uint32_t changes = low; changes <= high; ++changes) {
        always = always && is_stored(stripe, worker, changes);
        never = never && !is_stored(stripe, worker, changes);
      }
    }
  }
  return {always ? 1 : 0, never ? 0 : 1};
}

void Ledger::scanned(const Reading& reading, std::span<const int64_t> rows, const std::vector<std::byte>& values,
                     std::vector<uint32_t>& times) {
  times.resize(plan_.keys.size());
  Reading chunk = reading;
  chunk.all = false;
  chunk.rows.assign(rows.begin(), rows.end());
  for (const int64_t row : rows) {
    const auto index = index_of_.find(row);
    if (index == index_of_.end())
      return timeline_.violated(fmt::format("{} returned key {}, which was never changed", reading.who, row));
    if (times[index->second]++ > 0) return timeline_.violated(fmt::format("{} returned key {} twice", reading.who, row));
  }
  if (!values.empty() && !rows.empty()) check(chunk, values);
}

void Ledger::scan_over(const Reading& reading, const std::vector<uint32_t>& times, std::optional<size_t> server) {
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe) {
    if (server.has_value() && stripes_[stripe].server != *server) continue;
    const uint32_t given = stripe < times.size() ? times[stripe] : 0;
    const auto [least, most] = times_allowed(reading, stripe);
    if (given >= least && given <= most) continue;
    return timeline_.violated(
        fmt::format("{} returned {} {} times; expected {} .. {}", reading.who, place(stripe), given, least, most));
  }
}

// ---- at the end

void Ledger::check_part(const std::string& who, size_t server, shard::Shard& shard, const std::vector<bool>& complete) {
  Reading reading;
  reading.who = who + " at the end";
  reading.by = workers_;
  reading.low = known_;
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe)
    for (size_t worker = 0; worker < workers_; ++worker)
      if (complete[worker])
        reading.low[cell(stripe, worker)] = static_cast<uint32_t>(touching_[cell(stripe, worker)].size());
  if (keyed_) return check_keyed_part(reading, server, shard);
  std::vector<std::byte> values(plan_.spec.bytes());
  shard.read(shard::kNoWorker, 0, shard.elements(), values.data() + shard.rows().first * plan_.spec.row_bytes());
  const Values part{values.data(), plan_.spec.dtype, plan_.spec.cols};
  std::vector<Count> counts(workers_);
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe)
    if (stripes_[stripe].server == server && check_counters(reading, stripe, part, counts))
      check_elements(reading, stripe, part, counts);
}

void Ledger::check_keyed_part(Reading& reading, size_t server, shard::Shard& shard) {
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe)
    if (stripes_[stripe].server == server) reading.rows.push_back(plan_.keys[stripe]);
  std::vector<std::byte> values(reading.rows.size() * plan_.spec.row_bytes());
  shard.read_rows(shard::kNoWorker, reading.rows, values.data());
  if (!reading.rows.empty()) check(reading, values);
  std::vector<uint32_t> times;
  for (int64_t cursor = 0; cursor >= 0;) {
    const auto chunk = shard.scan(cursor, 3, false);
    if (!chunk.ok()) return timeline_.violated(reading.who + ": a scan ended with " + chunk.status().text());
    scanned(reading, chunk.value().rows, {}, times);
    cursor = chunk.value().next;
  }
  scan_over(reading, times, server);
}

}  // namespace mv::sim
