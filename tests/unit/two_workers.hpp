#pragma once
// Two workers' engines and a server's, whose messages the test carries.

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/server/server.hpp"
#include "keeping_link.hpp"

namespace mv::unit {

inline constexpr base::Peer kServer = 1, kWorkers[] = {7, 8};

inline void join(cluster::View& view, base::Peer peer, int32_t role) {
  cluster::Member member;
  member.rank = static_cast<uint32_t>(view.members.size());
  member.role = role;
  member.peer = peer;
  view.members.push_back(member);
}

inline cluster::View view_of_all() {
  cluster::View view;
  join(view, kServer, MV_ROLE_SERVER);
  for (const base::Peer worker : kWorkers) join(view, worker, MV_ROLE_WORKER);
  return view;
}

/// A worker's engine, whose messages wait until the test carries them.
struct Worker {
  explicit Worker(const cluster::View& view) {
    rpc.on_connected(kServer);
    client.start(view);
  }
  void create(std::vector<table::NewTable> tables) {
    ended = false;
    made.clear();
    client.catalogue().create(std::move(tables), base::kNever, [this](auto created) {
      ended = true;
      status = created.ok() ? base::Status() : created.status();
      if (created.ok()) made = std::move(created).value();
    });
  }

  StillClock time;
  KeepingLink link;
  rpc::Client rpc{time, link, {}};
  base::Pool pool{4096, 1};
  table::Client client{time, rpc, rpc, pool};
  bool ended = false;
  base::Status status;
  std::vector<table::TableViewRef> made;
};

/// One server and two workers; carry() delivers all messages, and counts the requests.
struct Cluster : rpc::Service {
  Cluster() { server.start(view, kServer); }
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) override {
    server.on_request(asked, request, payload, staged);
  }
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) override {
    server.on_data(asked, payload, staged);
  }
  void on_cancel(const rpc::Asked& asked) override { server.on_cancel(asked); }

  /// Delivers this worker's messages. The answers stay in the server's link, together with those to the other worker.
  void carry_to_server(size_t worker) {
    for (const base::Frame& frame : workers[worker].link.take()) {
      ++requests[message_of(frame).body_type()];
      rpc.on_message(kWorkers[worker], message_of(frame), payload_of(frame), nullptr);
    }
    rpc.flush();
  }
  void carry_back() {
    for (const auto& [to, frame] : link.take())
      workers[to == kWorkers[0] ? 0 : 1].rpc.on_answer(kServer, message_of(frame), payload_of(frame));
  }
  void carry() {
    for (int round = 0; round < 8; ++round) {
      for (size_t worker : {0, 1}) carry_to_server(worker);
      carry_back();
    }
  }
  std::vector<float> values(uint32_t number) {
    std::vector<float> values(server.shard(number)->elements());
    server.shard(number)->read(shard::kNoWorker, 0, values.size(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  /// Stores each frame with its receiver.
  class Link final : public base::Link {
   public:
    void dial(const std::string&) override {}
    void send(base::Peer to, const base::Frame& frame) override { sent.emplace_back(to, frame); }
    void close(base::Peer) override {}
    std::vector<std::pair<base::Peer, base::Frame>> take() { return std::exchange(sent, {}); }
    std::vector<std::pair<base::Peer, base::Frame>> sent;
  };

  const cluster::View view = view_of_all();
  StillClock time;
  Link link;
  base::Pool pool{4096, 1};
  rpc::Server rpc{link, *this};
  table::Server server{time, rpc, pool, false};
  std::array<Worker, 2> workers{Worker(view), Worker(view)};
  std::map<wire::Body, size_t> requests;
};

}  // namespace mv::unit
