#pragma once
// Holds a server's messages to its clients until the back-up has everything on which they depend.

#include <cstdint>
#include <deque>
#include <string>

#include "base/link.hpp"

namespace mv::replica {

/// The link of a replicated part. A message to a client may depend on every input so far, so it leaves when all back-ups
/// have acknowledged all of them. Therefore the loss of one process loses no acknowledged change, and no value that was
/// read disappears. The outbox of a back-up sends nothing. Loop thread only.
class Outbox final : public base::Link {
 public:
  explicit Outbox(base::Link& link) : link_(link) {}

  /// From now on messages are sent.
  void open() { is_open_ = true; }
  /// There is a back-up from now on. It has not acknowledged this many earlier inputs yet.
  void hold(size_t unacknowledged = 0) {
    acknowledged_ = inputs_;
    inputs_ += unacknowledged;
  }
  /// An input was sent to the back-up.
  void add_input() { ++inputs_; }
  /// The back-up has acknowledged one more input. Inputs are acknowledged in their order.
  void input_acknowledged();
  /// There is no back-up any more.
  void release();
  /// The number of inputs so far.
  uint64_t inputs() const { return inputs_; }
  /// The back-up has all inputs, or this many of them.
  bool is_acknowledged() const { return is_acknowledged(inputs_); }
  bool is_acknowledged(uint64_t inputs) const { return inputs <= acknowledged_; }
  /// While it is sealed, nothing is sent.
  void seal(bool on);
  /// Messages that are sent between begin() and end() may depend on inputs that are added until end().
  void begin() { is_gathering_ = true; }
  void end();

  void dial(const std::string&) override {}
  void close(base::Peer) override {}
  void send(base::Peer to, const base::Frame& frame) override;

 private:
  struct Held {
    uint64_t inputs;  ///< the number of inputs that the back-up must have
    base::Peer to;
    base::Frame frame;
  };

  base::Link& link_;
  void send_acknowledged();

  bool is_open_ = false, is_sealed_ = false, is_gathering_ = false;
  uint64_t inputs_ = 0, acknowledged_ = 0;
  std::deque<Held> held_;
  static constexpr uint64_t kNotKnown = UINT64_MAX;  ///< inputs of a message that is sent between begin() and end()
};

}  // namespace mv::replica
