#include "engine/cluster/founding.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kNoticeAfter = 10s;
}  // namespace

void Founding::start() {
  started_ = clock_.now();
  notice_at_ = started_ + kNoticeAfter;
  if (roster_.self().is_master) complete_if_all_here();
}

void Founding::add(const rpc::Asked& asked, const wire::Join& request) {
  arrivals_.add(asked, request);
  complete_if_all_here();
}

void Founding::withdraw(const rpc::Asked& asked) {
  if (standing_.phase() != Phase::kJoining) return;
  const std::string missing = arrivals_.text();
  if (arrivals_.withdraw(asked)) server_.fail(asked, base::error(MV_ETIMEOUT, "{}", missing));
}

void Founding::fail_all(const base::Status& why) {
  for (const rpc::Asked& joiner : arrivals_.asked()) server_.fail(joiner, why);
}

base::Status Founding::check(const View& view) const {
  const Self& self = roster_.self();
  const auto servers = std::ranges::count_if(view.servers(), [](const Member* server) { return !server->is_vacant(); });
  if (std::cmp_less_equal(servers, self.replicas) && servers > 0)
    return base::error(MV_EDISAGREE, "replicas={} needs at least {} servers, and this cluster has {}", self.replicas, self.replicas + 1, servers);
  if (view.workers().empty()) return base::error(MV_EDISAGREE, "none of the {} processes is a worker (role=worker or role=all)", self.nodes);
  if (view.servers().empty()) return base::error(MV_EDISAGREE, "none of the {} processes is a server (role=server or role=all)", self.nodes);
  return {};
}

void Founding::complete_if_all_here() {
  if (started_ == base::kNever || !arrivals_.all_here()) return;
  View view = arrivals_.view();
  if (const base::Status wrong = check(view); !wrong.ok()) return events_.failed(wrong);
  view.master = roster_.self().peer;
  if (roster_.self().replicas == 0) return found(std::move(view));
  name_backups(view, roster_.self().replicas);
  name_voters(view);
  if (!keeping_.has_keeper()) return found(std::move(view));
  keeping_.found(view, [this, view](const base::Status& status) { status.ok() ? found(view) : events_.failed(status); });
}

/// The first view holds.
void Founding::found(View view) {
  const base::Frame answer = publisher_.whole(view, 0);
  for (const rpc::Asked& joiner : arrivals_.asked()) publisher_.answer(joiner, view, answer);
  events_.founded(std::move(view));
}

void Founding::tell_of_missing(base::Nanos now) {
  if (!is_founding() || now < notice_at_) return;
  base::log_warn("after {:.0f} s {}", base::seconds(now - started_), arrivals_.text());
  notice_at_ = now + 6 * kNoticeAfter;
}

}  // namespace mv::cluster
