#pragma once
// The source and the destination of a message's payload. Both avoid copies.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/shared_memory.hpp"

namespace mv::base {

class Payload;

/// A transport that sends a peer the location of bytes instead of the bytes.
class Borrower {
 public:
  /// Revokes the bytes for their lender. A peer that still reads them detects this and discards them. Never blocks.
  virtual void give_back(Payload& payload) = 0;

 protected:
  ~Borrower() = default;
};

/// Bytes to send: lent by a caller, kept alive by a reference, or owned.
/// Transports call bytes() again for every write, on the loop. make_owned() can therefore copy a lent payload while it
/// is being sent: a call that times out returns its caller's memory this way.
/// Loop thread only, once passed to a Link.
class Payload {
 public:
  /// The caller's memory. It must stay valid until make_owned() or the end of this object.
  static std::shared_ptr<Payload> lent(std::span<const std::byte> bytes) { return std::make_shared<Payload>(bytes, nullptr); }
  /// Memory that `keep` keeps alive.
  static std::shared_ptr<Payload> kept(std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
    return std::make_shared<Payload>(bytes, std::move(keep));
  }
  static std::shared_ptr<Payload> copy(std::span<const std::byte> bytes) {
    auto payload = lent(bytes);
    payload->make_owned();
    return payload;
  }

  Payload(std::span<const std::byte> bytes, std::shared_ptr<const void> keep) : bytes_(bytes), keep_(std::move(keep)) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool is_lent() const { return keep_ == nullptr; }
  /// The shared memory that contains the bytes, or null. A transport within the machine may send their location instead
  /// of them.
  std::shared_ptr<SharedMemory> shared() const { return SharedMemory::find(bytes_); }

  /// From now on make_owned() calls `borrower` first. False if another borrower has the bytes.
  bool borrow(Borrower& borrower) {
    if (borrower_ != nullptr && borrower_ != &borrower) return false;
    borrower_ = &borrower;
    return true;
  }
  void returned() { borrower_ = nullptr; }
  bool is_borrowed() const { return borrower_ != nullptr; }

  /// Copies lent bytes. Afterwards, nothing refers to the lender's memory.
  void make_owned() {
    if (keep_ != nullptr || bytes_.empty()) return;
    if (Borrower* borrower = std::exchange(borrower_, nullptr)) borrower->give_back(*this);
    std::shared_ptr<std::byte[]> own(new std::byte[bytes_.size()]);
    std::memcpy(own.get(), bytes_.data(), bytes_.size());
    bytes_ = {own.get(), bytes_.size()};
    keep_ = std::move(own);
  }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keep_;
  Borrower* borrower_ = nullptr;
};
using PayloadRef = std::shared_ptr<Payload>;

/// The destination of an incoming payload: the reader's own memory, a staging block of a pool, or nowhere.
/// Transports call room() again for every read, on the loop. discard() can therefore take the memory away half way, and
/// received() returns their progress.
class Sink {
 public:
  static std::shared_ptr<Sink> into(std::span<std::byte> memory, std::shared_ptr<void> keep = nullptr) {
    return std::make_shared<Sink>(memory, std::move(keep));
  }
  static std::shared_ptr<Sink> nowhere() { return std::make_shared<Sink>(std::span<std::byte>{}, nullptr); }

  Sink(std::span<std::byte> memory, std::shared_ptr<void> keep) : memory_(memory), keep_(std::move(keep)) {}

  bool discards() const { return memory_.data() == nullptr; }
  /// The whole destination; empty when discarding.
  std::span<std::byte> memory() const { return memory_; }
  /// The rest of the destination after `received` bytes; empty when discarding.
  std::span<std::byte> room(size_t received) {
    received_ = received;
    return discards() ? memory_ : memory_.subspan(received);
  }
  /// As of the last call of room().
  size_t received() const { return received_; }
  const std::shared_ptr<void>& keep() const { return keep_; }
  /// Redirects the payload to memory of the same size, because its owner needs the old memory. The bytes already
  /// received are not copied: the caller ignores them.
  void divert(std::span<std::byte> memory, std::shared_ptr<void> keep) {
    memory_ = memory;
    keep_ = std::move(keep);
  }
  void discard() {
    memory_ = {};
    keep_.reset();
  }

 private:
  std::span<std::byte> memory_;
  std::shared_ptr<void> keep_;
  size_t received_ = 0;
};
using SinkRef = std::shared_ptr<Sink>;

}  // namespace mv::base
