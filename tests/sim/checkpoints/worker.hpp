#pragma once
// One worker's program: adds and saves in turns, loads now and then, and checks the values it reads.

#include <functional>
#include <memory>
#include <string>

#include "checkpoints/world.hpp"

namespace mv::sim {

/// The interface to the simulated world.
class Around {
 public:
  virtual ~Around() = default;
  virtual Timeline& timeline() = 0;
  virtual Disk& disk() = 0;
  virtual const Plan& plan() const = 0;
  virtual Promises& promises() = 0;
  virtual bool anyone_killed() const = 0;
  /// Runs work later, if this process still runs.
  virtual void later(Peer self, Nanos span, std::function<void()> work) = 0;
  virtual void touched(Peer self) = 0;
  virtual void left(Peer self) = 0;
  virtual void say(Peer self, const std::string& what) = 0;
};

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(Around& around, engine::Member& member, Random random, bool is_successor)
      : around_(around), member_(member), random_(random), is_successor_(is_successor) {}
  void start();
  const std::string& state() const { return state_; }

 private:
  using Then = void (Worker::*)();
  void after(Then then);
  void create(size_t table);
  void add_some();
  void add(size_t table, table::Request request);
  void save();
  void save_over(const base::Status& status);
  void load();
  void loaded(const base::Status& status);
  void look(Then then);
  void looked(const Content& got, Then then);
  void next_round();
  void enter_barrier(Then then);
  void leave();
  /// True if the worker goes on after this error; else it leaves.
  bool bearable(const base::Status& status, const char* doing);
  base::OperationRef on_end(std::function<void(const base::Status&)> then);
  void state(std::string what);
  void violated(const std::string& what);

  Around& around_;
  engine::Member& member_;
  Random random_;
  const bool is_successor_;
  size_t id_ = 0, round_ = 0;
  table::TableViewRef tables_[2];
  Content begun_;   ///< its own adds
  bool was_loaded_ = false;
  Content wanted_;  ///< in successor clusters, and after a load: the content that all must see
  bool has_wanted_ = false, leaving_ = false;
  std::string state_ = "not ready";
};

}  // namespace mv::sim
