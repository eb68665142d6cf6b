#pragma once
// The creation of tables by all workers together, and their destruction.

#include <map>
#include <span>
#include <vector>

#include "engine/cluster/wait.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// A worker registers its tables (Create), and then waits until all workers have done the same (Ready). Loop thread
/// only.
class Creations {
 public:
  Creations(rpc::Server& rpc, const RequestClock& clock, const Roster& roster, Registry& registry, HeldRequests& held)
      : rpc_(rpc), clock_(clock), roster_(roster), registry_(registry), held_(held) {}

  /// Creates all tables of the message, or none. An error with one of them ends the creation of all, for other workers
  /// as well.
  void create(const rpc::Asked& asked, const wire::Create& request, std::span<const std::byte> payload);
  void ready(const rpc::Asked& asked, const wire::Ready& request);
  void give_up(const rpc::Asked& asked, const wire::GiveUp& request);
  void open(const rpc::Asked& asked, const wire::Open& request);
  void destroy(const rpc::Asked& asked, const wire::Destroy& request);
  void cancel(const rpc::Asked& asked);

  /// A worker has finished: completes the creation of a table if nothing is missing.
  void settle(uint32_t number);
  /// A worker is lost: ends the creation of a table, unless it has ended.
  void break_off(uint32_t number, const base::Status& why);

  /// No worker waits for others.
  bool is_idle() const { return readying_.empty(); }
  /// Whether a worker that becomes ready now would wait together with others, or would not wait.
  bool awaits_ready(const wire::Ready& request) const;
  /// The workers that wait for others.
  void add_waits(std::vector<cluster::Wait>& waits) const;

 private:
  /// A worker that waits until the tables of a creation are complete.
  struct Readying {
    base::Nanos since;
    std::vector<uint32_t> tables;
    size_t missing = 0;  ///< tables that are not complete
  };

  base::Status check(const rpc::Asked& asked, const wire::Create& request, std::span<const shard::Spec> specs,
                     std::span<const uint32_t> numbers) const;
  base::Status take_initial(const wire::Create& request, std::span<const uint32_t> numbers, std::span<const std::byte> payload);
  void answer_created(const rpc::Asked& asked, std::span<const uint32_t> numbers, const shard::Spec* opened = nullptr);
  void give_up(base::Peer client, std::span<const uint32_t> numbers, const base::Status& why);
  void end_readying(const rpc::Asked& asked, const base::Status& status);
  void forget_if_all_told(uint32_t number);
  void remove(uint32_t number);
  std::vector<base::Peer> missing_creators(const Table& table) const;

  rpc::Server& rpc_;
  const RequestClock& clock_;
  const Roster& roster_;
  Registry& registry_;
  HeldRequests& held_;
  wire::FrameBuilder builder_;
  std::map<rpc::Asked, Readying> readying_;
};

}  // namespace mv::table
