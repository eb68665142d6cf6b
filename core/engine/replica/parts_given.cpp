// What a server does with the parts that it gives to others (engine/drain.hpp).

#include <algorithm>

#include "engine/cluster/succession.hpp"
#include "engine/replica/parts.hpp"

namespace mv::replica {

std::vector<uint32_t> Parts::led() const {
  std::vector<uint32_t> numbers;
  for (const auto& [number, led] : led_) numbers.push_back(number);
  return numbers;
}

std::vector<uint32_t> Parts::moving() const {
  std::vector<uint32_t> numbers;
  for (const auto& [number, led] : led_) {
    if (cluster::destination(cluster_.view(), *server_of(number), replicas_) != nullptr && has_equal_copy(number, led)) numbers.push_back(number);
  }
  return numbers;
}

bool Parts::leads_any_of(const std::vector<uint32_t>& numbers) const {
  return std::ranges::any_of(numbers, [this](uint32_t number) { return led_.contains(number); });
}

/// Whether its first back-up has a complete copy, as the master knows.
bool Parts::is_followed(uint32_t number, const Led& led) const {
  return led.has_backup() && led.chain.successor.peer() == cluster_.view().backup_of(*server_of(number)) && led.content == Led::Content::kUsual;
}

bool Parts::has_equal_copy(uint32_t number, const Led& led) const {
  return is_followed(number, led) && (led.part->has_all() || !led.tables->any_without_backups());
}

bool Parts::complete_copies(bool all) {
  bool is_under_way = false;
  for (auto& [number, led] : led_) {
    if (!all && cluster::destination(cluster_.view(), *server_of(number), replicas_) == nullptr) continue;
    const bool lacks_some = is_followed(number, led) && !has_equal_copy(number, led);
    if (lacks_some && (led.chain.to != base::kNobody || led.chain.transfer != nullptr)) {  // a copy for another process is under way: after it
      is_under_way = true;
    } else if (lacks_some) {
      led.gives_all = true;
      set_content(led, Led::Content::kNew);
      refill(number, led);
    }
    is_under_way = is_under_way || led.content != Led::Content::kUsual;  // a copy gets everything, or the values of a checkpoint
  }
  return is_under_way;
}

bool Parts::can_hand_over(const std::vector<uint32_t>& numbers) const {
  return std::ranges::all_of(numbers, [this](uint32_t number) {
    const auto led = led_.find(number);
    return led != led_.end() && has_equal_copy(number, led->second);
  });
}

void Parts::seal(const std::vector<uint32_t>& numbers) {
  for (const uint32_t number : numbers) {
    const auto led = led_.find(number);
    if (led == led_.end()) continue;
    drop_offer(led->second);
    led->second.part->seal();
  }
}

void Parts::unseal(const std::vector<uint32_t>& numbers) {
  for (const uint32_t number : numbers) {
    const auto led = led_.find(number);
    if (led == led_.end()) continue;
    led->second.part->unseal(cluster_.certain_view());
    see_to_copy(number, led->second, *server_of(number));
  }
}

bool Parts::is_seal_acknowledged(const std::vector<uint32_t>& numbers) const {
  return std::ranges::all_of(numbers, [this](uint32_t number) {
    const auto led = led_.find(number);
    return led == led_.end() || led->second.part->outbox().is_acknowledged();
  });
}

/// Another process serves this part from now on, to which this one has given it.
void Parts::relinquish(uint32_t number) {
  const auto led = led_.find(number);
  if (led == led_.end() || !led->second.part->is_sealed() || led->second.part == &own_) return;
  without_successor(number, led->second.chain);
  led_.erase(led);
  chains_.erase(number);
  copies_.erase(number);
  given_.insert(number);
}

}  // namespace mv::replica
