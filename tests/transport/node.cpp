#include "node.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "transport/fabric/fabric_transport.hpp"
#include "transport/fabric/job_transport.hpp"
#include "transport/fabric/mpi.hpp"
#include "transport/faulty/faulty.hpp"
#include "wire/frame.hpp"

namespace mv::test {

namespace {

std::unique_ptr<transport::Transport> make_ucx(transport::Loop& loop, const transport::TcpOptions& options) {
  const auto plugin = transport::ucx_plugin();
  auto fabric = plugin.ok() ? transport::Fabric::open(plugin.value(), /*loopback_only=*/true) : plugin.status();
  if (!fabric.ok()) {
    std::fprintf(stderr, "%s\n", fabric.status().text().c_str());
    std::exit(1);
  }
  auto made = std::make_unique<transport::FabricTransport>(loop, options, std::move(fabric).value());
  if (!made->ok()) std::abort();
  return made;
}

std::unique_ptr<transport::Transport> make_mpi(transport::Loop& loop, const transport::TcpOptions& options) {
  const auto plugin = transport::mpi_plugin();
  auto fabric = plugin.ok() ? transport::Fabric::open(plugin.value().plugin, /*loopback_only=*/false, kPatience) : plugin.status();
  if (!fabric.ok()) {
    std::fprintf(stderr, "%s\n", fabric.status().text().c_str());
    std::exit(1);
  }
  transport::JobOptions of_job;
  static_cast<transport::HelloOptions&>(of_job) = options;
  auto made = std::make_unique<transport::JobTransport>(loop, std::move(of_job), std::move(fabric).value());
  if (!made->ok()) std::abort();
  return made;
}

std::unique_ptr<transport::Transport> make_transport(Kind kind, transport::Loop& loop, const transport::TcpOptions& options) {
  if (kind == Kind::kInproc) return std::make_unique<transport::InprocTransport>(loop, options.self);
  if (kind == Kind::kShm) {
    transport::ShmOptions shm;
    static_cast<transport::HelloOptions&>(shm) = options;
    return std::make_unique<transport::ShmTransport>(loop, std::move(shm));
  }
  if (kind == Kind::kUcx) return make_ucx(loop, options);
  if (kind == Kind::kMpi) return make_mpi(loop, options);
  transport::TcpOptions of_tcp = options;
  if (kind == Kind::kTls && of_tcp.tls.mode == transport::TlsMode::kAuto) of_tcp.tls.mode = transport::TlsMode::kPsk;
  auto tcp = std::make_unique<transport::TcpTransport>(loop, of_tcp);
  if (kind == Kind::kTcp || kind == Kind::kTls) return tcp;
  return std::make_unique<transport::FaultyTransport>(loop, std::move(tcp), transport::Faults{});
}

std::byte pattern_at(uint64_t seq, size_t place) { return static_cast<std::byte>(seq * 131 + place * 7 + place / 251); }

bool is_pattern(uint64_t seq, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern_at(seq, i)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::byte> pattern(uint64_t seq, size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = pattern_at(seq, i);
  return made;
}

size_t Record::connections_of(Peer peer) const {
  return static_cast<size_t>(
      std::count_if(connected.begin(), connected.end(), [&](const auto& c) { return c.first == peer; }));
}
bool Record::has_lost(Peer peer) const {
  return std::any_of(lost.begin(), lost.end(), [&](const Ended& end) { return end.peer == peer; });
}
size_t Record::messages_of(Peer peer) const {
  return static_cast<size_t>(
      std::count_if(messages.begin(), messages.end(), [&](const Heard& m) { return m.from == peer; }));
}

Node::Node(Kind kind, const transport::TcpOptions& options) : kind_(kind), self_(options.self) {
  transport_ = make_transport(kind, loop_, options);
  transport_->attach(*this);
  if (!loop_.start().ok()) abort();
}

Node::~Node() {
  loop_.stop();
  transport_.reset();
}

std::string Node::listen() {
  std::string address = "127.0.0.1:0";
  if (kind_ == Kind::kInproc) address = "inproc:" + std::to_string(self_);
  if (kind_ == Kind::kMpi) address = "mpi";
  if (kind_ == Kind::kShm) address = "shm:test-" + std::to_string(getpid()) + "-" + std::to_string(self_);
  const auto bound = listen(address);
  return bound.ok() ? bound.value() : bound.status().text();
}

base::Result<std::string> Node::listen(const std::string& address) {
  base::Result<std::string> bound = std::string();
  run([&] { bound = transport_->listen(address); });
  return bound;
}

void Node::run(const std::function<void()>& fn) {
  std::atomic<bool> ran{false};
  const auto task = [&] {
    in_a_call_ = true;
    fn();
    in_a_call_ = false;
    ran = true;
  };
  while (loop_.drive_until([&] { return ran.load(); }, loop_.now() + kPatience, ran ? transport::Task() : transport::Task(task)) ==
         transport::Driven::kInterrupted) {
  }
}

void Node::dial(const std::string& address) {
  run([&] { transport_->dial(address); });
}
void Node::send(Peer to, uint64_t seq, base::PayloadRef payload) {
  run([&] {
    wire::FrameBuilder builder;
    base::Frame frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()), payload);
    wire::stamp(frame, seq, 0);
    transport_->send(to, frame);
  });
}
void Node::send(Peer to, uint64_t seq, size_t bytes) { send(to, seq, base::Payload::copy(pattern(seq, bytes))); }
void Node::close(Peer peer) {
  run([&] { transport_->close(peer); });
}
void Node::cut(Peer peer) {
  run([&] { transport_->cut(peer); });
}
bool Node::stop() {
  std::atomic<bool> stopped{false};
  const auto begin = [&] { transport_->stop([&] { stopped = true; }); };
  return loop_.drive_until([&] { return stopped.load(); }, loop_.now() + kPatience, begin) == transport::Driven::kDone;
}

bool Node::wait(const std::function<bool(const Record&)>& holds, Nanos limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return holds(record_); });
}
Record Node::record() {
  std::lock_guard lock(mutex_);
  return record_;
}

void Node::note(const std::function<void(Record&)>& what) {
  std::lock_guard lock(mutex_);
  what(record_);
  changed_.notify_all();
}

void Node::check(bool holds, const char* promise) {
  if (!holds) note([&](Record& record) { record.violations.emplace_back(promise); });
}

void Node::check_from(Peer from) {
  check(loop_.driven_by_me(), "events come on the loop");
  check(!in_a_call_, "calls never re-enter events");
  const Record now = record();
  const bool observes = std::find(now.observers.begin(), now.observers.end(), from) != now.observers.end();
  check(from == self_ || observes || now.connections_of(from) > 0, "nothing is heard before on_connected or on_observer");
  check(!now.has_lost(from), "nothing is heard after on_lost");
}

void Node::on_observer(Peer peer) {
  note([&](Record& record) { record.observers.push_back(peer); });
}

void Node::on_connected(Peer peer, const std::string& address) {
  check(loop_.driven_by_me() && !in_a_call_, "on_connected comes by itself, on the loop");
  check(!record().has_lost(peer), "a lost peer never comes back");
  streaming_.erase(peer);
  note([&](Record& record) { record.connected.emplace_back(peer, address); });
}
void Node::on_dial_failed(const std::string& address, const base::Status& why) {
  check(loop_.driven_by_me() && !in_a_call_, "on_dial_failed comes by itself, on the loop");
  note([&](Record& record) {
    record.dial_failed.push_back({base::kNobody, address, why.code(), why.text(), loop_.now()});
  });
  if (after_failed_dial) after_failed_dial(address);
}
void Node::on_lost(Peer peer, const base::Status& why) {
  check_from(peer);
  note([&](Record& record) { record.lost.push_back({peer, "", why.code(), why.text(), loop_.now()}); });
}

void Node::on_arrived(Peer from, size_t bytes) { check(arrived_.emplace(from, bytes).second, "a message's size is told once"); }

void Node::check_size(Peer from, size_t payload_bytes) {
  const auto told = arrived_.find(from);
  check(told != arrived_.end(), "a message's size is told before it");
  if (told == arrived_.end()) return;
  const size_t least = wire::kPrefixBytes + wire::padded(payload_bytes);
  check(told->second > least && told->second <= least + most_header_ && told->second % 8 == 0, "a message's size is that of its frame");
  arrived_.erase(told);
}

void Node::on_message(Peer from, const wire::Message& message, std::span<const std::byte> payload) {
  check_from(from);
  check_size(from, payload.size());
  check(reinterpret_cast<uintptr_t>(payload.data()) % 8 == 0, "payloads are aligned to 8 bytes");
  check(!streaming_.contains(from), "no message comes inside another");
  if (before_payload) before_payload(message.seq());
  const bool intact = is_pattern(message.seq(), payload);
  note([&](Record& record) { record.messages.push_back({from, message.seq(), payload.size(), intact, false, false}); });
}

base::SinkRef Node::on_header(Peer from, const wire::Message& message, size_t bytes) {
  check_from(from);
  check(streaming_.emplace(from, std::pair(message.seq(), bytes)).second, "no header comes inside a payload");
  if (before_payload) before_payload(message.seq());
  if (sink_for) return sink_for(message.seq(), bytes);
  auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  return base::Sink::into(*memory, memory);
}

void Node::on_payload(Peer from, const wire::Message& message, base::Sink& sink) {
  check_from(from);
  const auto begun = streaming_.find(from);
  check(begun != streaming_.end() && begun->second.first == message.seq(), "a payload belongs to the last header");
  if (begun == streaming_.end()) return;
  const size_t bytes = begun->second.second;
  streaming_.erase(begun);
  check_size(from, bytes);
  check(sink.discards() || sink.memory().size() == bytes, "a payload is complete");
  const bool intact = !sink.discards() && is_pattern(message.seq(), sink.memory());
  note([&](Record& record) { record.messages.push_back({from, message.seq(), bytes, intact, true, sink.discards()}); });
}

Pair::Pair(Kind kind, transport::TcpOptions options) : Pair(kind, std::move(options), 11, 22) {}

Pair::Pair(Kind kind, transport::TcpOptions options, Peer a_self, Peer b_self) {
  options.self = a_self;
  a = std::make_unique<Node>(kind, options);
  options.self = b_self;
  b = std::make_unique<Node>(kind, options);
  address = a->listen();
  b->dial(address);
  connected = b->wait([&](const Record& record) { return record.connections_of(a_self) == 1; }) &&
              a->wait([&](const Record& record) { return record.connections_of(b_self) == 1; });
}

}  // namespace mv::test
