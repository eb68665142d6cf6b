#pragma once
// Messages by the lines of a fabric, both ways: what FabricTransport and JobTransport have in common.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/fabric/line.hpp"
#include "transport/fabric/receiver.hpp"
#include "transport/fabric/remote_memory.hpp"
#include "transport/loop/handles.hpp"
#include "transport/loop/loop.hpp"

namespace mv::transport {

/// This node's end of a line.
struct LineEnd {
  uint64_t number = 0;        ///< a secret random number, by which the peer's messages name the line
  uint64_t number_there = 0;  ///< by which ours do
  std::string address;        ///< the peer's, for messages to people
  mv_fabric_line handle = nullptr;
  LineToken sends{}, expects{};
  uint64_t sent = 0;  ///< number of messages
  std::unique_ptr<FabricReceiver> receiver;
};

/// What a transport hears of its lines, on the loop.
class LineEvents {
 public:
  virtual bool has_lines() const = 0;
  virtual void on_arrival(Arrival arrival) = 0;
  /// The receiver of the line with this number has fetched a payload.
  virtual void on_moved(uint64_t number, const base::Status& status) = 0;
  /// The line with this number, or a message to send by it, has failed.
  virtual void on_line_failed(uint64_t number, const base::Status& why) = 0;

 protected:
  ~LineEvents() = default;
};

/// Loop thread only. Lives longer than the lines, whose receivers it serves.
class FabricTraffic final : private Watched {
 public:
  FabricTraffic(Loop& loop, LineEvents& events, std::unique_ptr<Fabric> fabric);
  ~FabricTraffic();
  /// False if the kernel refuses to watch the fabric's descriptor. Then only the destructor may be called.
  bool ok() const { return poll_ != nullptr; }
  Fabric& fabric() { return *fabric_; }
  const mv_fabric_about& about() const { return fabric_->about(); }
  bool can_get() const { return fabric_->can_get(); }

  std::unique_ptr<FabricReceiver> make_receiver(base::LinkEvents& events, base::Peer peer, uint64_t line);
  void send(LineEnd& line, const base::Frame& frame);
  /// Sends a message without content.
  void send(LineEnd& line, LineKind kind) { post(line, kind, {}, std::make_unique<LineSending>()); }
  void post(LineEnd& line, LineKind kind, std::span<const std::byte> head, std::unique_ptr<LineSending> sending);
  /// Reads ranges of the peer's memory from `address` on; see RemoteMemory::get().
  void get(mv_fabric_line line, const std::shared_ptr<RemoteKey>& key, uint64_t address, std::span<const RemoteRange> ranges, RemoteMemory::Got got);
  /// Whether the message comes from the line's peer.
  static bool is_genuine(const LineEnd& line, const LineHeader& header);
  /// Processes what has arrived, and what has ended; true if there was anything. Does nothing within itself.
  bool poll() override;
  /// Reports the messages that could not be sent.
  void flush();

  /// Ends the calls by the loop. Before the end of the transport.
  void leave();
  /// Processes events for a little while, until nothing is on its way, or, with `fetches_only`, nothing to this node.
  void drain(bool fetches_only);
  /// Leaves the memory of what is still on its way to the communication library for ever.
  void abandon();

 private:
  bool before_sleep() override { return fabric_->arm(); }
  void after_sleep() override {}
  Writers writers() const override { return events_.has_lines() ? Writers::kElsewhere : Writers::kNone; }
  void take_event(const mv_fabric_event& event);
  void one_got(const void* which, const base::Status& status);

  /// Gets of one call, which have not all ended.
  struct Getting {
    std::unique_ptr<Fabric::Block> block;
    size_t bytes = 0, open = 0;
    base::Status failed;
    std::shared_ptr<RemoteKey> key;
    RemoteMemory::Got got;
  };

  Loop& loop_;
  LineEvents& events_;
  const std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Poll> poll_;
  LineSendings sending_;
  FabricReceiver::Fetches fetches_;
  std::map<const void*, std::unique_ptr<Getting>> gettings_;
  std::vector<std::pair<uint64_t, base::Status>> failed_;  // by number of the line
  bool looking_ = false;
};

}  // namespace mv::transport
