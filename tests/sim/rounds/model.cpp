#include "rounds/model.hpp"

#include <algorithm>
#include <map>

#include "random.hpp"

namespace mv::sim {

RoundPart RoundModel::part(size_t worker, uint64_t round) const {
  Random form(Random::mix(seed_ + round * 2 + 1)), random(Random::mix(Random::mix(seed_ ^ round) + worker));
  RoundPart part;
  part.all = !spec_.is_keyed() && form.chance(0.5);
  for (int64_t row = 0; !part.all && row < static_cast<int64_t>(spec_.rows); ++row)
    if (random.chance(0.3)) part.rows.push_back(row);
  part.values.resize((part.all ? spec_.rows : part.rows.size()) * spec_.cols);
  for (double& value : part.values) value = static_cast<double>(random.between(1, 9));
  return part;
}

std::vector<int64_t> RoundModel::rows_of(size_t server) const {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < static_cast<int64_t>(spec_.rows); ++row)
    if (shard::server_of(spec_, servers_, row) == server) rows.push_back(row);
  return rows;
}

void RoundModel::merge(State& state, size_t server, const RoundParts& parts, uint64_t round) const {
  const uint64_t cols = spec_.cols;
  std::map<int64_t, std::vector<double>> sums;
  for (size_t worker = 0; worker < parts.size(); ++worker) {
    if (std::ranges::none_of(parts[worker], [&](shard::Range life) { return life.first <= round && round < life.end(); })) continue;
    const RoundPart part = this->part(worker, round);
    for (size_t i = 0; i < (part.all ? spec_.rows : part.rows.size()); ++i) {
      std::vector<double>& sum = sums[part.all ? static_cast<int64_t>(i) : part.rows[i]];
      sum.resize(cols);
      for (uint64_t col = 0; col < cols; ++col) sum[col] += part.values[i * cols + col];
    }
  }
  const std::vector<int64_t> rows = rows_of(server);
  const std::string& updater = spec_.updater.name;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto sum = sums.find(rows[i]);
    for (uint64_t col = 0; col < cols; ++col) {
      double &value = state.values[i * cols + col], &momentum = state.momentum[i * cols + col];
      if (sum == sums.end()) {
        if (updater == shard::kReplacing) value = 0;
      } else if (updater == "add") {
        value += sum->second[col];
      } else if (updater == shard::kReplacing) {
        value = sum->second[col];
      } else {  // mx.sgd learning_rate=1 momentum=0.5
        momentum = momentum / 2 - sum->second[col];
        value += momentum;
      }
    }
  }
}

uint64_t RoundModel::rounds_in(size_t server, std::span<const double> values, shard::Range some, const RoundParts& parts,
                               uint64_t least, uint64_t most) const {
  State state{std::vector<double>(values.size()), std::vector<double>(values.size())};
  for (uint64_t round = 0;; ++round) {
    const auto looked_at = [&](std::span<const double> all) { return all.subspan(some.first, some.count); };
    if (round >= least && round <= most && std::ranges::equal(looked_at(values), looked_at(state.values))) return round;
    if (round >= most) return UINT64_MAX;
    merge(state, server, parts, round);
  }
}

}  // namespace mv::sim
