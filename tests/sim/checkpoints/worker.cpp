#include "checkpoints/worker.hpp"

namespace mv::sim {

using namespace std::chrono_literals;

namespace {

shard::Spec spec_of(size_t table, const Plan& plan) {
  shard::Spec spec;
  spec.name = table == 0 ? "dense" : "keys";
  spec.kind = table == 0 ? MV_MATRIX : MV_KEYVALUE;
  spec.dtype = table == 0 ? MV_F64 : MV_I64;
  spec.rows = table == 0 ? kRows : 0;
  spec.cols = table == 0 ? kMostWorkers : 1;
  if (table == 0 && plan.keeps_gets()) spec.updater = shard::parse_updater("dcasgd rate=1 lambda=0 mean_square=0.5").value();
  return spec;
}

class Ending final : public base::Operation {
 public:
  explicit Ending(std::function<void(const base::Status&)> then) : then_(std::move(then)) {}
  void ended(const base::Status& status) override { then_(status); }

 private:
  const std::function<void(const base::Status&)> then_;
};

}  // namespace

void Worker::state(std::string what) {
  around_.say(member_.self(), what);
  state_ = std::move(what);
}

void Worker::violated(const std::string& what) {
  around_.timeline().violated(fmt::format("worker {}, {}: {}", id_, state_, what));
}

void Worker::after(Then then) {
  around_.later(member_.self(), Nanos(random_.between(0, 5'000'000)), [self = shared_from_this(), then] {
    if (!self->leaving_) ((*self).*then)();
  });
}

base::OperationRef Worker::on_end(std::function<void(const base::Status&)> then) {
  return std::make_shared<Ending>([weak = weak_from_this(), then](const base::Status& status) {
    if (const auto self = weak.lock(); self != nullptr && !self->leaving_) then(status);
  });
}

bool Worker::bearable(const base::Status& status, const char* doing) {
  if (status.ok()) return true;
  const bool lost = status.code() == MV_EPEERLOST && around_.anyone_killed();
  const bool lost_after_failure = status.code() == MV_EPEERLOST && around_.plan().is_harmless();  // its file was not written before
  const bool of_disk = (status.code() == MV_ESYSTEM || lost_after_failure) && around_.plan().failing > 0;
  if (!lost && !of_disk)
    violated(fmt::format("{} ended with status {}: {}", doing, static_cast<int>(status.code()), status.text()));
  if (of_disk) return true;
  leave();
  return false;
}

void Worker::start() {
  id_ = static_cast<size_t>(member_.cluster().view().worker_id(member_.self()));
  state("begins");
  is_successor_ ? load() : create(0);
}

void Worker::create(size_t table) {
  if (table == 2) return is_successor_ ? look(&Worker::leave) : after(&Worker::add_some);
  state(fmt::format("creates \"{}\"", spec_of(table, around_.plan()).name));
  member_.tables().catalogue().create({{std::make_shared<const shard::Spec>(spec_of(table, around_.plan()))}}, base::kNever,
                          [weak = weak_from_this(), table](base::Result<std::vector<table::TableViewRef>> opened) {
                            const auto self = weak.lock();
                            if (self == nullptr || self->leaving_) return;
                            if (!opened.ok()) return void(self->bearable(opened.status(), "a creation"));
                            self->tables_[table] = opened.value().front();
                            self->create(table + 1);
                          });
  around_.touched(member_.self());
}

// ---- adding

void Worker::add(size_t table, table::Request request) {
  request.table = tables_[table];
  request.kind = table::OpKind::kChange;
  tables_[table]->open_changes.fetch_add(1);
  member_.tables().begin(std::move(request));
}

void Worker::add_some() {
  for (int64_t i = random_.between(1, 4); i > 0; --i) {
    std::vector<double> ones(kRows * kMostWorkers);
    for (uint64_t row = 0; row < kRows; ++row) {
      ones[row * kMostWorkers + id_] = around_.plan().keeps_gets() ? -1 : 1;
      begun_.dense[row * kMostWorkers + id_] += 1;
    }
    table::Request dense;
    dense.source = base::Payload::copy(std::as_bytes(std::span(ones)));
    add(0, std::move(dense));
    table::Request keyed;
    keyed.all = false;
    std::vector<int64_t> amounts;
    for (int64_t key = static_cast<int64_t>(id_ * 1000) + random_.between(0, 5); amounts.size() < 3;
         key += random_.between(1, 9)) {
      keyed.rows.push_back(key);
      amounts.push_back(random_.between(1, 9));
      begun_.keys[key] += amounts.back();
    }
    keyed.source = base::Payload::copy(std::as_bytes(std::span(amounts)));
    add(1, std::move(keyed));
  }
  around_.touched(member_.self());
  after(&Worker::save);
}

// ---- saving

void Worker::save() {
  const auto& loads = around_.plan().loads;
  const bool hasty = random_.chance(around_.plan().hasty),
             behind = random_.chance(around_.plan().behind) && !(round_ < loads.size() && loads[round_]);
  state(
      fmt::format("save {}{}{}", round_ + 1, hasty ? ", may give up" : "", behind ? ", and continues" : ""));
  around_.promises().at_save[id_].push_back(begun_);
  checkpoint::Client::Request request;
  request.path = "disk";
  const auto went_on = std::make_shared<bool>(false);
  if (behind)
    request.saving = [weak = weak_from_this(), went_on] {
      *went_on = true;
      if (const auto self = weak.lock(); self != nullptr && !self->leaving_) self->next_round();
    };
  request.operation = on_end([this, hasty, went_on](const base::Status& status) {
    if (!*went_on) return save_over(status);
    const bool late = hasty && status.code() == MV_ETIMEOUT;
    if (!late) bearable(status, "a background save");
  });
  if (hasty) request.operation->set_deadline(around_.timeline().now() + Nanos(random_.between(0, 60'000'000)));
  member_.checkpoints().begin(std::move(request));
  around_.touched(member_.self());
}

void Worker::save_over(const base::Status& status) {
  around_.say(member_.self(), "the save: " + (status.ok() ? "done" : status.text()));
  if (around_.plan().hasty > 0 && status.code() == MV_ETIMEOUT) {
    around_.promises().in_step = false;  // the others may have waited for it
    return next_round();
  }
  if (!bearable(status, "a save")) return;
  if (status.ok()) {
    // It exists, and holds at least its minimum; later ones may exist too.
    bool found = false;
    for (const auto& [number, checkpoint] : around_.disk().checkpoints)
      found =
          found || (checkpoint.manifest && content_of(checkpoint).of(id_) == around_.promises().at_save[id_].back());
    if (!found) violated("a save that succeeded is not on the disk");
  }
  round_ < around_.plan().loads.size() && around_.plan().loads[round_] ? enter_barrier(&Worker::load) : next_round();
}

void Worker::next_round() {
  if (++round_ < around_.plan().rounds) return after(&Worker::add_some);
  leave();
}

// ---- loading

void Worker::enter_barrier(Then then) {
  state("enters a barrier");
  member_.barrier(on_end([this, then](const base::Status& status) {
    if (bearable(status, "a barrier")) after(then);
  }));
  around_.touched(member_.self());
}

void Worker::load() {
  state("loads");
  const Disk::Checkpoint* newest = around_.disk().newest();
  has_wanted_ = newest != nullptr;
  if (has_wanted_) wanted_ = content_of(*newest);
  checkpoint::Client::Request request;
  request.loads = true;
  request.path = "disk";
  request.operation = on_end([this](const base::Status& status) { loaded(status); });
  member_.checkpoints().begin(std::move(request));
  around_.touched(member_.self());
}

void Worker::loaded(const base::Status& status) {
  around_.say(member_.self(), "the load: " + (status.ok() ? "done" : status.text()));
  if (!has_wanted_ && status.code() == MV_ENOTFOUND) return is_successor_ ? leave() : enter_barrier(&Worker::next_round);
  if (!bearable(status, "a load")) return;
  was_loaded_ = status.ok();
  if (is_successor_) return create(0);
  if (status.ok()) begun_ = wanted_.of(id_);
  look(nullptr);
}

/// Reads everything; no worker adds meanwhile.
void Worker::look(Then then) {
  state("looks");
  const auto got = std::make_shared<std::pair<std::vector<double>, std::vector<int64_t>>>();
  got->first.resize(kRows * kMostWorkers);
  std::vector<int64_t> keys;
  for (int64_t worker = 0; worker < static_cast<int64_t>(kMostWorkers); ++worker)
    for (int64_t key = worker * 1000; key < worker * 1000 + 40; ++key) keys.push_back(key);
  got->second.resize(keys.size());
  const auto seen = [this, got, keys, then](const base::Status& status) {
    if (!bearable(status, "a get")) return;
    Content content;
    content.dense = got->first;
    for (size_t i = 0; i < keys.size(); ++i)
      if (got->second[i] != 0) content.keys[keys[i]] = got->second[i];
    looked(content, then);
  };
  table::Request dense, keyed;
  dense.table = tables_[0];
  dense.destination = std::as_writable_bytes(std::span(got->first));
  keyed.table = tables_[1];
  keyed.all = false;
  keyed.rows = keys;
  keyed.destination = std::as_writable_bytes(std::span(got->second));
  dense.operation = on_end([this, keyed, seen](const base::Status& status) mutable {
    if (!bearable(status, "a get")) return;
    keyed.operation = on_end(seen);
    member_.tables().begin(std::move(keyed));
    around_.touched(member_.self());
  });
  member_.tables().begin(std::move(dense));
  around_.touched(member_.self());
}

void Worker::looked(const Content& got, Then then) {
  if (has_wanted_ && was_loaded_ && !around_.anyone_killed() && !(got == wanted_))
    violated("the tables do not have the loaded content");
  if (!was_loaded_ && !around_.anyone_killed() && !(got.of(id_) == begun_)) violated("a load that failed has changed something");
  if (then != nullptr) return ((*this).*then)();
  enter_barrier(&Worker::next_round);
}

void Worker::leave() {
  if (std::exchange(leaving_, true)) return;
  state("leaves");
  if (!is_successor_) around_.promises().at_save[id_].push_back(begun_);
  member_.leave([this](const base::Status&) { around_.left(member_.self()); });
  around_.touched(member_.self());
}

}  // namespace mv::sim
