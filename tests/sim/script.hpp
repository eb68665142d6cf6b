#pragma once
// A worker's program: makes the calls of its plan, and checks each result.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/member.hpp"
#include "scenario.hpp"

namespace mv::sim {

/// Memory that was given back to a caller: nobody may write to it any more. Checked when the simulation ends.
class Quarantine {
 public:
  /// Fills it with a pattern and keeps it. Large memory is freed instead, because sanitizers detect writes to it.
  void add(std::vector<std::byte> memory);
  bool is_intact() const;

 private:
  std::vector<std::vector<std::byte>> kept_;
};

/// A barrier of one worker: the changes begun before it, and its end.
struct BarrierVisit {
  std::vector<size_t> begun;  ///< adds, by table
  Nanos entered{0};
  Nanos over = base::kNever;  ///< kNever: not yet, or the time at which the master received it is unknown
};

/// The scripts' interface to the simulated world.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual Timeline& timeline() = 0;
  virtual const Scenario& scenario() const = 0;
  virtual Ledger& ledger(size_t table) = 0;
  virtual Quarantine& quarantine() = 0;
  /// Runs work later, and not before this node's process runs.
  virtual void later(Peer self, Nanos span, std::function<void()> work) = 0;
  /// A request was made to this node's engines.
  virtual void touched(Peer self) = 0;
  /// Whether an error with this text is expected: it names a lost process.
  virtual bool names_a_lost_process(const std::string& text) const = 0;
  /// A server was lost, or in sync mode any member: once that was reported, barriers pass although changes had no effect.
  virtual bool changes_may_fail() const = 0;
  /// A server was lost, at least for one member.
  virtual bool servers_may_fail() const = 0;
  virtual bool came_too_late(size_t life) const = 0;
  /// The newest life of a worker with this rank, or SIZE_MAX.
  virtual size_t life_at(int64_t rank) const = 0;
  /// This life of a worker was killed, or others may have lost it.
  virtual bool is_gone(size_t life) const = 0;
  /// A barrier that was entered at this time let its worker pass.
  virtual void barrier_passed(Peer self, Nanos entered) = 0;
  /// The script is over and its worker has left.
  virtual void left(Peer self, bool clean) = 0;
  virtual bool verbose() const = 0;
};

class Script : public std::enable_shared_from_this<Script> {
 public:
  Script(Surroundings& world, engine::Member& member, Random random, std::vector<Step> steps, int slowness, size_t life,
         std::string name)
      : world_(world),
        member_(member),
        random_(random),
        steps_(std::move(steps)),
        slowness_(slowness),
        life_(life),
        name_(std::move(name)) {}

  /// The cluster is complete: creates the tables, and begins.
  void start();
  /// Whether others' barriers wait for this worker.
  bool takes_part() const { return started_ && !leaving_; }
  Nanos started_at() const { return started_at_; }
  /// The first table that it has not created yet.
  size_t next_table() const { return tables_.size(); }
  bool has_tables() const { return tables_.size() == world_.scenario().tables.size(); }
  bool leaving() const { return leaving_; }
  const std::vector<BarrierVisit>& visits() const { return visits_; }
  size_t life() const { return life_; }
  /// A description of its current wait.
  std::string state() const;

 private:
  struct Operation;
  class Visit;
  class Switch;
  struct Scan;
  using OperationRef = std::shared_ptr<Operation>;

  void create_next();
  bool enters() const { return world_.scenario().sync && life_ >= world_.scenario().workers(); }
  void enter();
  void skip_what_is_over();
  void after(Nanos span, void (Script::*next)());
  void go();
  void advance();
  void perform(const Step& step);
  void change(const OperationRef& op);
  void read(const OperationRef& op);
  void choose_patience(const OperationRef& op);
  void begin(const OperationRef& op, table::Request request);
  shard::Shard* own_shard(size_t table) const;
  bool own_is_open(const Operation& op, const shard::Shard& shard) const;
  size_t own_server() const;
  shard::Worker worker() const;
  void change_own(const Operation& op, const table::Request& request, shard::Shard& shard) const;
  void read_own(Operation& op, shard::Shard& shard) const;
  static const codec::CodecRef& whole_codec();
  static bool may_be_encoded(const table::Request& request);
  void encode(const Operation& op, table::Request& request) const;
  bool begin_small(const table::Request& request);
  void withdraw_later(const OperationRef& op);
  void completed(const OperationRef& op, const base::Status& status);
  void judge(const OperationRef& op, const base::Status& status);
  void judge_given_up(const OperationRef& op, const base::Status& status);
  void judge_late_get(const Operation& op, const base::Status& status);
  bool tolerates_lost_worker(const OperationRef& op, const base::Status& status);
  void repeat_later(const Step& step);
  void note_acknowledged();
  void tick_clock(size_t table);
  void set_updater(size_t table);
  void scan(size_t table);
  void updater_set(size_t table, const base::Status& status);
  void scan_on(const std::shared_ptr<Scan>& scan);
  void chunk_scanned(const std::shared_ptr<Scan>& scan, const base::Result<table::ScannedRows>& chunk);
  void enter_barrier();
  void barrier_over(size_t visit, bool hasty, const base::Status& status);
  void open(size_t table);
  void look_once_more();
  void leave();
  void give_up(const base::Status& why);
  std::vector<size_t> begun() const;
  bool is_out_of_step(const base::Status& status) const;
  void violated(const std::string& what);
  void say(const std::string& what) const;

  Surroundings& world_;
  engine::Member& member_;
  Random random_;
  std::vector<Step> steps_;
  const int slowness_;
  const size_t life_;
  const std::string name_;
  std::vector<table::TableViewRef> tables_;
  std::vector<BarrierVisit> visits_;
  std::vector<OperationRef> under_way_;
  size_t at_ = 0;        ///< the next step
  size_t looked_ = 0;    ///< tables that were read once more at the end
  int attempts_ = 0;     ///< of this step
  size_t outlived_ = 0;  ///< gets that failed because of a lost worker
  wire::FrameBuilder builder_;
  Nanos started_at_{0};
  bool started_ = false, going_ = false, waiting_ = false, leaving_ = false;
  base::Status failure_;  ///< the error with which it ends
};

}  // namespace mv::sim
