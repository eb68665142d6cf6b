// What a server does with its parts when checkpoints are saved and loaded.

#include <utility>

#include "engine/replica/parts.hpp"

namespace mv::replica {

const Parts::Led* Parts::led_of(uint64_t part) const {
  const auto servers = cluster_.view().servers();
  const auto led = part < servers.size() ? led_.find(servers[part]->rank + 1) : led_.end();
  return led != led_.end() ? &led->second : nullptr;
}
Parts::Led* Parts::led_of(uint64_t part) { return const_cast<Led*>(std::as_const(*this).led_of(part)); }

table::CheckpointTables* Parts::served(uint64_t part) {
  if (!is_by_part())
    return own_tables_ != nullptr && cluster_.view().server_id(cluster_.self().peer) == static_cast<int64_t>(part) ? &own_tables_->checkpoint_tables()
                                                                                                                   : nullptr;
  const Led* const led = led_of(part);
  return led != nullptr ? &led->tables->checkpoint_tables() : nullptr;
}

bool Parts::is_elsewhere(uint64_t part) const {
  const auto servers = cluster_.view().servers();
  return part < servers.size() && given_.contains(servers[part]->rank + 1);
}

bool Parts::is_being_copied(uint64_t part) const {
  const Led* const led = led_of(part);
  return led != nullptr && (led->content != Led::Content::kUsual || led->chain.to != base::kNobody || led->part->is_sealed());
}

void Parts::begin_replacing(uint64_t part) {
  if (Led* const led = led_of(part)) set_content(*led, Led::Content::kChanging);
}

void Parts::replaced(uint64_t part, std::function<void()> done) {
  Led* const led = led_of(part);
  if (led == nullptr) return done();
  set_content(*led, Led::Content::kUsual);
  if (!led->has_backup()) return done();
  set_content(*led, Led::Content::kNew);
  led->replaced = std::move(done);
  refill(cluster_.view().servers()[part]->rank + 1, *led);
}

void Parts::hold(uint64_t part, const std::string& path, std::span<const std::byte> clocks) {
  if (Led* const led = led_of(part)) led->part->hold(path, clocks);
}

bool Parts::is_held(uint64_t part) const {
  const Led* const led = led_of(part);
  return led == nullptr || led->part->is_held();
}

void Parts::written(uint64_t part, const std::string& path, const checkpoint::FileEntry* file) {
  if (const checkpoint::HeldSave* const save = held(part); save != nullptr && save->path == path) led_of(part)->part->written(file);
}

checkpoint::HeldSave* Parts::held(uint64_t part) {
  Led* const led = led_of(part);
  return led != nullptr ? led->part->save() : nullptr;
}

/// While a load replaces the values, the back-ups get all inputs as they come: they may not get the new values.
void Parts::set_content(Led& led, Led::Content content) {
  led.content = content;
  if (content != Led::Content::kNew) led.gives_all = false;
  led.part->may_withhold(content == Led::Content::kUsual);
}

/// Gives the back-ups the new content.
void Parts::refill(uint32_t number, Led& led) {
  Transfer::Events events;
  events.passes_on = [] {};
  events.is_equal = [&led] {
    led.refill.reset();
    set_content(led, Led::Content::kUsual);
    if (led.replaced) std::exchange(led.replaced, nullptr)();
  };
  events.failed = [this, &led] {
    led.refill.reset();
    led.retry_at = clock_.now() + kRetryAfter;
  };
  events.pass = [&led](base::Frame frame, std::function<void()> done) {
    led.part->outbox().add_input();
    led.chain.successor.pass(std::move(frame), std::move(done));
  };
  led.moment = std::make_shared<Offer>(clock_, peers_, *led.part, [this, number, &led, events = std::move(events)] {
    const auto refill = std::make_shared<Transfer>(peers_, *led.part, number, base::kNobody, events);
    led.refill = refill;
    const bool had_all = led.part->has_all();
    led.part->set_has_all(had_all || led.gives_all);
    if (refill->start()) return true;
    led.part->set_has_all(had_all);
    led.refill.reset();
    return false;
  });
  led.moment->wait();
}

}  // namespace mv::replica
