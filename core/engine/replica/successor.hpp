#pragma once
// The link from one process of a part's chain to the next one.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "engine/rpc/client.hpp"

namespace mv::replica {

/// Chain replication (van Renesse and Schneider, OSDI 2004): the server of a part passes each input to its first
/// back-up, which passes it to the next one, and so on. Each process acknowledges an input after its successor has. So
/// each one has at least what its successor has, and the first back-up can take over without asking the others. If a
/// process in the middle dies, its predecessor repeats to its successor what is not acknowledged yet. Loop thread only.
class Successor {
 public:
  /// @param keeps_frames  chains may have more than two processes, if only while a part moves, so inputs may have to be repeated
  /// @param acknowledged  called for each passed input, in their order, when all successors have it
  Successor(rpc::Client& peers, bool keeps_frames, std::function<void()> acknowledged)
      : peers_(peers), keeps_frames_(keeps_frames), acknowledged_(std::move(acknowledged)) {}
  ~Successor();
  Successor(const Successor&) = delete;
  Successor& operator=(const Successor&) = delete;

  /// kNobody: this process is the last one in the chain.
  base::Peer peer() const { return peer_; }
  /// There was no successor. Inputs go to this one from now on; it has all earlier ones.
  void begin(base::Peer to);
  /// @param done  called when the input is acknowledged
  void pass(base::Frame frame, std::function<void()> done = {}) { add({std::move(frame), std::move(done), false}); }
  /// Like pass(), but the input may wait: it is sent with the next one that does not, or by send_waiting().
  void pass_later(base::Frame frame);
  void send_waiting();
  /// The number of inputs that wait to be sent.
  size_t waiting() const { return waiting_; }
  /// Of a back-up: passes on what its predecessor has passed to it. This does not wait for room in the window of requests:
  /// the windows between three servers could otherwise be full of inputs that wait for each other. The window of the
  /// part's primary limits them, too.
  void forward(base::Frame frame) { add({std::move(frame), {}, true}); }
  /// The successor is gone, and `to`, which has some of the unacknowledged inputs, follows. Repeats these inputs.
  void replace(base::Peer to);
  /// The successor is gone, and nobody follows: everything is acknowledged.
  void end();
  /// The successor has refused an input, because its own successor was lost and no process could choose the next one. If that
  /// changes, replace(peer()) repeats the inputs.
  bool has_refused() const { return has_refused_; }
  /// The number of inputs that are not acknowledged yet.
  size_t unacknowledged() const { return unacknowledged_.size(); }

 private:
  class Acknowledged;
  struct Passed {
    base::Frame frame;  ///< if keeps_frames_
    std::function<void()> done;
    bool is_forwarded;
  };
  void set(base::Peer to);
  void add(Passed passed);
  void call(base::Frame frame, bool is_forwarded);
  void one_acknowledged();
  void refused() { has_refused_ = keeps_frames_; }

  rpc::Client& peers_;
  const bool keeps_frames_;
  const std::function<void()> acknowledged_;
  base::Peer peer_ = base::kNobody;
  bool has_refused_ = false;
  std::shared_ptr<Acknowledged> answers_;
  std::deque<Passed> unacknowledged_;
  size_t waiting_ = 0;  ///< the last ones of them, which are not sent yet
};

}  // namespace mv::replica
