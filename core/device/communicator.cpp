#include "device/communicator.hpp"

#include <cstring>
#include <vector>

namespace mv::device {

namespace {

class PluginCommunicator final : public tensor::Communicator {
 public:
  PluginCommunicator(const Device& device, std::function<mv_device_stream()> stream, mv_device_comm handle)
      : device_(device), stream_(std::move(stream)), handle_(handle) {}
  ~PluginCommunicator() override { end(1); }

  base::Status allreduce(std::span<const Buffers> parts, int32_t reduction) override {
    std::vector<mv_device_part> given;
    given.reserve(parts.size());
    for (const Buffers& part : parts) given.push_back({part.in, part.out, part.count, part.dtype});
    return device_.check(device_.plugin().comm_allreduce(handle_, stream_(), given.data(), given.size(), reduction), "all-reduce between devices");
  }
  base::Result<bool> is_idle() override {
    int32_t done = 0;
    if (auto status = device_.check(device_.plugin().comm_poll(handle_, &done), "all-reduce between devices"); !status.ok()) return status;
    return done != 0;
  }
  void close() noexcept override { end(0); }

 private:
  void end(int32_t aborts) noexcept {
    if (handle_ != nullptr) device_.plugin().comm_free(std::exchange(handle_, nullptr), aborts);
  }

  const Device device_;
  const std::function<mv_device_stream()> stream_;
  mv_device_comm handle_;
};

}  // namespace

base::Result<std::string> communicates_by(const Device& device) {
  char text[64] = "";
  if (auto status = device.check(device.plugin().comm_about(text, sizeof text), "all-reduces between devices"); !status.ok()) return status;
  return std::string(text);
}

base::Result<tensor::Communicator::Id> make_communicator_id(const Device& device) {
  mv_device_comm_id made{};
  if (auto status = device.check(device.plugin().comm_id(&made), "make a communicator's id"); !status.ok()) return status;
  tensor::Communicator::Id id;
  static_assert(sizeof(id) == sizeof(made));
  std::memcpy(id.data(), &made, sizeof(made));
  return id;
}

base::Result<std::unique_ptr<tensor::Communicator>> communicate(const Device& device, std::function<mv_device_stream()> stream,
                                                                const tensor::Communicator::Id& id, int32_t ranks, int32_t rank) {
  mv_device_comm_id given{};
  std::memcpy(&given, id.data(), sizeof(given));
  mv_device_comm made = nullptr;
  if (auto status = device.check(device.plugin().comm_make(device.number(), &given, ranks, rank, &made), "make a communicator"); !status.ok()) return status;
  return std::unique_ptr<tensor::Communicator>(std::make_unique<PluginCommunicator>(device, std::move(stream), made));
}

}  // namespace mv::device
