#pragma once
// MemberNode: the implementation of Node. It forwards each call to the part of api/ or runtime/ that carries it out.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/call/calls.hpp"
#include "api/node/node.hpp"
#include "api/table/tables.hpp"
#include "runtime/runtime.hpp"

namespace mv::api {

class MemberNode final : public Node {
 public:
  explicit MemberNode(const runtime::Settings& settings) : runtime_(settings, events()) {}
  ~MemberNode() override { runtime_.end(); }  // its engines hold calls and tables

  base::Status join() override { return runtime_.join(); }
  const runtime::Identity& identity() const override { return runtime_.identity(); }
  base::Status shutdown() override;
  base::Status why_never_drain() override { return runtime_.why_never_drain(); }
  base::Status drain(base::Nanos timeout) override { return runtime_.drain(timeout); }
  base::Status resize(uint32_t servers, base::Nanos timeout) override { return runtime_.resize(servers, timeout); }
  void abort(const std::string& why) override;
  void abandon_after_fork() noexcept override;

  base::Result<std::string> metrics_text() override { return runtime_.metrics_text(); }
  base::Result<std::string> trace_text() override { return runtime_.trace_text(); }
  base::Result<std::string> status(const status::Form& form) override;
  base::Status report(const std::string& name, double value) override;
  base::Result<std::vector<PeerReport>> examine_peers() override;
  base::Result<Tuning> tune() override;

  Started barrier(const CallOptions& options, Flush flush) override;
  void leave_barrier_open(CallRef barrier) override;
  base::Result<std::vector<TableRef>> create_tables(std::vector<NewTable> tables) override { return tables_.create(std::move(tables)); }
  base::Result<TableRef> create_table(TableSpec spec, ConstData initial) override { return tables_.create(std::move(spec), initial); }
  base::Result<TableRef> open_table(const std::string& name) override { return tables_.open(name); }
  base::Result<std::vector<TableSpec>> list_tables() override { return tables_.list(); }
  base::Status add_many(std::span<const ManyAdd> adds, const CallOptions& options) override { return tables_.add_many(adds, options); }
  base::Status get_many(std::span<const ManyGet> gets, const CallOptions& options) override { return tables_.get_many(gets, options); }

  Started save_checkpoint(const std::string& directory, uint64_t keep, const CallOptions& options) override;
  Started load_checkpoint(const std::string& path, const CallOptions& options) override;

  void set_devices(Devices devices) override { calls_.set_devices(std::move(devices)); }
  const Devices& devices() const override { return calls_.devices(); }
  base::Result<GroupRef> open_group(std::vector<int64_t> workers, const CallOptions& options) override;
  base::Result<GroupRef> join_group(const std::string& name, const CallOptions& options) override;
  std::unique_ptr<Channel> open_channel(const std::string& name) override;
  std::vector<int64_t> workers_here() override;
  std::vector<int64_t> active_workers() override;

  Started send_command(int64_t head, const std::string& body, const CallOptions& options) override;
  void set_controller(bool executes, std::function<void(int64_t)> waiting) override;
  std::optional<Command> next_command() override;
  void command_done(uint64_t number, const base::Status& outcome) override;
  bool workers_gone() const override { return runtime_.workers_gone(); }

  CallRef group(const CallOptions& options) override { return calls_.group(options); }
  void close_group(const CallRef& group, std::function<base::Status()> finish) override { calls_.close_group(group, std::move(finish)); }
  base::Status wait(const CallRef& call, base::Nanos timeout, bool* alive) override { return calls_.wait(call, timeout, alive); }
  bool done(const CallRef& call) const override { return call->done() || defect() != nullptr; }
  base::Status result(const CallRef& call) const override { return calls_.result(call); }
  void release(const CallRef& call) override { calls_.release(call); }
  base::Status cancel(const CallRef& call) override { return calls_.cancel(call); }
  base::Result<std::vector<int64_t>> poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until) override {
    return calls_.poll(most, timeout, or_until);
  }
  int event_fd() const override { return calls_.event_fd(); }
  void callbacks_due(bool any) override;
  base::Result<Told> next_membership_event(base::Nanos timeout) override;
  bool membership_event_due() const override { return takes_events_ && membership_.has_any(); }
  base::Status wait_until(const std::function<bool()>& done, base::Nanos timeout) override { return calls_.wait_until(done, timeout); }
  void wake() override { calls_.wake(); }

 private:
  runtime::Runtime::Events events();
  void show_due();
  void take_no_commands();  ///< no thread will take any more
  void save_by_clock();
  base::Status ask_peers(std::map<base::Peer, base::Nanos>& shortest);
  PeerReport report_on(const cluster::Member& member);

  MembershipQueue membership_;
  std::atomic<bool> takes_events_{false};  ///< the program has asked for events
  std::atomic<bool> callbacks_due_{false};
  runtime::Runtime runtime_;
  Calls calls_{runtime_};
  std::mutex mutex_;
  CallRef open_barrier_;  ///< by mutex_: see leave_barrier_open()
  Tables tables_{calls_};
  bool leaving_ = false;
};

}  // namespace mv::api
