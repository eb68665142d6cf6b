#include "api/group/device_reducer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "tensor/device.hpp"

namespace mv::api {

using collective::Kind;
using collective::Operation;

namespace {

/// Below this, copies through the host take less time than the library's start and the agreement.
constexpr uint64_t kLeastBytes = 64 << 10;
constexpr uint64_t kMostFailures = 4;
/// How long the ranks may take to make a communicator, once all are there.
constexpr base::Nanos kTimeToMake = std::chrono::seconds(30);
/// How long an operation may continue after a rank has left that may have ended it already.
constexpr base::Nanos kTimeAfterLeave = std::chrono::seconds(1);
constexpr base::Nanos kSpin = std::chrono::microseconds(100), kShortest = std::chrono::microseconds(20), kLongest = std::chrono::milliseconds(1);

/// FNV-1a; 0 for an empty text.
uint64_t hash_of(const std::string& text) {
  if (text.empty()) return 0;
  uint64_t hash = 14695981039346656037u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

template <typename Text>
void copy_text(Text& to, const std::string& from) {
  to[from.copy(to, sizeof(to) - 1)] = '\0';
}
template <typename Text>
std::string text_of(const Text& from) {
  return {from, strnlen(from, sizeof(from))};  // from another rank
}

Operation operation_on(Kind kind, void* values, uint64_t count, mv_dtype dtype) {
  Operation operation;
  operation.kind = kind;
  operation.out.push_back({static_cast<std::byte*>(values), count, dtype});
  return operation;
}

}  // namespace

/// What each rank tells the others before they make a communicator.
struct DeviceReducer::Record {
  uint64_t works = 0, encrypts = 0;
  uint64_t bus = 0;  ///< a hash of the device's place in its machine; 0: unknown
  tensor::Communicator::Id id{};  ///< of rank 0
  char library[40] = "";
  char why_not[160] = "";
};

DeviceReducer::DeviceReducer(Calls& calls, std::shared_ptr<MessageGroup> messages, RunOnHost run_on_host)
    : calls_(calls), messages_(std::move(messages)), run_on_host_(std::move(run_on_host)) {}

DeviceReducer::~DeviceReducer() = default;

/// A minimum or maximum of floats is NaN if any value is, which the library does not promise.
bool DeviceReducer::suits(const Operation& operation) {
  if (operation.kind != Kind::kAllreduce || operation.vote != nullptr) return false;
  const bool orders = operation.reduction == math::Reduction::kMin || operation.reduction == math::Reduction::kMax;
  uint64_t bytes = 0;
  for (const collective::Array& array : operation.out) {
    if (array.dtype == MV_RAW || (orders && tensor::is_floating(array.dtype))) return false;
    bytes += array.bytes();
  }
  return bytes >= kLeastBytes;
}


DeviceReducer::About DeviceReducer::about() const {
  const std::lock_guard lock(mutex_);
  return about_;
}

void DeviceReducer::turn_off(const std::string& why) {
  communicator_.reset();
  is_off_.store(true, std::memory_order_release);
  if (calls_.settings().collective == "nccl")
    base::log_warn("the all-reduces of a group do not go between devices: {}", why);
  else
    base::log_debug("the all-reduces of a group do not go between devices: {}", why);
  const std::lock_guard lock(mutex_);
  about_ = {"", "not NCCL: " + why};
}

void DeviceReducer::end(bool in_order) noexcept {
  const std::lock_guard lock(using_);
  if (communicator_ != nullptr && in_order) communicator_->close();
  communicator_.reset();
}

// ------------------------------------------------------------ one operation

/// The device of all arrays; null if there is none. With an error in `status` if that can't be told.
tensor::Device* DeviceReducer::device_of(const Operation& operation, base::Status& status) const {
  tensor::Device* found = nullptr;
  for (size_t i = 0; i < operation.out.size(); ++i) {
    const collective::Array& array = operation.out[i];
    if (array.count == 0) continue;
    for (const std::byte* at : {static_cast<const std::byte*>(array.data), operation.in.empty() ? array.data : operation.in[i]}) {
      const auto device = calls_.devices().find(at);
      if (!device.ok()) return status = device.status(), nullptr;
      if (device.value() == nullptr || (found != nullptr && found != device.value())) return nullptr;
      found = device.value();
    }
  }
  return found;
}

base::Result<bool> DeviceReducer::reduce(const Operation& operation, uint64_t number, base::Nanos deadline) {
  const std::lock_guard lock(using_);
  base::Status status;
  tensor::Device* const device = device_of(operation, status);
  if (!status.ok()) return give_up(status);
  int64_t vote = device != nullptr && !operation.draining && (communicator_ == nullptr || device == device_) ? 1 : 0;
  Operation agreement = operation;
  agreement.vote = &vote;
  status = run_on_host_(std::move(agreement), deadline);
  if (!status.ok()) return status;
  if (vote == 0) {
    failures_ = std::min(failures_ + 1, kMostFailures);
    ask_at_ = number + (failures_ < 2 ? 1 : uint64_t{1} << failures_);
    more_operations_ += 1;
    return false;
  }
  failures_ = 0;
  if (communicator_ == nullptr) {  // takes long, which the caller's deadline does not expect
    const base::Nanos begun = calls_.loop().now();
    const auto ready = set_up(*device, std::max(deadline, base::after(begun, 2 * kTimeToMake)));
    if (!ready.ok() || !ready.value()) return ready;
    if (deadline != base::kNever) deadline += calls_.loop().now() - begun;
  }
  std::vector<tensor::Communicator::Buffers> parts;
  for (size_t i = 0; i < operation.out.size(); ++i) {
    const collective::Array& array = operation.out[i];
    if (array.count > 0) parts.push_back({operation.in.empty() ? array.data : operation.in[i], array.data, array.count, array.dtype});
  }
  status = communicator_->allreduce(parts, static_cast<int32_t>(operation.reduction));
  if (!status.ok()) return give_up(status);
  const auto waited = wait(deadline);
  if (!waited.ok()) return give_up(waited.status());
  if (waited.value() == Wait::kBroken) return broken();
  if (waited.value() == Wait::kDeadline) return give_up(base::error(MV_ETIMEOUT, "the deadline passed; {} has not ended an all-reduce that all ranks have begun", library_));
  if (operation.contributors != nullptr) *operation.contributors = messages_->members().size();
  return true;
}

/// Waits until the communicator is idle, the group breaks, or the deadline passes. MV_EPEERLOST if a rank has left.
base::Result<DeviceReducer::Wait> DeviceReducer::wait(base::Nanos deadline) {
  const auto ends = messages_->engine()->ends();
  const base::Nanos since = calls_.loop().now();
  base::Nanos left_at = base::kNever;
  for (;;) {
    const auto idle = communicator_->is_idle();
    if (ends->broken.load(std::memory_order_acquire)) return Wait::kBroken;
    if (!idle.ok()) return idle.status();
    if (idle.value()) return Wait::kDone;
    const base::Nanos now = calls_.loop().now();
    if (now >= deadline) return Wait::kDeadline;
    if (const uint32_t left = ends->left.load(std::memory_order_acquire); left > 0) {
      left_at = std::min(left_at, now);
      if (now - left_at >= kTimeAfterLeave)
        return base::error(MV_EPEERLOST, "rank {} of the group, {}, has left the group", left - 1, messages_->engine()->members().names[left - 1]);
    }
    // Long all-reduces are polled less often.
    if (const base::Nanos taken = now - since; taken > kSpin)
      std::this_thread::sleep_for(std::clamp<base::Nanos>(taken / 16, kShortest, kLongest));
    else
      std::this_thread::yield();
  }
}

/// The group has ended for another reason. The devices stop to use the arrays.
base::Status DeviceReducer::broken() {
  communicator_.reset();
  base::Status why = messages_->info().broken;
  if (why.ok()) why = calls_.ended();
  if (why.ok()) why = base::Status(MV_ESTATE, "the group was closed");
  return base::error(why.code(), "{}; the group is broken: {}", why.text(), collective::kAfterBreak);
}

/// Breaks the group for all ranks.
base::Status DeviceReducer::give_up(const base::Status& why) {
  communicator_.reset();
  const auto& setting = messages_->engine()->setting();
  const base::Status told = base::error(why.code(), "rank {} of the group, {}, has given up: {}", setting.rank,
                                        messages_->engine()->members().names[static_cast<size_t>(setting.rank)], why.text());
  messages_->give_up(told);
  return base::error(told.code(), "{}; the group is broken: {}", told.text(), collective::kAfterBreak);
}

// ------------------------------------------------------------ the communicator

base::Status DeviceReducer::run_more(Operation operation, base::Nanos deadline) {
  more_operations_ += 1;
  return run_on_host_(std::move(operation), deadline);
}

/// Why there can be no communicator; "" if nothing is known. The same on all ranks.
std::string DeviceReducer::find_obstacle(const std::vector<Record>& records) const {
  const std::vector<int32_t>& hosts = messages_->engine()->setting().layout.hosts;
  const auto host = [&](size_t rank) { return rank < hosts.size() ? hosts[rank] : 0; };
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].works == 0) return fmt::format("rank {}: {}", rank, text_of(records[rank].why_not));
    if (text_of(records[rank].library) != text_of(records[0].library))
      return fmt::format("rank {} has {}, rank 0 has {}", rank, text_of(records[rank].library), text_of(records[0].library));
    if (records[rank].encrypts != 0 && host(rank) != host(0))
      return fmt::format("it does not encrypt, and ranks 0 and {} are on different machines: set tls=off (POLYVERSO_TLS) if the network is closed", rank);
    for (size_t other = 0; other < rank; ++other)
      if (records[rank].bus != 0 && records[rank].bus == records[other].bus && host(rank) == host(other))
        return fmt::format("ranks {} and {} have arrays on one device", other, rank);
  }
  return "";
}

/// All ranks have arrays on devices. False: there is no communicator, and no rank tries again.
base::Result<bool> DeviceReducer::set_up(tensor::Device& device, base::Nanos deadline) {
  static_assert(std::is_trivially_copyable_v<Record>);
  Record own;
  const auto library = device.communicates_by();
  const auto bus = device.bus();
  const bool is_first = messages_->engine()->setting().rank == 0;
  const auto id = is_first && library.ok() ? device.make_communicator_id() : base::Result<tensor::Communicator::Id>(tensor::Communicator::Id{});
  own.works = library.ok() && bus.ok() && id.ok() ? 1 : 0;
  own.encrypts = calls_.settings().tls_settings().mode != transport::TlsMode::kOff ? 1 : 0;
  if (bus.ok()) own.bus = hash_of(bus.value());
  if (library.ok()) copy_text(own.library, library.value());
  if (id.ok()) own.id = id.value();
  copy_text(own.why_not, !library.ok() ? library.status().text() : !bus.ok() ? bus.status().text() : !id.ok() ? id.status().text() : "");
  std::vector<Record> records(messages_->members().size());
  Operation tell = operation_on(Kind::kAllgather, records.data(), records.size() * sizeof(Record), MV_RAW);
  tell.in.push_back(reinterpret_cast<const std::byte*>(&own));
  if (base::Status told = run_more(std::move(tell), deadline); !told.ok()) return told;
  if (const std::string obstacle = find_obstacle(records); !obstacle.empty()) {
    more_operations_ += 1;
    return turn_off(obstacle), false;
  }
  library_ = library.value();
  base::Status mine = begin_to_make(device, records.front().id);
  auto ready = is_ready_everywhere(mine, deadline);  // what fails at once is known before the others wait for it
  if (ready.ok() && ready.value()) {
    mine = wait_until_made(deadline);
    ready = is_ready_everywhere(mine, deadline);
  }
  if (!ready.ok()) return communicator_.reset(), ready;
  if (!ready.value()) {
    more_operations_ += 1;
    if (!mine.ok()) base::log_warn("{} can't be used by a group: {}", library_, mine.text());
    return turn_off(mine.ok() ? library_ + " could not be used by another rank, whose log says why" : mine.text()), false;
  }
  device_ = &device;
  const std::lock_guard lock(mutex_);
  about_ = {"nccl", fmt::format("{} reduces arrays on devices from {} KiB on", library_, kLeastBytes >> 10)};
  return true;
}

base::Result<bool> DeviceReducer::is_ready_everywhere(const base::Status& mine, base::Nanos deadline) {
  int64_t ready = mine.ok() ? 1 : 0;
  Operation agree = operation_on(Kind::kAllreduce, &ready, 1, MV_I64);
  agree.reduction = math::Reduction::kMin;
  if (base::Status agreed = run_more(std::move(agree), deadline); !agreed.ok()) return agreed;
  return ready != 0;
}

base::Status DeviceReducer::begin_to_make(tensor::Device& device, const tensor::Communicator::Id& id) {
  auto made = device.communicate(id, static_cast<int32_t>(messages_->members().size()), messages_->engine()->setting().rank);
  if (!made.ok()) return made.status();
  communicator_ = std::move(made).value();
  return {};
}

/// If the group breaks meanwhile, the next operation tells why.
base::Status DeviceReducer::wait_until_made(base::Nanos deadline) {
  const auto waited = wait(std::min(deadline, base::after(calls_.loop().now(), kTimeToMake)));
  if (!waited.ok()) return waited.status();
  return waited.value() == Wait::kDone ? base::Status() : base::error(MV_ETIMEOUT, "{} has not made a communicator in time", library_);
}

}  // namespace mv::api
