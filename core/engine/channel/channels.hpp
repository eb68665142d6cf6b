#pragma once
// Channels: bytes that workers ask each other for, or leave for each other.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/operation.hpp"
#include "engine/cluster/cluster.hpp"

namespace mv::channel {

using Bytes = std::vector<std::byte>;
using BytesRef = std::shared_ptr<const Bytes>;

/// What callers' threads share with an end.
struct Shared {
  std::atomic<bool> due{false};    ///< set here: take() has something to return
  std::atomic<uint64_t> limit{0};  ///< set by the caller: bytes that this node accepts from one worker
};

/// This node's ends of channels. A channel connects the workers that have opened it under the same name. A worker can
/// collect bytes from the others, which give them when their programs are ready to, and deliver bytes to the others,
/// which take them likewise. Delivered bytes stay at the receiver until then, because their sender may leave the cluster
/// before. Workers connect when one of them uses a channel for the first time. Loop thread only.
class Channels {
 public:
  Channels(const base::Clock& clock, cluster::Cluster& cluster, rpc::Client& client, rpc::Server& server)
      : clock_(clock), cluster_(cluster), client_(client), server_(server) {}

  /// Opens this node's end. `wake` is called when it has become due.
  void open(const std::string& channel, std::shared_ptr<Shared> shared, std::function<void()> wake);
  /// Whether collect() of another worker waits for this one's give(). If not, as at first, this one gives nothing.
  void set_giving(const std::string& channel, bool on);
  /// Other workers that wait for this one get nothing; bytes that were not taken are dropped.
  void close(const std::string& channel);
  void close_all();

  struct Due {
    bool asked = false;              ///< other workers wait for give()
    std::optional<Bytes> delivered;  ///< the last complete delivery, if it was not taken yet
  };
  Due take(const std::string& channel);
  /// Answers all workers that wait for this one.
  void give(const std::string& channel, const BytesRef& bytes);

  /// Fills `by_worker` with the bytes of the other workers, and ends `call`. Workers that have left or are lost give
  /// nothing. MV_ETIMEOUT names those that have not answered.
  void collect(const base::OperationRef& call, const std::string& channel, std::shared_ptr<std::vector<Bytes>> by_worker);
  /// Delivers bytes to the other workers, by worker id, in place of those that they have not taken yet; a worker beyond the
  /// vector gets none. Ends `call` when all have them; workers that have left or are lost need none.
  void deliver(const base::OperationRef& call, const std::string& channel, const std::vector<BytesRef>& by_worker);

  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  /// Fails the request if it still waits here.
  void on_cancel(const rpc::Asked& asked);
  /// The member has left or is lost.
  void gone(base::Peer peer);

  base::Nanos next_deadline() const;
  void tick();

 private:
  using Over = std::function<void(const base::Status&)>;
  class Answers;
  /// Bytes that arrive part by part.
  struct Assembly {
    Bytes bytes;
    std::optional<uint64_t> total;
    bool is_complete() const { return total == bytes.size(); }
    base::Status add(const wire::ChannelPart& part, std::span<const std::byte> payload, uint64_t limit);
  };
  struct Ask {
    rpc::Asked asked;
    uint64_t number = 0;
  };
  struct End {
    std::shared_ptr<Shared> shared;
    std::function<void()> wake;
    bool gives = false;
    std::map<base::Peer, Ask> asks;  ///< one for each worker, which bounds their number
    // One delivery in progress and one complete one bound the memory that peers can make this node hold.
    base::Peer sender = base::kNobody;  ///< of `arriving`
    Assembly arriving;
    std::optional<Bytes> delivered;
    void report() const {
      const bool is_due = !asks.empty() || delivered.has_value();
      if (!shared->due.exchange(is_due) && is_due) wake();
    }
  };
  /// A collect() or deliver() in progress.
  struct Transfer {
    struct Awaited {
      size_t worker = 0;
      rpc::PendingRef request;  ///< null in deliver()
      Assembly given;
    };
    base::OperationRef call;
    std::shared_ptr<base::Work> work;
    std::string channel;
    std::shared_ptr<std::vector<Bytes>> collected;  ///< null in deliver()
    std::map<base::Peer, Awaited> open;
  };

  struct Begun {
    uint64_t number = 0;
    std::vector<base::Peer> peers;
  };
  Begun begin(const base::OperationRef& call, const std::string& channel, std::shared_ptr<std::vector<Bytes>> collected);
  Over over(uint64_t number, base::Peer peer);
  void part_over(uint64_t number, base::Peer peer, const base::Status& status);
  void end(uint64_t number, const base::Status& status);
  void send(base::Peer to, const std::string& channel, uint64_t number, const BytesRef& bytes, Over over);
  void on_ask(const rpc::Asked& asked, const std::string& channel, uint64_t number);
  base::Status on_part(base::Peer from, const std::string& channel, const wire::ChannelPart& part, std::span<const std::byte> payload);

  const base::Clock& clock_;
  cluster::Cluster& cluster_;
  rpc::Client& client_;
  rpc::Server& server_;
  wire::FrameBuilder builder_;
  std::map<std::string, End> ends_;
  std::map<uint64_t, Transfer> transfers_;
  uint64_t next_number_ = 1;
};

}  // namespace mv::channel
