#pragma once
// How this process joins a cluster whose master is another one.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/connector.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/rpc/client.hpp"

namespace mv::cluster {

/// Owns the possible addresses of the master, and the time until which this process tries. Sends Join to one after the
/// other, and takes the answer: the view, or the process to ask instead. Loop thread only.
class Joining {
 public:
  struct Events {
    /// This view has this process.
    std::function<void(View view)> joined;
    std::function<void(const base::Status& why)> failed;
    /// This peer is not the master any more, and its connection is closed.
    std::function<void(base::Peer peer, const base::Status& why)> moved;
  };

  Joining(const base::Clock& clock, base::Link& link, rpc::Client& client, Roster& roster, const Standing& standing, Contacts& contacts, Connector& connector,
          Events events);

  void start();
  /// See Cluster::ask_at().
  void ask_at(const std::string& address);
  /// If this is the process to ask, asks it.
  void connected(base::Peer peer, const std::string& address);
  /// Before this node is ready.
  void dial_failed(const std::string& address, const base::Status& why);
  /// Whether this process is connected with the master already, and asks it once more: it did not know of its role
  /// before.
  bool asks_again(const std::string& address);

  base::Nanos next_deadline() const { return give_up_; }
  /// The time to join is over. @param missing  on the master: who has not arrived
  void give_up(const std::string& missing);
  /// This node is ready, or has failed.
  void stop() { give_up_ = base::kNever; }

 private:
  class Answer;

  const std::string& address() const { return masters_[asked_]; }
  void ask();
  void dial() { link_.dial(address()); }
  void ask_next();
  void answered(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload);
  base::Peer connected_at(const std::string& address);
  size_t index_of(const std::string& address);

  const base::Clock& clock_;
  base::Link& link_;
  rpc::Client& client_;
  Roster& roster_;
  const Standing& standing_;
  Contacts& contacts_;
  Connector& connector_;
  const Events events_;
  wire::FrameBuilder builder_;
  std::vector<std::string> masters_;  ///< the possible addresses of the master
  size_t asked_ = 0;                  ///< index of the one in use
  std::shared_ptr<Answer> answer_;    ///< of the Join that waits; null: none does
  base::Status last_dial_;
  base::Nanos give_up_ = base::kNever;
};

}  // namespace mv::cluster
