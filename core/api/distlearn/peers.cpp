#include "api/distlearn/peers.hpp"

#include <utility>

#include "api/group/stage.hpp"
#include "base/log.hpp"

namespace mv::distlearn {

using collective::Kind;
using collective::Operation;

Peers::Peers(api::Node& node, api::GroupRef group) : node_(node), group_(std::move(group)) {
  const api::GroupInfo info = group_->info();
  rank_ = static_cast<uint64_t>(info.rank);
  size_ = static_cast<uint64_t>(info.size);
}

Peers::~Peers() { withdraw(); }

base::Result<Places> Peers::places_of(const Arrays& arrays, const Places& places) const {
  auto found = distlearn::places_of(arrays, find_device());
  if (found.ok() && is_interrupted() && found.value() != places)
    return base::Status(MV_ESTATE, "a signal interrupted a call, which is still unfinished: repeat it with the arrays that it had");
  return found;
}

void Peers::withdraw() {
  for (api::CallRef* call : {&pending_, &background_}) {
    if (*call == nullptr) continue;
    if (auto status = node_.cancel(*call); !status.ok()) base::log_debug("distlearn: withdrew an operation: {}", status.text());
    call->reset();
  }
  stages_.forget();
}

base::Status Peers::wait(api::CallRef& call) {
  bool alive = false;
  base::Status status = node_.wait(call, base::kNever, &alive);  // the call has its own deadline
  if (!alive) call.reset();
  return status;
}

base::Status Peers::run(Operation operation) {
  if (pending_ != nullptr) return wait(pending_);
  uint64_t bytes = 0;
  for (const Array& array : operation.out) bytes += array.bytes();
  operation.label = operation.draining ? 0 : label_;
  meter.operations += 1;
  meter.payload_bytes += operation.kind == Kind::kAllgather ? bytes / size_ : bytes;
  api::CallOptions options;
  options.timeout = timeout_;
  options.keep_on_interrupt = true;
  api::Started started = start(std::move(operation), options);
  if (started.status.code() == MV_EINTR) pending_ = std::move(started.call);
  return std::move(started.status);
}

/// By copies of the arrays that are on devices, unless the group takes these.
api::Started Peers::start(Operation operation, const api::CallOptions& options) {
  std::shared_ptr<api::Staging> staging;
  if (!group_->takes_devices(operation)) {
    auto staged = api::stage_operation(operation, rank_, size_, find_device());
    if (!staged.ok()) {
      group_->give_up(staged.status());  // the others wait for this rank
      return {staged.status(), nullptr};
    }
    staging = std::move(staged).value();
  }
  return api::run_staged(node_, staging, options, [&](const api::CallOptions& how) { return group_->run(std::move(operation), how); });
}

base::Status Peers::allreduce(const Arrays& arrays, math::Reduction reduction, bool draining) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.reduction = reduction;
  operation.draining = draining;
  operation.out = arrays;
  operation.contributors = &contributors_;
  return run(std::move(operation));
}

base::Status Peers::broadcast(const Arrays& arrays, uint64_t root) {
  Operation operation;
  operation.kind = Kind::kBroadcast;
  operation.root = root;
  operation.out = arrays;
  return run(std::move(operation));
}

base::Status Peers::allgather(const std::vector<std::byte>& mine, std::vector<std::byte>& all) {
  all.resize(mine.size() * size_);
  Operation operation;
  operation.kind = Kind::kAllgather;
  operation.out = {{all.data(), all.size(), MV_RAW}};
  operation.in = {mine.data()};
  return run(std::move(operation));
}

base::Status Peers::allgather_number(int64_t mine) {
  number_ = mine;
  numbers_.resize(size_);
  Operation operation;
  operation.kind = Kind::kAllgather;
  operation.out = {{reinterpret_cast<std::byte*>(numbers_.data()), size_, MV_I64}};
  operation.in = {reinterpret_cast<const std::byte*>(&number_)};
  return run(std::move(operation));
}

Arrays Peers::neutral(const collective::Shape& shape) {
  neutral_.clear();
  Arrays arrays = shape.arrays;
  for (Array& array : arrays) {
    neutral_.emplace_back(array.bytes());
    array.data = neutral_.back().data();
    math::fill_neutral(shape.reduction, array.dtype, array.data, array.count);
  }
  return arrays;
}

base::Status Peers::drain_once(const Fill& fill, bool* finished) {
  math::Reduction reduction = math::Reduction::kSum;
  *finished = false;
  if (pending_ == nullptr) {
    api::CallOptions options;
    options.timeout = timeout_;
    const auto next = group_->drain(options);
    if (!next.ok()) return next.status();
    reduction = next.value().reduction;
    auto filled = fill ? fill(next.value()) : Arrays();
    if (!filled.ok()) {
      group_->give_up(filled.status());  // the others wait for this rank
      return filled.status();
    }
    draining_ = std::move(filled).value();
    *finished = next.value().finished;
    if (*finished) return {};
    if (draining_.empty()) draining_ = neutral(next.value());
  }
  return allreduce(draining_, reduction, true);
}

base::Status Peers::drain(const Fill& fill, const Take& take) {
  for (bool finished = false;;) {
    if (auto status = drain_once(fill, &finished); !status.ok() || finished) return status;
    if (!take) continue;
    if (auto status = take(draining_); !status.ok()) return status;
  }
}

base::Status Peers::start_allreduce(const Arrays& arrays, math::Reduction reduction) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.reduction = reduction;
  operation.out = arrays;
  operation.contributors = &contributors_;
  meter.operations += 1;
  meter.payload_bytes += bytes_of(arrays);
  api::CallOptions options;
  options.mode = api::Mode::kAsync;
  options.timeout = timeout_;
  api::Started started = start(std::move(operation), options);
  background_ = std::move(started.call);
  return std::move(started.status);
}

base::Status Peers::finish_allreduce() { return background_ != nullptr ? wait(background_) : base::Status(); }

}  // namespace mv::distlearn
