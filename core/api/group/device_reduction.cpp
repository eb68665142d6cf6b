#include "api/group/device_reduction.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/device.hpp"

namespace mv::api {

namespace {

using collective::Array;
using tensor::Allocator;
using tensor::Device;

/// One array: the caller's, its copy for the group, and the memory for received values. All three are on the host, or
/// `device` is set.
struct Place {
  Device* device;
  Array caller;
  std::shared_ptr<tensor::Block> copy, received;
};

base::Result<Place> make_place(const Array& array, Device* device) {
  if (device == nullptr || array.bytes() == 0) return Place{nullptr, array, nullptr, nullptr};
  auto copy = device->staging().allocate(array.bytes(), Allocator::Content::kAnything);
  if (!copy.ok()) return copy.status();
  auto received = device->allocate(array.bytes(), Allocator::Content::kAnything);
  if (!received.ok()) return received.status();
  return Place{device, array, std::move(copy).value(), std::move(received).value()};
}

class DeviceReduction final : public CustomReduction {
 public:
  explicit DeviceReduction(std::vector<Place> places) : places_(std::move(places)) {}
  /// The group uses the copies until the operation has ended.
  ~DeviceReduction() override {
    if (host_ != nullptr) static_cast<void>(host_->end());
  }

  /// Copies the caller's values for the group.
  base::Status give() const {
    for (const Place& place : places_)
      if (place.device != nullptr)
        if (auto status = place.device->to_host(place.copy->data(), place.caller.data, place.caller.bytes()); !status.ok()) return status;
    return {};
  }
  base::Status begin(Group& group, collective::Operation operation, const CallOptions& options) {
    for (size_t i = 0; i < places_.size(); ++i)
      if (places_[i].copy != nullptr) operation.out[i].data = places_[i].copy->data();
    auto begun = group.custom(std::move(operation), options);
    if (!begun.ok()) return begun.status();
    host_ = std::move(begun).value();
    return {};
  }

  base::Result<const std::vector<Array>*> next() override {
    auto theirs = host_->next();
    if (!theirs.ok()) return theirs.status();
    if (theirs.value() == nullptr) {
      if (auto status = take_result(); !status.ok()) return status;
      return theirs;
    }
    is_handed_ = true;
    shown_ = *theirs.value();
    for (size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      if (place.device == nullptr) continue;
      shown_[i].data = place.received->data();
      if (auto status = place.device->from_host(shown_[i].data, (*theirs.value())[i].data, shown_[i].bytes()); !status.ok()) return fail(status);
    }
    return &shown_;
  }

  /// If the values can't be copied, next() returns the reason, on all ranks.
  base::Status done(const base::Status& status) override {
    const bool gives = std::exchange(is_handed_, false) && status.ok();  // otherwise the group may use the copies
    return host_->done(gives ? give() : status);
  }

  base::Result<uint64_t> end() override {
    auto contributors = host_->end();
    if (contributors.ok())
      if (auto status = take_result(); !status.ok()) return status;
    return contributors;
  }

 private:
  base::Status take_result() {
    if (std::exchange(is_taken_, true)) return taken_;
    for (const Place& place : places_)
      if (place.device != nullptr && taken_.ok()) taken_ = place.device->from_host(place.caller.data, place.copy->data(), place.caller.bytes());
    return taken_;
  }
  /// Fails the operation on all ranks, and waits for its end, because end() would withdraw it.
  base::Status fail(const base::Status& status) {
    is_handed_ = false;
    static_cast<void>(host_->done(status));
    static_cast<void>(host_->next());
    return status;
  }

  const std::vector<Place> places_;
  CustomReductionRef host_;
  std::vector<Array> shown_;
  bool is_handed_ = false;  ///< next() has returned values
  bool is_taken_ = false;
  base::Status taken_;
};

/// Null: all arrays are on the host.
base::Result<std::shared_ptr<DeviceReduction>> make(const std::vector<Array>& arrays, const FindDevice& find) {
  std::vector<Place> places;
  for (const Array& array : arrays) {
    const auto device = find(array.data);
    if (!device.ok()) return device.status();
    auto place = make_place(array, device.value());
    if (!place.ok()) return place.status();
    places.push_back(std::move(place).value());
  }
  if (std::ranges::all_of(places, [](const Place& place) { return place.device == nullptr; })) return std::shared_ptr<DeviceReduction>();
  const auto reduction = std::make_shared<DeviceReduction>(std::move(places));
  if (auto status = reduction->give(); !status.ok()) return status;
  return reduction;
}

}  // namespace

base::Result<CustomReductionRef> reduce_on_devices(Group& group, collective::Operation operation, const CallOptions& options, const FindDevice& find) {
  const GroupInfo about = group.info();
  if (auto status = check_operation(operation, about.rank, about.size); !status.ok()) return status;
  const auto reduction = make(operation.out, find);
  if (!reduction.ok()) {  // without this rank, the others would wait
    group.give_up(reduction.status());
    return reduction.status();
  }
  if (reduction.value() == nullptr) return group.custom(std::move(operation), options);
  if (auto status = reduction.value()->begin(group, std::move(operation), options); !status.ok()) return status;
  return CustomReductionRef(reduction.value());
}

}  // namespace mv::api
