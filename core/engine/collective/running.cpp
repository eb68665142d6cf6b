#include "engine/collective/running.hpp"

#include <cstring>
#include <utility>

namespace mv::collective {

Running::Running(Execution::Owner& owner, const Setting& setting, Operation operation, base::OperationRef call, Handed handed)
    : deadline(call->deadline()), setting_(setting), operation_(std::move(operation)), call_(std::move(call)), handed_(std::move(handed)) {
  Value value = lay_out();
  Plan made = plan(setting_, operation_, value);
  signature_ = sign(operation_, made.algorithm);
  const bool manual = operation_.kind == Kind::kCustom;
  execution_ = std::make_unique<Execution>(owner, std::move(value), std::move(made.schedule), setting_.rank, manual);
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

Value Running::lay_out() {
  const auto size = static_cast<uint64_t>(setting_.size), rank = static_cast<uint64_t>(setting_.rank);
  std::vector<Array> arrays = operation_.out;
  const bool aside = operation_.kind == Kind::kReduceScatter || (operation_.kind == Kind::kReduce && rank != operation_.root);
  if (operation_.kind == Kind::kReduceScatter) arrays.front().count *= size;
  if (aside) {
    std::vector<Array> scratch = scratch_for(arrays);
    for (size_t i = 0; i < arrays.size(); ++i) {
      const std::byte* from = operation_.in.empty() ? arrays[i].data : operation_.in[i];
      if (arrays[i].count > 0) std::memcpy(scratch[i].data, from, arrays[i].bytes());
    }
    arrays = std::move(scratch);
  } else if (operation_.kind == Kind::kAllgather) {
    const size_t part = arrays.front().bytes() / size;
    std::byte* own = arrays.front().data + rank * part;
    if (!operation_.in.empty() && part > 0 && operation_.in.front() != own) std::memmove(own, operation_.in.front(), part);
  }
  const bool apart = !aside && operation_.kind != Kind::kAllgather && !operation_.in.empty();
  Value value;
  for (size_t i = 0; i < arrays.size(); ++i) value.add(arrays[i], operation_.reduction, apart ? operation_.in[i] : nullptr);
  if (operation_.kind == Kind::kCustom) value.bring();  // the caller reduces it there
  contributors_ = operation_.draining ? 0 : 1;
  if (counts()) value.add({reinterpret_cast<std::byte*>(&contributors_), 1, MV_I64}, math::Reduction::kSum);
  return value;
}

void Running::finish() {
  execution_->stop();
  execution_->bring();
  const bool here = operation_.kind != Kind::kReduce || static_cast<uint64_t>(setting_.rank) == operation_.root;
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
