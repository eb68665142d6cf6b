// Runtime: the number of the cluster's servers changes.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "engine/cluster/succession.hpp"
#include "runtime/runtime.hpp"

namespace mv::runtime {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kLookForServers = 20ms;
/// One of the servers that were there may have died: under `polyverso run`, each request starts the missing ones. Or another one has come.
constexpr base::Nanos kRequestAgain = 1s;

/// Why a cluster does not have exactly `servers` servers with settled parts yet; "" if it has.
std::string why_not_resized(const cluster::View& view, uint32_t servers, uint32_t replicas) {
  const size_t there = view.staying_servers().size();
  if (there < servers) return fmt::format("there are {} servers: start {} more with `polyverso server`", there, servers - there);
  const auto all = view.servers();
  const auto leaving = std::ranges::find_if(all, [](const cluster::Member* server) { return server->draining; });
  if (leaving != all.end()) return fmt::format("{} is draining", view.name((*leaving)->peer));
  if (there > servers) return fmt::format("there are {} servers", there);
  const auto copied = std::ranges::find_if(all, [](const cluster::Member* part) { return part->next_backup != 0; });
  if (copied != all.end()) return fmt::format("the tables of {} are being copied", view.name((*copied)->peer));
  const auto moving = std::ranges::find_if(all, [&](const cluster::Member* part) { return cluster::destination(view, *part, replicas) != nullptr; });
  if (moving != all.end()) return fmt::format("the tables of {} are moving", view.name((*moving)->peer));
  return "";
}
}  // namespace

base::Status Runtime::resize(uint32_t servers, base::Nanos timeout) {
  struct Outcome {
    std::atomic<bool> over{false};
    base::Status status;
  };
  const auto outcome = std::make_shared<Outcome>();
  const auto ask = [this, outcome, servers] {
    member_->cluster().resize(servers, std::make_shared<rpc::Told>([outcome](const base::Status& status) {
                                outcome->status = status;
                                outcome->over.store(true, std::memory_order_release);
                              }));
  };
  const base::Nanos begun = loop_.now();
  const auto cut_short = [this](transport::Driven driven) {
    return driven == transport::Driven::kInterrupted ? base::Status(MV_EINTR, "a signal interrupted the wait; the cluster's size still changes: call again") : ended();
  };
  const auto answered = [outcome] { return outcome->over.load(std::memory_order_acquire); };
  const transport::Driven driven = loop_.drive_until(answered, base::after(begun, settings_.timeout), ask);
  if (!answered() && driven == transport::Driven::kTimeout) return base::error(MV_ETIMEOUT, "the master has not answered");
  if (!answered()) return cut_short(driven);
  if (!outcome->status.ok() || timeout == base::Nanos(0)) return outcome->status;
  const base::Nanos until = base::after(begun, timeout);
  std::string waits_for;
  size_t there = 0;
  for (base::Nanos asked = begun;;) {
    read_on_loop([&] {
      const cluster::View& view = member_->cluster().view();
      there = view.staying_servers().size();
      waits_for = why_not_resized(view, servers, member_->cluster().self().replicas);
    });
    if (waits_for.empty()) return {};
    const base::Nanos now = loop_.now();
    if (there != servers && now - asked >= kRequestAgain) loop_.post(ask), asked = now;
    if (now >= until) return base::error(MV_ETIMEOUT, "the cluster does not have {} servers within {:.3g} s: {}", servers,
                                         base::seconds(timeout), waits_for);
    const transport::Driven waited = loop_.drive_until([] { return false; }, std::min(until, now + kLookForServers));
    if (waited != transport::Driven::kTimeout) return cut_short(waited);
  }
}

/// Under `polyverso run`, once a number of servers is wanted, the master tells the launcher that number and the ranks of the servers that stay,
/// after each change of either, and after each request. The line of a request begins with "start". The launcher starts the missing servers then,
/// and when the number changes. A server that it started before the number became smaller, and that joins after that, is one too many.
void Runtime::tell_launcher() {
  const cluster::Cluster& cluster = member_->cluster();
  const uint32_t wanted = cluster.decided().wanted_servers;
  if (settings_.resizes.empty() || !cluster.is_master() || wanted == 0) return;
  const bool is_asked = std::exchange(told_resizes_, cluster.resizes()) != cluster.resizes();
  const auto staying = cluster.decided().staying_servers();
  std::string line = fmt::format("servers {}", wanted);
  for (const cluster::Member* server : staying) line += fmt::format(" {}", server->rank);
  line += '\n';
  if (line == told_servers_ && !is_asked) return;
  told_servers_ = line;
  if (staying.size() > wanted) loop_.post([this] { member_->cluster().end_surplus_servers(); });
  if (is_asked) line.insert(0, "start ");
  const int fd = open(settings_.resizes.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const bool told = fd >= 0 && write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (fd >= 0) close(fd);
  if (!told) base::log_warn("the launcher can't be told that {} servers are wanted ({})", wanted, settings_.resizes);
}

}  // namespace mv::runtime
