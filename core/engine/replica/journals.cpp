#include "engine/replica/journals.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace mv::replica {

using namespace std::chrono_literals;

namespace {
/// Inputs that are in the journal wait for each other before they are sent: so many, or for so long. This saves the back-up wake-ups, and
/// bounds what it has to process before it can take over.
constexpr size_t kMostWaiting = 64;
constexpr base::Nanos kLongestWaiting = 1ms;

constexpr base::Nanos kAskAgainFirst = 5ms, kAskAgainAtMost = 1s;
}  // namespace

// ---- the server

void PrimaryJournal::set_backup(base::Peer backup, HostMemory& memory) {
  if (writer_ != nullptr && writer_->backup() != backup) drop();
  if (writer_ != nullptr || backup == base::kNobody) return;
  auto made = JournalWriter::make(backup, ++last_id_);
  if (!made.ok()) return base::log_debug("no journal for the back-up of part {}: {}", part_ - 1, made.status().text());
  writer_ = std::move(made).value();
  outbox_.rely_on(writer_);
  ask_after_ = kAskAgainFirst;
  ask(memory);
}

void PrimaryJournal::drop() {
  outbox_.rely_on(nullptr);
  writer_.reset();
  ask_at_ = send_at_ = base::kNever;
  successor_.send_waiting();
}

void PrimaryJournal::pass(uint64_t number, base::Frame frame, bool is_journaled, bool may_wait) {
  is_journaled = is_journaled && writer_ != nullptr && writer_->append(number, frame);
  outbox_.add_input(is_journaled);
  journaled_ += is_journaled ? 1 : 0;
  if (!is_journaled || !may_wait) return successor_.pass(std::move(frame));
  successor_.pass_later(std::move(frame));
  if (successor_.waiting() >= kMostWaiting)
    successor_.send_waiting();
  else if (send_at_ == base::kNever)
    send_at_ = clock_.now() + kLongestWaiting;
}

std::shared_ptr<base::SharedMemory> PrimaryJournal::memory_for(base::Peer peer) const {
  return writer_ != nullptr && writer_->backup() == peer ? writer_->memory() : nullptr;
}

void PrimaryJournal::ask(HostMemory& memory) {
  ask_at_ = clock_.now() + ask_after_;
  ask_after_ = std::min(2 * ask_after_, kAskAgainAtMost);
  memory.ask(writer_->backup(), number_of(JournalMemory::kGate, part_), [asked = std::weak_ptr(writer_)](std::shared_ptr<base::SharedMemory> gate) {
    if (const auto writer = asked.lock(); writer != nullptr && gate != nullptr) writer->set_gate(std::move(gate));
  });
}

void PrimaryJournal::tick(HostMemory* memory) {
  const base::Nanos now = clock_.now();
  if (send_at_ <= now) {
    send_at_ = base::kNever;
    successor_.send_waiting();
  }
  if (ask_at_ > now || writer_ == nullptr || memory == nullptr) return;
  if (!writer_->has_gate()) return ask(*memory);
  ask_at_ = now + kAskAgainAtMost;
  if (writer_->is_open()) return;
  const base::Peer backup = writer_->backup();  // it has another copy now
  drop();
  set_backup(backup, *memory);
}

// ---- the back-up

std::shared_ptr<base::SharedMemory> BackupJournals::gate_for(base::Peer server, uint32_t number, HostMemory& memory) {
  // It may have another journal than the one that is known here, whose gate it refuses.
  const auto asked = std::make_shared<int>();
  asked_ = asked;
  memory.ask(server, number_of(JournalMemory::kJournal, number), [this, server, asked = std::weak_ptr(asked)](std::shared_ptr<base::SharedMemory> journal) {
    if (!asked.expired() && journal != nullptr) take(server, std::move(journal));
  });
  const bool is_known = !readers_.empty() && readers_.back()->server() == server;
  return is_known ? readers_.back()->gate() : nullptr;
}

void BackupJournals::take(base::Peer server, std::shared_ptr<base::SharedMemory> journal) {
  asked_.reset();
  auto made = JournalReader::make(server, std::move(journal));
  if (!made.ok()) return base::log_debug("no journal: {}", made.status().text());
  auto reader = std::move(made).value();
  if (!readers_.empty() && readers_.back()->server() == server && readers_.back()->id() == reader->id()) return;
  std::erase_if(readers_, [&](const auto& old) { return old->close(part_.inputs()).empty(); });
  readers_.push_back(std::move(reader));
}

base::Result<size_t> BackupJournals::process(base::Peer self) {
  const uint64_t before = part_.inputs();
  base::Status wrong;
  asked_.reset();
  for (const auto& reader : std::exchange(readers_, {}))
    for (const JournalReader::Record& record : reader->close(part_.inputs())) {
      const auto* const input = record.message->body_as_Replicate();
      if (input == nullptr || input->number() != record.number || record.number != part_.inputs() + 1) break;
      wrong = part_.replay(self, *input, record.payload, nullptr);
      if (!wrong.ok()) return wrong;
    }
  return part_.inputs() - before;
}

}  // namespace mv::replica
