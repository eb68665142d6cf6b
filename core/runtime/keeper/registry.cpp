#include "runtime/keeper/registry.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/keeper/etcd.hpp"
#include "runtime/keeper/folder.hpp"

namespace mv::runtime::keeper {

namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::string_view kGreeting = "polyverso 1\n";
constexpr std::chrono::seconds kShortestLease{2}, kLongestHeartbeat{30};

/// A key of etcd with a lease.
class EtcdRegistry final : public Registry {
 public:
  EtcdRegistry(const Address& address, const std::string& auth, base::Nanos heartbeat)
      : etcd_(address, auth),
        auth_(auth),
        key_(rank_0_key(address)),
        ttl_(std::max(kShortestLease, std::chrono::ceil<std::chrono::seconds>(2 * std::min<base::Nanos>(heartbeat, kLongestHeartbeat)))) {}

  base::Result<std::optional<Entry>> claim(const Entry& entry, Deadline deadline) override { return put(entry, {.key = key_, .revision = 0}, deadline); }
  base::Result<std::optional<Entry>> take_over(const Entry& entry, const std::vector<std::string>& members, Deadline deadline) override {
    const auto value = etcd_.get(key_, deadline);
    if (!value.ok()) return value.status();
    auto found = read(value.value());
    if (!found.ok() || (found.value() && found.value()->id != entry.id && std::ranges::find(members, found.value()->address) == members.end()))
      return found;
    return put(entry, {.key = key_, .revision = value.value() ? value.value()->revision : 0}, deadline);
  }
  base::Result<std::optional<Entry>> look(Deadline deadline) override {
    const auto value = etcd_.get(key_, deadline);
    if (!value.ok()) return value.status();
    return read(value.value());
  }
  base::Status wait(Deadline deadline) override { return etcd_.watch(key_, deadline); }
  base::Status keep(Deadline deadline) override {
    const base::Status kept = etcd_.keep_alive(lease_, deadline);
    if (!kept.ok() && kept.code() != MV_ENOTFOUND) return kept;
    if (kept.ok()) {
      const auto found = look(deadline);
      if (!found.ok() || (found.value() && found.value()->id == own_.id)) return found.status();
    } else {
      lease_ = 0;  // it has expired while this process was stopped or cut off, or etcd has lost its data
    }
    const char* const why = kept.ok() ? "its key was deleted or overwritten" : "the lease has expired";
    const auto taken = claim(own_, deadline);
    if (!taken.ok()) return taken.status();
    if (!taken.value()) return {};
    return base::error(MV_ESTATE, "{}, and pid {} on {}, at {}, has taken the name", why, taken.value()->pid, taken.value()->host, taken.value()->address);
  }
  base::Nanos keep_every() const override { return ttl_ / 4; }
  void release(Deadline deadline) override {
    Etcd fresh(etcd_.address(), auth_);                                  // cancel() may have ended the other one
    if (lease_ != 0) static_cast<void>(fresh.revoke(lease_, deadline));  // otherwise it expires
    lease_ = 0;
  }
  std::string kept_by() const override { return fmt::format("a lease of {} s", ttl_.count()); }
  base::Nanos free_after() const override { return ttl_; }
  void cancel() noexcept override { etcd_.cancel(); }

 private:
  /// Puts the entry if the condition holds; otherwise returns the one that is there.
  base::Result<std::optional<Entry>> put(const Entry& entry, const Etcd::Condition& condition, Deadline deadline) {
    own_ = entry;
    while (true) {
      if (lease_ == 0) {
        const auto granted = etcd_.grant(ttl_.count(), deadline);
        if (!granted.ok()) return granted.status();
        lease_ = granted.value();
      }
      auto outcome = etcd_.transact({condition}, {{key_, write_entry(entry), lease_}}, {key_}, deadline);
      if (!outcome.ok() && outcome.status().code() == MV_ENOTFOUND) {  // the lease has expired meanwhile
        lease_ = 0;
        continue;
      }
      if (!outcome.ok()) return outcome.status();
      if (outcome.value().done) return std::optional<Entry>();
      auto found = read(outcome.value().found.front());
      if (!found.ok()) return found.status();
      if (found.value() && found.value()->id == entry.id) return std::optional<Entry>();  // an earlier try was carried out
      if (found.value()) return found;
      if (*condition.revision != 0) return put(entry, {.key = key_, .revision = 0}, deadline);  // the former entry is gone
    }
  }
  base::Result<std::optional<Entry>> read(const std::optional<Etcd::Value>& value) {
    if (!value) return std::optional<Entry>();
    auto entry = parse_entry(value->bytes);
    if (entry) return entry;
    return base::error(MV_EPROTOCOL, "{}: the key {} is not of this version of Polyverso: choose another name, or delete the key",
                       etcd_.address().where(), key_);
  }

  Etcd etcd_;
  const std::string auth_;
  const std::string key_;
  const std::chrono::seconds ttl_;
  Entry own_;
  int64_t lease_ = 0;
};

}  // namespace

std::string write_entry(const Entry& entry) { return fmt::format("{}{}\n{}\n{}\n{}\n", kGreeting, entry.address, entry.host, entry.pid, entry.id); }

std::optional<Entry> parse_entry(std::string_view text) {
  if (!text.starts_with(kGreeting)) return std::nullopt;
  text.remove_prefix(kGreeting.size());
  std::string_view lines[4];
  for (std::string_view& line : lines) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  Entry entry{std::string(lines[0]), std::string(lines[1]), 0, std::string(lines[3])};
  const auto [end, failure] = std::from_chars(lines[2].data(), lines[2].data() + lines[2].size(), entry.pid);
  if (failure != std::errc() || end != lines[2].data() + lines[2].size() || text.find_first_not_of('\n') != text.npos) return std::nullopt;
  return entry;
}

std::unique_ptr<Registry> make_registry(const Address& address, const std::string& auth, base::Nanos heartbeat) {
  if (address.kind == Address::Kind::kFile) return std::make_unique<Folder>(address);
  return std::make_unique<EtcdRegistry>(address, auth, heartbeat);
}

}  // namespace mv::runtime::keeper
