#include "ledger.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace mv::sim {

namespace {

constexpr double kFraction = 0.1;

template <typename Work>
void with_type(mv_dtype dtype, Work work) {
  dtype == MV_F32 ? work(float{}) : work(double{});
}

}  // namespace

/// The values of a reading, by element of the table.
struct Ledger::Values {
  const std::byte* data;
  mv_dtype dtype;
  uint64_t cols;
  const std::unordered_map<uint64_t, size_t>* at = nullptr;  ///< where each row lies; null: where the table has it

  double value(uint64_t element) const {
    return slot(at != nullptr ? at->at(element / cols) * cols + element % cols : element);
  }
  double slot(uint64_t i) const {
    float f;
    double d;
    if (dtype == MV_F32) return std::memcpy(&f, data + i * sizeof f, sizeof f), f;
    return std::memcpy(&d, data + i * sizeof d, sizeof d), d;
  }
};

Ledger::Ledger(Timeline& timeline, TablePlan plan, size_t servers, size_t workers)
    : timeline_(timeline), plan_(std::move(plan)), workers_(workers), begun_(workers), adds_(workers) {
  const table::Spec& spec = plan_.spec;
  for (size_t server = 0; server < servers; ++server) {
    const table::Range part = table::part_of(spec.rows, servers, server);
    const uint64_t elements = part.count * spec.cols, most = table::stripe_elements(spec);
    for (uint64_t first = 0; first < elements; first += most)
      stripes_.push_back({server, first, part.first * spec.cols + first, std::min(most, elements - first)});
  }
  touching_.resize(stripes_.size() * workers_);
  known_.resize(stripes_.size() * workers_);
}

size_t Ledger::stripe_of(uint64_t element) const {
  const auto after = std::upper_bound(stripes_.begin(), stripes_.end(), element,
                                      [](uint64_t e, const Stripe& s) { return e < s.begin; });
  return static_cast<size_t>(after - stripes_.begin()) - 1;
}

bool Ledger::is_counter(uint64_t element) const { return element - stripes_[stripe_of(element)].begin < workers_; }

double Ledger::pattern(uint64_t element) const {
  return static_cast<double>(1 + ((element * 0x9e3779b97f4a7c15) >> 61)) * (plan_.fractional ? kFraction : 1);
}

// ---- adds

std::vector<std::byte> Ledger::initial_values() const {
  if (plan_.initial == 0) return {};
  std::vector<std::byte> out(plan_.spec.bytes());
  with_type(plan_.spec.dtype, [&](auto zero) {
    auto* values = reinterpret_cast<decltype(zero)*>(out.data());
    for (uint64_t e = 0; e < plan_.spec.elements(); ++e)
      values[e] = is_counter(e) ? 0 : static_cast<decltype(zero)>(plan_.initial * pattern(e));
  });
  return out;
}

std::vector<size_t> Ledger::stripes_of(const std::vector<int64_t>& rows) const {
  std::vector<size_t> stripes;
  for (const int64_t row : rows) stripes.push_back(stripe_of(static_cast<uint64_t>(row) * plan_.spec.cols));
  std::sort(stripes.begin(), stripes.end());
  stripes.erase(std::unique(stripes.begin(), stripes.end()), stripes.end());
  return stripes;
}

void Ledger::add_counter_rows(std::vector<int64_t>& rows, size_t by, bool everyones) const {
  const std::vector<size_t> touched = stripes_of(rows);
  std::unordered_set<int64_t> there(rows.begin(), rows.end());
  for (const size_t stripe : touched)
    for (size_t worker = everyones ? 0 : by; worker < (everyones ? workers_ : by + 1); ++worker) {
      const auto row = static_cast<int64_t>(row_of(stripes_[stripe].begin + worker));
      if (there.insert(row).second) rows.push_back(row);
    }
}

std::vector<int64_t> Ledger::choose_rows(Random& random, bool many) const {
  const uint64_t fits = table::kStripeBytes /
                        (2 * (plan_.spec.row_bytes() + sizeof(int64_t)));  // one message, so that it is of one moment
  std::vector<int64_t> rows(many ? std::min(fits, 600 + random.below(200)) : 1 + random.below(6));
  for (int64_t& row : rows) row = static_cast<int64_t>(random.below(plan_.spec.rows));
  add_counter_rows(rows, 0, true);
  return rows;
}

AddRef Ledger::add(size_t by, Random& random, bool all) {
  const auto add = std::make_shared<Add>();
  add->by = by;
  add->serial = begun_[by]++;
  add->index = adds_[by].size();
  add->amount = static_cast<int>(random.between(1, 50));
  add->all = all;
  if (all) {
    for (size_t stripe = 0; stripe < stripes_.size(); ++stripe) add->stripes.push_back(stripe);
  } else {
    add->rows.resize(1 + random.below(6));
    for (int64_t& row : add->rows) row = static_cast<int64_t>(random.below(plan_.spec.rows));
    add_counter_rows(add->rows, by, false);
    add->stripes = stripes_of(add->rows);
  }
  adds_[by].push_back(add);
  for (const size_t stripe : add->stripes) touching_[cell(stripe, by)].push_back(add);
  return add;
}

std::vector<std::byte> Ledger::values(const Add& add) const {
  const table::Spec& spec = plan_.spec;
  std::vector<std::byte> out(add.all ? spec.bytes() : add.rows.size() * spec.row_bytes());
  with_type(spec.dtype, [&](auto zero) {
    auto* values = reinterpret_cast<decltype(zero)*>(out.data());
    const auto put = [&](uint64_t at, uint64_t e) {
      values[at] = static_cast<decltype(zero)>(add.amount * pattern(e));
    };
    if (add.all) {
      for (const Stripe& stripe : stripes_) {
        values[stripe.begin + add.by] = 1;
        for (uint64_t e = stripe.begin + workers_; e < stripe.begin + stripe.count; ++e) put(e, e);
      }
      return;
    }
    std::unordered_set<uint64_t> counted;  // a row that comes twice still counts once
    for (size_t i = 0; i < add.rows.size(); ++i)
      for (uint64_t col = 0; col < spec.cols; ++col) {
        const uint64_t e = static_cast<uint64_t>(add.rows[i]) * spec.cols + col, at = i * spec.cols + col;
        if (!is_counter(e))
          put(at, e);
        else if (e - stripes_[stripe_of(e)].begin == add.by && counted.insert(e).second)
          values[at] = 1;
      }
  });
  return out;
}

void Ledger::acknowledged(const Add& add) {
  for (const size_t stripe : add.stripes) {
    const auto& list = touching_[cell(stripe, add.by)];
    size_t at = list.size();  // from the end: it is a recent one
    while (at > 0 && list[at - 1].get() != &add) --at;
    uint32_t& known = known_[cell(stripe, add.by)];
    known = std::max(known, static_cast<uint32_t>(at));
  }
}

void Ledger::not_applied(const AddRef& add) {
  std::erase(adds_[add->by], add);
  for (size_t i = add->index; i < adds_[add->by].size(); ++i) adds_[add->by][i]->index = i;
  for (const size_t stripe : add->stripes) std::erase(touching_[cell(stripe, add->by)], add);
}

void Ledger::settled(size_t worker, size_t begun) {
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe) {
    const auto& list = touching_[cell(stripe, worker)];
    const auto end =
        std::partition_point(list.begin(), list.end(), [&](const AddRef& add) { return add->serial < begun; });
    uint32_t& known = known_[cell(stripe, worker)];
    known = std::max(known, static_cast<uint32_t>(end - list.begin()));
  }
}

// ---- readings

Reading Ledger::begin(std::string who, size_t by, bool gated, bool sync, uint64_t round) const {
  Reading reading;
  reading.who = std::move(who);
  reading.by = by;
  reading.gated = gated;
  reading.low = known_;
  reading.own = gated || !sync ? begun_[by] : 0;  // sync mode's peeks need not wait for own adds
  reading.index = adds_[by].size();
  reading.exact = gated && sync;
  reading.round = round;
  return reading;
}

size_t Ledger::bytes(const Reading& reading) const {
  return reading.rows.empty() ? plan_.spec.bytes() : reading.rows.size() * plan_.spec.row_bytes();
}

void Ledger::check(const Reading& reading, const std::vector<std::byte>& values) {
  const uint64_t cols = plan_.spec.cols;
  std::unordered_map<uint64_t, size_t> at;
  for (size_t i = 0; i < reading.rows.size(); ++i) at.emplace(reading.rows[i], i);
  for (size_t i = 0; i < reading.rows.size(); ++i)  // repeated rows are equal
    if (at.at(reading.rows[i]) != i &&
        std::memcmp(values.data() + at.at(reading.rows[i]) * plan_.spec.row_bytes(),
                    values.data() + i * plan_.spec.row_bytes(), plan_.spec.row_bytes()) != 0)
      return timeline_.violated(fmt::format("{}: row {} came twice, and differs", reading.who, reading.rows[i]));
  const Values all{values.data(), plan_.spec.dtype, cols, reading.rows.empty() ? nullptr : &at};
  std::vector<size_t> stripes = stripes_of(reading.rows);
  if (reading.rows.empty())
    for (size_t stripe = 0; stripe < stripes_.size(); ++stripe) stripes.push_back(stripe);
  std::vector<uint32_t> counts(workers_);
  for (const size_t stripe : stripes)
    if (check_counters(reading, stripe, all, counts)) check_elements(reading, stripe, all, counts);
  if (reading.exact && reading.rows.empty() && compares_bits) note_bits(reading, values);
}

bool Ledger::check_counters(const Reading& reading, size_t stripe, const Values& values,
                            std::vector<uint32_t>& counts) {
  for (size_t worker = 0; worker < workers_; ++worker) {
    const double shown = values.value(stripes_[stripe].begin + worker);
    const auto& list = touching_[cell(stripe, worker)];
    const auto first = [&](size_t Add::*number, size_t end) {
      return static_cast<uint32_t>(
          std::partition_point(list.begin(), list.end(), [&](const AddRef& a) { return (*a).*number < end; }) -
          list.begin());
    };
    uint32_t low = reading.low[cell(stripe, worker)], high = static_cast<uint32_t>(list.size());
    if (worker == reading.by) low = std::max(low, first(&Add::serial, reading.own));
    if (reading.exact) low = high = first(&Add::index, reading.index);
    counts[worker] = static_cast<uint32_t>(shown);
    if (shown >= low && shown <= high && shown == counts[worker]) continue;
    timeline_.violated(fmt::format(
        "{}: stripe {} of table \"{}\" (server {}) shows {} adds of {}; expected {} .. {} (of {} on their way)",
        reading.who, stripe, plan_.spec.name, stripes_[stripe].server, shown, worker_name(worker), low, high,
        list.size()));
    return false;
  }
  return true;
}

void Ledger::check_elements(const Reading& reading, size_t stripe, const Values& values,
                            const std::vector<uint32_t>& counts) {
  double everywhere = plan_.initial;
  std::unordered_map<uint64_t, double> more;  // by row
  size_t terms = 1;
  for (size_t worker = 0; worker < workers_; ++worker) {
    const auto& list = touching_[cell(stripe, worker)];
    terms += counts[worker];
    for (size_t i = 0; i < counts[worker]; ++i) {
      if (list[i]->all) everywhere += list[i]->amount;
      for (const int64_t row : list[i]->rows) more[static_cast<uint64_t>(row)] += list[i]->amount;
    }
  }
  const double tolerance =
      !plan_.fractional ? 0 : static_cast<double>(terms * 6) * (plan_.spec.dtype == MV_F32 ? 1e-6 : 1e-14);
  const auto equal = [&](double shown, double expected) {
    return std::abs(shown - expected) <= tolerance * std::abs(expected);
  };
  bool may_lack_initial = initial_may_be_lost_;
  for (const auto& [begin, end] : runs_of(reading, stripe)) {
    const auto found = more.find(row_of(begin));
    const double of_row = found != more.end() ? found->second : 0;
    if (std::exchange(may_lack_initial, false) &&
        equal(values.value(begin), (everywhere - plan_.initial + of_row) * pattern(begin)))
      everywhere -= plan_.initial;
    for (uint64_t e = begin; e < end; ++e) {
      const double expected = (everywhere + of_row) * pattern(e), shown = values.value(e);
      if (equal(shown, expected)) continue;
      return timeline_.violated(fmt::format(
          "{}: element {} of table \"{}\" (stripe {}, server {}) is {}; the adds that its counters show sum up to {}",
          reading.who, e, plan_.spec.name, stripe, stripes_[stripe].server, shown, expected));
    }
  }
}

/// The elements of a stripe that a reading shows, besides the counters, row by row.
std::vector<std::pair<uint64_t, uint64_t>> Ledger::runs_of(const Reading& reading, size_t stripe) const {
  const uint64_t first = stripes_[stripe].begin + workers_, end = stripes_[stripe].begin + stripes_[stripe].count,
                 cols = plan_.spec.cols;
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  const auto note = [&](uint64_t from, uint64_t to) {
    if (from < to) runs.emplace_back(from, to);
  };
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
    timeline_.violated(fmt::format("get number {} of table \"{}\" gave {} other bits than {}", reading.round + 1,
                                   plan_.spec.name, reading.who, who));
}

void Ledger::check_part(const std::string& who, size_t server, const table::Shard& shard,
                        const std::vector<bool>& complete) {
  std::vector<std::byte> values(plan_.spec.bytes());
  shard.read(0, shard.elements(), values.data() + shard.rows().first * plan_.spec.row_bytes());
  Reading reading;
  reading.who = who + " at the end";
  reading.by = workers_;
  reading.low = known_;
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe)
    for (size_t worker = 0; worker < workers_; ++worker)
      if (complete[worker])
        reading.low[cell(stripe, worker)] = static_cast<uint32_t>(touching_[cell(stripe, worker)].size());
  const Values part{values.data(), plan_.spec.dtype, plan_.spec.cols};
  std::vector<uint32_t> counts(workers_);
  for (size_t stripe = 0; stripe < stripes_.size(); ++stripe)
    if (stripes_[stripe].server == server && check_counters(reading, stripe, part, counts))
      check_elements(reading, stripe, part, counts);
}

}  // namespace mv::sim
