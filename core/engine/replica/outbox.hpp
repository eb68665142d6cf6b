#pragma once
// Holds a server's messages to its clients until the back-up has everything on which they depend.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/link.hpp"
#include "engine/replica/journal.hpp"

namespace mv::replica {

/// The link of a replicated part. A message to a client may depend on every input so far, so it leaves when all back-ups
/// have acknowledged all of them, or when those that are not acknowledged are in the journal of the only back-up. Therefore the loss of one process loses no acknowledged change, and no value that was
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
    journaled_from_ = inputs_ + 1;
  }
  /// The back-up has a journal, or (null) it has none any more. The inputs so far are not in it.
  void rely_on(std::shared_ptr<const JournalWriter> journal) {
    journal_ = std::move(journal);
    journaled_from_ = inputs_ + 1;
  }
  /// An input was sent to the back-up, or will be.
  /// @param is_journaled  it is in the journal
  void add_input(bool is_journaled = false) {
    ++inputs_;
    if (!is_journaled) journaled_from_ = inputs_ + 1;
  }
  /// The back-up has acknowledged one more input. Inputs are acknowledged in their order.
  void input_acknowledged();
  /// There is no back-up any more.
  void release();
  /// The number of inputs so far.
  uint64_t inputs() const { return inputs_; }
  /// The back-up has acknowledged all inputs, or this many of them. It was alive then.
  bool is_acknowledged() const { return is_acknowledged(inputs_); }
  bool is_acknowledged(uint64_t inputs) const { return inputs <= acknowledged_; }
  /// This many inputs are not lost with this process: they are acknowledged, or in the journal.
  bool is_held(uint64_t inputs) const {
    return inputs <= acknowledged_ || (journal_ != nullptr && acknowledged_ + 1 >= journaled_from_ && journal_->is_open());
  }
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

  void send_held();

  base::Link& link_;

  bool is_open_ = false, is_sealed_ = false, is_gathering_ = false;
  uint64_t inputs_ = 0, acknowledged_ = 0;
  std::shared_ptr<const JournalWriter> journal_;
  uint64_t journaled_from_ = 1;  ///< all inputs from this one on are in the journal
  std::deque<Held> held_;
  static constexpr uint64_t kNotKnown = UINT64_MAX;  ///< inputs of a message that is sent between begin() and end()
};

}  // namespace mv::replica
