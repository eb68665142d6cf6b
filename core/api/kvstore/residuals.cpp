#include "api/kvstore/residuals.hpp"

namespace mv::kvstore {

Residuals::Residual& Residuals::at(size_t sender) {
  if (senders_.size() <= sender) senders_.resize(sender + 1);
  return senders_[sender];
}

base::Result<std::byte*> Residuals::of(size_t sender, size_t bytes) {
  Residual& residual = at(sender);
  if (residual.there != nullptr) {
    std::vector<std::byte> here(bytes);
    if (auto status = residual.there->device()->to_host(here.data(), residual.there->data(), bytes); !status.ok()) return status;
    residual = {std::move(here), nullptr};
  }
  residual.here.resize(bytes);
  return residual.here.data();
}

base::Result<std::byte*> Residuals::on(tensor::Device& device, size_t sender, size_t bytes) {
  if (Residual& known = at(sender); known.there != nullptr && known.there->device() == &device) return known.there->data();
  if (at(sender).there != nullptr)  // on another device
    if (auto moved = of(sender, bytes); !moved.ok()) return moved;
  Residual& residual = at(sender);
  const bool is_new = residual.here.empty();
  auto room = device.allocate(bytes, is_new ? tensor::Allocator::Content::kZeros : tensor::Allocator::Content::kAnything);
  if (!room.ok()) return room.status();
  if (!is_new)
    if (auto status = device.from_host(room.value()->data(), residual.here.data(), bytes); !status.ok()) return status;
  residual = {{}, std::move(room).value()};
  return residual.there->data();
}

base::Result<Senders> Residuals::senders() const {
  Senders all;
  for (const auto& [here, there] : senders_) {
    all.push_back(here);
    if (there == nullptr) continue;
    all.back().resize(there->bytes());
    if (auto status = there->device()->to_host(all.back().data(), there->data(), there->bytes()); !status.ok()) return status;
  }
  return all;
}

void Residuals::restore(Senders senders) {
  senders_.clear();
  for (std::vector<std::byte>& left : senders) senders_.push_back({std::move(left), nullptr});
}

}  // namespace mv::kvstore
