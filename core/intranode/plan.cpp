#include "intranode/plan.hpp"

#include <algorithm>

namespace mv::intranode {

using collective::Kind;

namespace {

constexpr size_t round_up(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Plan::Plan(const collective::Operation& operation, size_t ranks) {
  const Kind kind = operation.kind;
  if (collective::is_by_messages(kind) || operation.vote != nullptr) return;  // only agreed upon
  const bool to_all = kind == Kind::kAllreduce || kind == Kind::kGrow;
  from_all = to_all || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  copied = to_all || kind == Kind::kBroadcast || kind == Kind::kAllgather;
  has_root_ = kind == Kind::kReduce || kind == Kind::kBroadcast;
  root_ = operation.root;
  dealt_ = to_all;
  sliced_in_ = kind == Kind::kReduceScatter;
  sliced_out_ = kind == Kind::kAllgather;
  parts_.reserve(operation.out.size());
  for (const collective::Array& array : operation.out) {
    const size_t bytes = sliced_out_ ? array.bytes() / ranks : array.bytes();
    parts_.push_back({channel_bytes_, bytes});
    channel_bytes_ += round_up(bytes);
  }
  if (channel_bytes_ == 0) return;
  channels = has_root_ ? 1 : ranks;
  cut(kBlockBytes);
}

void Plan::cut(size_t block_bytes) {
  const size_t shares = dealt_ ? channels : 1;
  block_bytes_ = std::min(block_bytes, round_up((channel_bytes_ + shares - 1) / shares));
  const size_t group_bytes = shares * block_bytes_;
  groups = (channel_bytes_ + group_bytes - 1) / group_bytes;
}

/// If each of two ranks makes the whole result, it reads all values of the other one: as many bytes as half the values
/// and half the results, and neither waits for results.
void Plan::take(Algorithm algorithm) {
  if (channel_bytes_ == 0) return;
  const AlgorithmTraits& about = traits(algorithm);
  by_all = about.whole;
  direct = about.direct;
  dealt_ = copied = !by_all;
  cut(about.block_bytes);
}

/// The last array that starts at or before this place of a channel.
size_t Plan::array_at(size_t place) const {
  const auto after = std::ranges::upper_bound(parts_, place, {}, &ArraySpan::starts);
  return after == parts_.begin() ? 0 : static_cast<size_t>(after - parts_.begin()) - 1;
}

}  // namespace mv::intranode
