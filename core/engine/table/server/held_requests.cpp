#include "engine/table/server/held_requests.hpp"

namespace mv::table {

void HeldRequests::forget_table(uint32_t number) {
  changes_.erase_if([&](const rpc::Asked&, const HeldChange& change) { return change.table == number; });
  gets_.erase_if([&](const rpc::Asked&, const HeldGet& get) { return get.table == number; });
}

const uint32_t* HeldRequests::table_of(const rpc::Asked& asked) const {
  if (const HeldChange* const change = changes_.find(asked)) return &change->table;
  const HeldGet* const get = gets_.find(asked);
  return get != nullptr ? &get->table : nullptr;
}

base::Nanos HeldRequests::since(const rpc::Asked& asked) const {
  if (const HeldChange* const change = changes_.find(asked)) return change->since;
  const HeldGet* const get = gets_.find(asked);
  return get != nullptr ? get->since : clock_.now();
}

std::set<uint32_t> HeldRequests::tables() const {
  std::set<uint32_t> tables;
  const auto note = [&](const rpc::Asked&, const auto& one) { tables.insert(one.table); };
  changes_.for_each(note);
  gets_.for_each(note);
  return tables;
}

std::set<rpc::Asked> HeldRequests::of_table(uint32_t number) const {
  std::set<rpc::Asked> some;
  const auto note = [&](const rpc::Asked& asked, const auto& one) {
    if (one.table == number) some.insert(asked);
  };
  changes_.for_each(note);
  gets_.for_each(note);
  return some;
}

}  // namespace mv::table
