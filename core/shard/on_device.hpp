#pragma once
// Shards in the memory of a device. The room device/ makes them.

#include <exception>
#include <functional>
#include <memory>
#include <span>

#include "shard/shard.hpp"
#include "tensor/device.hpp"

namespace mv::shard {

/// What the functions of a shard throw that have no status: its device has no memory left, and nothing has changed, or the device failed.
class DeviceFailure final : public std::exception {
 public:
  explicit DeviceFailure(base::Status status) : status_(std::move(status)) {}
  const base::Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.text().c_str(); }

 private:
  base::Status status_;
};

/// A shard whose values, and whose updater's states, are in the memory of a device. Updaters compute there, with the bits that
/// they have on the host. Calls with values in the host's memory copy them. Each call is atomic.
class OnDevice : public Shard {
 public:
  using Shard::Shard;

  virtual tensor::Device& device() const = 0;

  /// An add of all elements: the sum of these tensors, at least one, dense, of the table's dtype and size, on any device or on the host. Or
  /// that of add_held(), with one row-sparse tensor.
  struct Addition {
    OnDevice* shard;
    std::span<const tensor::Tensor> values;
  };
  /// Adds to several shards of this one's device, each named once. Those whose updaters have one formula are updated together, in one
  /// launch. After MV_ENOMEM none has changed, except for those of rows before one of rows that the error names.
  /// @param before  writes values of additions that have only one, on this device. It is called when all memory is there, and is its error the
  ///                call's, nothing has changed; may be null
  virtual base::Status add_together(Worker worker, std::span<const Addition> additions, const std::function<base::Status()>& before) = 0;
  /// change_rows(Write::Add) of the rows that a row-sparse tensor of the table's dtype holds, which is on this shard's device.
  virtual base::Status add_held(Worker worker, const tensor::Tensor& rows) = 0;
  /// read_rows() of the rows that a row-sparse tensor of the table's dtype holds, into that tensor, which is on this shard's device.
  virtual base::Status read_held(Worker worker, const tensor::Tensor& rows) = 0;
  /// read() of all elements into each of these tensors, dense, of the table's dtype and size, on any device or on the host.
  struct Reading {
    OnDevice* shard;
    std::span<const tensor::Tensor> outs;
  };
  /// Does several readings of shards of this one's device.
  virtual base::Status read_together(Worker worker, std::span<const Reading> readings) = 0;
  base::Status read_into(Worker worker, std::span<const tensor::Tensor> outs) {
    const Reading reading{this, outs};
    return read_together(worker, {&reading, 1});
  }
};

/// Makes shards on the devices of this process. Any thread.
class DeviceShards {
 public:
  virtual ~DeviceShards() = default;
  /// MV_ENOSYS or MV_ENOTFOUND if there is no such device, MV_ENOMEM.
  virtual base::Result<std::shared_ptr<Shard>> make(SpecRef spec, const Position& place) = 0;

  /// MV_ENOSYS if shards on devices can't have this updater.
  virtual base::Status check(const UpdaterSpec& updater) const = 0;

  /// Sets what makes the shards of tables on devices, for the rest of the process. Without it there are no such tables.
  static void use(DeviceShards& shards);
  static DeviceShards* used();
};

}  // namespace mv::shard
