#pragma once
// One connection of the shared-memory transport: a unix socket and two rings. On the socket the two sides authenticate
// each other (wire/handshake.hpp) and pass their descriptors. The socket stays open: its end of stream reveals the end of
// the peer, and it carries further descriptors.
//
// A bell is an eventfd on which a loop sleeps, one for each loop. A peer that has something for the loop rings it, but
// only if the loop has announced that it sleeps. (A peer can change the flags of its bell, and thereby block a process
// that rings it. That takes a process of the same user that knows the secret, which has simpler ways to do harm.)

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/link.hpp"
#include "base/shared_memory.hpp"
#include "transport/fd.hpp"
#include "transport/loop/handles.hpp"
#include "transport/shm/note.hpp"
#include "transport/shm/receiver.hpp"
#include "transport/shm/ring.hpp"
#include "transport/shm/sender.hpp"
#include "transport/unix_socket.hpp"
#include "wire/handshake.hpp"

namespace mv::transport {

class ShmConnection;

/// The events of a connection. All calls on the loop. The connection must outlive the call in which it reports.
class ShmEvents {
 public:
  /// The handshake needs a decision: handshake().prove(), accept() or refuse(), then continue_greeting(), now or later.
  virtual void on_deciding(ShmConnection& connection) = 0;
  /// Both rings are mapped. The owner calls open().
  virtual void on_standing(ShmConnection& connection) = 0;
  /// The connection failed before that.
  virtual void on_failed(ShmConnection& connection, const base::Status& why) = 0;
  enum class End { kBroken, kGoodbye, kGarbage, kClosed };
  /// An open connection has ended; kClosed after say_goodbye().
  virtual void on_ended(ShmConnection& connection, End how, const base::Status& why) = 0;
  /// The peer asks to map table `number`. Returns null if there is no such memory, or if the peer may not have it.
  virtual std::shared_ptr<base::SharedMemory> on_asked(ShmConnection& connection, uint64_t number) = 0;

 protected:
  ~ShmEvents() = default;
};

class ShmConnection {
 public:
  enum class State { kGreeting, kOffering, kStanding, kOpen, kClosing, kDead };
  using Given = std::function<void(std::shared_ptr<base::SharedMemory>)>;

  /// `fd` is connected. `address` names it in messages.
  ShmConnection(Loop& loop, ShmEvents& owner, std::string address, Fd fd);
  ~ShmConnection();
  ShmConnection(const ShmConnection&) = delete;
  ShmConnection& operator=(const ShmConnection&) = delete;

  State state() const { return state_; }
  const std::string& address() const { return address_; }

  void greet(wire::Handshake handshake);
  wire::Handshake& handshake() { return *handshake_; }
  /// Continues the hello after a decision.
  void continue_greeting();
  /// Starts the exchange of frames.
  void open(base::LinkEvents& events, base::Peer peer);

  void send(const base::Frame& frame);
  /// Publishes the sent records to the peer, and wakes it if it sleeps.
  void flush();
  /// Processes what has arrived, within the budget of one turn; true if there was anything.
  bool poll();
  /// Processes all that has arrived.
  void drain();
  /// Announces sleep, so that the peer rings from now on. In two steps, so that one fence serves all connections:
  /// say_asleep(), full_fence(), is_quiet().
  void say_asleep();
  bool is_quiet() const;
  void say_awake();
  /// Whether the peer last ran on another processor than `processor`.
  bool is_elsewhere(uint32_t processor) const;

  /// Requests the memory of a table of the peer; `given` receives null if there is none, or if the connection ends.
  void ask(uint64_t number, Given given);

  /// Sends a goodbye after the queued frames, ignores further input, and ends with kClosed once the peer has closed.
  void say_goodbye();
  /// Breaks the connection as a failure of the socket would.
  void cut();
  /// Closes the connection without a goodbye and without a report.
  void kill();

 private:
  using End = ShmEvents::End;
  void set_state(State next);
  void on_socket();
  void read_hello();
  void read_notes();
  void take_note(const Note& note, std::array<Fd, kNoteFds>& fds);
  void take_segment(const Note& note, Fd fd);
  void answer(const Note& note);
  base::Status make_offer();
  base::Status take_offer(const Note& note, std::array<Fd, kNoteFds>& fds);
  base::Status map_offer(const Note& note, Fd segment);
  void fail(const base::Status& why);
  void end(End how, const base::Status& why);
  void end_or_fail(const base::Status& why);
  void end_of_stream();
  void garbage(const base::Status& status);
  void take(size_t budget);
  void ring_bell();
  void tell_room();
  std::optional<uint64_t> introduce(const std::shared_ptr<base::SharedMemory>& memory);
  std::shared_ptr<base::SharedMemory> find(uint64_t number);
  Control& own_page() const { return *reinterpret_cast<Control*>(own_->data()); }
  const Control& peer_page() const { return *reinterpret_cast<const Control*>(peer_->data()); }

  Loop& loop_;
  ShmEvents& owner_;
  const std::string address_;
  State state_ = State::kGreeting;
  Fd fd_;
  Fd peer_bell_;
  std::unique_ptr<Poll> poll_;  // destroyed before fd_
  std::optional<wire::Handshake> handshake_;
  NoteReader notes_;
  bool inside_take_ = false;
  bool half_closed_ = false;

  std::shared_ptr<base::SharedMemory> own_, peer_;
  size_t peer_ring_bytes_ = 0;
  std::optional<Sender> sender_;
  std::optional<ShmReceiver> receiver_;
  uint64_t rung_for_ = 0;  // the last nap of the peer for which this side rang
  std::deque<Given> asked_;

  // Segments of payloads: ours that the peer knows, and the peer's that we have mapped.
  struct Known {
    uint64_t number;
    std::weak_ptr<base::SharedMemory> memory;
  };
  uint64_t next_number_ = 1;
  std::unordered_map<const base::SharedMemory*, Known> introduced_;
  std::unordered_map<uint64_t, std::shared_ptr<base::SharedMemory>> segments_;
};

}  // namespace mv::transport
