#include "collective/work.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "random.hpp"

namespace mv::sim {

using collective::Kind;
using math::Reduction;

uint64_t Script::number(uint64_t of) const { return Random::mix(seed_ + 0x9e3779b97f4a7c15u * (of + 1)); }

size_t Script::longest() const {
  size_t longest = 0;
  for (size_t rank = 0; rank < ranks_; ++rank) longest = std::max(longest, steps(rank));
  return longest;
}

Work::Work(const Script& script, size_t rank, size_t at, bool drains) : script_(script), rank_(rank), at_(at) {
  const uint64_t random = script.number(1000 + at);
  const bool uneven = at >= script.common();
  static constexpr Kind kKinds[] = {Kind::kAllreduce, Kind::kAllreduce, Kind::kReduce,  Kind::kBroadcast,      Kind::kAllgather, Kind::kReduceScatter,
                                    Kind::kBarrier,   Kind::kGather,    Kind::kScatter, Kind::kAlltoallCounts, Kind::kAlltoall,  Kind::kRecv};
  static constexpr uint64_t kSizes[] = {0, 1, 5, 300, 3000, 70'000};
  operation_.kind = uneven ? Kind::kAllreduce : kKinds[random % 12];
  operation_.reduction = uneven ? Reduction::kSum : static_cast<Reduction>(1 + random / 7 % 4);
  if (operation_.reduction == Reduction::kProd) operation_.reduction = Reduction::kMax;
  operation_.root = random / 100 % script.ranks();
  operation_.draining = drains;
  dtype_ = random / 30 % 2 == 0 ? MV_I64 : MV_F64;
  const uint64_t size = kSizes[random / 1000 % (script.ranks() > 20 ? 5 : 6)];
  if (operation_.kind == Kind::kRecv && script.ranks() == 1) operation_.kind = Kind::kBarrier;
  if (operation_.kind == Kind::kAlltoall || operation_.kind == Kind::kAlltoallCounts || operation_.kind == Kind::kRecv)
    lay_out_pairs(size);
  else if (operation_.kind == Kind::kAllreduce)
    lay_out({size, random / 50 % 7, size / 3});
  else if (operation_.kind != Kind::kBarrier)
    lay_out({size});
  operation_.contributors = &contributors_;
}

void Work::lay_out(std::vector<uint64_t> counts) {
  const bool root = rank_ == operation_.root;
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool has_parts_in = operation_.kind == Kind::kReduceScatter || operation_.kind == Kind::kScatter;
    const bool has_parts_out = operation_.kind == Kind::kAllgather || operation_.kind == Kind::kGather;
    const uint64_t ins = has_parts_in ? counts[i] * script_.ranks() : counts[i];
    const uint64_t outs = has_parts_out ? counts[i] * script_.ranks() : counts[i];
    in_.emplace_back(8 * ins + 1);
    out_.emplace_back(8 * outs + 1);
    for (uint64_t element = 0; element < ins; ++element) set(in_.back().data(), element, operation_.draining ? 0 : given(rank_, i, element));
    if (operation_.kind == Kind::kBroadcast && root) out_.back() = in_.back();
    operation_.out.push_back({out_.back().data(), outs, dtype_});
    if (operation_.kind != Kind::kBroadcast) operation_.in.push_back(in_.back().data());
  }
}

/// The elements of an alltoall, or of a ring in which each rank sends to the next.
void Work::lay_out_pairs(uint64_t size) {
  const bool ring = operation_.kind == Kind::kRecv;
  const size_t ranks = script_.ranks(), next = (rank_ + 1) % ranks, previous = (rank_ + ranks - 1) % ranks;
  operation_.reduction = Reduction::kSum;
  operation_.root = 0;
  std::vector<uint64_t> sends(ranks, size / ranks), receives = sends;
  for (size_t peer = 0; peer < ranks; ++peer) {
    if (operation_.kind == Kind::kAlltoall) continue;
    sends[peer] = !ring || peer == next ? pair_count(rank_, peer) : 0;
    receives[peer] = !ring || peer == previous ? pair_count(peer, rank_) : 0;
  }
  in_.emplace_back(8 * std::accumulate(sends.begin(), sends.end(), uint64_t{0}) + 1);
  out_.emplace_back(8 * std::accumulate(receives.begin(), receives.end(), uint64_t{0}) + 1);
  uint64_t at = 0;
  for (size_t peer = 0; peer < ranks; ++peer)
    for (uint64_t element = 0; element < sends[peer]; ++element) set(in_.back().data(), at++, given_to(rank_, peer, element));
  operation_.out = {{out_.back().data(), out_.back().size() / 8, dtype_}};
  if (!ring) operation_.in = {in_.back().data()};
  operation_.send_counts = sends;
  operation_.receive_counts = receives;
  if (!ring) return;
  operation_.tag = static_cast<int64_t>(at_ % 2);
  operation_.root = script_.number(at_) % 3 == 0 ? collective::kAnyRank : previous;  // no other rank sends to this one
  operation_.source = &source_;
  send_.kind = Kind::kSend;
  send_.root = next;
  send_.tag = operation_.tag;
  send_.out = {{in_.back().data(), in_.back().size() / 8, dtype_}};
}

std::vector<collective::Operation> Work::operations() const {
  if (operation_.kind != Kind::kRecv) return {operation_};
  return script_.number(at_ + rank_) % 2 == 0 ? std::vector{operation_, send_} : std::vector{send_, operation_};
}

uint64_t Work::pair_count(size_t from, size_t to) const {
  static constexpr uint64_t kSizes[] = {0, 1, 7, 400, 9000, 150'000};
  return kSizes[(script_.number(at_) + 3 * from + to) % (script_.ranks() > 5 ? 5 : 6)];
}

int64_t Work::given_to(size_t from, size_t to, uint64_t element) const { return given(from, to, element); }

std::string Work::check_pairs() const {
  const size_t ranks = script_.ranks();
  if (operation_.kind == Kind::kRecv && source_ != static_cast<int64_t>((rank_ + ranks - 1) % ranks)) return fmt::format("received from rank {}", source_);
  uint64_t at = 0;
  for (size_t peer = 0; peer < ranks; ++peer)
    for (uint64_t element = 0; element < operation_.receive_counts[peer]; ++element, ++at)
      if (const int64_t got = value_at(out_.back().data(), at); got != given_to(peer, rank_, element))
        return fmt::format("{}, element {} from rank {}: {} instead of {}", collective::kind_name(operation_.kind), element, peer, got,
                           given_to(peer, rank_, element));
  return "";
}

int64_t Work::given(size_t rank, size_t array, uint64_t element) const {
  return static_cast<int64_t>((element * 13 + rank * 31 + array * 7 + script_.number(at_)) % 97);
}

/// By numbers: a rank with fewer steps than this number drains.
bool Work::contributes(size_t rank) const {
  const size_t step = at_ - script_.common();
  return at_ < script_.common() || step > script_.longest() || step < script_.steps(rank);
}

int64_t Work::expected(size_t array, uint64_t element) const {
  if (operation_.kind == Kind::kBroadcast) return given(operation_.root, array, element);
  if (operation_.kind == Kind::kScatter) return given(operation_.root, array, element + rank_ * operation_.out[array].count);
  if (operation_.kind == Kind::kAllgather || operation_.kind == Kind::kGather) {
    const uint64_t each = operation_.out[array].count / script_.ranks();
    return given(element / each, array, element % each);
  }
  if (operation_.kind == Kind::kReduceScatter) element += rank_ * operation_.out[array].count;
  int64_t result = contributes(0) ? given(0, array, element) : 0;
  for (size_t rank = 1; rank < script_.ranks(); ++rank) {
    const int64_t value = contributes(rank) ? given(rank, array, element) : 0;
    result = operation_.reduction == Reduction::kSum   ? result + value
             : operation_.reduction == Reduction::kMin ? std::min(result, value)
                                                       : std::max(result, value);
  }
  return result;
}

int64_t Work::value_at(const std::byte* data, uint64_t element) const {
  int64_t whole = 0;
  std::memcpy(&whole, data + 8 * element, 8);
  if (dtype_ == MV_I64) return whole;
  double real = 0;
  std::memcpy(&real, &whole, 8);
  return static_cast<int64_t>(real);
}

void Work::set(std::byte* data, uint64_t element, int64_t value) const {
  const double real = static_cast<double>(value);
  std::memcpy(data + 8 * element, dtype_ == MV_I64 ? static_cast<const void*>(&value) : &real, 8);
}

std::string Work::check() const {
  if (collective::is_to_root(operation_.kind) && rank_ != operation_.root) return "";
  if (!operation_.receive_counts.empty()) return check_pairs();
  for (size_t i = 0; i < operation_.out.size(); ++i)
    for (uint64_t element = 0; element < operation_.out[i].count; ++element)
      if (const int64_t got = value_at(operation_.out[i].data, element); got != expected(i, element))
        return fmt::format("{} ({}), element {} of array {}: {} instead of {}", collective::kind_name(operation_.kind),
                           math::reduction_name(operation_.reduction), element, i, got, expected(i, element));
  if (operation_.kind != Kind::kAllreduce) return "";
  uint64_t there = 0;
  for (size_t rank = 0; rank < script_.ranks(); ++rank) there += contributes(rank) ? 1 : 0;
  return contributors_ == there ? "" : fmt::format("{} contributors instead of {}", contributors_, there);
}

std::string Work::check_shape(const collective::Shape& shape) const {
  bool fits = shape.arrays.size() == operation_.out.size() && shape.reduction == operation_.reduction;
  for (size_t i = 0; fits && i < shape.arrays.size(); ++i)
    fits = shape.arrays[i].count == operation_.out[i].count && shape.arrays[i].dtype == operation_.out[i].dtype;
  return fits ? "" : fmt::format("got another shape than that of operation {}", at_);
}

uint64_t Work::digest() const {
  uint64_t digest = at_;
  for (const auto& bytes : out_)
    for (size_t i = 0; i + 8 < bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, 8);
      digest = Random::mix(digest ^ word);
    }
  return digest;
}

}  // namespace mv::sim
