#include "runtime/keeper/etcd_registry.hpp"

#include <algorithm>

namespace mv::runtime::keeper {

namespace {
constexpr std::chrono::seconds kShortestLease{2}, kLongestHeartbeat{30};
}  // namespace

EtcdRegistry::EtcdRegistry(const Address& address, const std::string& auth, base::Nanos heartbeat)
    : etcd_(address, auth),
      auth_(auth),
      key_(rank_0_key(address)),
      ttl_(std::max(kShortestLease, std::chrono::ceil<std::chrono::seconds>(2 * std::min<base::Nanos>(heartbeat, kLongestHeartbeat)))) {}

base::Result<std::optional<Entry>> EtcdRegistry::claim(const Entry& entry, Deadline deadline) { return put(entry, {.key = key_, .revision = 0}, deadline); }

base::Result<std::optional<Entry>> EtcdRegistry::take_over(const Entry& entry, const std::vector<std::string>& members, Deadline deadline) {
  const auto value = etcd_.get(key_, deadline);
  if (!value.ok()) return value.status();
  auto found = read(value.value());
  if (!found.ok() || (found.value() && found.value()->id != entry.id && std::ranges::find(members, found.value()->address) == members.end()))
    return found;
  return put(entry, {.key = key_, .revision = value.value() ? value.value()->revision : 0}, deadline);
}

base::Result<std::optional<Entry>> EtcdRegistry::look(Deadline deadline) {
  const auto value = etcd_.get(key_, deadline);
  if (!value.ok()) return value.status();
  return read(value.value());
}

base::Status EtcdRegistry::keep(Deadline deadline) {
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

void EtcdRegistry::release(Deadline deadline) {
  Etcd fresh(etcd_.address(), auth_);                                  // cancel() may have ended the other one
  if (lease_ != 0) static_cast<void>(fresh.revoke(lease_, deadline));  // otherwise it expires
  lease_ = 0;
}

/// Puts the entry if the condition holds; otherwise returns the one that is there.
base::Result<std::optional<Entry>> EtcdRegistry::put(const Entry& entry, const Etcd::Condition& condition, Deadline deadline) {
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

base::Result<std::optional<Entry>> EtcdRegistry::read(const std::optional<Etcd::Value>& value) const {
  if (!value) return std::optional<Entry>();
  auto entry = parse_entry(value->bytes);
  if (entry) return entry;
  return base::error(MV_EPROTOCOL, "{}: the key {} is not of this version of Polyverso: choose another name, or delete the key",
                     etcd_.address().where(), key_);
}

}  // namespace mv::runtime::keeper
