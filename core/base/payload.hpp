#pragma once
// Where the bytes of a message come from and go to, without copying them on the way.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/shared_memory.hpp"

namespace mv::base {

class Payload;

/// A transport that shows a peer where bytes lie, instead of sending them.
class Borrower {
 public:
  /// Their lender wants them back. A peer that still reads them will find out that what it read is void. Waits for nobody.
  virtual void give_back(Payload& payload) = 0;

 protected:
  ~Borrower() = default;
};

/// Bytes to send: lent by a caller, held by somebody else, or owned.
/// Transports read bytes() afresh at every write, on the loop, so that make_owned() may move a lent payload aside while it is
/// being sent: that is how a call that times out gives its caller's memory back.
/// Loop thread only, once handed to a Link.
class Payload {
 public:
  /// Somebody else's memory, which stays valid until make_owned() or the end of this object.
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
  /// The shared memory that the bytes lie in, or null: a transport within the machine may then send their place instead of them.
  std::shared_ptr<SharedMemory> shared() const { return SharedMemory::find(bytes_); }

  /// From now on make_owned() asks `borrower` first. False if somebody else has borrowed them.
  bool borrow(Borrower& borrower) {
    if (borrower_ != nullptr && borrower_ != &borrower) return false;
    borrower_ = &borrower;
    return true;
  }
  void returned() { borrower_ = nullptr; }

  /// Copies lent bytes; nothing refers to the lender's memory afterwards.
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

/// Where an incoming payload goes: straight into a reader's memory, into pooled staging, or nowhere.
/// Transports ask for room() afresh at every read, on the loop, so that discard() may take the memory away half way, and received() tells how far
/// they are.
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
  /// What is left after `received` bytes; empty when discarding.
  std::span<std::byte> room(size_t received) {
    received_ = received;
    return discards() ? memory_ : memory_.subspan(received);
  }
  /// As of the last call of room().
  size_t received() const { return received_; }
  const std::shared_ptr<void>& keep() const { return keep_; }
  /// The rest goes elsewhere, where there is as much room, because the memory is wanted back; what has come is not looked at.
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
