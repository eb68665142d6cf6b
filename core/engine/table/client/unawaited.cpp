// Fire-and-forget changes that share a message.

#include <algorithm>

#include "base/prefetch.hpp"
#include "engine/table/client/client.hpp"

namespace mv::table {

/// A fire-and-forget change of one message: no caller waits for it, but flushes count it.
class Client::SmallChange final : public rpc::Pending {
 public:
  SmallChange(Client& client, TableViewRef table, uint64_t id, uint64_t reserved)
      : client_(client), table_(std::move(table)), id_(id), reserved_(reserved) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    client_.in_flight_.fetch_sub(reserved_, std::memory_order_relaxed);
    client_.changes_.note(*table_, status);
    client_.changes_.over(*table_, id_);
  }

 private:
  Client& client_;
  const TableViewRef table_;
  const uint64_t id_, reserved_;
};

void Client::begin_small(const TableViewRef& table, const SmallForm& form, base::PayloadRef changes, uint64_t reserved) {
  const auto times = form.bytes == 0 ? 1 : static_cast<uint32_t>(changes->size() / form.bytes);
  const auto body = wire::CreateChange(servers_.builder.fbb(), table->numbers[form.server], form.write, 0, form.count, form.rows, 0, 0, 1, 0, 0, 0, times);
  rpc::Call call;
  call.frame = servers_.builder.finish(wire::Body::Change, body, changes);
  call.cost = call.frame.bytes();
  call.pending = std::make_shared<SmallChange>(*this, table, changes_.begin(), reserved);
  call.wants_answer = false;
  set_order(call, *table, form.server);
  if (entry_.keeps(*table)) return entry_.keep({table}, table->servers[form.server], std::move(call));
  servers_.rpc.call(table->servers[form.server], std::move(call));
}

/// The same for many tables.
class Client::ManyChange final : public rpc::Pending {
 public:
  ManyChange(Client& client, std::vector<TableViewRef> tables, uint64_t id, uint64_t reserved)
      : client_(client), tables_(std::move(tables)), id_(id), reserved_(reserved) {
    adds_.reserve(tables_.size());
    for (const TableViewRef& table : tables_) {
      const bool is_merged = table->consistency == shard::Consistency::kMerge;
      adds_.push_back({is_merged ? table->clock.fetch_add(1, std::memory_order_relaxed) : 0, is_merged && table->is_newcomer});
    }
  }
  base::Frame frame(wire::FrameBuilder& builder, size_t server, const base::PayloadRef& values) const {
    std::vector<uint32_t> numbers, bytes;
    std::vector<uint64_t> indexes;
    numbers.reserve(tables_.size());
    bytes.reserve(tables_.size());
    indexes.reserve(tables_.size());
    for (size_t i = 0; i < tables_.size(); ++i) {
      const TableView& table = *tables_[i];
      numbers.push_back(table.numbers[server]);
      bytes.push_back(static_cast<uint32_t>(table.spec.bytes()));
      indexes.push_back(adds_[i].index + (adds_[i].is_provisional ? table.first.clock : 0));
    }
    auto& fbb = builder.fbb();
    const auto body = wire::CreateChangeMany(fbb, fbb.CreateVector(numbers), fbb.CreateVector(indexes), fbb.CreateVector(bytes));
    return builder.finish(wire::Body::ChangeMany, body, values);
  }
  const std::vector<TableViewRef>& tables() const { return tables_; }
  /// One error for all: it does not say which of the tables have their adds.
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    client_.in_flight_.fetch_sub(reserved_, std::memory_order_relaxed);
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (i + kAhead < tables_.size()) base::prefetch_to_write(&tables_[i + kAhead]->open_changes);
      const TableViewRef& table = tables_[i];
      client_.changes_.note(*table, status);
      table->open_changes.fetch_sub(1, std::memory_order_release);
    }
    client_.changes_.over(id_);
  }

 private:
  struct Add {
    uint64_t index;
    bool is_provisional;  ///< see TableCall::is_provisional
  };
  Client& client_;
  const std::vector<TableViewRef> tables_;
  std::vector<Add> adds_;  ///< by table
  const uint64_t id_, reserved_;
};

void Client::add_many(ManyAdds adds) {
  for (const TableViewRef& table : adds.tables)
    if (table->consistency == shard::Consistency::kMerge) entry_.before(table, wire::Counted::Add);
  const bool is_kept = std::ranges::any_of(adds.tables, [&](const TableViewRef& table) { return entry_.keeps(*table); });
  const auto change = std::make_shared<ManyChange>(*this, std::move(adds.tables), changes_.begin(), adds.reserved);
  rpc::Call call;
  call.cost = adds.values->size();
  call.wants_answer = false;
  set_order(call, *change->tables().front(), adds.server);
  call.pending = change;
  if (is_kept) {
    call.make = [this, change = change.get(), server = adds.server, values = adds.values] { return change->frame(servers_.builder, server, values); };
    return entry_.keep(change->tables(), servers_.peers[adds.server], std::move(call), wire::Counted::Add);
  }
  call.frame = change->frame(servers_.builder, adds.server, adds.values);
  call.cost = call.frame.bytes();
  servers_.rpc.call(servers_.peers[adds.server], std::move(call));
}

}  // namespace mv::table
