#include "fake_node.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "node/doctor/tuning.hpp"
#include "table/updater/updater.hpp"

namespace mv::node {

class Call {
 public:
  int64_t tag = 0;
  bool done = false;
  base::Status status;
};

}  // namespace mv::node

namespace mv::fake {

Script script;
Seen seen;

namespace {

std::mutex mutex;
std::condition_variable changed;
std::deque<int64_t> finished;

node::Started run(const node::CallOptions& options) {
  seen.options = options;
  return script.call ? script.call(options) : node::Started{};
}

class Table final : public node::Table {
 public:
  explicit Table(node::TableSpec spec) : spec_(std::move(spec)) { ++seen.tables; }
  ~Table() override { --seen.tables; }
  base::Result<node::TableInfo> info() override {
    if (script.info) {
      if (auto status = script.info(); !status.ok()) return status;
    }
    return node::TableInfo{spec_, 1, spec_.bytes(), 3, 4, 5, {6, 7, 8, 9}};
  }
  node::Started add(const node::Rows&, const node::ConstData&, const node::CallOptions& options) override {
    return run(options);
  }
  node::Started add_encoded(const node::ConstData&, std::byte*, const codec::CodecRef&,
                            const node::CallOptions& options) override {
    return run(options);
  }
  node::Started get_encoded(const node::MutableData&, const codec::CodecRef&,
                            const node::CallOptions& options) override {
    return run(options);
  }
  node::Started set(const node::Rows&, const node::ConstData&, const node::CallOptions& options) override {
    return run(options);
  }
  node::Started get(const node::Rows&, const node::MutableData&, const node::CallOptions& options) override {
    return run(options);
  }
  node::Started peek(const node::Rows&, const node::MutableData&, const node::CallOptions& options) override {
    return run(options);
  }
  node::Started erase(const node::Rows&, const node::CallOptions& options) override { return run(options); }
  node::Started set_updater(const table::UpdaterSpec& updater, const node::CallOptions& options) override {
    seen.updater = table::to_text(updater);
    return run(options);
  }
  base::Status clock() override { return script.info ? script.info() : base::Status(); }
  base::Result<node::TableStates> states() override { return node::TableStates(); }
  base::Status set_states(const node::TableStates&) override { return {}; }
  base::Status leave_rounds() override { return script.info ? script.info() : base::Status(); }
  base::Result<node::Scanned> scan(int64_t cursor, std::span<int64_t> rows, const node::MutableData&) override {
    return node::Scanned{rows.size(), cursor + 1};
  }
  base::Status close() override { return script.close ? script.close() : base::Status(); }
  base::Status destroy() override { return script.destroy ? script.destroy() : base::Status(); }

 private:
  const node::TableSpec spec_;
};

class Node final : public node::Node {
 public:
  explicit Node(const node::Settings& settings) : settings_(settings) {
    identity_.rank = settings.rank < 0 ? 0 : settings.rank;
    identity_.size = settings.nodes;
    identity_.sync = settings.sync;
    ++seen.alive;
  }
  ~Node() override { --seen.alive; }
  base::Status join() override { return script.start ? script.start(settings_) : base::Status(); }

  const node::Identity& identity() const override { return identity_; }
  base::Status shutdown() override {
    ++seen.shutdowns;
    return script.shutdown ? script.shutdown() : base::Status();
  }
  void abandon_after_fork() noexcept override { ++seen.abandoned; }

  node::Started barrier(const node::CallOptions& options, node::Fence) override { return run(options); }
  node::Started save_checkpoint(const std::string&, uint64_t, const node::CallOptions& options) override {
    return run(options);
  }
  node::Started load_checkpoint(const std::string&, const node::CallOptions& options) override { return run(options); }
  node::Started send_command(int64_t, const std::string&, const node::CallOptions& options) override { return run(options); }
  void set_controller(node::Controller, std::function<void(int64_t)>) override {}
  std::optional<node::Command> next_command() override { return std::nullopt; }
  void command_done(uint64_t, const base::Status&) override {}
  bool workers_gone() const override { return false; }
  base::Result<node::GroupRef> open_group(std::vector<int64_t>, const node::CallOptions&) override {
    return base::Status(MV_ENOSYS, "it has no groups");
  }
  std::vector<int64_t> workers_here() override { return {0}; }
  base::Result<node::TableRef> create_table(node::TableSpec spec, node::ConstData) override {
    return node::TableRef(std::make_shared<Table>(std::move(spec)));
  }
  base::Result<std::vector<node::TableRef>> create_tables(std::vector<node::NewTable> tables) override {
    std::vector<node::TableRef> made;
    for (node::NewTable& each : tables) made.push_back(std::make_shared<Table>(*each.spec));
    return made;
  }
  base::Status add_many(std::span<const ManyAdd>, const node::CallOptions& options) override { return run(options).status; }
  base::Status get_many(std::span<const ManyGet>, const node::CallOptions& options) override { return run(options).status; }
  base::Result<node::TableRef> open_table(const std::string& name) override {
    return base::error(MV_ENOTFOUND, "there is no table \"{}\"", name);
  }
  base::Result<std::vector<node::PeerReport>> examine_peers() override { return script.peers; }
  base::Result<doctor::Tuning> tune() override { return doctor::Tuning(); }
  base::Result<std::string> status(bool json) override { return std::string(json ? "{}" : "all is well"); }
  base::Result<std::vector<node::TableSpec>> list_tables() override {
    return script.list ? script.list() : std::vector<node::TableSpec>();
  }

  base::Result<std::string> metrics_text() override { return std::string("metrics"); }
  base::Result<std::string> trace_text() override { return std::string("trace"); }

  node::CallRef group(const node::CallOptions& options) override { return begin_call(options.tag); }
  void close_group(const node::CallRef& group, std::function<base::Status()> finish) override { fake::finish(group, finish()); }

  base::Status wait(const node::CallRef& call, base::Nanos timeout, bool* alive) override {
    std::unique_lock lock(mutex);
    const auto is_done = [&] { return call->done; };
    if (timeout == base::kNever) {
      changed.wait(lock, is_done);
    } else {
      changed.wait_for(lock, timeout, is_done);
    }
    *alive = !call->done;
    return call->done ? call->status : base::error(MV_ETIMEOUT, "the fake's deadline passed");
  }
  bool done(const node::CallRef& call) const override {
    std::lock_guard lock(mutex);
    return call->done;
  }
  base::Status result(const node::CallRef& call) const override {
    std::lock_guard lock(mutex);
    return call->status;
  }
  void release(const node::CallRef&) override { ++seen.released; }
  base::Status cancel(const node::CallRef& call) override {
    finish(call, base::error(MV_ECANCELED, "cancelled"));
    return base::error(MV_ECANCELED, "outcome unknown");
  }
  base::Result<std::vector<int64_t>> poll(size_t most, base::Nanos timeout, const std::function<bool()>&) override {
    std::unique_lock lock(mutex);
    const auto is_any = [] { return !finished.empty(); };
    if (timeout == base::kNever) {
      changed.wait(lock, is_any);
    } else {
      changed.wait_for(lock, timeout, is_any);
    }
    std::vector<int64_t> tags;
    while (tags.size() < most && !finished.empty()) {
      tags.push_back(finished.front());
      finished.pop_front();
    }
    return tags;
  }
  int event_fd() const override { return 42; }
  void callbacks_due(bool) override {}
  base::Status wait_until(const std::function<bool()>& done, base::Nanos) override {
    return done() ? base::Status() : base::error(MV_ETIMEOUT, "the fake's deadline passed");
  }
  void wake() override {}

 private:
  const node::Settings settings_;
  node::Identity identity_;
};

}  // namespace

void reset() {
  script = Script();
  seen.settings = node::Settings();
  seen.options = node::CallOptions();
  seen.starts = seen.shutdowns = seen.abandoned = 0;
  std::lock_guard lock(mutex);
  finished.clear();
}

node::CallRef begin_call(int64_t tag) {
  auto call = std::make_shared<node::Call>();
  call->tag = tag;
  return call;
}

void finish(const node::CallRef& call, base::Status status) {
  std::lock_guard lock(mutex);
  if (call->done) return;
  call->done = true;
  call->status = std::move(status);
  if (call->tag != 0) finished.push_back(call->tag);
  changed.notify_all();
}

}  // namespace mv::fake

namespace mv::node {

std::unique_ptr<Node> Node::make(const Settings& settings) {
  ++fake::seen.starts;
  fake::seen.settings = settings;
  return std::make_unique<fake::Node>(settings);
}

}  // namespace mv::node
