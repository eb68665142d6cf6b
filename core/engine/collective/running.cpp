#include "engine/collective/running.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mv::collective {

Running::Running(Execution::Owner& owner, const Setting& setting, Planner& planner, Operation&& operation, base::OperationRef call, Handed handed)
    : deadline(call->deadline()), setting_(setting), operation_(std::move(operation)), call_(std::move(call)), handed_(std::move(handed)),
      is_handed_over_(collective::is_handed_over(setting_, operation_)) {
  const bool votes = operation_.vote != nullptr;
  Value value = votes || is_handed_over_ ? lay_out_contributors() : lay_out();
  const auto plan = votes              ? std::make_shared<const Plan>(plan_agreement(setting_))
                    : is_handed_over_ ? std::make_shared<const Plan>(plan_handed_over(setting_))
                                      : planner.plan(operation_, value);
  signature_ = sign(operation_, plan->algorithm);
  const bool manual = operation_.kind == Kind::kCustom;
  execution_.emplace(owner, std::move(value), std::shared_ptr<const Schedule>(plan, &plan->schedule), setting_.rank, setting_.layout.hosts, manual);
  if (operation_.kind == Kind::kAlltoallCounts) execution_->pause_at(static_cast<size_t>(setting_.size) - 1);
  if (!manual) return;
  theirs_arrays_ = scratch_for(operation_.out);
  Value theirs;
  for (const Array& array : theirs_arrays_) theirs.add(array, math::Reduction::kSum);
  theirs.add({reinterpret_cast<std::byte*>(&theirs_), 1, MV_I64}, math::Reduction::kSum);
  execution_->set_scratch(std::move(theirs));
}

/// Whether the value includes the number of contributors.
bool Running::counts() const {
  const Kind kind = operation_.kind;
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kCustom || kind == Kind::kBarrier;
}

std::vector<Array> Running::scratch_for(const std::vector<Array>& arrays) {
  size_t bytes = 0;
  for (const Array& array : arrays) bytes += wire::padded(array.bytes());
  scratch_.resize(bytes);
  std::vector<Array> found;
  size_t at = 0;
  for (const Array& array : arrays) {
    found.push_back({scratch_.data() + at, array.count, array.dtype});
    at += wire::padded(array.bytes());
  }
  return found;
}

/// A gather or a scatter: the root's value is all parts, the value of another rank its own part.
Value Running::lay_out_parts() {
  const auto size = static_cast<uint64_t>(setting_.size), rank = static_cast<uint64_t>(setting_.rank);
  const bool gathers = operation_.kind == Kind::kGather;
  Array all = operation_.out.front(), own = all;
  std::byte* const in = operation_.in.empty() ? nullptr : const_cast<std::byte*>(operation_.in.front());  // only read
  (gathers ? own.count : all.count) = gathers ? all.count / size : own.count * size;
  (gathers ? own.data : all.data) = in;
  Value value;
  if (rank == operation_.root) {
    std::byte* const part = all.data + rank * own.bytes();
    if (own.count > 0 && own.data != part) gathers ? std::memmove(part, own.data, own.bytes()) : std::memmove(own.data, part, own.bytes());
    value.add(all, math::Reduction::kSum);
  } else {
    value.skip_to(rank * own.count);
    value.add(own, math::Reduction::kSum);
  }
  return value;
}

/// An alltoall: the elements from and to each rank, in the order of their numbers. With counts, those of rank r are its
/// elements for itself.
Value Running::lay_out_pairs() {
  const auto size = static_cast<size_t>(setting_.size), rank = static_cast<size_t>(setting_.rank);
  const bool has_counts = operation_.kind == Kind::kAlltoallCounts;
  const Array& out = operation_.out.front();
  std::vector<uint64_t> sends(size, out.count / size), receives = sends;
  if (has_counts) {
    sends = operation_.send_counts;
    receives = operation_.receive_counts;
    counts_.resize(2 * size * size);
    std::copy(sends.begin(), sends.end(), counts_.begin() + static_cast<ptrdiff_t>(2 * size * rank));
    std::copy(receives.begin(), receives.end(), counts_.begin() + static_cast<ptrdiff_t>(2 * size * rank + size));
  }
  Value value;
  const auto place = [&](size_t from, size_t to, const Array& array) {
    value.skip_to(first_of_pair(static_cast<int32_t>(from), static_cast<int32_t>(to), setting_.size));
    value.add(array, math::Reduction::kSum);
  };
  const size_t element = tensor::dtype_bytes(out.dtype);
  std::byte* in = operation_.in.empty() ? nullptr : const_cast<std::byte*>(operation_.in.front());  // only read
  std::byte* to = out.data;
  const auto place_counts = [&](size_t of) {
    if (has_counts) place(of, of, {reinterpret_cast<std::byte*>(&counts_[2 * size * of]), 2 * size, MV_I64});
  };
  for (size_t peer = 0; peer < size; ++peer) {
    if (peer < rank) place_counts(peer);
    if (peer != rank) {
      place(peer, rank, {to, receives[peer], out.dtype});
    } else {
      std::byte* own = nullptr;
      for (size_t other = 0; other < size; ++other) {
        if (other == rank) {
          own = in;
          place_counts(rank);
        } else {
          place(rank, other, {in, sends[other], out.dtype});
        }
        in += sends[other] * element;
      }
      if (const uint64_t count = std::min(sends[rank], receives[rank]); count > 0) std::memcpy(to, own, count * element);
    }
    to += receives[peer] * element;
    if (peer > rank) place_counts(peer);
  }
  return value;
}

base::Status Running::check_counts() {
  if (!execution_->paused()) return {};
  const auto size = static_cast<size_t>(setting_.size);
  for (size_t from = 0; from < size; ++from)
    for (size_t to = 0; to < size; ++to) {
      const uint64_t sent = counts_[2 * size * from + to], received = counts_[2 * size * to + size + from];
      if (sent != received)
        return base::error(MV_EDISAGREE, "rank {} sends {} elements to rank {}, which receives {}", from, sent, to, received);
    }
  execution_->go_on();
  return {};
}

Value Running::lay_out_contributors() {
  contributors_ = operation_.draining ? 0 : 1;
  Value value;
  value.add({reinterpret_cast<std::byte*>(&contributors_), 1, MV_I64}, math::Reduction::kSum);
  if (operation_.vote != nullptr) value.add({reinterpret_cast<std::byte*>(operation_.vote), 1, MV_I64}, math::Reduction::kMin);
  return value;
}

Value Running::lay_out() {
  if (operation_.kind == Kind::kGather || operation_.kind == Kind::kScatter) return lay_out_parts();
  if (operation_.kind == Kind::kAlltoall || operation_.kind == Kind::kAlltoallCounts) return lay_out_pairs();
  const auto size = static_cast<uint64_t>(setting_.size), rank = static_cast<uint64_t>(setting_.rank);
  const bool aside = operation_.kind == Kind::kReduceScatter || (operation_.kind == Kind::kReduce && rank != operation_.root);
  std::vector<Array> scratch;
  if (aside) {
    std::vector<Array> inputs = operation_.out;
    if (operation_.kind == Kind::kReduceScatter) inputs.front().count *= size;
    scratch = scratch_for(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::byte* from = operation_.in.empty() ? inputs[i].data : operation_.in[i];
      if (inputs[i].count > 0) std::memcpy(scratch[i].data, from, inputs[i].bytes());
    }
  } else if (operation_.kind == Kind::kAllgather) {
    const Array& all = operation_.out.front();
    const size_t part = all.bytes() / size;
    std::byte* own = all.data + rank * part;
    if (!operation_.in.empty() && part > 0 && operation_.in.front() != own) std::memmove(own, operation_.in.front(), part);
  }
  const bool apart = !aside && operation_.kind != Kind::kAllgather && !operation_.in.empty();
  const std::vector<Array>& arrays = aside ? scratch : operation_.out;
  Value value;
  value.reserve(arrays.size() + 1);
  for (size_t i = 0; i < arrays.size(); ++i) value.add(arrays[i], operation_.reduction, apart ? operation_.in[i] : nullptr);
  if (operation_.kind == Kind::kCustom) value.bring();  // the caller reduces it there
  contributors_ = operation_.draining ? 0 : 1;
  if (counts()) value.add({reinterpret_cast<std::byte*>(&contributors_), 1, MV_I64}, math::Reduction::kSum);
  return value;
}

void Running::finish() {
  execution_->stop();
  execution_->bring();
  if (operation_.vote != nullptr && *operation_.vote != 0) *operation_.vote = 1;  // from another rank: any number
  const bool here = operation_.vote == nullptr && (operation_.kind != Kind::kReduce || static_cast<uint64_t>(setting_.rank) == operation_.root);
  if (operation_.kind == Kind::kReduceScatter) {
    contributors_ = setting_.size;
    const Array& out = operation_.out.front();
    if (out.count > 0) std::memcpy(out.data, scratch_.data() + static_cast<size_t>(setting_.rank) * out.bytes(), out.bytes());
  }
  if (operation_.reduction == math::Reduction::kAverage && here && contributors_ > 1)
    for (const Array& array : operation_.out) math::divide_bytes(array.dtype, array.data, array.count, static_cast<uint64_t>(contributors_));
  if (operation_.contributors != nullptr) *operation_.contributors = static_cast<uint64_t>(contributors_);
}

void Running::hand() {
  if (execution_->handed() && !std::exchange(told_of_hand_, true)) handed_(theirs_arrays_);
}

void Running::resume() {
  if (!execution_->handed()) return;
  contributors_ += theirs_;
  told_of_hand_ = false;
  execution_->resume();
}

}  // namespace mv::collective
