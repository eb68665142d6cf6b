// Creating, opening and listing tables.

#include "api/table/tables.hpp"

#include <cstring>

#include "api/call/wait_for.hpp"
#include "api/staging/staging.hpp"
#include "api/table/table_handle.hpp"

namespace mv::api {

void Tables::drop_mapped(base::Peer peer) { mappings_.drop(peer); }

/// The result of creating or opening tables.
struct Tables::Outcome {
  std::atomic<bool> done{false};
  base::Result<std::vector<table::TableViewRef>> tables = base::Status();
  std::vector<std::shared_ptr<shard::Shard>> shards;
};

/// A creation that is retried after a signal keeps the deadline of the first try.
base::Nanos Tables::creation_deadline(const std::string& name) {
  std::lock_guard lock(creations_mutex_);
  const auto [known, fresh] = creations_.try_emplace(name, calls_.deadline({}, true));
  if (!fresh && known->second < calls_.loop().now()) known->second = calls_.deadline({}, true);  // left by a caller that gave up
  return known->second;
}

base::Result<std::vector<TableRef>> Tables::finish_opening(const std::shared_ptr<Outcome>& outcome, const std::string& creating) {
  const auto done = [&] { return outcome->done.load(std::memory_order_acquire); };
  bool interrupted = false;
  while (calls_.loop().drive_until(done, base::kNever) == transport::Driven::kInterrupted) {
    interrupted = true;
    calls_.on_loop([&] { calls_.member().tables().catalogue().give_up_creation(creating); });
  }
  if (!done()) return calls_.ended();
  if (!outcome->tables.ok()) {
    const base::Status& why = outcome->tables.status();
    return interrupted && why.code() == MV_ETIMEOUT ? base::Status(MV_EINTR, "a signal interrupted the wait: " + why.text()) : why;
  }
  std::vector<TableRef> handles;
  handles.reserve(outcome->shards.size());
  for (size_t i = 0; i < outcome->shards.size(); ++i)
    handles.push_back(std::make_shared<TableHandle>(calls_, mappings_, outcome->tables.value()[i], outcome->shards[i]));
  return handles;
}

base::Result<std::vector<TableRef>> Tables::create(std::vector<NewTable> tables) {
  if (calls_.identity().worker_id < 0) return base::Status(MV_ESTATE, "only workers create tables; this process is only a server");
  if (tables.empty()) return std::vector<TableRef>();
  const bool counts = calls_.identity().worker_id == 0;
  uint64_t bytes = 0;
  Staging staging;
  for (auto& [shared_spec, initial] : tables) {
    const TableSpec& spec = *shared_spec;
    if (initial.values == nullptr || initial.count == 0) continue;
    if (spec.is_keyed())
      return base::error(MV_EINVAL, "table \"{}\" is {}: give its initial value as `initial`, and set rows after creating it", spec.name, spec.describe());
    if (base::Status wrong = check_size(spec, spec.rows, initial.count, initial.dtype); !wrong.ok()) return wrong;
    bytes += spec.bytes();
    if (!counts && !spec.rejects_nonfinite()) continue;  // nobody reads it
    if (initial.device != nullptr) {
      const auto copy = staging.stage(static_cast<const std::byte*>(initial.values), spec.bytes(), Staging::Use::kRead, *initial.device);
      if (!copy.ok()) return copy.status();
      initial.values = copy.value();
    }
    if (base::Status wrong = check_finite(spec, spec.rows, initial.values); !wrong.ok()) return wrong;
  }
  std::vector<table::NewTable> asked;
  asked.reserve(tables.size());
  const std::shared_ptr<std::byte[]> values = std::make_shared_for_overwrite<std::byte[]>(counts ? bytes : 0);  // for all tables
  std::byte* to = values.get();
  for (auto& [spec, initial] : tables) {
    const bool given = initial.values != nullptr && initial.count > 0;
    base::PayloadRef copy;
    if (given && counts) {
      const uint64_t size = spec->bytes();
      std::memcpy(to, initial.values, size);
      copy = base::Payload::kept({to, size}, values);
      to += size;
    }
    asked.push_back({std::move(spec), std::move(copy), given});
  }
  const std::string first = asked.front().spec->name;
  const auto outcome = std::make_shared<Outcome>();
  const base::Nanos until = creation_deadline(first);
  const auto created = [this, outcome](base::Result<std::vector<table::TableViewRef>> views) {
    if (views.ok())
      for (const table::TableViewRef& view : views.value()) outcome->shards.push_back(own_shard(*view));
    outcome->tables = std::move(views);
    outcome->done.store(true, std::memory_order_release);
  };
  calls_.loop().post([this, asked = std::move(asked), until, created]() mutable { calls_.member().tables().catalogue().create(std::move(asked), until, created); });
  auto opened = finish_opening(outcome, first);
  if (!opened.ok() && opened.status().code() == MV_EINTR && calls_.loop().now() < until) return opened;
  std::lock_guard lock(creations_mutex_);
  creations_.erase(first);
  if (!opened.ok() && opened.status().code() == MV_EINTR) return base::Status(MV_ETIMEOUT, opened.status().text());
  return opened;
}

base::Result<TableRef> Tables::create(TableSpec spec, ConstData initial) {
  const bool unnamed = spec.name.empty();
  if (unnamed) spec.name = fmt::format("table-{}", unnamed_.load());
  std::vector<NewTable> one;
  one.push_back({std::make_shared<const TableSpec>(std::move(spec)), initial});
  auto created = create(std::move(one));
  if (!created.ok()) return created.status();
  if (unnamed) ++unnamed_;
  return std::move(created.value().front());
}

base::Result<TableRef> Tables::open(const std::string& name) {
  if (calls_.identity().worker_id < 0) return base::Status(MV_ESTATE, "only workers open tables; this process is only a server");
  const auto outcome = std::make_shared<Outcome>();
  calls_.loop().post([this, outcome, name, until = calls_.deadline({}, false)] {
    calls_.member().tables().catalogue().open(name, until, [this, outcome](base::Result<table::TableViewRef> view) {
      if (view.ok()) outcome->shards.push_back(own_shard(*view.value()));
      outcome->tables = view.ok() ? base::Result(std::vector{view.value()}) : view.status();
      outcome->done.store(true, std::memory_order_release);
    });
  });
  auto opened = finish_opening(outcome, "");
  if (!opened.ok()) return opened.status();
  return std::move(opened.value().front());
}

std::shared_ptr<shard::Shard> Tables::own_shard(const table::TableView& table) {
  if (calls_.settings().replicas > 0) return nullptr;  // all changes must pass the way to the back-up
  if (calls_.identity().server_id < 0 || table.consistency == shard::Consistency::kSync) return nullptr;
  return calls_.member().shards().shard(table.numbers[static_cast<size_t>(calls_.identity().server_id)]);
}

base::Result<std::vector<TableSpec>> Tables::list() {
  return wait_for<std::vector<TableSpec>>(calls_, [this, until = calls_.deadline({}, false)](auto told) {
    calls_.member().tables().catalogue().list(until, told);
  });
}

}  // namespace mv::api
