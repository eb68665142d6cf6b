#pragma once
// Names of clusters in etcd.

#include "runtime/keeper/etcd.hpp"
#include "runtime/keeper/registry.hpp"

namespace mv::runtime::keeper {

/// A name is a key of etcd with a lease, which keep() renews.
class EtcdRegistry final : public Registry {
 public:
  /// @param heartbeat  silence after which a member counts as lost: the lease lasts twice as long
  EtcdRegistry(const Address& address, const std::string& auth, base::Nanos heartbeat);

  base::Result<std::optional<Entry>> claim(const Entry& entry, Deadline deadline) override;
  base::Result<std::optional<Entry>> take_over(const Entry& entry, const std::vector<std::string>& members, Deadline deadline) override;
  base::Result<std::optional<Entry>> look(Deadline deadline) override;
  base::Status wait(Deadline deadline) override { return etcd_.watch(key_, deadline); }
  base::Status keep(Deadline deadline) override;
  base::Nanos keep_every() const override { return ttl_ / 4; }
  void release(Deadline deadline) override;
  std::string kept_by() const override { return fmt::format("a lease of {} s", ttl_.count()); }
  base::Nanos free_after() const override { return ttl_; }
  void cancel() noexcept override { etcd_.cancel(); }

 private:
  base::Result<std::optional<Entry>> put(const Entry& entry, const Etcd::Condition& condition, Deadline deadline);
  base::Result<std::optional<Entry>> read(const std::optional<Etcd::Value>& value) const;

  Etcd etcd_;
  const std::string auth_;
  const std::string key_;
  const std::chrono::seconds ttl_;
  Entry own_;
  int64_t lease_ = 0;
};

}  // namespace mv::runtime::keeper
