#include "device/shard.hpp"

#include <algorithm>
#include <utility>

#include "device/broadcast.hpp"
#include "device/keyed/keyed.hpp"
#include "device/must.hpp"
#include "device/sum.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

using shard::Worker;
using tensor::Tensor;

base::Result<std::shared_ptr<shard::Shard>> TableDevices::make(shard::SpecRef spec, const shard::Position& place) {
  const std::string name = spec->name;
  const auto number = static_cast<size_t>(spec->device);
  const auto device = devices_.get(spec->device);
  const auto make = spec->is_keyed() ? KeyedDeviceShard::make : DeviceShard::make;
  auto made = device.ok() ? make(std::move(spec), place, *device.value(), mutexes_[number]) : base::Result<std::shared_ptr<shard::Shard>>(device.status());
  if (made.ok() || made.status().text().starts_with("table ")) return made;
  return base::error(made.status().code(), "table \"{}\", on server {}: {}", name, place.index, made.status().text());
}

base::Result<std::shared_ptr<shard::Shard>> DeviceShard::make(shard::SpecRef described, const shard::Position& place, TensorDevice& device,
                                                              std::mutex& mutex) {
  const shard::Spec& spec = *described;
  const shard::Range rows = shard::part_of(spec, place.servers, place.index);
  const size_t bytes = rows.count * spec.cols * tensor::dtype_bytes(tensor::storage_dtype(spec.dtype));
  auto values = device.allocate_or_spill(bytes, TensorDevice::Spill::kRest);
  if (!values.ok()) return values.status();
  std::shared_ptr<DeviceShard> made(new DeviceShard(std::move(described), rows, device, mutex, std::move(values).value(), place));
  if (auto status = made->set_updater(made->spec_.updater); !status.ok()) return status;
  return std::shared_ptr<shard::Shard>(std::move(made));
}

DeviceShard::DeviceShard(shard::SpecRef spec, shard::Range rows, TensorDevice& device, std::mutex& mutex, TensorDevice::Spilled values,
                         const shard::Position& place)
    : ModelShard(std::move(spec), rows, device, mutex),
      stored_bytes_(tensor::dtype_bytes(stored_)),
      families_(place.families),
      values_(std::move(values.block)),
      values_on_host_(values.on_host) {}

// ------------------------------------------------------------ adds of all elements

Target DeviceShard::target_of(const Model& model, Worker worker, const shard::Step* step, uint64_t first, uint64_t count, const void* gradient) const {
  Target target;
  target.values = at(values_, first);
  target.gradient = gradient;
  target.backup = backup(model, worker, first);
  target.states = model.places;
  target.count = count;
  target.first = rows_.first * spec_.cols + first;
  if (step != nullptr) target.step = *step;
  return target;
}

/// An add that is no update.
void DeviceShard::list_add(WorkList& work, uint64_t first, uint64_t count, const void* gradient) const {
  if (model_->work == Work::kCopies) return work.cast(stored_, at(values_, first), spec_.dtype, gradient, count, device_.number());
  if (count > 0) work.launch(MV_DEVICE_AXPY, mv_device_axpy{at(values_, first), gradient, count, 1, stored_, spec_.dtype});
}

void DeviceShard::add(const Stream& stream, Worker worker, const shard::Step* step, uint64_t first, uint64_t count, const void* gradient) const {
  if (model_->work != Work::kUpdates) {
    WorkList work;
    list_add(work, first, count, gradient);
    return must(work.run(stream));
  }
  std::vector<void*> places;
  for (const BlockRef& state : model_->states) places.push_back(at(state, first));
  Target target = target_of(*model_, worker, step, first, count, gradient);
  target.states = places;
  must(update(stream, model_->spec, stored_, spec_.dtype, {&target, 1}));
}

void DeviceShard::change(shard::Write write, Worker worker, uint64_t first, uint64_t count, const std::byte* values, shard::ChangePart piece) {
  if (count == 0) return;
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  const size_t bytes = spec_.element_bytes();
  const auto given = [&](Scratch& scratch, uint64_t from, uint64_t some) { return must(scratch.of(std::span(values + from * bytes, some * bytes))); };
  if (write == shard::Write::Set)
    return in_pieces(count, bytes, [&](uint64_t from, uint64_t some) {
      Scratch scratch(stream);
      must(cast(stream, stored_, at(values_, first + from), spec_.dtype, given(scratch, from, some), some));
    });
  if (wants_whole() && count < elements()) throw shard::DeviceFailure(base::error(MV_EINTERNAL, "table \"{}\": norms need all elements", spec_.name));
  count_add(model_, piece, [&](const shard::Step* step) {
    in_pieces(count, wants_whole() ? 0 : bytes, [&](uint64_t from, uint64_t some) {
      Scratch scratch(stream);
      add(stream, worker, step, first + from, some, given(scratch, from, some));
    });
  });
}

void DeviceShard::read(Worker worker, uint64_t first, uint64_t count, std::byte* out) {
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  back_up(stream, worker, first, count);
  const size_t bytes = spec_.element_bytes();
  if (stored_ == spec_.dtype) return to_host(stream, out, at(values_, first), count * bytes);
  in_pieces(count, bytes, [&](uint64_t from, uint64_t some) {
    Scratch scratch(stream);
    void* const rounded = must(scratch.make(some * bytes));
    must(cast(stream, spec_.dtype, rounded, stored_, at(values_, first + from), some));
    to_host(stream, out + from * bytes, rounded, some * bytes);
  });
}

// ------------------------------------------------------------ what workers last got

void* DeviceShard::backup(const Model& model, Worker worker, uint64_t first) const {
  if (worker == shard::kNoWorker || model.backups == nullptr) return nullptr;
  const auto found = model.backups->of.find(worker);
  return found != model.backups->of.end() ? at(found->second, first) : nullptr;
}

const DeviceShard::BlockRef& DeviceShard::make_backup(Worker worker) const {
  Backups& backups = *model_->backups;
  const auto found = backups.of.find(worker);
  if (found != backups.of.end()) return found->second;
  auto made = must(device_.allocate_or_spill(elements() * stored_bytes_, TensorDevice::Spill::kRest));
  backups.on_host += made.on_host;
  return backups.of.emplace(worker, std::move(made.block)).first->second;
}

void DeviceShard::back_up(const Stream& stream, Worker worker, uint64_t first, uint64_t count) const {
  if (worker == shard::kNoWorker || model_->backups == nullptr || count == 0) return;
  auto* const to = reinterpret_cast<uint32_t*>(at(make_backup(worker), first));
  const auto* const from = reinterpret_cast<const uint32_t*>(at(values_, first));
  must(stream.launch(MV_DEVICE_BACK_UP, mv_device_back_up{to, from, nullptr, count, stored_bytes_ / sizeof(uint32_t)}));
}

void DeviceShard::back_up_rows(const Stream& stream, Scratch& scratch, Worker worker, std::span<const int64_t> rows) {
  if (worker == shard::kNoWorker || model_->backups == nullptr || rows.empty()) return;
  auto* const to = reinterpret_cast<uint32_t*>(make_backup(worker)->data());
  const auto* const from = reinterpret_cast<const uint32_t*>(values_->data());
  const auto* const numbers = reinterpret_cast<const uint64_t*>(must(scratch.of(rows)));
  must(stream.launch(MV_DEVICE_BACK_UP, mv_device_back_up{to, from, numbers, rows.size(), spec_.cols * stored_bytes_ / sizeof(uint32_t)}));
}

// ------------------------------------------------------------ tensors

/// Whether one launch can update both. An updater that counts has its parameters in the numbers of each tensor's step.
bool DeviceShard::is_updated_with(const DeviceShard& other) const {
  const Model &mine = *model_, &theirs = *other.model_;
  if (spec_.dtype != other.spec_.dtype || mine.spec.name != theirs.spec.name || mine.states.size() != theirs.states.size()) return false;
  if (mine.updater->sums() != theirs.updater->sums()) return false;
  return mine.updater->counts() || mine.spec.parameters == theirs.spec.parameters;
}

base::Status DeviceShard::add_together(Worker worker, std::span<const Addition> additions, const std::function<base::Status()>& before) {
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    std::vector<DeviceShard*> dense;
    Sums sums(device_, stream);
    for (const Addition& addition : additions) {
      if (addition.values.front().is_row_sparse()) continue;
      dense.push_back(static_cast<DeviceShard*>(addition.shard));
      sums.add(addition.values);
    }
    must(sums.run());  // first: memory may be missing
    std::vector<Batch> batches;
    for (size_t i = 0; i < dense.size(); ++i) {
      const DeviceShard& one = *dense[i];
      auto batch = std::ranges::find_if(batches, [&](const Batch& known) { return known.sums.front().shard->is_updated_with(one); });
      if (batch == batches.end()) batch = batches.insert(batch, Batch());
      batch->sums.push_back({&one, sums.at(i)});
    }
    base::Undo undo([&] { std::ranges::for_each(batches, uncount); });
    WorkList others;  // adds that are no updates
    for (Batch& batch : batches) {
      prepare(stream, worker, batch);
      if (batch.update) continue;
      for (const Sum& sum : batch.sums) sum.shard->list_add(others, 0, sum.shard->elements(), sum.gradient);
    }
    for (const Addition& addition : additions) {
      if (!addition.values.front().is_row_sparse()) continue;
      auto& one = static_cast<DeviceShard&>(*addition.shard);
      if (auto status = status_of([&] { one.add_rows_of(worker, addition.values.front()); }); !status.ok())
        must(base::error(status.code(), "table \"{}\": {}", one.spec_.name, status.text()));
    }
    if (before) must(before());
    for (const Batch& batch : batches)
      if (batch.update) must(batch.update->launch());
    must(device_.graphs().run(stream, others));
    undo.keep();
  });
}

/// Counts the adds, and has the memory for them.
void DeviceShard::prepare(const Stream& stream, Worker worker, Batch& batch) {
  const DeviceShard& like = *batch.sums.front().shard;
  if (like.model_->work != Work::kUpdates) return;
  std::vector<Target> targets;
  for (const auto& [shard, gradient] : batch.sums) {
    const Model& model = *shard->model_;
    batch.marks.push_back(model.progress != nullptr ? model.progress->mark() : shard::Mark());
    shard::Steps<ModelRef> steps(true);
    targets.push_back(shard->target_of(model, worker, steps.of(shard->model_), 0, shard->elements(), gradient));
  }
  batch.update = must(Update::make(stream, like.model_->spec, like.stored_, like.spec_.dtype, targets));
}

void DeviceShard::uncount(const Batch& batch) {
  for (size_t i = batch.marks.size(); i-- > 0;)
    if (shard::Progress* const progress = batch.sums[i].shard->model_->progress.get(); progress != nullptr) progress->set(batch.marks[i]);
}

/// Whether the values are rounded here on their way to other places, which needs memory.
bool DeviceShard::rounds_for(std::span<const Tensor> outs) const {
  return stored_ != spec_.dtype && std::ranges::any_of(outs, [this](const Tensor& out) { return tensor::device_of(out) != &device_; });
}

base::Status DeviceShard::read_together(Worker worker, std::span<const Reading> readings) {
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    const auto shard_of = [](const Reading& reading) -> const DeviceShard& { return static_cast<const DeviceShard&>(*reading.shard); };
    size_t bytes = 0;
    for (const Reading& reading : readings)
      if (const DeviceShard& one = shard_of(reading); one.rounds_for(reading.outs)) bytes += Room::part_of(one.elements() * one.spec_.element_bytes());
    Room room = must(Room::make(stream, bytes));
    WorkList here;
    Broadcasts there(device_, stream);
    std::vector<std::pair<const Tensor*, const void*>> on_host;
    for (const Reading& reading : readings) {
      const DeviceShard& one = shard_of(reading);
      one.back_up(stream, worker, 0, one.elements());
      const auto read = [&](void* out) { here.cast(one.spec_.dtype, out, one.stored_, one.values_->data(), one.elements(), device_.number()); };
      const void* rounded = one.values_->data();
      if (one.rounds_for(reading.outs)) {
        void* const made = room.take(one.elements() * one.spec_.element_bytes());
        read(made);
        rounded = made;
      }
      for (const Tensor& out : reading.outs) {
        auto* const device = static_cast<TensorDevice*>(tensor::device_of(out));
        if (device == &device_)
          read(out.data);
        else if (device == nullptr)
          on_host.emplace_back(&out, rounded);
      }
      there.add(rounded, reading.outs);
    }
    must(device_.graphs().run(stream, here));
    must(there.run());
    for (const auto& [out, from] : on_host) must(tensor::copy_bytes(*out, static_cast<const std::byte*>(from), &device_, out->stored_bytes()));
  });
}

// ------------------------------------------------------------ the updater

base::Result<DeviceShard::ModelRef> DeviceShard::make_model(const shard::UpdaterSpec& updater) const {
  const uint64_t stripe_elements = shard::stripe_elements(spec_);
  if (auto status = check_dense(updater, (elements() + stripe_elements - 1) / stripe_elements); !status.ok()) return status;
  auto model = std::make_shared<Model>();
  model->use(updater, stored_);
  if (auto status = check_updater(updater, false); !status.ok()) return base::error(status.code(), "table \"{}\": {}", spec_.name, status.text());
  const size_t states = model->updater->states();
  const bool same = model_ != nullptr && model_->spec.name == updater.name;
  if (model->updater->counts()) model->progress = same ? model_->progress : make_progress(updater.name, *model->updater, families_.get());
  if (model->updater->keeps_backups()) model->backups = same ? model_->backups : std::make_shared<Backups>();
  if (same && model_->states.size() == states) {
    model->states = model_->states;
    model->on_host = model_->on_host;
  }
  while (model->states.size() < states) {
    auto memory = device_.allocate_or_spill(elements() * stored_bytes_, TensorDevice::Spill::kRest);
    if (!memory.ok()) return base::error(memory.status().code(), "table \"{}\", updater {}: {}", spec_.name, updater.name, memory.status().text());
    model->on_host += memory.value().on_host;
    model->states.push_back(std::move(memory.value().block));
  }
  for (const BlockRef& state : model->states) model->places.push_back(state->data());
  return ModelRef(std::move(model));
}

base::Status DeviceShard::set_updater(const shard::UpdaterSpec& updater) {
  const std::lock_guard lock(mutex_);
  auto made = make_model(updater);
  if (!made.ok()) return made.status();
  model_ = std::move(made).value();
  backs_up_.store(model_->backups != nullptr, std::memory_order_relaxed);
  return {};
}

shard::Usage DeviceShard::usage() const {
  const std::lock_guard lock(mutex_);
  const Backups* const backups = model_->backups.get();
  const uint64_t each = elements() * stored_bytes_, beside = model_->states.size() + (backups != nullptr ? backups->of.size() : 0);
  return {.stored = rows_.count,
          .memory_bytes = each * (1 + beside),
          .state_bytes = each * beside,
          .updates = model_->progress != nullptr ? model_->progress->mark().updates : 0,
          .host_bytes = values_on_host_ + model_->on_host + (backups != nullptr ? backups->on_host : 0)};
}

}  // namespace mv::device
