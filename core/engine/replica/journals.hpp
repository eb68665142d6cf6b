#pragma once
// The two ends of a part's journal: how a server and its back-up come to share it, and what each does with it.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/clock.hpp"
#include "engine/replica/journal.hpp"
#include "engine/replica/outbox.hpp"
#include "engine/replica/part.hpp"
#include "engine/replica/successor.hpp"

namespace mv::replica {

/// What a process asks another one for is in the upper half of the number, the part in the lower one. The numbers below
/// are those of tables.
enum class JournalMemory : uint32_t { kJournal = 1, kGate = 2 };
constexpr uint64_t number_of(JournalMemory what, uint32_t part) { return static_cast<uint64_t>(what) << 32 | part; }

/// Passes a part's inputs to its first back-up. If that is the only one, and on the same machine, inputs go to a journal,
/// too. Loop thread only.
class PrimaryJournal {
 public:
  PrimaryJournal(const base::Clock& clock, uint32_t part, Outbox& outbox, Successor& successor)
      : clock_(clock), part_(part), outbox_(outbox), successor_(successor) {}

  /// The back-up that may have a journal; kNobody: none. Until the back-up has agreed, it is asked again, less and less
  /// often: it may be on another machine, or have no copy yet.
  void set_backup(base::Peer backup, HostMemory& memory);
  void drop();
  /// @param may_wait  if the input is in the journal, its message may leave later
  void pass(uint64_t number, base::Frame frame, bool is_journaled, bool may_wait);
  /// The back-up has processed the inputs up to this number.
  void acknowledged(uint64_t number) {
    if (writer_ != nullptr) writer_->release(number);
  }
  /// For this process, if it is the back-up; else null.
  std::shared_ptr<base::SharedMemory> memory_for(base::Peer peer) const;
  /// The number of inputs that were acknowledged because they were in the journal.
  uint64_t journaled() const { return journaled_; }

  base::Nanos next_deadline() const { return std::min(ask_at_, send_at_); }
  void tick(HostMemory* memory);

 private:
  void ask(HostMemory& memory);

  const base::Clock& clock_;
  const uint32_t part_;
  Outbox& outbox_;
  Successor& successor_;
  std::shared_ptr<JournalWriter> writer_;
  uint64_t last_id_ = 0, journaled_ = 0;
  base::Nanos ask_at_ = base::kNever, ask_after_{0};  ///< when to ask for the gate, and how long to wait until the next time
  base::Nanos send_at_ = base::kNever;                ///< inputs wait to be sent
};

/// What the back-up reads: its server's newest journal, and older ones that may have inputs that have not come yet. Loop
/// thread only.
class BackupJournals {
 public:
  explicit BackupJournals(Part& part) : part_(part) {}
  /// This copy of the part replaces another one.
  void take_from(BackupJournals& other) { readers_ = std::move(other.readers_); }

  /// For the server of part `number`, which asks for it; null until its journal is mapped here.
  std::shared_ptr<base::SharedMemory> gate_for(base::Peer server, uint32_t number, HostMemory& memory);
  /// Closes the journals, and processes what the server has acknowledged and what has not come as a message.
  /// @param self  this process. The number of such inputs; see Part::damage()
  base::Result<size_t> process(base::Peer self);

 private:
  void take(base::Peer server, std::shared_ptr<base::SharedMemory> journal);

  Part& part_;
  std::deque<std::shared_ptr<JournalReader>> readers_;
  std::shared_ptr<const void> asked_;  ///< the server is asked for its newest journal
};

}  // namespace mv::replica
