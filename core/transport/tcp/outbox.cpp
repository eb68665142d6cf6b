#include "transport/tcp/outbox.hpp"

#include <algorithm>
#include <array>

#include "wire/frame.hpp"

namespace mv::transport {

void Outbox::push(const base::Frame& frame) {
  push_bytes(frame.head);
  if (!frame.tail || frame.tail->size() == 0) return;
  const size_t size = frame.tail->size();
  segments_.push_back({{}, frame.tail, size});
  bytes_ += size;
  static constexpr std::array<std::byte, 8> kZeros{};
  push_bytes(std::span(kZeros).first(wire::padded(size) - size));
}

void Outbox::push_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const bool fits =
      !segments_.empty() && !segments_.back().tail && segments_.back().block.size() + bytes.size() <= kBlockBytes;
  if (!fits) {
    segments_.emplace_back();
    if (!spare_.empty()) {
      segments_.back().block = std::move(spare_.back());
      spare_.pop_back();
    } else {
      segments_.back().block.reserve(std::max(kBlockBytes, bytes.size()));
    }
  }
  auto& block = segments_.back().block;
  block.insert(block.end(), bytes.begin(), bytes.end());
  bytes_ += bytes.size();
}

void Outbox::clear() {
  segments_.clear();
  front_written_ = bytes_ = 0;
}

size_t Outbox::gather(iovec* pieces, size_t most) const {
  size_t count = 0;
  size_t skip = front_written_;
  for (const Segment& segment : segments_) {
    if (count == most) break;
    const std::byte* data = segment.tail ? segment.tail->bytes().data() : segment.block.data();
    pieces[count++] = {const_cast<std::byte*>(data) + skip, segment.bytes() - skip};
    skip = 0;
  }
  return count;
}

void Outbox::written(size_t bytes) {
  bytes_ -= bytes;
  front_written_ += bytes;
  while (!segments_.empty() && front_written_ >= segments_.front().bytes()) {
    Segment& front = segments_.front();
    front_written_ -= front.bytes();
    if (front.block.capacity() == kBlockBytes && spare_.size() < kSpareBlocks) {
      front.block.clear();
      spare_.push_back(std::move(front.block));
    }
    segments_.pop_front();
  }
}

}  // namespace mv::transport
