#pragma once
// All-reduces by the communication library of a job, such as MPI's own, among some of the job's processes.
//
// The values go through memory of this file, a segment at a time: the library may write there for as long as it likes,
// also after the caller has given up and its memory is gone.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/loop/handles.hpp"

namespace mv::transport {

class Team;

/// Loop thread only. Costs nothing while no team is being made and none reduces. Must outlive its teams.
class Teams final : private Watched, private Flusher {
 public:
  using Made = std::function<void(base::Result<std::unique_ptr<Team>>)>;

  /// MV_ESYSTEM if the kernel refuses to watch the fabric's descriptor.
  static base::Result<std::unique_ptr<Teams>> make(Loop& loop, std::unique_ptr<Fabric> fabric);
  ~Teams();

  const mv_fabric_about& about() const { return fabric_->about(); }
  /// Makes a team of these processes of the job, in this order, which all of them call with the same key. `made` is not
  /// called before this returns. Returns a number for give_up().
  uint64_t make_team(const std::vector<int32_t>& ranks, uint64_t key, Made made);
  /// `made` is not called any more.
  void give_up(uint64_t number);

 private:
  friend class Team;
  struct Making {
    mv_fabric_team handle = nullptr;  ///< null: the plug-in has refused, because of `failure`
    base::Status failure;
    Made made;
  };
  /// Values on their way through the library.
  struct Segment {
    Team* team = nullptr;
    std::unique_ptr<Fabric::Block> block;
  };

  Teams(Loop& loop, std::unique_ptr<Fabric> fabric) : loop_(loop), fabric_(std::move(fabric)) {}
  bool poll() override;
  bool before_sleep() override { return is_idle() || fabric_->arm(); }
  void after_sleep() override {}
  Writers writers() const override { return is_idle() ? Writers::kNone : Writers::kElsewhere; }
  void flush() override;
  bool is_idle() const { return makings_.empty() && segments_.empty() && loop_.now() >= linger_until_; }
  void linger();
  void watch();
  void take_event(const mv_fabric_event& event);
  void end_making(uint64_t number, const base::Status& status);
  void end_segment(uint64_t number, const base::Status& status);

  Loop& loop_;
  const std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Poll> poll_;
  uint64_t next_ = 1;
  std::map<uint64_t, Making> makings_;
  std::map<uint64_t, Segment> segments_;
  std::vector<uint64_t> refused_;  ///< makings and segments that the plug-in has refused, until the next flush()
  base::Status refusal_;
  base::Nanos linger_until_{0};
  bool looking_ = false;
};

/// One process's end of a team.
class Team {
 public:
  struct Values {
    const std::byte* from = nullptr;  ///< may be `to`
    std::byte* to = nullptr;
    uint64_t count = 0;
    mv_dtype dtype = MV_F32;
  };
  using Done = std::function<void(const base::Status&)>;

  Team(Teams& teams, mv_fabric_team handle) : teams_(teams), handle_(handle) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  /// Abandons what is under way: its memory is not used any more, and its `done` is not called.
  ~Team();

  /// Reduces the values over the team by an enum mv_reduction, which is no average. All of its processes make the same calls in the same order. The memory is lent
  /// until `done`, which is not called before this returns. NaNs of the result have the same bits everywhere.
  void reduce(std::vector<Values> values, int32_t reduction, Done done);

 private:
  friend class Teams;
  struct Task {
    std::vector<Values> values;
    int32_t reduction;
    Done done;
    size_t at = 0;       ///< of `values`: the next ones to cut a segment from
    uint64_t first = 0;  ///< the first element of those
    size_t under_way = 0;
  };
  struct Piece {
    std::byte* to;
    uint64_t count;
  };
  struct Cut {
    std::shared_ptr<Task> task;
    mv_dtype dtype = MV_F32;
    std::vector<Piece> pieces;
  };

  void pump();
  void cut_segment(const std::shared_ptr<Task>& task);
  void copy_out(const Cut& cut, const std::byte* from);
  /// A segment has ended. Returns the `done` of its task if that was the last one.
  Done ended(uint64_t number, const std::byte* values, const base::Status& status);

  Teams& teams_;
  const mv_fabric_team handle_;
  std::deque<std::shared_ptr<Task>> tasks_;  ///< those with elements that are not under way yet
  std::map<uint64_t, Cut> cuts_;             ///< by the numbers of their segments
};

}  // namespace mv::transport
