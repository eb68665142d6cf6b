// Store: the codecs' residuals, gathered from all workers by the worker that saves them, and handed out again on
// loading, through the store's channel. The other workers answer on their callers' threads, in their barriers, because
// a residual may be locked by a push that waits.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "api/kvstore/store.hpp"
#include "base/log.hpp"
#include "math/kernels.hpp"

namespace mv::kvstore {

namespace {

/// How long the saving worker waits for the others.
constexpr base::Nanos kPatience = std::chrono::seconds(60);

using Bytes = api::Channel::Bytes;
using ByKey = std::map<std::string, Bytes>;

using Lengths = std::array<uint64_t, 2>;

/// For each key: the lengths of its name and its bytes, then both.
Bytes write(const ByKey& keys) {
  Bytes all;
  for (const auto& [key, left] : keys) {
    const Lengths lengths = {key.size(), left.size()};
    const std::array<std::span<const std::byte>, 3> parts = {std::as_bytes(std::span(lengths)), std::as_bytes(std::span(key)), left};
    for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

base::Result<ByKey> read(std::span<const std::byte> all) {
  ByKey keys;
  while (!all.empty()) {
    Lengths lengths{};
    const bool fits = all.size() >= sizeof lengths && (std::memcpy(lengths.data(), all.data(), sizeof lengths), true) &&
                      lengths[0] <= all.size() - sizeof lengths && lengths[1] <= all.size() - sizeof lengths - lengths[0];
    if (!fits) return base::Status(MV_EPROTOCOL, "another worker's residuals are cut off");
    all = all.subspan(sizeof lengths);
    const auto name = all.first(lengths[0]), left = all.subspan(lengths[0], lengths[1]);
    keys[std::string(reinterpret_cast<const char*>(name.data()), name.size())].assign(left.begin(), left.end());
    all = all.subspan(lengths[0] + lengths[1]);
  }
  return keys;
}

}  // namespace

/// This process's residuals, by key. A dist store's worker is one sender.
base::Result<std::map<std::string, Senders>> Store::own_residuals() {
  std::map<std::string, Senders> all;
  for (const EntryRef& entry : all_entries()) {
    std::lock_guard merging(entry->merging);
    if (!entry->residuals.any()) continue;
    auto senders = entry->residuals.senders();
    if (!senders.ok()) return base::error(senders.status().code(), "key \"{}\": {}", entry->name, senders.status().text());
    all[entry->name] = std::move(senders).value();
  }
  return all;
}

base::Result<std::map<std::string, Senders>> Store::gather_residuals() {
  auto own = own_residuals();
  if (channel_ == nullptr || !own.ok()) return own;
  auto given = channel_->collect(kPatience);
  if (!given.ok())
    return base::error(given.status().code(), "the codecs' residuals, which workers hand over in kv_barrier(): {}", given.status().text());
  const size_t workers = given.value().size();
  std::map<std::string, Senders> all;
  const auto put = [&](size_t worker, const std::string& key, Bytes left) {
    Senders& senders = all[key];
    senders.resize(workers);
    senders[worker] = std::move(left);
  };
  for (auto& [key, senders] : own.value()) put(static_cast<size_t>(rank()), key, std::move(senders.front()));
  for (size_t worker = 0; worker < workers; ++worker) {
    auto theirs = read(given.value()[worker]);
    if (!theirs.ok()) return base::error(theirs.status().code(), "worker {}: {}", worker, theirs.status().text());
    for (auto& [key, left] : theirs.value()) put(worker, key, std::move(left));
  }
  return all;
}

base::Status Store::set_residuals(const std::string& key, Senders senders) {
  EntryRef entry;
  {
    std::lock_guard lock(mutex_);
    const auto known = entries_.find(key);
    if (known == entries_.end()) return base::error(MV_ENOTFOUND, "there is no key \"{}\"", key);
    entry = known->second;
  }
  const size_t bytes = entry->residual_bytes();
  for (const Bytes& left : senders)
    if (!left.empty() && left.size() != bytes)
      return base::error(MV_ESHAPE, "key \"{}\": {} bytes of residuals in the file; the key has {}", key, left.size(), bytes);
  std::lock_guard merging(entry->merging);
  if (!senders.empty()) entry->has_left = true;
  entry->residuals.restore(std::move(senders));
  return {};
}

/// Gives each worker that takes part its own residuals. Those of workers that do not are added to others', so that nothing is lost.
base::Status Store::hand_out_residuals(const std::map<std::string, Senders>& all) {
  if (!type_.dist) {
    for (const auto& [key, senders] : all)
      if (base::Status failed = set_residuals(key, senders); !failed.ok()) return failed;
    return {};
  }
  const auto self = static_cast<size_t>(rank());
  const std::vector<int64_t> active = node_.active_workers();
  const auto receiver_of = [&](size_t sender) {
    const bool is_here = sender == self || std::ranges::find(active, static_cast<int64_t>(sender)) != active.end();
    return is_here ? sender : active.empty() ? self : static_cast<size_t>(active[sender % active.size()]);
  };
  std::map<size_t, ByKey> of;
  std::set<size_t> senders, absent;
  for (const EntryRef& entry : all_entries()) {
    const auto known = all.find(entry->name);
    if (known == all.end()) continue;
    const mv_dtype storage = tensor::storage_dtype(entry->dtype);
    for (size_t sender = 0; sender < known->second.size(); ++sender) {
      const Bytes& left = known->second[sender];
      if (std::ranges::all_of(left, [](std::byte each) { return each == std::byte{0}; })) continue;  // the file has these for workers without any, too
      const size_t receiver = receiver_of(sender);
      senders.insert(sender);
      if (receiver != sender) absent.insert(sender);
      Bytes& to = of[receiver][entry->name];
      if (to.empty())
        to = left;
      else
        math::add_bytes(storage, to.data(), left.data(), std::min(to.size(), left.size()) / tensor::dtype_bytes(storage));
    }
  }
  if (!absent.empty())
    base::log_warn("the file holds the codecs' residuals of workers {}, of which {} are not here: other workers also get their residuals",
                   fmt::join(senders, ", "), fmt::join(absent, ", "));
  else if (!senders.empty() && senders.size() < active.size())
    base::log_warn("the file holds the codecs' residuals of {} workers, but the store has {}: the others begin without residuals", senders.size(), active.size());
  if (channel_ != nullptr) {
    std::vector<Bytes> written(static_cast<size_t>(node_.identity().num_worker_places));
    for (const auto& [worker, left] : of)
      if (worker != self && worker < written.size()) written[worker] = write(left);
    if (base::Status failed = channel_->deliver(std::move(written)); !failed.ok()) return failed;
  }
  return take_residuals(of[self]);
}

/// Replaces all residuals of this worker: a key that is not in `left` has none. The worker gives them to others, also without a codec.
base::Status Store::take_residuals(const std::map<std::string, Bytes>& left) {
  if (!left.empty()) give_residuals(true);
  for (const EntryRef& entry : all_entries()) {
    const auto found = left.find(entry->name);
    const bool any = found != left.end() && !found->second.empty();
    if (base::Status failed = set_residuals(entry->name, any ? Senders{found->second} : Senders()); !failed.ok()) return failed;
  }
  return {};
}

/// Takes residuals that were loaded elsewhere, and gives this worker's to the workers that ask for them.
base::Status Store::serve_channel() {
  if (!channel_->is_due()) return {};
  const api::Channel::Due due = channel_->take();
  if (due.delivered) {
    const auto left = read(*due.delivered);
    if (base::Status failed = left.ok() ? take_residuals(left.value()) : left.status(); !failed.ok()) return failed;
  }
  if (!due.asked) return {};
  auto all = own_residuals();
  if (!all.ok()) return all.status();
  ByKey own;
  for (auto& [key, senders] : all.value()) own[key] = std::move(senders.front());
  channel_->give(write(own));
  return {};
}

/// A barrier in which this worker serves the store's channel.
base::Status Store::serving_barrier(api::CallOptions options) {
  const std::function<bool()> is_due = [this] { return channel_->is_due(); };
  options.or_until = &is_due;
  const api::Started met = node_.barrier(options, api::Flush::kNone);
  if (met.call == nullptr) return met.status.ok() ? serve_channel() : met.status;
  while (!node_.done(met.call)) {
    base::Status failed = serve_channel();
    if (failed.ok()) failed = node_.wait_until([&] { return node_.done(met.call) || channel_->is_due(); }, base::kNever);
    if (failed.ok()) continue;
    if (failed.code() == MV_EINTR)
      node_.leave_barrier_open(met.call);
    else
      static_cast<void>(node_.cancel(met.call));
    return failed;
  }
  base::Status status = node_.result(met.call);
  return status.ok() ? serve_channel() : status;  // what arrived before the last worker came
}

/// Raises the limit on another worker's residuals by what write() makes of this key's. Allocates nothing.
void Store::accept_residuals(const Entry& entry) {
  if (channel_ != nullptr && entry.can_compress()) channel_->accept(sizeof(Lengths) + entry.name.size() + entry.residual_bytes());
}

/// Whether other workers ask this one. Once it has compressed, or has loaded residuals, it may have some, also without a codec.
void Store::give_residuals(bool on) {
  if (channel_ != nullptr) channel_->set_giving(on);
}

}  // namespace mv::kvstore
