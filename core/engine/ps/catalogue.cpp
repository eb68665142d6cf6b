// Creating, opening, listing and destroying tables: the part of Client that speaks to all servers at once.

#include <algorithm>

#include "engine/ps/chunk.hpp"
#include "engine/ps/client.hpp"
#include "engine/ps/round.hpp"
#include "engine/ps/spec_wire.hpp"

namespace mv::ps {

namespace {
constexpr uint32_t kNoNumber = UINT32_MAX;

}  // namespace

/// Where one server could not make its part, the others' parts go too. (Where the workers disagree, the servers clean up
/// themselves, once everyone was told; after a time-out the table may still come to be.)
void Client::undo_creation(const TableView& table, const base::Status& why) {
  if (why.code() != MV_ENOMEM && why.code() != MV_EPROTOCOL) return;
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (table.numbers[server] == kNoNumber) continue;
    auto frame = builder_.finish(wire::Body::Destroy, wire::CreateDestroy(builder_.fbb(), table.numbers[server]));
    rpc_.call(servers_[server], {std::move(frame), std::make_shared<Gather>(pool_, [](const auto&, const auto*, auto) {}), true, 0, nullptr});
  }
}

void Client::know(TableView& table) const { table.pace = table.spec.pace(view_->sync, view_->workers().size()); }

/// This worker's clock as the servers know it. Who comes in the place of a lost worker stands where the others did when each server
/// noticed; it begins at the latest of these clocks, and all have to know.
void Client::take_clock(const TableViewRef& table, const std::vector<uint64_t>& clocks) {
  if (clocks.empty()) return;
  const auto [least, most] = std::minmax_element(clocks.begin(), clocks.end());
  table->clock = *most;
  if (*least < *most) clock(table, *most);
}

/// Three rounds: register the spec; worker 0 sets the initial values; wait for everyone.
void Client::create(const table::Spec& spec, base::PayloadRef initial, base::Nanos deadline, Opened opened, bool given) {
  // Two views of one table would count this worker's calls twice.
  if (!creating_.try_emplace(spec.name).second) return opened(base::error(MV_EDISAGREE, "table \"{}\" is being created already by another call", spec.name));
  auto table = std::make_shared<TableView>();
  table->spec = spec;
  table->servers = servers_;
  table->numbers.resize(servers_.size(), kNoNumber);
  know(*table);

  const auto clocks = std::make_shared<std::vector<uint64_t>>();
  const auto finish = [this, table, clocks, opened](const base::Status& status) {
    creating_.erase(table->spec.name);
    if (!status.ok()) {
      undo_creation(*table, status);
      return opened(status);
    }
    tables_[table->spec.name] = table;
    take_clock(table, *clocks);
    opened(table);
  };
  const auto wait_for_all = [this, table, deadline, finish](const base::Status& status) {
    if (!status.ok()) return finish(status);
    const auto round = std::make_shared<Round>(*this, servers_, Round::Each(), finish);
    creating_[table->spec.name] = round;
    round->ask(
        [table](wire::FrameBuilder& builder, size_t server) {
          return builder.finish(wire::Body::Ready, wire::CreateReady(builder.fbb(), table->numbers[server]));
        },
        deadline);
  };
  const auto exists = std::make_shared<bool>(false);  // this worker has taken the place of a lost one
  const auto fill = [this, table, initial, exists, deadline, wait_for_all](const base::Status& status) {
    if (!status.ok() || initial == nullptr || *exists) return wait_for_all(status);
    class Filled final : public Completion {
     public:
      explicit Filled(std::function<void(const base::Status&)> then) : then_(std::move(then)) {}
      void complete(const base::Status& status) override { then_(status); }

     private:
      std::function<void(const base::Status&)> then_;
    };
    Request request;
    request.table = table;
    request.kind = OpKind::kChange;
    request.write = wire::Write::Set;
    request.source = initial;
    request.deadline = deadline;
    request.completion = std::make_shared<Filled>(wait_for_all);
    table->open_changes.fetch_add(1, std::memory_order_relaxed);
    begin(std::move(request));
  };
  std::make_shared<Round>(
      *this, servers_,
      [table, exists, clocks](size_t server, const wire::Message& answer, std::span<const std::byte>) {
        const auto* created = answer.body_as_Created();
        if (created == nullptr) return;
        table->numbers[server] = created->table();
        clocks->push_back(created->clock());
        *exists = *exists || created->exists();
      },
      fill)
      ->ask(
          [table, given, holds = tables_.contains(spec.name)](wire::FrameBuilder& builder, size_t) {
            const auto written = write_spec(builder.fbb(), table->spec);
            return builder.finish(wire::Body::Create, wire::CreateCreate(builder.fbb(), written, holds, given));
          },
          deadline);
}

void Client::give_up_creation(const std::string& name) {
  const auto found = creating_.find(name);
  if (found == creating_.end()) return;
  if (const auto round = found->second.lock()) round->expire();
}

void Client::open(const std::string& name, base::Nanos deadline, Opened opened) {
  auto table = std::make_shared<TableView>();
  table->servers = servers_;
  table->numbers.resize(servers_.size());
  const auto clocks = std::make_shared<std::vector<uint64_t>>();
  const auto each = [table, clocks](size_t server, const wire::Message& answer, std::span<const std::byte>) {
    const auto* created = answer.body_as_Created();
    if (created == nullptr || created->spec() == nullptr) return;
    table->numbers[server] = created->table();
    clocks->push_back(created->clock());
    table->spec = read_spec(*created->spec());
  };
  const auto done = [this, table, clocks, opened, name](const base::Status& status) {
    if (!status.ok()) {
      tables_.erase(name);
      return opened(status);
    }
    const auto known = tables_.find(name);
    if (known != tables_.end() && known->second->numbers == table->numbers) return opened(known->second);
    know(*table);
    tables_[name] = table;
    take_clock(table, *clocks);
    opened(table);
  };
  std::make_shared<Round>(*this, servers_, each, done)
      ->ask(
          [name](wire::FrameBuilder& builder, size_t) {
            const auto written = builder.fbb().CreateString(name);
            return builder.finish(wire::Body::Open, wire::CreateOpen(builder.fbb(), written));
          },
          deadline);
}

void Client::list(base::Nanos deadline, std::function<void(base::Result<std::vector<table::Spec>>)> listed) {
  auto specs = std::make_shared<std::vector<table::Spec>>();
  const auto each = [specs](size_t, const wire::Message& answer, std::span<const std::byte>) {
    const auto* listing = answer.body_as_Listing();
    if (listing == nullptr || listing->tables() == nullptr) return;
    for (const wire::TableSpec* spec : *listing->tables()) specs->push_back(read_spec(*spec));
  };
  const auto done = [specs, listed](const base::Status& status) {
    if (status.ok())
      listed(std::move(*specs));
    else
      listed(status);
  };
  const std::vector<base::Peer> first_server(servers_.begin(), servers_.begin() + 1);
  std::make_shared<Round>(*this, first_server, each, done)
      ->ask([](wire::FrameBuilder& builder, size_t) { return builder.finish(wire::Body::List, wire::CreateList(builder.fbb())); }, deadline);
}

void Client::destroy(const TableViewRef& table, base::Nanos deadline, CompletionRef completion) {
  const auto known = tables_.find(table->spec.name);
  if (known != tables_.end() && known->second == table) tables_.erase(known);
  std::make_shared<Round>(*this, table->servers, Round::Each(), [completion](const base::Status& status) { completion->complete(status); })
      ->ask(
          [table](wire::FrameBuilder& builder, size_t server) {
            return builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), table->numbers[server]));
          },
          deadline);
}

}  // namespace mv::ps
