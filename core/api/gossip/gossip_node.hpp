#pragma once
// GossipNode: a node that gossips, as an engine on a loop, called from callers' threads. It belongs to no cluster and
// has no rank; its peers are those that its configuration names.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/staging/staging.hpp"
#include "base/trace.hpp"
#include "engine/gossip/gossip.hpp"
#include "engine/gossip/noloco.hpp"
#include "engine/gossip/state.hpp"
#include "runtime/router.hpp"
#include "transport/http/http.hpp"
#include "transport/loop/loop.hpp"

namespace mv::api {

/// The result of a fetch, and its weight in the average.
struct GossipFetched {
  bool got = false;  ///< there is something to average with, or a NoLoCo step to make
  std::string peer;  ///< empty: nothing was fetched
  std::string why;   ///< the reason, if `peer` is empty
  double clock = 0, loss = 0;
  double factor = 0;
  std::vector<gossip::ArraySpec> parts;
};

/// Any thread. Calls that use the model (all but state(), add_peer(), remove_peer() and close()) run one after another.
/// Arrays in the memory of devices have copies in the host's memory for the time of the call.
class GossipNode final : private transport::Flusher {
 public:
  /// Opens the node `name` of the configuration, which then listens. MV_ENOTFOUND if the configuration has no such
  /// name, MV_EADDRINUSE, MV_EINVAL, MV_ESYSTEM.
  static base::Result<std::unique_ptr<GossipNode>> open(gossip::Config config, const std::string& name, FindDevice find_device);
  ~GossipNode();

  base::Status add(const void* data, const gossip::ArraySpec& part);
  base::Status publish(double loss);
  /// Begins a fetch, with the probability fetch_probability. Returns whether it began.
  base::Result<bool> fetch_start();
  /// Waits for the fetch, if one was started. MV_EINTR: the fetch continues.
  base::Result<GossipFetched> fetch_wait(double loss);
  /// Averages with the next fetched array, or copies it.
  base::Status average(void* data, uint64_t count, mv_dtype dtype);
  base::Status read(void* data, uint64_t count, mv_dtype dtype);

  base::Status set_clock(double clock);

  base::Result<gossip::GossipState> state();
  base::Result<std::string> state_text(bool json);
  /// Metrics in Prometheus's format.
  base::Result<std::string> metrics();
  base::Status add_peer(const gossip::Node& node);
  base::Status remove_peer(const std::string& name);
  /// Says goodbye to the peers and ends. A fetch_wait() of another thread returns MV_ESTATE. Idempotent.
  void close();
  void abandon_after_fork() noexcept;

 private:
  struct Mapping {
    std::shared_ptr<gossip::SnapshotReader> reader;
    bool asked = false;
  };
  using Lock = std::lock_guard<std::mutex>;

  GossipNode(gossip::Config config, FindDevice find_device);
  base::Status add_to_snapshot(const void* data, const gossip::ArraySpec& part);
  void drop();
  base::Status set_up(gossip::Node self);
  void set_up_engine(base::Peer life);
  base::Status serve_metrics();
  void stop_metrics();
  base::Status ended() const;
  base::Status on_loop(const std::function<base::Status()>& work);
  std::shared_ptr<gossip::SnapshotReader> mapped(base::Peer peer);
  gossip::GossipState state_now();
  std::string transport_to(base::Peer peer) const;
  base::Result<size_t> next_part(uint64_t count, mv_dtype dtype) const;
  void take_part(mv_dtype dtype);
  base::Status catch_peer(GossipFetched& fetched);
  base::Result<double> factor_of(const gossip::Description& peer) const;
  /// Exchanges and outer steps start from the snapshot that this node had published when the fetch began.
  bool starts_from_own() const { return outer_ || config_.exchange == gossip::Exchange::kSymmetric; }
  static base::Status has_republished();
  base::Status check_own() const;
  const std::byte* own_part(size_t number) const { return own_->own_values(own_version_) + own_starts_[number]; }
  const std::byte* peer_part(size_t number) const { return alone_ ? own_part(number) : engine_->receive_buffer().part(number).data(); }
  /// Whether an average is a step from the published snapshot, and not the mean of the present values.
  bool approaches() const { return config_.exchange == gossip::Exchange::kSymmetric || alone_; }
  bool is_slow(mv_dtype dtype) const { return outer_ && gossip::OuterSteps::is_slow(dtype); }
  base::Result<double> average_part(size_t number, std::byte* data, uint64_t count, mv_dtype dtype);
  base::Result<double> average_there(tensor::Device& device, size_t number, void* data, uint64_t count, mv_dtype dtype);
  void note_disagreement(double squares, uint64_t count);
  void flush() override;
  void rearm();

  const gossip::Config config_;
  const FindDevice find_device_;
  gossip::Node self_;
  transport::Loop loop_;
  base::TraceRing trace_{0};
  std::unique_ptr<runtime::Router> router_;
  gossip::Publisher publisher_;
  std::map<base::Peer, Mapping> mappings_;  ///< on the loop
  std::unique_ptr<gossip::Gossip> engine_;  ///< on the loop
  base::Nanos armed_ = base::kNever;
  std::atomic<bool> done_{false};  ///< the fetch has ended
  std::mutex closing_;
  bool loop_runs_ = false;
  std::atomic<bool> closed_{false};

  std::mutex model_;  // guards:
  double clock_ = 0;
  double loss_ = 0;
  uint64_t updates_ = 0;
  std::vector<gossip::ArraySpec> adding_, published_;
  gossip::Rng rng_{0};
  bool started_ = false;  ///< a fetch was started and not waited for
  bool result_ = false;   ///< there is something to average with
  bool alone_ = false;    ///< it is this node's own snapshot: NoLoCo's step without a peer
  size_t next_part_ = 0, next_array_ = 0;
  double factor_ = 0;
  std::string caught_from_;
  std::vector<gossip::ArraySpec> caught_parts_;
  std::shared_ptr<gossip::SnapshotReader> own_;  ///< holds the snapshot that this node had published when the fetch began
  uint64_t own_version_ = 0;
  std::vector<uint64_t> own_starts_;
  std::optional<gossip::OuterSteps> outer_;
  size_t added_ = 0;                             ///< arrays of the snapshot being added
  double squares_ = 0;                           ///< sum of the two models' squared differences in the arrays so far
  uint64_t compared_ = 0;                        ///< elements in these arrays

  std::mutex figures_;  // guards what state() reports about the model, without waiting for a fetch:
  gossip::GossipState told_;

  std::unique_ptr<transport::HttpServer> http_;
};

}  // namespace mv::api
