// The C interface of gossip: handles, files and arguments. api::GossipNode does the work.

#include <polyverso/gossip.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "api/gossip/gossip_status.hpp"
#include "boundary.hpp"
#include "engine/gossip/yaml.hpp"
#include "options.hpp"
#include "state.hpp"
#include "text_out.hpp"
#include "transport/tls/tls.hpp"

namespace mv::capi {
namespace {

using api::GossipNode;

constexpr uint32_t kFirstFetched = sizeof(mv_gossip_fetched), kFirstInfo = sizeof(mv_gossip_info), kFirstPeer = sizeof(mv_gossip_peer);
/// Longer than any configuration, but not than a device or a model that is passed by mistake.
constexpr size_t kLongestFile = gossip::YamlLimits{}.bytes;
/// How long a node may take to report its status.
constexpr base::Nanos kPatienceWithNodes = std::chrono::seconds(2);

base::Result<std::string> read_file(const char* path) {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path, "rbe"), close);
  if (file == nullptr) return base::error(errno == ENOENT ? MV_ENOTFOUND : MV_ESYSTEM, "can't open \"{}\": {}", path, std::strerror(errno));
  std::string text;
  for (char piece[4096]; text.size() <= kLongestFile;) {
    const size_t got = std::fread(piece, 1, sizeof piece, file.get());
    text.append(piece, got);
    if (got == 0 && std::ferror(file.get()) != 0) return base::error(MV_ESYSTEM, "can't read \"{}\": {}", path, std::strerror(errno));
    if (got == 0) return text;
  }
  return base::error(MV_EINVAL, "\"{}\" has more than {} bytes: too large for a configuration", path, kLongestFile);
}

/// Puts the function's name before the message.
base::Status told(const char* function, const base::Status& status) {
  return status.ok() ? status : base::error(status.code(), "{}: {}", function, status.text());
}

base::Result<gossip::Config> read_config(const std::string& text, const std::string& file) {
  auto config = gossip::parse_config(text, file);
  // As in a cluster: the configuration file may be public.
  if (!config.ok()) return config;
  gossip::Config& read = config.value();
  const std::pair<const char*, std::string*> variables[] = {{"POLYVERSO_SECRET", &read.secret},
                                                            {"POLYVERSO_TLS", &read.tls},
                                                            {"POLYVERSO_TLS_CERT", &read.tls_cert},
                                                            {"POLYVERSO_TLS_KEY", &read.tls_key},
                                                            {"POLYVERSO_TLS_CA", &read.tls_ca}};
  for (const auto& [variable, value] : variables)
    if (const char* const given = std::getenv(variable); value->empty() && given != nullptr) *value = given;
  if (read.tls.empty()) read.tls = "auto";
  if (!transport::tls_mode(read.tls)) return base::error(MV_EINVAL, "POLYVERSO_TLS={} is not one of auto, off, psk, mutual", read.tls);
  if (read.tls == "mutual" && (read.tls_cert.empty() || read.tls_key.empty() || read.tls_ca.empty()))
    return base::error(MV_EINVAL, "{}: tls: mutual needs tls_cert, tls_key and tls_ca", file);
  return config;
}

base::Status open(State& state, const std::string& text, const std::string& file, const char* name, mv_gossip* gossip) {
  auto config = read_config(text, file);
  if (!config.ok()) return config.status();
  if (auto status = gossip::check_for_node(config.value(), name, file); !status.ok()) return status;
  const int line = config.value().find(name)->line;
  watch_forks();
  auto node = GossipNode::open(std::move(config).value(), name, find_device_of);
  if (!node.ok()) return base::error(node.status().code(), "{}:{}: nodes: {}", file, line, node.status().text());
  *gossip = state.gossips.insert(std::move(node).value());
  return {};
}

base::Status check_open(const char* config, const char* name, const mv_gossip* gossip) {
  if (config == nullptr) return base::Status(MV_EINVAL, "config is NULL");
  if (name == nullptr) return base::Status(MV_EINVAL, "name is NULL");
  if (gossip == nullptr) return base::Status(MV_EINVAL, "the pointer for the handle is NULL");
  return {};
}

/// Opens the node with the configuration text(). In a forked child this may be the first call.
template <typename Text>
mv_status open_with(const char* function, Text text, const char* file, const char* name, mv_gossip* gossip) {
  if (const auto status = check_open(file, name, gossip); !status.ok()) return finish(told(function, status));
  return guarded(function, [&]() -> base::Status {
    take_log_level();
    const base::Result<std::string> read = text();
    return told(function, read.ok() ? open(current_state_for_init(), read.value(), file, name, gossip) : read.status());
  });
}

base::Status close_gossip(State& state, mv_gossip handle) {
  auto pin = find_gossip(state, "mv_gossip_close", handle);
  if (!pin.ok()) return pin.status();
  if (!state.gossips.close(pin.value())) return not_a(state, "mv_gossip_close", HandleKind::kGossip, handle);
  (*pin.value())->close();
  return {};
}

/// Runs work(GossipNode&) of an exported function, whose name begins the error message.
template <typename Work>
mv_status with_node(const char* function, mv_gossip gossip, Work work) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_gossip(state, function, gossip);
    if (!pin.ok()) return pin.status();
    return told(function, work(**pin.value()));
  });
}

base::Status check_data(const void* data, uint64_t count) {
  return data != nullptr || count == 0 ? base::Status() : base::error(MV_EINVAL, "data is NULL, but count is {}", count);
}

template <size_t kRoom>
void put_name(const std::string& from, char (&to)[kRoom]) {
  size_t bytes = std::min(from.size(), kRoom - 1);
  while (bytes < from.size() && bytes > 0 && (from[bytes] & 0xc0) == 0x80) --bytes;  // cuts no UTF-8 sequence
  std::memcpy(to, from.data(), bytes);
  std::memset(to + bytes, 0, kRoom - bytes);
}

base::Status wait(GossipNode& node, double loss, mv_gossip_fetched* out) {
  if (out == nullptr) return base::Status(MV_EINVAL, "the pointer for the result is NULL");
  auto read = read_struct("mv_gossip_fetch_wait", "mv_gossip_fetched", out, mv_gossip_fetched MV_GOSSIP_FETCHED_INIT, kFirstFetched);
  if (!read.ok()) return read.status();
  const auto fetched = node.fetch_wait(loss);
  if (!fetched.ok()) return fetched.status();
  const api::GossipFetched& from = fetched.value();
  out->got = from.got ? 1 : 0;
  out->factor = from.factor;
  out->peer_clock = from.clock;
  out->peer_loss = from.loss;
  out->bytes = from.parts.empty() ? 0 : from.parts.front().bytes();
  put_name(from.peer, out->peer);
  put_name(from.why, out->why);
  return {};
}

base::Status check_shape(uint64_t count, const int64_t* shape, uint64_t dims) {
  if (shape == nullptr && dims != 0) return base::error(MV_EINVAL, "shape is NULL, but dims is {}", dims);
  if (dims > MV_MAX_DIMS) return base::error(MV_EINVAL, "{} dimensions; at most {} are possible", dims, MV_MAX_DIMS);
  uint64_t product = 1;
  for (uint64_t i = 0; i < dims; ++i)
    if (shape[i] < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(shape[i]), &product))
      return base::error(MV_ESHAPE, "{} values given; they do not fit a shape with a dimension of {}", count, shape[i]);
  return dims == 0 || product == count ? base::Status() : base::error(MV_ESHAPE, "{} values given, the shape needs {}", count, product);
}

base::Status describe(GossipNode& node, mv_gossip_info* out) {
  if (out == nullptr) return base::Status(MV_EINVAL, "state is NULL");
  auto read = read_struct("mv_gossip_state", "mv_gossip_info", out, mv_gossip_info MV_GOSSIP_INFO_INIT, kFirstInfo);
  if (!read.ok()) return read.status();
  const auto found = node.state();
  if (!found.ok()) return found.status();
  const gossip::GossipState& from = found.value();
  mv_gossip_info info = MV_GOSSIP_INFO_INIT;
  info.size = out->size;
  info.clock = from.clock;
  info.loss = from.loss;
  info.factor = from.factor;
  info.disagreement = from.disagreement;
  info.updates = from.updates;
  info.averaged = from.averaged;
  info.served_versions = from.served_versions;
  info.served_bytes = from.served_bytes;
  info.fetched_bytes = from.fetched_bytes;
  const gossip::ExchangeTally exchanges = from.exchanges.value_or(gossip::ExchangeTally());
  info.valid = exchanges.valid;
  info.half = exchanges.half;
  info.unsettled = exchanges.unsettled;
  info.peers = from.peers.size();
  put_name(from.name, info.name);
  put_name(from.address, info.address);
  put_name(from.last, info.last_fetch);
  std::memcpy(out, &info, std::min<size_t>(out->size, sizeof(info)));
  return {};
}

void describe_peer(const gossip::PeerState& from, mv_gossip_peer* out) {
  mv_gossip_peer peer = MV_GOSSIP_PEER_INIT;
  peer.size = out->size;
  peer.score = from.score;
  peer.clock = from.clock;
  peer.loss = from.loss;
  peer.disagreement = from.disagreement;
  peer.fetched = from.fetched;
  peer.failed = from.failed;
  peer.connected = from.transport.empty() ? 0 : 1;
  peer.waiting = from.waiting ? 1 : 0;
  put_name(from.name, peer.name);
  put_name(from.address, peer.address);
  put_name(from.transport, peer.transport);
  put_name(from.problem, peer.problem);
  std::memcpy(out, &peer, std::min<size_t>(out->size, sizeof(peer)));
}

/// The structs are contiguous, each of the size that the first one names.
base::Status describe_peers(GossipNode& node, mv_gossip_peer* peers, uint64_t capacity, uint64_t* count) {
  if (count == nullptr) return base::Status(MV_EINVAL, "count is NULL");
  if (peers == nullptr && capacity != 0) return base::error(MV_EINVAL, "peers is NULL, but capacity is {}", capacity);
  const auto found = node.state();
  if (!found.ok()) return found.status();
  const auto& all = found.value().peers;
  const auto place = [&](uint64_t i) {
    return reinterpret_cast<mv_gossip_peer*>(reinterpret_cast<std::byte*>(peers) + i * peers->size);
  };
  const uint64_t told = std::min<uint64_t>(capacity, all.size());
  for (uint64_t i = 0; i < told; ++i) {
    auto read = read_struct("mv_gossip_peers", "mv_gossip_peer", place(i), mv_gossip_peer MV_GOSSIP_PEER_INIT, kFirstPeer);
    if (!read.ok()) return read.status();
    if (place(i)->size != peers->size)
      return base::error(MV_EINVAL, "peers[{}].size is {}, but peers[0].size is {}", i, place(i)->size, peers->size);
  }
  for (uint64_t i = 0; i < told; ++i) describe_peer(all[i], place(i));
  *count = all.size();
  return {};
}

base::Result<std::string> status_of(const char* config, bool json) {
  if (config == nullptr) return base::Status(MV_EINVAL, "config is NULL");
  const auto text = read_file(config);
  if (!text.ok()) return text.status();
  const auto parsed = read_config(text.value(), config);
  return parsed.ok() ? api::gossip_status(parsed.value(), json, kPatienceWithNodes) : parsed.status();
}

}  // namespace
}  // namespace mv::capi

using mv::base::Status;
using mv::capi::State;
using mv::api::GossipNode;

mv_status mv_gossip_open(const char* config, const char* name, mv_gossip* gossip) {
  constexpr const char* kFunction = "mv_gossip_open";
  return mv::capi::open_with(kFunction, [&] { return mv::capi::read_file(config); }, config, name, gossip);
}
mv_status mv_gossip_open_text(const char* config, const char* name, mv_gossip* gossip) {
  constexpr const char* kFunction = "mv_gossip_open_text";
  const char* const file = config != nullptr ? "config" : nullptr;  // its name in messages
  return mv::capi::open_with(kFunction, [&] { return mv::base::Result<std::string>(config); }, file, name, gossip);
}
mv_status mv_gossip_close(mv_gossip gossip) {
  return mv::capi::boundary("mv_gossip_close", [&](State& state) { return mv::capi::close_gossip(state, gossip); });
}

mv_status mv_gossip_add(mv_gossip gossip, const void* data, uint64_t count, mv_dtype dtype) {
  return mv::capi::with_node("mv_gossip_add", gossip, [&](GossipNode& node) {
    const Status status = mv::capi::check_data(data, count);
    return status.ok() ? node.add(data, {count, dtype}) : status;
  });
}
mv_status mv_gossip_add_shaped(mv_gossip gossip, const void* data, uint64_t count, mv_dtype dtype, const int64_t* shape, uint64_t dims) {
  return mv::capi::with_node("mv_gossip_add_shaped", gossip, [&](GossipNode& node) {
    Status status = mv::capi::check_data(data, count);
    if (status.ok()) status = mv::capi::check_shape(count, shape, dims);
    return status.ok() ? node.add(data, {count, dtype, mv::gossip::shape_number({shape, dims})}) : status;
  });
}
mv_status mv_gossip_set_clock(mv_gossip gossip, double clock) {
  return mv::capi::with_node("mv_gossip_set_clock", gossip, [&](GossipNode& node) { return node.set_clock(clock); });
}
mv_status mv_gossip_publish(mv_gossip gossip, double loss) {
  return mv::capi::with_node("mv_gossip_publish", gossip, [&](GossipNode& node) { return node.publish(loss); });
}

mv_status mv_gossip_fetch_start(mv_gossip gossip, int32_t* started) {
  return mv::capi::with_node("mv_gossip_fetch_start", gossip, [&](GossipNode& node) -> Status {
    if (started == nullptr) return Status(MV_EINVAL, "the pointer for the result is NULL");
    const auto begun = node.fetch_start();
    if (!begun.ok()) return begun.status();
    *started = begun.value() ? 1 : 0;
    return {};
  });
}
mv_status mv_gossip_fetch_wait(mv_gossip gossip, double loss, mv_gossip_fetched* fetched) {
  return mv::capi::with_node("mv_gossip_fetch_wait", gossip, [&](GossipNode& node) { return mv::capi::wait(node, loss, fetched); });
}
mv_status mv_gossip_average(mv_gossip gossip, void* data, uint64_t count, mv_dtype dtype) {
  return mv::capi::with_node("mv_gossip_average", gossip, [&](GossipNode& node) {
    const Status status = mv::capi::check_data(data, count);
    return status.ok() ? node.average(data, count, dtype) : status;
  });
}
mv_status mv_gossip_read(mv_gossip gossip, void* data, uint64_t count, mv_dtype dtype) {
  return mv::capi::with_node("mv_gossip_read", gossip, [&](GossipNode& node) {
    const Status status = mv::capi::check_data(data, count);
    return status.ok() ? node.read(data, count, dtype) : status;
  });
}

mv_status mv_gossip_state(mv_gossip gossip, mv_gossip_info* state) {
  return mv::capi::with_node("mv_gossip_state", gossip, [&](GossipNode& node) { return mv::capi::describe(node, state); });
}
mv_status mv_gossip_peers(mv_gossip gossip, mv_gossip_peer* peers, uint64_t capacity, uint64_t* count) {
  return mv::capi::with_node("mv_gossip_peers", gossip, [&](GossipNode& node) { return mv::capi::describe_peers(node, peers, capacity, count); });
}
mv_status mv_gossip_state_text(mv_gossip gossip, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  constexpr const char* kFunction = "mv_gossip_state_text";
  return mv::capi::boundary(kFunction, [&](State& state) -> Status {
    if (auto status = mv::capi::check_text_flags(kFunction, flags); !status.ok()) return status;
    if (auto status = mv::capi::check_text_out(kFunction, text, capacity, length); !status.ok()) return status;
    auto pin = mv::capi::find_gossip(state, kFunction, gossip);
    if (!pin.ok()) return pin.status();
    const auto told = (*pin.value())->state_text((flags & MV_JSON) != 0);
    if (!told.ok()) return mv::capi::told(kFunction, told.status());
    mv::capi::put_text(told.value(), text, capacity, length);
    return {};
  });
}
mv_status mv_gossip_metrics_text(mv_gossip gossip, char* text, uint64_t capacity, uint64_t* length) {
  constexpr const char* kFunction = "mv_gossip_metrics_text";
  return mv::capi::boundary(kFunction, [&](State& state) -> Status {
    if (auto status = mv::capi::check_text_out(kFunction, text, capacity, length); !status.ok()) return status;
    auto pin = mv::capi::find_gossip(state, kFunction, gossip);
    if (!pin.ok()) return pin.status();
    const auto figures = (*pin.value())->metrics();
    if (!figures.ok()) return mv::capi::told(kFunction, figures.status());
    mv::capi::put_text(figures.value(), text, capacity, length);
    return {};
  });
}
mv_status mv_gossip_status_text(const char* config, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  constexpr const char* kFunction = "mv_gossip_status_text";
  return mv::capi::guarded(kFunction, [&]() -> Status {
    if (auto status = mv::capi::check_text_flags(kFunction, flags); !status.ok()) return status;
    if (auto status = mv::capi::check_text_out(kFunction, text, capacity, length); !status.ok()) return status;
    const auto status = mv::capi::answer(fmt::format("{} {} {}", kFunction, flags, config != nullptr ? config : ""), text, capacity, length,
                                         [&] { return mv::capi::status_of(config, (flags & MV_JSON) != 0); });
    return status.ok() ? status : mv::capi::told(kFunction, status);
  });
}
mv_status mv_gossip_add_peer(mv_gossip gossip, const char* name, const char* host, int32_t port) {
  return mv::capi::with_node("mv_gossip_add_peer", gossip, [&](GossipNode& node) -> Status {
    if (name == nullptr || host == nullptr) return Status(MV_EINVAL, "name or host is NULL");
    if (port < 1 || port > 65535) return mv::base::error(MV_EINVAL, "port {} is not in 1 .. 65535", port);
    return node.add_peer({name, host, static_cast<uint32_t>(port)});
  });
}
mv_status mv_gossip_remove_peer(mv_gossip gossip, const char* name) {
  return mv::capi::with_node("mv_gossip_remove_peer", gossip, [&](GossipNode& node) -> Status {
    return name != nullptr ? node.remove_peer(name) : Status(MV_EINVAL, "name is NULL");
  });
}
