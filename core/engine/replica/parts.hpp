#pragma once
// The parts of the cluster's tables that this node holds, as primary or as back-up, and the way to all parts.

#include <map>
#include <memory>
#include <set>

#include "base/clock.hpp"
#include "base/pool.hpp"
#include "engine/checkpoint/served_parts.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/replica/arrival.hpp"
#include "engine/replica/part.hpp"
#include "engine/replica/transfer.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/server.hpp"

namespace mv::replica {

/// Replication of tables: each server is the primary of its own part and sends that part's inputs to one other server, its back-up, as
/// requests of rpc. When the master declares a server lost, the back-up is its stand-in; clients then repeat there what has not been
/// acknowledged. Parts that have lost their back-up get another one, while they are in use (transfer.hpp). The master alone decides, so there
/// is never more than one primary whose acknowledgements can leave: one that is cut off gets none from its back-up, which has closed the
/// connection. Without replicas, a part has a copy only while its server hands it over, since it is to end (engine/drain.hpp); of a node that is
/// alone, only the node's own streams are used, as if this class were not there. Loop thread only.
class Parts final : public checkpoint::ServedParts {
 public:
  /// @param peers, streams  those of the node itself
  Parts(const base::Clock& clock, base::Link& link, cluster::Cluster& cluster, rpc::Client& peers, rpc::Server& streams, base::Pool& pool,
        rpc::ClientOptions options);

  bool is_replicated() const { return replicas_ > 0; }
  /// Requests name the part that they are for, so another process may come to serve it.
  bool is_by_part() const { return by_part_; }
  /// For requests to tables, by server.
  rpc::Client& requests() { return is_by_part() ? client_ : peers_; }
  /// Requests to tables that were sent again.
  uint64_t repeated() const { return client_.repeated(); }
  /// For the tables of this node.
  rpc::Server& streams() { return is_by_part() ? own_.streams() : streams_; }

  void start(const cluster::View& view, table::Server& own);
  // messages with Message.part
  void on_request(base::Peer from, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef on_request_header(base::Peer from, const wire::Message& message, size_t bytes);
  void on_answer(base::Peer from, const wire::Message& message, std::span<const std::byte> payload);
  base::SinkRef on_answer_header(base::Peer from, const wire::Message& message, size_t bytes);
  /// A Replicate from the primary of a part.
  void replicate(const rpc::Asked& asked, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);

  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  void worker_joined(const cluster::Member& worker);
  void on_connected(base::Peer peer);
  /// This node has noticed the loss of a server, which the master has not declared lost yet.
  void server_missed(const cluster::Member& server, const base::Status& why);
  /// The master has decided about the part of this server: see cluster::Cluster::Owner.
  void part_moved(const cluster::Member& part);

  /// The tables of a server that are kept here, as primary or as back-up; nullptr if there are none.
  const table::Server* tables_of(base::Peer server) const;
  /// The tables that this node serves: its own part, and those that it has taken over.
  std::vector<const table::Server*> served() const;
  /// The streams of the requests to them, with those of the node itself.
  std::vector<const rpc::Server*> served_streams() const;

  // for a server that is to end

  /// Whether each part that this node serves has an equal copy, as the master knows.
  bool can_hand_over() const;
  /// Serves nothing until unseal(): the copies may take over.
  void seal();
  void unseal();
  /// Each copy has all that its part had when it was sealed, so its process has lived until then.
  bool is_seal_acknowledged() const;
  /// 1 + the ranks of the servers whose parts this node serves.
  std::vector<uint32_t> led() const;
  /// The name of a table without a copy, of which none can be made; "" if there is none.
  std::string why_not_copied() const;

  // for checkpoints
  table::CheckpointTables* served(uint64_t part) override;
  bool can_move() const override { return is_replicated() || cluster_.view().has_departures(); }
  bool is_being_copied(uint64_t part) const override;
  base::Status may_replace(uint64_t part) override;
  void begin_replacing(uint64_t part) override;
  void replaced(uint64_t part, std::function<void()> done) override;

  /// The number of tables, here as copies, that have differed from those of their server.
  size_t differing() const;

  base::Nanos next_deadline() const;
  void tick();
  void flush();

 private:
  class Acknowledged;
  /// Another server's part.
  struct Copy {
    Copy(const base::Clock& clock, base::Link& link, base::Pool& pool) : part(link, pool), tables(clock, part.streams(), pool, false) {}
    Part part;
    table::Server tables;
    std::unique_ptr<Arrival> arrival;  ///< until the copy is equal
    std::unique_ptr<Copy> next;        ///< that takes the place of this one when it is equal: see replaced()
  };
  /// A part that this node serves.
  struct Led {
    Part* part;
    table::Server* tables;
    base::Peer backup = base::kNobody;                ///< who has a copy, or gets one; kNobody: nobody
    std::shared_ptr<Acknowledged> acknowledged = {};  ///< while inputs go to it
    std::shared_ptr<Transfer> transfer = {};          ///< while it gets its copy
    base::Nanos retry_at{0};                          ///< a transfer has failed
    /// kChanging: a load is changing the values. kNew: the back-up still has the old ones.
    enum class Content : uint8_t { kUsual, kChanging, kNew } content = Content::kUsual;
    std::function<void()> replaced = {};  ///< to be called when the back-up has the new ones
  };

  template <typename Visit>
  void for_each_led(Visit visit);
  Part* find_led(uint32_t number);
  const cluster::Member* server_of(uint32_t number) const;
  bool serves(base::Peer peer, uint32_t number) const;
  Led* led_of(uint64_t part);
  const Led* led_of(uint64_t part) const;
  void refill(uint32_t number, Led& led);
  void lead(uint32_t number, Part& part, table::Server& tables);
  void pass_on(uint32_t number, Led& led);
  void send_to_backup(uint32_t number, const Led& led, const Part::Input& input);
  void without_backup(Led& led);
  void begin_transfer(uint32_t number, Led& led, base::Peer to);
  void tell_master(uint32_t number, base::Peer backup);
  void see_to_backup(uint32_t number, Led& led, const cluster::Member& part);
  void await_copy(const rpc::Asked& asked, uint32_t number);
  void grant_copy(uint32_t number);
  void take_next(const rpc::Asked& asked, std::unique_ptr<Copy>& copy, const wire::Replicate& piece, std::span<const std::byte> payload);
  void take_in(const rpc::Asked& asked, Copy& copy, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  bool catch_up(Copy& copy, size_t most);
  void give_up(base::Peer server, const base::Status& why);
  void give_up_undecided();
  void follow(const cluster::Member& server);
  void take_over(const cluster::Member& server);

  const base::Clock& clock_;
  base::Link& link_;
  cluster::Cluster& cluster_;
  rpc::Client& peers_;
  rpc::Server& streams_;
  base::Pool& pool_;
  const uint32_t replicas_;
  const bool by_part_;
  rpc::Client client_;
  wire::FrameBuilder builder_;
  Part own_;
  table::Server* own_tables_ = nullptr;
  base::Nanos compare_at_ = base::kNever;
  // by number: see Message.part
  std::map<uint32_t, std::unique_ptr<Copy>> copies_;
  std::map<uint32_t, Led> led_;                ///< parts of this node: its own, and copies
  std::map<uint32_t, rpc::Asked> awaited_;     ///< who would give this node a copy that the master has not told it of yet
  std::map<uint32_t, base::Peer> streams_of_;  ///< the names of the streams of requests: the server when this node began
  std::map<uint32_t, base::Peer> followed_;    ///< who serves each part, as the requests to it know
  std::map<base::Peer, base::Nanos> missed_;   ///< servers that only this node has lost, and when it gives them up
};

}  // namespace mv::replica
