#include "transport/fabric/mpi/domain.hpp"

#include <sys/timerfd.h>

#include <cstring>
#include <functional>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

namespace mv::transport::mpi {

thread_local std::string last_error;

const char* error() { return last_error.c_str(); }

mv_status fail(mv_status status, std::string why) {
  last_error = std::move(why);
  return status;
}

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return std::string(text, static_cast<size_t>(length));
}

Domain& domain() {
  static auto* const kDomain = new Domain;
  return *kDomain;
}

// ------------------------------------------------------------ events

void set_timer(mv_fabric fabric, std::chrono::nanoseconds delay) {
  itimerspec when{};
  when.it_value.tv_nsec = static_cast<long>(delay.count());
  timerfd_settime(fabric->timer, 0, &when, nullptr);
}

void add_event(mv_fabric fabric, const mv_fabric_event& event) {
  fabric->events.push_back(event);
  if (fabric != domain().shown_next) set_timer(fabric, std::chrono::nanoseconds(1));  // its loop may sleep
}

mv_fabric_event event_of(mv_fabric_event_kind kind, mv_status status, const char* why, void* user) {
  mv_fabric_event event{};
  event.kind = kind;
  event.status = status;
  event.why = why;
  event.user = user;
  return event;
}

void fail_line(mv_fabric_line line, mv_status status, const char* why) {
  add_event(line->fabric, event_of(MV_FABRIC_FAILED, status, why, line->user));
}

/// MPI itself has failed, or ends.
void fail_all(Domain& in, const std::string& why) {
  if (!in.broken.empty()) return;
  in.broken = why;
  for (mv_fabric fabric : in.fabrics)
    for (const auto& [id, line] : fabric->lines) fail_line(line, MV_EUNREACHABLE, in.broken.c_str());
  for (Active& active : in.actives)
    if (active.what == Active::What::kReduce && active.fabric != nullptr)
      add_event(std::exchange(active.fabric, nullptr), event_of(MV_FABRIC_REDUCED, MV_EUNREACHABLE, in.broken.c_str(), active.user));
}

bool works(Domain& in) {
  if (in.ended) fail_all(in, "MPI has been finalized while the node was running; call shutdown first");
  return in.broken.empty() && in.state == Domain::State::kOpen;
}

// ------------------------------------------------------------ sending

void start(Domain& in, Active active, MPI_Request request) {
  in.requests.push_back(request);
  in.actives.push_back(std::move(active));
}

mv_status post(Domain& in, int rank, const Envelope& envelope, const void* header, const void* body) {
  const bool whole = envelope.kind == Kind::kWhole;
  const size_t head = sizeof(Envelope) + padded(envelope.header_bytes), bytes = head + (whole ? envelope.body_bytes : 0);
  Buffer memory = allocate(bytes);
  std::memcpy(memory.get(), &envelope, sizeof envelope);
  if (envelope.header_bytes > 0) std::memcpy(memory.get() + sizeof envelope, header, envelope.header_bytes);
  if (whole && envelope.body_bytes > 0) std::memcpy(memory.get() + head, body, envelope.body_bytes);
  in.requests.reserve(in.requests.size() + 1);
  in.actives.reserve(in.actives.size() + 1);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(memory.get(), static_cast<int>(bytes), MPI_BYTE, rank, kMessageTag, in.communicator, &request);
  if (code != MPI_SUCCESS) return fail(MV_ESYSTEM, "MPI_Isend: " + text_of(code));
  start(in, {Active::What::kMessage, nullptr, nullptr, std::move(memory)}, request);
  return MV_OK;
}

void post_note(Domain& in, int rank, Kind kind, uint32_t to_port, uint32_t from_port, uint64_t line, uint64_t send, int tag) {
  post(in, rank, {kind, to_port, from_port, tag, line, send, 0, 0}, nullptr, nullptr);
}

// ------------------------------------------------------------ arrivals

void cancel_receives(Domain& in, const std::function<bool(const Active&)>& which) {
  for (size_t i = 0; i < in.actives.size(); ++i)
    if (in.actives[i].what == Active::What::kReceive && which(in.actives[i])) MPI_Cancel(&in.requests[i]);
}

void begin_body(Domain& in, int rank, const Envelope& fetch) {
  const auto found = in.offers.find(fetch.send);
  if (found == in.offers.end()) return post_note(in, rank, Kind::kLost, fetch.from_port, 0, 0, fetch.send, fetch.tag);
  const Offer offer = found->second;
  in.offers.erase(found);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(offer.body, static_cast<int>(offer.bytes), MPI_BYTE, rank, fetch.tag, in.communicator, &request);
  if (code != MPI_SUCCESS) return fail_all(in, "MPI_Isend: " + text_of(code));
  start(in, {Active::What::kSend, offer.fabric, offer.user, nullptr}, request);
}

void show(mv_fabric fabric, Incoming& from, const Envelope& envelope) {
  auto message = std::make_unique<mv_fabric_message_object>(mv_fabric_message_object{std::move(from.memory), from.rank, envelope});
  mv_fabric_event event = event_of(MV_FABRIC_ARRIVED, MV_OK, nullptr, nullptr);
  std::byte* const memory = message->memory.get();
  event.header = memory + sizeof envelope;
  event.header_bytes = envelope.header_bytes;
  event.body = envelope.kind == Kind::kWhole ? memory + sizeof envelope + padded(envelope.header_bytes) : nullptr;
  event.body_bytes = envelope.body_bytes;
  event.message = message.get();
  add_event(fabric, event);
  static_cast<void>(message.release());
}

void take(Domain& in, Incoming& message) {
  Envelope envelope;
  if (message.bytes < sizeof envelope) return;
  std::memcpy(&envelope, message.memory.get(), sizeof envelope);
  const bool whole = envelope.kind == Kind::kWhole;
  if (envelope.header_bytes > message.bytes || (whole && envelope.body_bytes > message.bytes)) return;
  if (message.bytes != sizeof envelope + padded(envelope.header_bytes) + (whole ? envelope.body_bytes : 0)) return;
  const int rank = message.rank;
  const auto port = in.ports.find(envelope.to_port);
  const mv_fabric fabric = port == in.ports.end() ? nullptr : port->second;
  switch (envelope.kind) {
    case Kind::kWhole:
    case Kind::kOffer:
      if (fabric != nullptr) return show(fabric, message, envelope);
      return post_note(in, rank, Kind::kNobody, envelope.from_port, envelope.to_port, envelope.line, envelope.send, 0);
    case Kind::kFetch:
      return begin_body(in, rank, envelope);
    case Kind::kDrop:
      if (const auto offer = in.offers.extract(envelope.send))
        add_event(offer.mapped().fabric, event_of(MV_FABRIC_SENT, MV_OK, nullptr, offer.mapped().user));
      return;
    case Kind::kLost:
      return cancel_receives(in, [&](const Active& active) { return active.rank == rank && active.tag == envelope.tag; });
    case Kind::kNobody:
      if (fabric == nullptr) return;
      if (const auto line = fabric->lines.find(envelope.line); line != fabric->lines.end())
        fail_line(line->second, MV_EUNREACHABLE, "no node of that process listens there");
      return;
    case Kind::kEnded:
      cancel_receives(in, [&](const Active& active) { return active.rank == rank && active.port == envelope.from_port; });
      if (fabric == nullptr) return;
      for (const auto& [id, line] : fabric->lines)
        if (line->to.rank == rank && line->to.port == envelope.from_port) fail_line(line, MV_EPEERLOST, "the node there has ended without a goodbye");
      return;
  }
}

/// False if MPI has failed.
bool check(Domain& in, const char* what, int code) {
  if (code == MPI_SUCCESS) return true;
  fail_all(in, std::string(what) + ": " + text_of(code));
  return false;
}

/// Begins to receive what has come.
void probe(Domain& in) {
  for (int i = 0; i < kMostArrivals; ++i) {
    int there = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (!check(in, "MPI_Improbe", MPI_Improbe(MPI_ANY_SOURCE, kMessageTag, in.communicator, &there, &message, &status)) || there == 0) return;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    in.incoming.push_back({allocate(static_cast<size_t>(bytes)), static_cast<size_t>(bytes), status.MPI_SOURCE, MPI_REQUEST_NULL});
    Incoming& last = in.incoming.back();
    if (!check(in, "MPI_Imrecv", MPI_Imrecv(last.memory.get(), bytes, MPI_BYTE, &message, &last.request))) return;
  }
}

void take_incoming(Domain& in) {
  std::vector<int> waiting;  // senders whose first message is not complete
  for (auto message = in.incoming.begin(); message != in.incoming.end() && in.broken.empty();) {
    int complete = 0;
    const bool waits = std::find(waiting.begin(), waiting.end(), message->rank) != waiting.end();
    if (!waits && !check(in, "MPI_Test", MPI_Test(&message->request, &complete, MPI_STATUS_IGNORE))) return;
    if (complete == 0) {
      if (!waits) waiting.push_back(message->rank);
      ++message;
      continue;
    }
    take(in, *message);
    message = in.incoming.erase(message);
  }
}

void end(Domain& in, Active& active, const MPI_Status& status) {
  if (active.what == Active::What::kReduce) end_reduce(in, active.team);
  if (active.what == Active::What::kMessage || active.fabric == nullptr) return;
  if (active.what == Active::What::kReduce) return add_event(active.fabric, event_of(MV_FABRIC_REDUCED, MV_OK, nullptr, active.user));
  int cancelled = 0;
  if (active.what == Active::What::kReceive) MPI_Test_cancelled(&status, &cancelled);
  const bool sent = active.what == Active::What::kSend;
  add_event(active.fabric, event_of(sent ? MV_FABRIC_SENT : MV_FABRIC_RECEIVED, cancelled != 0 ? MV_EPEERLOST : MV_OK, "its sender has gone", active.user));
}

void complete(Domain& in) {
  if (in.requests.empty()) return;
  int count = 0;
  in.indices.resize(in.requests.size());
  in.statuses.resize(in.requests.size());
  const int code = MPI_Testsome(static_cast<int>(in.requests.size()), in.requests.data(), &count, in.indices.data(), in.statuses.data());
  if (!check(in, "MPI_Testsome", code) || count == MPI_UNDEFINED || count == 0) return;
  for (int i = 0; i < count; ++i) end(in, in.actives[static_cast<size_t>(in.indices[static_cast<size_t>(i)])], in.statuses[static_cast<size_t>(i)]);
  size_t kept = 0;
  for (size_t i = 0; i < in.requests.size(); ++i) {
    if (in.requests[i] == MPI_REQUEST_NULL) continue;
    if (kept != i) {
      in.requests[kept] = in.requests[i];
      in.actives[kept] = std::move(in.actives[i]);
    }
    ++kept;
  }
  in.requests.resize(kept);
  in.actives.erase(in.actives.begin() + static_cast<ptrdiff_t>(kept), in.actives.end());
}

void advance(Domain& in) {
  probe(in);
  if (!in.incoming.empty()) take_incoming(in);
  if (in.broken.empty()) complete(in);
}

// ------------------------------------------------------------ opening and ending MPI

constexpr const char* kTodoLevel =
    "call MPI_Init_thread() with MPI_THREAD_MULTIPLE (mpi4py does so by itself), or let init() of this library come first, which initializes MPI";

const char* name_of_level(int level) {
  return level == MPI_THREAD_MULTIPLE     ? "MPI_THREAD_MULTIPLE"
         : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
         : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
                                          : "MPI_THREAD_SINGLE";
}

/// Tells the peers of all fabrics that these end, and stops all calls of MPI.
void end_domain(Domain& in) noexcept {
  in.ended = true;  // first: another thread's call may last
  for (const auto limit = Clock::now() + kLinger; in.teams_in_the_making > 0 && Clock::now() < limit;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!in.mutex.try_lock_for(std::chrono::seconds(1))) return;
  const std::lock_guard lock(in.mutex, std::adopt_lock);
  if (in.state != Domain::State::kOpen || !in.broken.empty()) return;
  try {
    for (mv_fabric fabric : in.fabrics)
      for (const auto& [id, line] : fabric->lines)
        for (const uint32_t port : fabric->ports) post_note(in, line->to.rank, Kind::kEnded, line->to.port, port, 0, 0, 0);
    const auto limit = Clock::now() + kLinger;
    while (!in.requests.empty() && in.broken.empty() && Clock::now() < limit) complete(in);
    works(in);  // fails the lines
  } catch (const std::bad_alloc&) {  // then the peers learn it by their heartbeats
  }
}

/// The program, or this file, calls MPI_Finalize().
int on_finalize(MPI_Comm, int, void*, void*) {
  end_domain(domain());
  return MPI_SUCCESS;
}

/// At the end of the process.
void finalize() {
  Domain& in = domain();
  if (getpid() != in.process) return;  // a fork
  // MPICH ends a process inside of MPI_Finalize() if a thread was in a call when the program began it.
  if (in.ended) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

mv_status start_mpi(Domain& in) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0 || in.ended) return fail(MV_ESTATE, "MPI has been finalized in this process and can't be initialized again; call init() before MPI_Finalize()");
  if (initialized != 0) {
    MPI_Query_thread(&in.level);
    if (in.level != MPI_THREAD_MULTIPLE)
      return fail(MV_ESTATE, std::string("this program has initialized MPI with ") + name_of_level(in.level) +
                                 ", but a node's thread uses MPI at the same time as the program, which takes MPI_THREAD_MULTIPLE: " + kTodoLevel);
  } else {
    if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &in.level); code != MPI_SUCCESS)
      return fail(MV_ESYSTEM, "MPI_Init_thread: " + text_of(code));
    in.started_here = true;
    std::atexit(finalize);
    if (in.level < MPI_THREAD_SERIALIZED)
      return fail(MV_ENOSYS, std::string("this MPI has only ") + name_of_level(in.level) + ", and transport=mpi takes MPI_THREAD_MULTIPLE: use an MPI that was built with it");
  }
  in.process = getpid();
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);  // the standard's way to be told of MPI_Finalize()
  MPI_Comm_rank(MPI_COMM_WORLD, &in.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &in.size);
  const int code = MPI_Comm_idup(MPI_COMM_WORLD, &in.communicator, &in.opening);
  if (code != MPI_SUCCESS) return fail(MV_ESYSTEM, "MPI_Comm_idup: " + text_of(code));
  in.state = Domain::State::kDuplicating;
  return MV_OK;
}

/// The communicator is there: learns how many machines the job has.
void begin_meeting(Domain& in) {
  MPI_Comm_set_errhandler(in.communicator, MPI_ERRORS_RETURN);
  int* most = nullptr;
  int known = 0;
  MPI_Comm_get_attr(in.communicator, MPI_TAG_UB, static_cast<void*>(&most), &known);
  if (known != 0) in.most_tag = *most;
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  Domain::Greeting& own = in.greeting;
  own.host = 14695981039346656037ull;
  for (const char letter : std::string_view(name)) own.host = (own.host ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  std::random_device random;
  own.token = uint64_t{random()} << 32 | random() | 1;
  in.greetings.resize(static_cast<size_t>(in.size));
  MPI_Iallgather(&own, 2, MPI_UINT64_T, in.greetings.data(), 2, MPI_UINT64_T, in.communicator, &in.opening);
  in.state = Domain::State::kMeeting;
}

mv_status open_domain(Domain& in, int64_t timeout_ms) {
  if (in.ended) return fail(MV_ESTATE, "MPI has been finalized in this process; call init() before MPI_Finalize()");
  if (in.state == Domain::State::kNew)
    if (const mv_status status = start_mpi(in); status != MV_OK) return status;
  const auto begun = Clock::now();
  while (in.state != Domain::State::kOpen) {
    int done = 0;
    if (const int code = MPI_Test(&in.opening, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS) return fail(MV_ESYSTEM, "opening MPI: " + text_of(code));
    if (done == 0) {
      if (timeout_ms >= 0 && Clock::now() - begun > std::chrono::milliseconds(timeout_ms))
        return fail(MV_ETIMEOUT, "not all of the " + std::to_string(in.size) + " processes that the launcher has started called init() with MPI within " +
                                     std::to_string(timeout_ms / 1000) + " s: all of them have to, because init() duplicates MPI_COMM_WORLD");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } else if (in.state == Domain::State::kDuplicating) {
      begin_meeting(in);
    } else {
      in.state = Domain::State::kOpen;
    }
  }
  return MV_OK;
}

}  // namespace mv::transport::mpi
