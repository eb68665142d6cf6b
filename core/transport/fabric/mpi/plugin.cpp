// The plug-in for MPI: transport/fabric/plugin.h in terms of <mpi.h>. The same source is compiled against Open MPI and
// against MPICH, whose libraries are not compatible.
//
// All fabrics of a process share one communicator, a duplicate of MPI_COMM_WORLD, so that no message of the program can be
// taken for one of ours. Each message is one MPI message: an Envelope, the header, and the body. A large body stays at
// its sender: kOffer has only the header, and the receiver, once it has a place for the body, posts a receive for it and
// sends kFetch. Nothing large therefore ever waits in MPI's own memory, and a body can be dropped without having been sent.
//
// MPI has no descriptor to wait on. The fabric's descriptor is a timer, which arm() sets: see kShortestNap in domain.hpp.
//
// A mutex guards all calls of MPI by this file, so MPI_THREAD_SERIALIZED would be enough for the library alone. Where the
// program uses MPI too, its calls come at the same time as ours.

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "transport/fabric/mpi/domain.hpp"

#ifdef OPEN_MPI
#define POLYVERSO_MPI_NAME "Open MPI"
#else
#define POLYVERSO_MPI_NAME "MPICH"
#endif

using namespace mv::transport::mpi;

namespace {

// ------------------------------------------------------------ the fabric

/// Runs a function of the interface: with the lock, and without exceptions.
template <typename Work>
mv_status guarded(Work&& work) noexcept {
  try {
    Domain& in = domain();
    const std::lock_guard lock(in.mutex);
    return work(in);
  } catch (const std::bad_alloc&) {
    return MV_ENOMEM;
  }
}

mv_status open(const mv_fabric_options* options, mv_fabric* made) {
  return guarded([&](Domain& in) -> mv_status {
    if (const mv_status status = open_domain(in, options->timeout_ms); status != MV_OK) return status;
    if (!works(in)) return fail(MV_ESTATE, in.broken);
    auto fabric = std::make_unique<mv_fabric_object>();
    fabric->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fabric->timer < 0) return fail(MV_ESYSTEM, std::string("can't create a timer: ") + std::strerror(errno));
    fabric->self = {in.rank, in.next_port++};
    fabric->ports.insert(fabric->self.port);
    in.ports[fabric->self.port] = fabric.get();
    in.fabrics.insert(fabric.get());
    *made = fabric.release();
    return MV_OK;
  });
}

void close(mv_fabric fabric) {
  guarded([&](Domain& in) -> mv_status {
    const bool alive = works(in);
    for (const auto& [id, line] : fabric->lines) {
      for (const uint32_t port : fabric->ports)
        if (alive) post_note(in, line->to.rank, Kind::kEnded, line->to.port, port, 0, 0, 0);
      delete line;
    }
    for (const uint32_t port : fabric->ports) in.ports.erase(port);
    in.fabrics.erase(fabric);
    std::erase_if(in.offers, [&](const auto& offer) { return offer.second.fabric == fabric; });
    for (Active& active : in.actives)
      if (active.fabric == fabric) active.fabric = nullptr;
    const auto leaves = [](const Active& active) { return active.what == Active::What::kMessage; };
    const auto limit = Clock::now() + kLinger;
    while (alive && in.broken.empty() && std::any_of(in.actives.begin(), in.actives.end(), leaves) && Clock::now() < limit) complete(in);
    for (const auto& event : fabric->events)
      if (event.kind == MV_FABRIC_ARRIVED) delete event.message;
    ::close(fabric->timer);
    delete fabric;
    return MV_OK;
  });
}

mv_status describe(mv_fabric, mv_fabric_about* about) {
  return guarded([&](Domain& in) -> mv_status {
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    std::string number;  // "Open MPI v4.1.4, package: ..."; "MPICH Version:\t4.0.2\n..."
    for (const char* letter = version; *letter != '\0' && (number.empty() || *letter == '.' || (*letter >= '0' && *letter <= '9')); ++letter)
      if (*letter == '.' || (*letter >= '0' && *letter <= '9')) number += *letter;
    std::snprintf(about->version, sizeof about->version, "%s %s", POLYVERSO_MPI_NAME, number.c_str());
    std::snprintf(about->networks, sizeof about->networks, "rank %d of %d, %s", in.rank, in.size, name_of_level(in.level));
    about->has_rdma = 0;
    about->most_header = 64 << 10;
    about->rank = in.rank;
    about->size = in.size;
    std::set<uint64_t> machines;
    for (const Domain::Greeting& greeting : in.greetings) machines.insert(greeting.host);
    about->job = in.greetings.front().token;
    about->machines = static_cast<int32_t>(machines.size());
    return MV_OK;
  });
}

mv_status address(mv_fabric fabric, const void** bytes, uint64_t* count) {
  *bytes = &fabric->self;
  *count = sizeof fabric->self;
  return MV_OK;
}

mv_status listen(mv_fabric fabric, uint32_t port) {
  return guarded([&](Domain& in) -> mv_status {
    if (!in.ports.emplace(port, fabric).second) return fail(MV_EADDRINUSE, "another node of this process has that port");
    fabric->ports.insert(port);
    return MV_OK;
  });
}

int32_t descriptor(mv_fabric fabric) { return fabric->timer; }

int32_t arm(mv_fabric fabric) {
  return guarded([&](Domain& in) -> mv_status {
    works(in);
    if (!fabric->events.empty()) return 0;
    auto quiet = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - fabric->last_news);
    // MPI moves bodies inside of its calls.
    if (std::any_of(in.actives.begin(), in.actives.end(), [](const Active& active) { return active.what != Active::What::kMessage && active.fabric != nullptr; })) quiet = {};
    const auto most = std::clamp<std::chrono::microseconds>(quiet / 100, kUsualNap, kLongestNap);
    set_timer(fabric, std::clamp<std::chrono::microseconds>(quiet / 4, kShortestNap, most));
    return 1;
  });
}

mv_status progress(mv_fabric fabric, const mv_fabric_event** events, uint64_t* count) {
  const mv_status status = guarded([&](Domain& in) -> mv_status {
    in.shown_next = fabric;
    if (works(in)) advance(in);
    in.shown_next = nullptr;
    fabric->shown.clear();
    fabric->shown.swap(fabric->events);
    if (!fabric->shown.empty()) fabric->last_news = Clock::now();
    return MV_OK;
  });
  *events = fabric->shown.data();
  *count = fabric->shown.size();
  return status;
}

// ------------------------------------------------------------ lines and messages

mv_status connect(mv_fabric fabric, const void* address, uint64_t bytes, void* user, mv_fabric_line* made) {
  return guarded([&](Domain& in) -> mv_status {
    mv_fabric_place to;
    if (bytes != sizeof to) return fail(MV_EPROTOCOL, "this is not an address in an MPI job");
    std::memcpy(&to, address, sizeof to);
    if (to.rank < 0 || to.rank >= in.size)
      return fail(MV_EUNREACHABLE, "there is no rank " + std::to_string(to.rank) + " in this MPI job of " + std::to_string(in.size) + " processes");
    auto line = std::make_unique<mv_fabric_line_object>(mv_fabric_line_object{fabric, in.next_id++, to, user});
    fabric->lines[line->id] = line.get();
    *made = line.release();
    return MV_OK;
  });
}

void disconnect(mv_fabric fabric, mv_fabric_line line) {
  guarded([&](Domain& in) -> mv_status {
    fabric->lines.erase(line->id);
    std::erase_if(fabric->events, [&](const mv_fabric_event& event) { return event.kind == MV_FABRIC_FAILED && event.user == line->user; });
    for (auto offer = in.offers.begin(); offer != in.offers.end();) {
      if (offer->second.line != line) {
        ++offer;
        continue;
      }
      add_event(fabric, event_of(MV_FABRIC_SENT, MV_EPEERLOST, "the line has ended", offer->second.user));
      offer = in.offers.erase(offer);
    }
    delete line;
    return MV_OK;
  });
}

mv_status send(mv_fabric fabric, mv_fabric_line line, const void* header, uint64_t header_bytes, const void* body, uint64_t body_bytes, void* user,
               int32_t* ended) {
  return guarded([&](Domain& in) -> mv_status {
    if (!works(in)) return fail(MV_EUNREACHABLE, in.broken);
    const bool whole = body_bytes < kRendezvous;
    const uint64_t id = in.next_id++;
    if (!whole) in.offers[id] = {fabric, line, body, body_bytes, user};
    *ended = whole ? 1 : 0;
    const mv_status status =
        post(in, line->to.rank, {whole ? Kind::kWhole : Kind::kOffer, line->to.port, fabric->self.port, 0, line->id, id, header_bytes, body_bytes}, header, body);
    if (status != MV_OK) in.offers.erase(id);
    fabric->last_news = Clock::now();  // an answer may come soon
    return status;
  });
}

mv_status receive(mv_fabric fabric, mv_fabric_message message, void* to, uint64_t bytes, void* user) {
  return guarded([&](Domain& in) -> mv_status {
    const std::unique_ptr<mv_fabric_message_object> taken(message);
    if (!works(in)) return fail(MV_EUNREACHABLE, in.broken);
    const int tag = in.next_tag;
    in.next_tag = tag < in.most_tag ? tag + 1 : kFirstBodyTag;
    in.requests.reserve(in.requests.size() + 1);
    in.actives.reserve(in.actives.size() + 1);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, taken->rank, tag, in.communicator, &request);
    if (code != MPI_SUCCESS) return fail(MV_ESYSTEM, "MPI_Irecv: " + text_of(code));
    Active active{Active::What::kReceive, fabric, user, nullptr};
    active.rank = taken->rank;
    active.port = taken->envelope.from_port;
    active.tag = tag;
    start(in, std::move(active), request);
    post_note(in, taken->rank, Kind::kFetch, taken->envelope.from_port, fabric->self.port, 0, taken->envelope.send, tag);
    return MV_OK;
  });
}

void release(mv_fabric fabric, mv_fabric_message message) {
  guarded([&](Domain& in) -> mv_status {
    const std::unique_ptr<mv_fabric_message_object> taken(message);
    if (taken->envelope.kind == Kind::kOffer && works(in))
      post_note(in, taken->rank, Kind::kDrop, taken->envelope.from_port, fabric->self.port, 0, taken->envelope.send, 0);
    return MV_OK;
  });
}

mv_status memory_make(mv_fabric, uint64_t bytes, void** memory, mv_fabric_memory* handle) {
  try {
    auto made = std::make_unique<mv_fabric_memory_object>(mv_fabric_memory_object{allocate(bytes)});
    *memory = made->memory.get();
    *handle = made.release();
    return MV_OK;
  } catch (const std::bad_alloc&) {
    return fail(MV_ENOMEM, "out of memory");
  }
}

void memory_free(mv_fabric, mv_fabric_memory handle) {
  guarded([&](Domain& in) -> mv_status {
    const std::unique_ptr<mv_fabric_memory_object> freed(handle);
    for (Active& active : in.actives)
      if (active.what == Active::What::kReduce && active.values == freed->memory.get()) active.memory = std::move(freed->memory);
    return MV_OK;
  });
}

// ------------------------------------------------------------ teams

mv_status team(mv_fabric fabric, const int32_t* ranks, uint64_t count, uint64_t key, void* user, mv_fabric_team* made) {
  return guarded([&](Domain& in) { return make_team(in, fabric, {ranks, ranks + count}, key, user, made); });
}

void disband(mv_fabric, mv_fabric_team team) {
  guarded([&](Domain& in) -> mv_status {
    disband_team(in, team);
    return MV_OK;
  });
}

mv_status reduce(mv_fabric, mv_fabric_team team, void* values, uint64_t count, mv_dtype dtype, int32_t reduction, void* user) {
  return guarded([&](Domain& in) { return begin_reduce(in, team, values, count, dtype, reduction, user); });
}

constexpr mv_fabric_plugin kPlugin = {
    MV_FABRIC_INTERFACE, sizeof(mv_fabric_plugin), "mpi", error, open, close, describe, address, listen, descriptor, arm, progress, connect, disconnect, send,
    receive, release, memory_make, memory_free, nullptr, nullptr, nullptr, nullptr, team, disband, reduce};

}  // namespace

extern "C" __attribute__((visibility("default"))) const mv_fabric_plugin* polyverso_fabric_plugin(uint32_t interface) {
  return interface == MV_FABRIC_INTERFACE ? &kPlugin : nullptr;
}
