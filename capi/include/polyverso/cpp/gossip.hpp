/// Gossip. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_GOSSIP_HPP
#define POLYVERSO_CPP_GOSSIP_HPP

#include <polyverso/cpp/base.hpp>

namespace polyverso {

/// A node that averages its model with its peers'. It needs no Node. The destructor stops it.
class Gossip {
 public:
  /// The node `name` of a YAML file.
  Gossip(const std::string& config, const std::string& name)
      : handle_(detail::value<mv_gossip>(mv_gossip_open, config.c_str(), name.c_str())) {}
  /// The same with the YAML itself.
  static Gossip from_text(const std::string& config, const std::string& name) {
    return Gossip(detail::value<mv_gossip>(mv_gossip_open_text, config.c_str(), name.c_str()));
  }

  mv_gossip id() const noexcept { return handle_.id(); }
  void close() { handle_.close(); }

  /// Copies the next array of the snapshot that is being built.
  void add(const In& values) const { check(mv_gossip_add(id(), values.data, values.count, values.dtype)); }
  void add(const In& values, Ids shape) const {
    check(mv_gossip_add_shaped(id(), values.data, values.count, values.dtype, shape.data(), shape.size()));
  }
  void publish(double loss) const { check(mv_gossip_publish(id(), loss)); }
  void set_clock(double clock) const { check(mv_gossip_set_clock(id(), clock)); }
  /// Begins to fetch a peer's snapshot; false if the random decision was against it.
  bool fetch_start() const { return detail::value<std::int32_t>(mv_gossip_fetch_start, id()) != 0; }
  mv_gossip_fetched fetch_wait(double loss) const {
    mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
    check(mv_gossip_fetch_wait(id(), loss, &fetched));
    return fetched;
  }
  /// Averages the next array with the fetched one, in place.
  void average(const Out& values) const { check(mv_gossip_average(id(), values.data, values.count, values.dtype)); }
  void read(const Out& values) const { check(mv_gossip_read(id(), values.data, values.count, values.dtype)); }

  mv_gossip_info state() const {
    mv_gossip_info info = MV_GOSSIP_INFO_INIT;
    check(mv_gossip_state(id(), &info));
    return info;
  }
  std::vector<mv_gossip_peer> peers() const {
    std::vector<mv_gossip_peer> result;
    for (;;) {
      std::uint64_t count = 0;
      check(mv_gossip_peers(id(), result.data(), result.size(), &count));
      const bool complete = count <= result.size();
      const mv_gossip_peer empty = MV_GOSSIP_PEER_INIT;
      result.resize(count, empty);
      if (complete) return result;
    }
  }
  /// flags: MV_JSON.
  std::string state_text(std::uint32_t flags = 0) const {
    return detail::text([&](auto... out) { return mv_gossip_state_text(id(), flags, out...); });
  }
  std::string metrics() const {
    return detail::text([&](auto... out) { return mv_gossip_metrics_text(id(), out...); });
  }
  void add_peer(const std::string& name, const std::string& host, std::int32_t port) const {
    check(mv_gossip_add_peer(id(), name.c_str(), host.c_str(), port));
  }
  void remove_peer(const std::string& name) const { check(mv_gossip_remove_peer(id(), name.c_str())); }

 private:
  explicit Gossip(mv_gossip id) noexcept : handle_(id) {}
  detail::Handle<mv_gossip_close> handle_;
};

/// The state of all nodes of a configuration, asked from outside; flags: MV_JSON.
inline std::string gossip_status(const std::string& config, std::uint32_t flags = 0) {
  return detail::text([&](auto... out) { return mv_gossip_status_text(config.c_str(), flags, out...); });
}

}  // namespace polyverso

#endif
