// Creating, opening, listing and destroying tables: the part of Client that speaks to all servers at once.

#include <algorithm>

#include "engine/ps/chunk.hpp"
#include "engine/ps/client.hpp"
#include "engine/ps/server.hpp"

namespace mv::ps {

/// One question to all servers, and the first error or all answers.
class Client::Round : public std::enable_shared_from_this<Round> {
 public:
  using Each = std::function<void(size_t server, const wire::Message&)>;
  using Done = std::function<void(const base::Status&)>;
  using Ask = std::function<base::Frame(wire::FrameBuilder&, size_t server)>;

  Round(Client& client, std::vector<base::Peer> servers, Each each, Done done)
      : client_(client), servers_(std::move(servers)), each_(std::move(each)), done_(std::move(done)) {}

  void ask(const Ask& question, base::Nanos deadline) {
    open_ = servers_.size();
    if (deadline != base::kNever) {
      timer_ = client_.deadlines_.emplace(deadline, [self = shared_from_this()] { self->ask_back(); });
      has_timer_ = true;
    }
    pendings_.resize(servers_.size());
    for (size_t server = 0; server < servers_.size(); ++server)
      pendings_[server] = std::make_shared<Gather>([self = shared_from_this(), server](const base::Status& status, const wire::Message* answer) {
        self->heard(server, status, answer);
      });
    const auto pendings = pendings_;  // answers may come at once
    for (size_t server = 0; server < servers_.size(); ++server)
      client_.rpc_.call(servers_[server], {question(client_.builder_, server), pendings[server], true, 0, nullptr});
  }

  /// First asks the servers who is missing; then goes without their answers.
  void expire() {
    if (has_timer_) client_.deadlines_.erase(timer_);
    ask_back();
  }

 private:
  void heard(size_t server, const base::Status& status, const wire::Message* answer) {
    pendings_[server].reset();
    if (status.ok() && answer != nullptr) each_(server, *answer);
    const bool unsent = asked_back_ && status.code() == MV_ECANCELED;
    if (!status.ok() && error_.ok())
      error_ = !unsent ? status : base::error(MV_ETIMEOUT, "{} has not answered earlier calls", client_.view_->name(servers_[server]));
    if (--open_ > 0) return;
    if (has_timer_) client_.deadlines_.erase(timer_);
    has_timer_ = false;
    done_(error_);
  }

  void ask_back() {
    has_timer_ = false;
    const auto pendings = pendings_;
    if (!std::exchange(asked_back_, true)) {
      timer_ = client_.deadlines_.emplace(client_.clock_.now() + std::chrono::seconds(1), [self = shared_from_this()] { self->ask_back(); });
      has_timer_ = true;
      for (size_t server = 0; server < servers_.size(); ++server)
        if (pendings[server] != nullptr) client_.rpc_.cancel(servers_[server], pendings[server].get());
      return;
    }
    for (size_t server = 0; server < servers_.size(); ++server)
      if (pendings[server] != nullptr)
        client_.rpc_.abandon(servers_[server], pendings[server].get(),
                             base::error(MV_ETIMEOUT, "no answer from {}", client_.view_->name(servers_[server])));
  }

  Client& client_;
  const std::vector<base::Peer> servers_;
  const Each each_;
  const Done done_;
  std::vector<std::shared_ptr<Gather>> pendings_;
  size_t open_ = 0;
  base::Status error_;
  bool asked_back_ = false;
  bool has_timer_ = false;
  std::multimap<base::Nanos, std::function<void()>>::iterator timer_;
};

namespace {
constexpr uint32_t kNoNumber = UINT32_MAX;

void ignore(size_t, const wire::Message&) {}
}  // namespace

/// Where one server could not make its part, the others' parts go too. (Where the workers disagree, the servers clean up
/// themselves, once everyone was told; after a time-out the table may still come to be.)
void Client::undo_creation(const TableView& table, const base::Status& why) {
  if (why.code() != MV_ENOMEM && why.code() != MV_EPROTOCOL) return;
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (table.numbers[server] == kNoNumber) continue;
    auto frame = builder_.finish(wire::Body::Destroy, wire::CreateDestroy(builder_.fbb(), table.numbers[server]));
    rpc_.call(servers_[server], {std::move(frame), std::make_shared<Gather>([](const auto&, const auto*) {}), true, 0, nullptr});
  }
}

/// Three rounds: register the spec; worker 0 sets the initial values; wait for everyone.
void Client::create(const table::Spec& spec, base::PayloadRef initial, base::Nanos deadline, Opened opened) {
  // Two views of one table would count this worker's calls twice.
  if (!creating_.try_emplace(spec.name).second) return opened(base::error(MV_EDISAGREE, "table \"{}\" is being created already by another call", spec.name));
  auto table = std::make_shared<TableView>();
  table->spec = spec;
  table->servers = servers_;
  table->numbers.resize(servers_.size(), kNoNumber);

  const auto finish = [this, table, opened](const base::Status& status) {
    creating_.erase(table->spec.name);
    if (!status.ok()) {
      undo_creation(*table, status);
      return opened(status);
    }
    tables_[table->spec.name] = table;
    opened(table);
  };
  const auto wait_for_all = [this, table, deadline, finish](const base::Status& status) {
    if (!status.ok()) return finish(status);
    const auto round = std::make_shared<Round>(*this, servers_, ignore, finish);
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
    begin(std::move(request));
  };
  std::make_shared<Round>(
      *this, servers_,
      [table, exists](size_t server, const wire::Message& answer) {
        const auto* created = answer.body_as_Created();
        if (created == nullptr) return;
        table->numbers[server] = created->table();
        *exists = *exists || created->exists();
      },
      fill)
      ->ask(
          [table, holds = tables_.contains(spec.name)](wire::FrameBuilder& builder, size_t) {
            const auto written = write_spec(builder.fbb(), table->spec);
            return builder.finish(wire::Body::Create, wire::CreateCreate(builder.fbb(), written, holds));
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
  const auto each = [table](size_t server, const wire::Message& answer) {
    const auto* created = answer.body_as_Created();
    if (created == nullptr || created->spec() == nullptr) return;
    table->numbers[server] = created->table();
    table->spec = read_spec(*created->spec());
  };
  const auto done = [this, table, opened, name](const base::Status& status) {
    if (!status.ok()) {
      tables_.erase(name);
      return opened(status);
    }
    const auto known = tables_.find(name);
    if (known != tables_.end() && known->second->numbers == table->numbers) return opened(known->second);
    tables_[name] = table;
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
  const auto each = [specs](size_t, const wire::Message& answer) {
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
  std::make_shared<Round>(*this, table->servers, ignore, [completion](const base::Status& status) { completion->complete(status); })
      ->ask(
          [table](wire::FrameBuilder& builder, size_t server) {
            return builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), table->numbers[server]));
          },
          deadline);
}

}  // namespace mv::ps
