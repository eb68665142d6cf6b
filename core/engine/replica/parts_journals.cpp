// Which parts have a journal, and the memory that their servers and back-ups on one machine share for it.

#include "base/log.hpp"
#include "engine/replica/parts.hpp"

namespace mv::replica {

/// Only the last process of a chain acknowledges for itself, and a process that gets its copy reads no journal.
bool Parts::may_have_journal(uint32_t number, const Led& led) const {
  const cluster::View& view = cluster_.view();
  const cluster::Member& part = *server_of(number);
  const auto chain = view.chain_of(part);
  return chain.size() == 2 && chain.back() == led.chain.successor.peer() && view.next_backup_of(part) == base::kNobody && led.chain.to == base::kNobody &&
         led.chain.transfer == nullptr;
}

void Parts::see_to_journal(uint32_t number, Led& led) {
  if (host_memory_ == nullptr || !is_replicated()) return;
  led.journal->set_backup(may_have_journal(number, led) ? led.chain.successor.peer() : base::kNobody, *host_memory_);
}

std::shared_ptr<base::SharedMemory> Parts::memory_for(base::Peer peer, uint64_t number) {
  const auto part = static_cast<uint32_t>(number);
  if (number == number_of(JournalMemory::kJournal, part)) {
    const auto led = led_.find(part);
    return led != led_.end() ? led->second.journal->memory_for(peer) : nullptr;
  }
  const auto copy = copies_.find(part);
  const bool is_kept = copy != copies_.end() && copy->second->arrival == nullptr && !copy->second->part.leads() && serves(peer, part);
  return number == number_of(JournalMemory::kGate, part) && is_kept && host_memory_ != nullptr ? copy->second->journals.gate_for(peer, part, *host_memory_) : nullptr;
}

uint64_t Parts::journaled() const {
  uint64_t journaled = 0;
  for (const auto& [number, led] : led_) journaled += led.journal->journaled();
  return journaled;
}

void Parts::drop_journals() {
  host_memory_ = nullptr;
  for (auto& [number, led] : led_) led.journal->drop();
}

void Parts::read_journals() {
  for (auto& [number, copy] : copies_)
    if (copy->arrival == nullptr) process_journals(number, *copy);
}

void Parts::process_journals(uint32_t number, Copy& copy) {
  const auto processed = copy.journals.process(cluster_.self().peer);
  const std::string& server = cluster_.view().name(server_of(number)->peer);
  if (!processed.ok()) return base::log_error("a change in the journal of {}'s tables can't be made: {}", server, processed.status().text());
  if (processed.value() > 0) base::log_debug("{} changes were in the journal of {}'s tables", processed.value(), server);
}

}  // namespace mv::replica
