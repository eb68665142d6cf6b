#pragma once
// Connections over a fabric alone, without TCP, between the processes of one job, such as MPI's: for jobs that may use
// nothing but their launcher's communication library. The address of a node is "mpi:RANK" or "mpi:RANK:PORT", where RANK is
// its process's in the job.
//
// Two processes connect by the hello that all transports have (wire/handshake.hpp), in messages of the fabric. A secret is
// therefore checked where one is set. Without one, every process of the job is trusted. Messages then carry tokens as in
// fabric_transport.hpp, and nothing is encrypted.
//
// It does not reconnect: a connection that fails is lost, since a communication library does not lose messages. A process
// that is killed is not noticed by this transport; heartbeats notice it, or its launcher ends the job.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/fabric/traffic.hpp"
#include "transport/loop/handles.hpp"
#include "transport/peering/peering.hpp"
#include "transport/transport.hpp"
#include "wire/handshake.hpp"

namespace mv::transport {

struct JobOptions : HelloOptions {
  JobOptions() : HelloOptions(4096) {}
};

class JobTransport final : public Transport, private LineEvents {
 public:
  JobTransport(Loop& loop, JobOptions options, std::unique_ptr<Fabric> fabric);
  ~JobTransport() override;
  /// False if the kernel refuses to watch the fabric's descriptor. Then only the destructor may be called.
  bool ok() const { return traffic_.ok(); }
  const mv_fabric_about& about() const { return traffic_.about(); }
  /// The address of the node with this rank.
  static std::string address_of(int64_t rank);

  void attach(base::LinkEvents& events) override { events_ = &events; }
  /// "mpi:RANK" with this process's rank, "mpi:RANK:PORT", or "mpi" for a free port.
  base::Result<std::string> listen(const std::string& address) override;
  base::Result<std::string> adopt(int listening_fd) override;
  void dial(const std::string& address) override;
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override;
  void stop(std::function<void()> stopped) override;
  void cut(base::Peer peer) override;
  /// Dials that did not prove to come from this cluster.
  uint64_t turned_away() const { return turned_away_; }

 private:
  using Nanos = base::Nanos;
  enum class State { kGreeting, kOpen, kClosing };
  struct Line : LineEnd {
    Line(wire::Handshake its_handshake, bool is_dialed) : handshake(std::move(its_handshake)), dialed(is_dialed) {}
    wire::Handshake handshake;
    const bool dialed;
    State state = State::kGreeting;
    base::Peer peer = base::kNobody;  // once it is decided
    std::vector<std::byte> input;  // of the hello, as far as the handshake has not taken it
    bool held = false;             // accepted: waits for the result of our own dial to that peer
    Nanos deadline = base::kNever;
  };

  LineEvents& as_events() { return *this; }
  bool has_lines() const override { return !lines_.empty(); }
  void on_arrival(Arrival arrival) override;
  void on_moved(uint64_t number, const base::Status& status) override;
  void on_line_failed(uint64_t number, const base::Status& why) override;

  wire::Handshake make_handshake(wire::Handshake::Side side) const;
  void start_dial(const std::string& address);
  Line& add_line(std::unique_ptr<Line> line);
  void say_hello(Line& line);
  void take_dial(const Arrival& arrival);
  void take_hello(Line& line, const Arrival& arrival);
  void feed(uint64_t number);
  void decide(Line& line);
  void settle_held(base::Peer peer);
  void greeted(Line& line);
  void fail_hello(Line& line, const base::Status& why);

  void line_failed(Line& line, const base::Status& why);
  void lose(Line& line, const base::Status& why);
  void begin_closing(Line& line);
  void drop(Line& line);
  Line* find(base::Peer peer) const;
  Line* numbered(uint64_t number) const;
  void need_tick();
  void tick();
  void drain();

  Loop& loop_;
  const JobOptions options_;
  FabricTraffic traffic_;
  Peering peering_;
  base::LinkEvents* events_ = nullptr;
  Timer timer_;
  std::string own_address_;
  std::unordered_map<uint64_t, std::unique_ptr<Line>> lines_;  // by number
  std::unordered_map<base::Peer, Line*> peers_;                // the open ones
  std::vector<std::unique_ptr<Line>> dead_;                    // freed when none of their callbacks can be on the stack
  std::vector<std::string> to_dial_;                           // started by flush(): a dial may fail at once
  std::vector<uint64_t> cut_;                                  // numbers of lines to lose in the next flush()
  size_t strangers_ = 0;
  uint64_t turned_away_ = 0;
  bool stopping_ = false;
  std::function<void()> stopped_;
};

}  // namespace mv::transport
