#pragma once
// This process in MPI: what all fabrics of the process share. See plugin.cpp.

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/fabric/plugin.h"

namespace mv::transport::mpi {

using Clock = std::chrono::steady_clock;

/// The tag of all messages except fetched bodies, which have the tags from the next one on.
inline constexpr int kMessageTag = 1, kFirstBodyTag = 2;
/// Larger bodies stay at their sender until the receiver has a place for them.
inline constexpr uint64_t kRendezvous = 64 << 10;
inline constexpr uint32_t kFirstOwnPort = 1 << 16;
/// How long a process sleeps before it polls again: a quarter of the time since its last message, between kShortestNap
/// and kUsualNap. After a tenth of a second without messages: a hundredth of that time, up to kLongestNap. While bodies
/// are in transit: always kShortestNap.
inline constexpr auto kShortestNap = std::chrono::microseconds(20), kUsualNap = std::chrono::microseconds(1000), kLongestNap = std::chrono::microseconds(4000);
inline constexpr int kMostArrivals = 256;  // in one progress()
/// How long close() waits for what it has sent to leave.
inline constexpr auto kLinger = std::chrono::milliseconds(200);
inline constexpr size_t kAlignment = 16;

enum class Kind : uint32_t {
  kWhole = 1,  ///< header and body
  kOffer,      ///< header; the body waits for a kFetch or a kDrop
  kFetch,      ///< the body of `send` shall come with `tag`
  kDrop,       ///< nobody wants the body of `send`
  kLost,       ///< the answer to a kFetch: there is no such body any more
  kNobody,     ///< the answer to kWhole and kOffer: no fabric has that port. `line` is the sender's
  kEnded,      ///< the fabric at `from_port` has ended
};

/// Native byte order: the hello refuses peers with another one.
struct Envelope {
  Kind kind;
  uint32_t to_port, from_port;
  int32_t tag;
  uint64_t line, send;
  uint64_t header_bytes, body_bytes;
};
static_assert(sizeof(Envelope) % kAlignment == 0);

inline size_t padded(size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;
inline Buffer allocate(size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded(std::max(bytes, kAlignment))));
  if (memory == nullptr) throw std::bad_alloc();
  return Buffer(memory);
}

/// Sets what mv_fabric_plugin::error() returns.
mv_status fail(mv_status status, std::string why);
const char* error();
std::string text_of(int code);

}  // namespace mv::transport::mpi

struct mv_fabric_line_object {
  mv_fabric fabric;
  uint64_t id;
  mv_fabric_place to;
  void* user;
};

struct mv_fabric_message_object {
  mv::transport::mpi::Buffer memory;
  int rank;
  mv::transport::mpi::Envelope envelope;
};

struct mv_fabric_memory_object {
  mv::transport::mpi::Buffer memory;
};

struct mv_fabric_object {
  mv_fabric_place self{};
  std::set<uint32_t> ports;  // its own, and those of listen()
  int timer = -1;
  mv::transport::mpi::Clock::time_point last_news = mv::transport::mpi::Clock::now();
  std::map<uint64_t, mv_fabric_line> lines;
  std::vector<mv_fabric_event> events, shown;
  std::string why;  // of the events of a failure of all lines
};

/// Under the mutex, except where a thread makes the communicator.
struct mv_fabric_team_object {
  mv_fabric fabric;
  void* user;
  std::vector<int> ranks;
  int tag;
  MPI_Comm communicator = MPI_COMM_NULL;
  int under_way = 0;  ///< reduces
  bool is_in_the_making = true, is_disbanded = false;
};

namespace mv::transport::mpi {

struct Offer {
  mv_fabric fabric;
  mv_fabric_line line;
  const void* body;
  uint64_t bytes;
  void* user;
};

/// A message whose bytes are being received. Those of one sender are taken in their order.
struct Incoming {
  Buffer memory;
  size_t bytes;
  int rank;
  MPI_Request request;
};

/// An operation of MPI in progress.
struct Active {
  enum class What { kMessage, kSend, kReceive, kReduce } what;
  mv_fabric fabric;  ///< null: nobody waits for it any more
  void* user;
  Buffer memory;     ///< of a message; or that of an abandoned reduce's values
  int rank = -1;     ///< of a receive: from there
  uint32_t port = 0;
  int tag = 0;
  mv_fabric_team team = nullptr;  ///< of a reduce
  const void* values = nullptr;   ///< of a reduce
};

/// This process in MPI. Never destroyed: nodes may end during the destruction of static objects.
struct Domain {
  enum class State { kNew, kDuplicating, kMeeting, kOpen };
  std::timed_mutex mutex;
  std::atomic<bool> ended{false};  ///< MPI is being finalized: no calls any more
  State state = State::kNew;
  bool started_here = false;
  pid_t process = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Request opening = MPI_REQUEST_NULL;
  int rank = 0, size = 0;
  /// What each process tells the others when they meet.
  struct Greeting {
    uint64_t host = 0;   ///< a hash of its name
    uint64_t token = 0;  ///< random; rank 0's is the job's
  };
  Greeting greeting;
  std::vector<Greeting> greetings;
  int most_tag = 32767;
  std::string broken;  ///< why MPI does not work any more

  std::set<mv_fabric> fabrics;
  mv_fabric shown_next = nullptr;  ///< in progress(): its events are shown at once
  std::map<uint32_t, mv_fabric> ports;
  uint32_t next_port = kFirstOwnPort;
  uint64_t next_id = 1;
  int next_tag = kFirstBodyTag;
  std::atomic<int> teams_in_the_making{0};
  std::unordered_map<uint64_t, Offer> offers;
  std::list<Incoming> incoming;
  std::vector<MPI_Request> requests;  ///< of `actives`, in the same places
  std::vector<Active> actives;
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
};

Domain& domain();

/// Opens the domain together with all other processes of the job. After a time-out, the next call continues.
mv_status open_domain(Domain& in, int64_t timeout_ms);
/// False if MPI has failed or is being finalized. All lines have been notified then.
bool works(Domain& in);
/// Receives and sends what it can.
void advance(Domain& in);
/// Ends the operations that are complete.
void complete(Domain& in);
/// Notes an operation that has begun.
void start(Domain& in, Active active, MPI_Request request);
/// Sends an Envelope with a header and a body, which are copied.
mv_status post(Domain& in, int rank, const Envelope& envelope, const void* header, const void* body);
/// The same without a header and a body.
void post_note(Domain& in, int rank, Kind kind, uint32_t to_port, uint32_t from_port, uint64_t line, uint64_t send, int tag);

/// See mv_fabric_plugin::team, disband and reduce.
mv_status make_team(Domain& in, mv_fabric fabric, std::vector<int> ranks, uint64_t key, void* user, mv_fabric_team* made);
void disband_team(Domain& in, mv_fabric_team team);
mv_status begin_reduce(Domain& in, mv_fabric_team team, void* values, uint64_t count, mv_dtype dtype, int32_t reduction, void* user);
/// A reduce has ended.
void end_reduce(Domain& in, mv_fabric_team team);

void add_event(mv_fabric fabric, const mv_fabric_event& event);
mv_fabric_event event_of(mv_fabric_event_kind kind, mv_status status, const char* why, void* user);
void set_timer(mv_fabric fabric, std::chrono::nanoseconds delay);
const char* name_of_level(int level);

}  // namespace mv::transport::mpi
