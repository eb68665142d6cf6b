#pragma once
// The parts of the cluster's tables that this node holds, as primary or as back-up, and the routing of requests to all
// parts.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/pool.hpp"
#include "engine/checkpoint/served_parts.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/replica/arrival.hpp"
#include "engine/replica/journals.hpp"
#include "engine/replica/offer.hpp"
#include "engine/replica/part.hpp"
#include "engine/replica/successor.hpp"
#include "engine/replica/transfer.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/server.hpp"

namespace mv::replica {

/// Replication of tables. Each server is the primary of its own part, and passes the inputs of that part along a chain of
/// other servers, its back-ups, as requests of rpc (successor.hpp). When the master declares a server lost, the first
/// back-up becomes its stand-in, and clients repeat there what was not acknowledged. Parts that have lost a back-up get
/// another one, at the end of the chain, while they are in use (offer.hpp, transfer.hpp).
///
/// Only the master decides, so at most one primary can acknowledge anything: a primary that is cut off gets no
/// acknowledgements from its back-up, which has closed the connection. Without replicas, a part has a copy only while
/// its server is draining (engine/drain.hpp). In a cluster of one node, requests use the node's own streams, and this
/// class does nothing. Loop thread only.
class Parts final : public checkpoint::ServedParts {
 public:
  /// @param peers, streams  those of the node itself
  Parts(const base::Clock& clock, base::Link& link, cluster::Cluster& cluster, rpc::Client& peers, rpc::Server& streams, base::Pool& pool,
        rpc::ClientOptions options);

  bool is_replicated() const { return replicas_ > 0; }
  /// Requests name the part to which they belong, so another process may serve it later.
  bool is_by_part() const { return by_part_; }
  /// For requests to tables, by server.
  rpc::Client& requests() { return is_by_part() ? client_ : peers_; }
  /// Requests to tables that were sent again.
  uint64_t repeated() const { return client_.repeated(); }
  /// For the tables of this node.
  rpc::Server& streams() { return is_by_part() ? own_.streams() : streams_; }

  /// Lets parts and back-ups on one machine have journals. Before start().
  void use(HostMemory& memory) { host_memory_ = &memory; }
  /// The memory that this node keeps for `peer`, which has asked for it by this number; null if there is none.
  std::shared_ptr<base::SharedMemory> memory_for(base::Peer peer, uint64_t number);
  /// From now on no part of this node has a journal: it is deposed.
  void drop_journals();
  /// Brings the copies up to date from their servers' journals, as before a take-over, and closes those. For tests.
  void read_journals();
  /// The number of inputs that were acknowledged because they were in a journal.
  uint64_t journaled() const;

  void start(const cluster::View& view, table::Server& own);
  // messages with Message.part
  void on_request(base::Peer from, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef on_request_header(base::Peer from, const wire::Message& message, size_t bytes);
  void on_answer(base::Peer from, const wire::Message& message, std::span<const std::byte> payload);
  base::SinkRef on_answer_header(base::Peer from, const wire::Message& message, size_t bytes);
  /// The payload belongs to an answer of a process that did not serve the part when its header came, as far as this node
  /// knew. The view may have come meanwhile, and the request is repeated.
  bool is_unserved(const base::Sink& payload) const { return payload.keep() == unserved_; }
  /// A Replicate from the primary of a part.
  void replicate(const rpc::Asked& asked, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);

  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  void worker_joined(const cluster::Member& worker);
  /// Its first requests came before the view, and were dropped.
  void ask_again(base::Peer worker);
  void on_connected(base::Peer peer);
  /// This node has lost a server that the master has not declared lost yet.
  void server_missed(const cluster::Member& server, const base::Status& why);
  /// Another process is the master now. Tells it which copies are complete, which it may not know.
  void tell_new_master();
  /// See cluster::Cluster::Owner::on_cut_off().
  void cut_off(const base::Status& why);
  /// The master has decided about the part of this server: see cluster::Cluster::Owner.
  void part_moved(const cluster::Member& part);

  /// The tables of a server that are kept here, as primary or as back-up; nullptr if there are none.
  const table::Server* tables_of(base::Peer server) const;
  /// The tables that this node serves: its own part, and those that it has taken over.
  std::vector<const table::Server*> served() const;
  /// The streams of the requests to them, with those of the node itself.
  std::vector<const rpc::Server*> served_streams() const;

  // for a server that gives parts away; `numbers` are 1 + the ranks of the parts' servers

  /// The parts that this node serves.
  std::vector<uint32_t> led() const;
  /// Those that move to other servers although this one stays, and have equal copies there, as the master knows.
  std::vector<uint32_t> moving() const;
  /// Gives the copies of parts that are to move what they still lack: tables without back-ups. `all`: all parts are.
  /// True if that is under way, and can_hand_over() must be asked again later.
  bool complete_copies(bool all);
  bool leads_any_of(const std::vector<uint32_t>& numbers) const;
  /// Whether this node serves all of these parts, and each has an equal copy, as the master knows.
  bool can_hand_over(const std::vector<uint32_t>& numbers) const;
  /// Stops serving them until unseal(), so that the copies can take over.
  void seal(const std::vector<uint32_t>& numbers);
  void unseal(const std::vector<uint32_t>& numbers);
  /// See ServedParts::is_leaving().
  void set_leaving(bool leaving) { is_leaving_ = leaving; }
  /// Each copy has everything that its part had when it was sealed, so its process was alive then.
  bool is_seal_acknowledged(const std::vector<uint32_t>& numbers) const;

  // for checkpoints
  table::CheckpointTables* served(uint64_t part) override;
  bool is_elsewhere(uint64_t part) const override;
  bool can_move() const override { return is_replicated() || cluster_.view().has_departures(); }
  base::Status why_cut_off() const override { return cluster_.why_cut_off(); }
  bool is_being_copied(uint64_t part) const override;
  bool is_leaving() const override { return is_leaving_; }
  void begin_replacing(uint64_t part) override;
  void replaced(uint64_t part, std::function<void()> done) override;
  void hold(uint64_t part, const std::string& path, std::span<const std::byte> clocks) override;
  bool is_held(uint64_t part) const override;
  void written(uint64_t part, const std::string& path, const checkpoint::FileEntry* file) override;
  checkpoint::HeldSave* held(uint64_t part) override;

  /// Compares the next piece of each part with its copy. With replicas, tick() does this once a second.
  void compare() const;
  /// The number of copies of tables on this node that have differed from their server's.
  size_t differing() const;

  base::Nanos next_deadline() const;
  void tick();
  void flush();

 private:
  /// Another server's part.
  struct Copy {
    Copy(const base::Clock& clock, base::Link& link, base::Pool& pool) : part(link, pool), tables(clock, part.streams(), pool, false) {}
    Part part;
    table::Server tables;
    std::unique_ptr<Arrival> arrival;   ///< until the copy is equal
    base::Peer from = base::kNobody;    ///< the process that gives it
    std::unique_ptr<Copy> next;         ///< replaces this one when it is equal: see replaced()
    BackupJournals journals{part};
  };
  /// What this node does as a process in the chain of a part: its server, or one of its back-ups.
  struct InChain {
    InChain(rpc::Client& peers, bool keeps_frames, std::function<void()> acknowledged) : successor(peers, keeps_frames, std::move(acknowledged)) {}
    Successor successor;
    std::deque<std::pair<uint64_t, rpc::Asked>> unanswered;  ///< of a back-up: inputs of its predecessor that the successors do not have yet
    std::shared_ptr<Transfer> transfer = {};                 ///< this process is the last one, and gives the next back-up its copy
    base::Nanos repeat_at = base::kNever;                    ///< what the successor has refused
    base::Peer led_by = base::kNobody;                       ///< of a back-up: the server that has taken over, perhaps in a view that is still to come
    /// The copy for the next back-up that has begun, as the server has told the chain: by whom, for whom, and in which
    /// view. kNobody: none.
    base::Peer from = base::kNobody, to = base::kNobody;
    uint64_t epoch = 0;
    bool is_inherited = false;  ///< of a server that has taken over: the one before may have died with the refusal of that copy
  };
  /// A part that this node serves.
  struct Led {
    Part* part;
    table::Server* tables;
    InChain& chain;
    std::unique_ptr<PrimaryJournal> journal;
    std::shared_ptr<Offer> offer = {};  ///< of a copy for the next back-up
    base::Peer from = base::kNobody, to = base::kNobody;  ///< giver and receiver of that copy; kNobody: there is no offer
    base::Nanos retry_at{0};                              ///< a transfer has failed
    /// kChanging: a load is changing the values. kNew: the back-ups still have the old ones.
    enum class Content : uint8_t { kUsual, kChanging, kNew } content = Content::kUsual;
    bool gives_all = false;  ///< kNew: that is, the copies get the tables without back-ups
    std::shared_ptr<Offer> moment = {};     ///< kNew: the moment is awaited at which the new content can be passed to the back-ups
    std::shared_ptr<Transfer> refill = {};  ///< kNew: it is being passed
    std::function<void()> replaced = {};    ///< to be called when the back-ups have the new content
    bool has_backup() const { return chain.successor.peer() != base::kNobody; }
  };

  class FollowerAnswered;
  static constexpr base::Nanos kRetryAfter = std::chrono::seconds(1);  ///< of copies that have failed

  template <typename Visit>
  void for_each_led(Visit visit);
  Part* find_led(uint32_t number);
  const cluster::Member* server_of(uint32_t number) const;
  bool serves(base::Peer peer, uint32_t number) const;
  Led* led_of(uint64_t part);
  const Led* led_of(uint64_t part) const;
  static void set_content(Led& led, Led::Content content);
  void refill(uint32_t number, Led& led);
  void lead(uint32_t number, Part& part, table::Server& tables);
  void pass_on(uint32_t number, Led& led, size_t unacknowledged = 0);
  void send_to_backup(uint32_t number, const Led& led, const Part::Input& input);
  bool may_have_journal(uint32_t number, const Led& led) const;
  void see_to_journal(uint32_t number, Led& led);
  void process_journals(uint32_t number, Copy& copy);
  InChain& in_chain(uint32_t number);
  base::PayloadRef kept(std::span<const std::byte> payload, const std::shared_ptr<const void>& staged);
  void acknowledged(uint32_t number, InChain& chain);
  void answer(InChain& chain, const Part& part);
  void refuse_unanswered(InChain& chain);
  bool is_predecessor(base::Peer peer, uint32_t number) const;
  void see_to_successor(uint32_t number, InChain& chain, const cluster::Member& part);
  void without_successor(uint32_t number, InChain& chain);
  void repeat_refused(base::Nanos now);
  void see_to_copy(uint32_t number, Led& led, const cluster::Member& part);
  void drop_offer(Led& led);
  bool begin_copy(uint32_t number, Led& led);
  bool begin_transfer(uint32_t number, InChain& chain, Part& part, base::Peer to);
  void copy_asked(uint32_t number, InChain& chain, Part& part, const wire::Replicate& input);
  void copy_failed(uint32_t number, InChain& chain);
  void refuse_copy(uint32_t number, base::Peer server, base::Peer to);
  void copy_refused(base::Peer by, const wire::Replicate& note);
  void tell_master(uint32_t number, base::Peer backup);
  void await_view(const rpc::Asked& asked, const wire::Replicate& offer);
  void see_to_awaited(uint32_t number);
  base::Status take_next(std::unique_ptr<Copy>& copy, const wire::Replicate& piece, std::span<const std::byte> payload);
  void take_in(const rpc::Asked& asked, Copy& copy, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  bool catch_up(Copy& copy, size_t most);
  void give_up(base::Peer server, const base::Status& why);
  void give_up_undecided();
  void follow(const cluster::Member& server);
  bool is_followed(uint32_t number, const Led& led) const;
  bool has_equal_copy(uint32_t number, const Led& led) const;
  void relinquish(uint32_t number);
  bool may_pass_to(base::Peer follows, uint32_t number);
  void take_over(const cluster::Member& server);

  const base::Clock& clock_;
  base::Link& link_;
  cluster::Cluster& cluster_;
  rpc::Client& peers_;
  rpc::Server& streams_;
  base::Pool& pool_;
  const uint32_t replicas_;
  const bool by_part_;
  HostMemory* host_memory_ = nullptr;
  bool is_leaving_ = false;
  rpc::Client client_;
  wire::FrameBuilder builder_;
  Part own_;
  table::Server* own_tables_ = nullptr;
  const std::shared_ptr<void> unserved_ = std::make_shared<char>();  ///< marks the destinations of such answers: see is_unserved()
  base::Nanos compare_at_ = base::kNever;
  // by number: see Message.part
  std::map<uint32_t, std::unique_ptr<Copy>> copies_;
  std::map<uint32_t, InChain> chains_;         ///< of parts that are here
  std::map<uint32_t, Led> led_;                ///< parts of this node: its own, and copies
  std::set<uint32_t> given_;                   ///< parts that this node has given to other processes
  struct Awaited {
    rpc::Asked asked;
    base::Peer from, to;
    uint64_t epoch;  ///< of the view in which it is so
    bool leads;      ///< no copy: `asked` is the part's server now, and passes inputs to this node
  };
  base::Nanos look_at_{0};                     ///< when to look for that view again
  std::map<uint32_t, Awaited> awaited_;        ///< copies that this node is to send or to get, of which the master has not told it yet
  /// A part that this node will serve when the process that follows in the chain knows it.
  struct Heir {
    uint32_t number;
    base::Peer follows;
    bool may_lead = false;
    base::Nanos ask_at = base::kNever;  ///< again
  };
  std::map<uint32_t, std::shared_ptr<Heir>> heirs_;
  std::map<uint32_t, base::Peer> streams_of_;  ///< the names of the streams of requests: the part's server when this node started
  std::map<uint32_t, base::Peer> followed_;    ///< the process that serves each part, as far as the requests to it know
  std::map<base::Peer, base::Nanos> missed_;   ///< servers that only this node has lost, and when it stops waiting for them
};

}  // namespace mv::replica
