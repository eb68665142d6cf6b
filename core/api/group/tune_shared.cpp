// The shared-memory part of tune(): all-reduces of all classes, until the trials of each have ended.

#include <algorithm>

#include "api/group/device_group.hpp"
#include "api/group/shared_group.hpp"
#include "api/group/tuning.hpp"

namespace mv::api {

namespace {

using collective::Kind;
using collective::Operation;

constexpr size_t kLargest = size_t{16} << 20;
/// More than any trial takes, and the operations after which the others have mapped a tensor's memory.
constexpr int kMostOperations = 64, kUntilMapped = 4;

/// An input and a result of all sizes, in private memory and in memory that the other ranks can read.
class Arrays {
 public:
  base::Status allocate() {
    own_.resize(2 * kLargest);
    auto made = base::SharedMemory::make("polyverso-tuning", 2 * kLargest);
    if (!made.ok()) return made.status();
    shown_ = std::move(made).value();
    base::SharedMemory::enlist(shown_);
    return {};
  }
  Operation sum(size_t bytes, bool tensors, bool in_place) {
    std::byte* const memory = tensors ? shown_->data() : own_.data();
    Operation operation;
    operation.kind = Kind::kAllreduce;
    operation.out.push_back({memory, bytes / sizeof(float), MV_F32});
    if (!in_place) operation.in.push_back(memory + kLargest);
    return operation;
  }

 private:
  std::vector<std::byte> own_;
  intranode::Memory shown_;
};

/// Whether a trial has not ended. All ranks see the same after the same operation.
bool is_trying(SharedGroup& group) {
  const auto tries = [](const intranode::Decision& decision) { return decision.why == intranode::Decision::Why::kTrying; };
  return std::ranges::any_of(group.decisions(), tries);
}

base::Status try_all(SharedGroup& group, Arrays& arrays) {
  for (size_t index = 0; index < intranode::SizeClass::kCount; ++index) {
    const intranode::SizeClass of = intranode::SizeClass::at(index);
    if (of.most() > kLargest || (intranode::SizeClass::is_small(of.most()) && (of.tensors() || of.in_place()))) continue;
    for (int done = 0; done < kMostOperations && (done < kUntilMapped || is_trying(group)); ++done)
      if (base::Status status = group.run(arrays.sum(of.most(), of.tensors(), of.in_place()), {}).status; !status.ok()) return status;
  }
  return {};
}

}  // namespace

base::Status tune_shared(Calls& calls, Tuning& tuning) {
  if (calls.settings().transport == "inproc") return {};  // groups of one process are for tests
  const auto opened = SharedGroup::over(calls, MessageGroup::open(calls, {}, {}), {});
  if (!opened.ok()) return opened.status();
  const auto with_devices = std::dynamic_pointer_cast<DeviceGroup>(opened.value());
  const auto group = std::dynamic_pointer_cast<SharedGroup>(with_devices != nullptr ? with_devices->below() : opened.value());
  if (group == nullptr) return {};  // the workers share no memory
  Arrays arrays;
  base::Status status = arrays.allocate();
  if (!status.ok()) group->give_up(status);
  if (status.ok()) status = try_all(*group, arrays);
  tuning.algorithms = group->decisions();
  static_cast<void>(group->close());
  return status;
}

}  // namespace mv::api
