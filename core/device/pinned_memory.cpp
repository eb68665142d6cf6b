#include "device/pinned_memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/shared_memory.hpp"
#include "tensor/device.hpp"

namespace mv::device {

namespace {

/// To pin memory takes as long as to copy many times as much, and so do its first writes.
constexpr size_t kLeast = tensor::Device::kFastStaging;
/// Limit of unused memory that is kept.
constexpr size_t kMostKept = size_t{1} << 30;
constexpr size_t kUnit = size_t{64} << 10;

}  // namespace

/// The unused memory.
class PinnedMemory::Kept {
 public:
  struct Piece {
    void* data = nullptr;
    size_t bytes = 0;
  };
  explicit Kept(const Device& device) : device_(device) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    for (const Piece& piece : pieces_) device_.plugin().unpin(piece.data);
  }

  /// A piece that leaves at most a quarter of itself unused; null data if there is none, and none can be pinned.
  Piece take(size_t bytes) {
    const size_t size = (bytes + kUnit - 1) / kUnit * kUnit;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find_if(pieces_, [&](const Piece& one) { return one.bytes >= size && one.bytes - size <= one.bytes / 4; });
      if (found != pieces_.end()) {
        const Piece piece = *found;
        pieces_.erase(found);
        unused_ -= piece.bytes;
        ++lent_;
        return piece;
      }
      pieces_.reserve(pieces_.size() + lent_ + 1);  // all can then be given back without allocating
    }
    Piece made{nullptr, size};
    if (device_.plugin().pin(size, &made.data) != MV_OK) return {};
    const std::lock_guard lock(mutex_);
    ++lent_;
    return made;
  }
  void give_back(const Piece& piece) noexcept {
    const std::lock_guard lock(mutex_);
    --lent_;
    pieces_.push_back(piece);
    for (unused_ += piece.bytes; unused_ > kMostKept; pieces_.erase(pieces_.begin())) {
      unused_ -= pieces_.front().bytes;
      device_.plugin().unpin(pieces_.front().data);
    }
  }

 private:
  const Device device_;
  std::mutex mutex_;  ///< guards the members below
  std::vector<Piece> pieces_;  ///< the latest last
  size_t unused_ = 0, lent_ = 0;  ///< bytes of these; pieces in use
};

class PinnedMemory::PinnedBlock final : public tensor::Block {
 public:
  PinnedBlock(std::shared_ptr<Kept> kept, const Kept::Piece& piece, size_t bytes)
      : Block(static_cast<std::byte*>(piece.data), bytes, MemoryKind::kPrivate), kept_(std::move(kept)), piece_(piece) {}
  ~PinnedBlock() override {
    if (base::SharedMemory::is_ours(made_at())) kept_->give_back(piece_);
  }

 private:
  const std::shared_ptr<Kept> kept_;
  const Kept::Piece piece_;
};

PinnedMemory::PinnedMemory(const Device& device, tensor::Heap& heap) : kept_(std::make_shared<Kept>(device)), heap_(heap) {}

base::Result<std::shared_ptr<tensor::Block>> PinnedMemory::allocate(size_t bytes, Content content) {
  const Kept::Piece piece = bytes >= kLeast ? kept_->take(bytes) : Kept::Piece{};
  if (piece.data == nullptr) return heap_.allocate(bytes, content);
  if (content == Content::kZeros) std::memset(piece.data, 0, bytes);
  try {
    return std::shared_ptr<tensor::Block>(std::make_shared<PinnedBlock>(kept_, piece, bytes));
  } catch (const std::bad_alloc&) {
    kept_->give_back(piece);
    throw;
  }
}

}  // namespace mv::device
