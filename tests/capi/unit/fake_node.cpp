#include "fake_node.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "api/group/tuning.hpp"
#include "shard/updater/updater.hpp"

namespace mv::api {

class Call {
 public:
  int64_t tag = 0;
  bool done = false;
  base::Status status;
};

}  // namespace mv::api

namespace mv::fake {

Script script;
Seen seen;

namespace {

std::mutex mutex;
std::condition_variable changed;
std::deque<int64_t> finished;

api::Started run(const api::CallOptions& options) {
  seen.options = options;
  return script.call ? script.call(options) : api::Started{};
}

class Table final : public api::Table {
 public:
  explicit Table(api::TableSpec spec) : spec_(std::move(spec)) { ++seen.tables; }
  ~Table() override { --seen.tables; }
  base::Result<api::TableInfo> info() override {
    if (script.info) {
      if (auto status = script.info(); !status.ok()) return status;
    }
    return api::TableInfo{spec_, 1, spec_.bytes(), 3, 4, 5, {6, 7, 8, 9}};
  }
  api::Started add(const api::Rows&, const api::ConstData&, const api::CallOptions& options) override {
    return run(options);
  }
  api::Started add_encoded(const api::ConstData&, std::byte*, const codec::CodecRef&,
                            const api::CallOptions& options) override {
    return run(options);
  }
  api::Started get_encoded(const api::MutableData&, const codec::CodecRef&,
                            const api::CallOptions& options) override {
    return run(options);
  }
  api::Started get_pieces(std::span<std::byte>, const codec::CodecRef&, const api::CallOptions& options) override { return run(options); }
  api::EncodedPieces encoded_pieces(const codec::Codec&) const override { return {}; }
  api::Started set(const api::Rows&, const api::ConstData&, const api::CallOptions& options) override {
    return run(options);
  }
  api::Started get(const api::Rows&, const api::MutableData&, const api::CallOptions& options) override {
    return run(options);
  }
  api::Started peek(const api::Rows&, const api::MutableData&, const api::CallOptions& options) override {
    return run(options);
  }
  api::Started erase(const api::Rows&, const api::CallOptions& options) override { return run(options); }
  api::Started set_updater(const shard::UpdaterSpec& updater, const api::CallOptions& options) override {
    seen.updater = shard::to_text(updater);
    return run(options);
  }
  base::Status clock() override { return script.info ? script.info() : base::Status(); }
  base::Result<api::TableStates> states() override { return api::TableStates(); }
  base::Status set_states(const api::TableStates&) override { return {}; }
  base::Status leave_rounds() override { return script.info ? script.info() : base::Status(); }
  base::Result<api::Scanned> scan(int64_t cursor, std::span<int64_t> rows, const api::MutableData&) override {
    return api::Scanned{rows.size(), cursor + 1};
  }
  base::Status close() override { return script.close ? script.close() : base::Status(); }
  base::Status destroy() override { return script.destroy ? script.destroy() : base::Status(); }

 private:
  const api::TableSpec spec_;
};

class Node final : public api::Node {
 public:
  explicit Node(const runtime::Settings& settings) : settings_(settings) {
    identity_.rank = settings.rank < 0 ? 0 : settings.rank;
    identity_.size = settings.nodes;
    identity_.sync = settings.sync;
    ++seen.alive;
  }
  ~Node() override { --seen.alive; }
  base::Status join() override { return script.start ? script.start(settings_) : base::Status(); }

  const runtime::Identity& identity() const override { return identity_; }
  base::Status shutdown() override {
    ++seen.shutdowns;
    return script.shutdown ? script.shutdown() : base::Status();
  }
  const api::Devices& devices() const override { return devices_; }
  base::Status why_never_drain() override { return {}; }
  base::Status drain(base::Nanos) override { return {}; }
  base::Status resize(uint32_t, base::Nanos) override { return {}; }
  base::Result<api::Told> next_membership_event(base::Nanos) override { return base::Status(MV_ETIMEOUT, "nothing has happened"); }
  bool membership_event_due() const override { return false; }
  void abort(const std::string& why) override { seen.aborts.push_back(why); }
  void abandon_after_fork() noexcept override { ++seen.abandoned; }

  api::Started barrier(const api::CallOptions& options, api::Flush) override { return run(options); }
  void leave_barrier_open(api::CallRef) override {}
  api::Started save_checkpoint(const std::string&, uint64_t, const api::CallOptions& options) override {
    return run(options);
  }
  api::Started load_checkpoint(const std::string&, const api::CallOptions& options) override { return run(options); }
  api::Started send_command(int64_t, const std::string&, const api::CallOptions& options) override { return run(options); }
  void set_controller(bool, std::function<void(int64_t)>) override {}
  std::optional<api::Command> next_command() override { return std::nullopt; }
  void command_done(uint64_t, const base::Status&) override {}
  bool workers_gone() const override { return false; }
  base::Result<api::GroupRef> open_group(std::vector<int64_t>, const api::CallOptions&) override {
    return base::Status(MV_ENOSYS, "it has no groups");
  }
  base::Result<api::GroupRef> join_group(const std::string&, const api::CallOptions&) override { return base::Status(MV_ENOSYS, "it has no groups"); }
  std::unique_ptr<api::Channel> open_channel(const std::string&) override { return nullptr; }
  std::vector<int64_t> workers_here() override { return {0}; }
  std::vector<int64_t> active_workers() override { return {0}; }
  base::Result<api::TableRef> create_table(api::TableSpec spec, api::ConstData) override {
    return api::TableRef(std::make_shared<Table>(std::move(spec)));
  }
  base::Result<std::vector<api::TableRef>> create_tables(std::vector<api::NewTable> tables) override {
    std::vector<api::TableRef> made;
    for (api::NewTable& each : tables) made.push_back(std::make_shared<Table>(*each.spec));
    return made;
  }
  base::Status add_many(std::span<const api::ManyAdd>, const api::CallOptions& options) override { return run(options).status; }
  base::Status get_many(std::span<const api::ManyGet>, const api::CallOptions& options) override { return run(options).status; }
  base::Result<api::TableRef> open_table(const std::string& name) override {
    return base::error(MV_ENOTFOUND, "there is no table \"{}\"", name);
  }
  base::Result<std::vector<api::PeerReport>> examine_peers() override { return script.peers; }
  base::Result<api::Tuning> tune() override { return api::Tuning(); }
  base::Result<std::string> status(const status::Form& form) override { return std::string(form.json ? "{}" : "all is well"); }
  base::Status report(const std::string&, double) override { return {}; }
  base::Result<std::vector<api::TableSpec>> list_tables() override {
    return script.list ? script.list() : std::vector<api::TableSpec>();
  }

  base::Result<std::string> metrics_text() override { return std::string("metrics"); }
  base::Result<std::string> trace_text() override { return std::string("trace"); }

  api::CallRef group(const api::CallOptions& options) override { return begin_call(options.tag); }
  void close_group(const api::CallRef& group, std::function<base::Status()> finish) override { fake::finish(group, finish()); }

  base::Status wait(const api::CallRef& call, base::Nanos timeout, bool* alive) override {
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
  bool done(const api::CallRef& call) const override {
    std::lock_guard lock(mutex);
    return call->done;
  }
  base::Status result(const api::CallRef& call) const override {
    std::lock_guard lock(mutex);
    return call->status;
  }
  void release(const api::CallRef&) override { ++seen.released; }
  base::Status cancel(const api::CallRef& call) override {
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
  const runtime::Settings settings_;
  const api::Devices devices_;
  runtime::Identity identity_;
};

}  // namespace

void reset() {
  script = Script();
  seen.settings = runtime::Settings();
  seen.options = api::CallOptions();
  seen.aborts.clear();
  seen.starts = seen.shutdowns = seen.abandoned = 0;
  std::lock_guard lock(mutex);
  finished.clear();
}

api::CallRef begin_call(int64_t tag) {
  auto call = std::make_shared<api::Call>();
  call->tag = tag;
  return call;
}

void finish(const api::CallRef& call, base::Status status) {
  std::lock_guard lock(mutex);
  if (call->done) return;
  call->done = true;
  call->status = std::move(status);
  if (call->tag != 0) finished.push_back(call->tag);
  changed.notify_all();
}

}  // namespace mv::fake

namespace mv::api {

std::unique_ptr<Node> Node::make(const runtime::Settings& settings) {
  ++fake::seen.starts;
  fake::seen.settings = settings;
  return std::make_unique<fake::Node>(settings);
}

}  // namespace mv::api
