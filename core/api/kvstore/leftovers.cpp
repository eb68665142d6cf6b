// Store: the codecs' residuals, gathered from all workers by the worker that saves them, and handed out again on
// loading. Meanwhile the other workers are in a barrier, where they poll their mailboxes.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "api/kvstore/store.hpp"
#include "base/log.hpp"
#include "math/kernels.hpp"

namespace mv::kvstore {

namespace {

/// The interval at which a worker in a barrier polls its mailbox, and how long the saving worker waits for it.
constexpr base::Nanos kLook = std::chrono::milliseconds(20), kPatience = std::chrono::seconds(60);

using Bytes = Mailbox::Bytes;
using ByKey = std::map<std::string, Bytes>;

/// For each key: the lengths of its name and its bytes, then both.
Bytes write(const ByKey& keys) {
  Bytes all;
  for (const auto& [key, left] : keys) {
    const std::array<uint64_t, 2> lengths = {key.size(), left.size()};
    const std::array<std::span<const std::byte>, 3> parts = {std::as_bytes(std::span(lengths)), std::as_bytes(std::span(key)), left};
    for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

base::Result<ByKey> read(std::span<const std::byte> all) {
  ByKey keys;
  while (!all.empty()) {
    std::array<uint64_t, 2> lengths{};
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
std::map<std::string, Senders> Store::own_leftovers() {
  std::map<std::string, Senders> all;
  for (const EntryRef& entry : all_entries()) {
    std::lock_guard merging(entry->merging);
    if (entry->residuals.any()) all[entry->name] = entry->residuals.senders();
  }
  return all;
}

base::Result<std::map<std::string, Senders>> Store::gather_leftovers() {
  auto own = own_leftovers();
  if (mailbox_ == nullptr) return own;
  auto given = mailbox_->collect(kPatience);
  if (!given.ok()) return given.status();
  const size_t workers = given.value().size();
  std::map<std::string, Senders> all;
  const auto put = [&](size_t worker, const std::string& key, Bytes left) {
    Senders& senders = all[key];
    senders.resize(workers);
    senders[worker] = std::move(left);
  };
  for (auto& [key, senders] : own) put(static_cast<size_t>(rank()), key, std::move(senders.front()));
  for (size_t worker = 0; worker < workers; ++worker) {
    auto theirs = read(given.value()[worker]);
    if (!theirs.ok()) return base::error(theirs.status().code(), "worker {}: {}", worker, theirs.status().text());
    for (auto& [key, left] : theirs.value()) put(worker, key, std::move(left));
  }
  return all;
}

base::Status Store::set_leftovers(const std::string& key, Senders senders) {
  EntryRef entry;
  {
    std::lock_guard lock(mutex_);
    const auto known = entries_.find(key);
    if (known == entries_.end()) return base::error(MV_ENOTFOUND, "there is no key \"{}\"", key);
    entry = known->second;
  }
  const size_t bytes = entry->shape.count() * tensor::dtype_bytes(tensor::storage_dtype(entry->dtype));
  for (const Bytes& left : senders)
    if (!left.empty() && left.size() != bytes)
      return base::error(MV_ESHAPE, "key \"{}\": {} bytes of residuals in the file; the key has {}", key, left.size(), bytes);
  std::lock_guard merging(entry->merging);
  if (!senders.empty()) entry->has_left = true;
  entry->residuals.restore(std::move(senders));
  return {};
}

/// Gives each worker its own residuals. If there are fewer workers than before, these also get the residuals of the
/// others, so that nothing is lost.
base::Status Store::hand_out_leftovers(const std::map<std::string, Senders>& all) {
  if (!type_.dist) {
    for (const auto& [key, senders] : all)
      if (base::Status failed = set_leftovers(key, senders); !failed.ok()) return failed;
    return {};
  }
  const auto workers = static_cast<size_t>(num_workers()), self = static_cast<size_t>(rank());
  std::vector<ByKey> of(workers);
  size_t were = 0;
  for (const EntryRef& entry : all_entries()) {
    const auto known = all.find(entry->name);
    if (known == all.end()) continue;
    const mv_dtype storage = tensor::storage_dtype(entry->dtype);
    were = std::max(were, known->second.size());
    for (size_t sender = 0; sender < known->second.size(); ++sender) {
      const Bytes& left = known->second[sender];
      Bytes& to = of[sender % workers][entry->name];
      if (to.empty())
        to = left;
      else
        math::add_bytes(storage, to.data(), left.data(), std::min(to.size(), left.size()) / tensor::dtype_bytes(storage));
    }
  }
  if (were > 0 && were != workers)
    base::log_warn("the file holds the codecs' residuals of {} workers, but the store has {}: {}", were, workers,
                   were < workers ? "the other workers begin without residuals" : "worker i gets the sum of those of workers i, i + n, ...");
  for (size_t worker = 0; worker < workers; ++worker) {
    if (worker == self || mailbox_ == nullptr) continue;
    if (base::Status failed = mailbox_->leave_for(worker, write(of[worker])); !failed.ok()) return failed;
  }
  return take_leftovers(of[self]);
}

/// Replaces all residuals of this worker: a key that is not in `left` has none.
base::Status Store::take_leftovers(const std::map<std::string, Bytes>& left) {
  for (const EntryRef& entry : all_entries()) {
    const auto found = left.find(entry->name);
    const bool any = found != left.end() && !found->second.empty();
    if (base::Status failed = set_leftovers(entry->name, any ? Senders{found->second} : Senders()); !failed.ok()) return failed;
  }
  return {};
}

/// Serves the requests of other workers, in this worker's barrier.
base::Status Store::look_into_mailbox() {
  const auto wish = mailbox_->wish();
  if (!wish.ok()) return wish.status();
  if (wish.value() == Mailbox::Wish::kNothing) return {};
  if (wish.value() == Mailbox::Wish::kGive) {
    ByKey own;
    for (auto& [key, senders] : own_leftovers()) own[key] = std::move(senders.front());
    return mailbox_->give(write(own));
  }
  const auto taken = mailbox_->take();
  if (!taken.ok()) return taken.status();
  const auto left = read(taken.value());
  return left.ok() ? take_leftovers(left.value()) : left.status();
}

/// A barrier in which this worker polls its mailbox.
base::Status Store::attentive_barrier(api::CallOptions options) {
  options.mode = api::Mode::kAsync;
  const api::Started started = node_.barrier(options, api::Flush::kNone);
  if (!started.status.ok()) return started.status;
  bool alive = true;
  base::Status status;
  while (alive) {
    status = node_.wait(started.call, kLook, &alive);
    base::Status failed = !alive ? base::Status() : status.code() == MV_EINTR ? status : look_into_mailbox();
    if (failed.ok()) continue;
    static_cast<void>(node_.cancel(started.call));
    return failed;
  }
  return status.ok() ? look_into_mailbox() : status;  // what arrived before the last worker came
}

base::Status Store::open_mailbox() {
  if (!type_.dist || num_workers() < 2 || mailbox_ != nullptr) return {};
  auto made = Mailbox::make(node_, prefix_);
  if (!made.ok()) return made.status();
  mailbox_ = std::move(made).value();
  return enrol();
}

base::Status Store::enrol() {
  bool compresses = false;
  {
    std::lock_guard lock(mutex_);
    compresses = compression_.push != nullptr;
  }
  return compresses && mailbox_ != nullptr ? mailbox_->enrol(true) : base::Status();
}

}  // namespace mv::kvstore
