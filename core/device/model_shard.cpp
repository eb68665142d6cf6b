#include "device/model_shard.hpp"

#include "device/must.hpp"
#include "math/kernels.hpp"

namespace mv::device {

void ModelShard::with_updater(const UseUpdater& use) const {
  const std::lock_guard lock(mutex_);
  use(model()->spec, model()->progress.get());
}

// ------------------------------------------------------------ rows

void ModelShard::change_rows(shard::Write write, shard::Worker worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) {
  const std::lock_guard lock(mutex_);
  if (write == shard::Write::Erase) return erase_rows(rows);
  if (write == shard::Write::Add)
    return add_rows(worker, rows, piece, [&](Scratch& scratch, uint64_t first, uint64_t count) { return copied(scratch, values, first, count); });
  if (math::strictly_increasing(rows)) return set_rows(rows, values);
  const LastOnes last(rows, values, spec_.row_bytes());
  set_rows(last.rows, last.values.data());
}

const void* ModelShard::copied(Scratch& scratch, const std::byte* values, uint64_t first, uint64_t count) const {
  return must(scratch.of(std::span(values + first * spec_.row_bytes(), count * spec_.row_bytes())));
}

void ModelShard::add_rows_of(shard::Worker worker, const tensor::Tensor& rows) {
  add_rows(worker, {rows.held.ids, rows.held.count}, shard::ChangePart::kFirst,
           [&](Scratch&, uint64_t first, uint64_t) { return rows.data + first * spec_.row_bytes(); });
}

base::Status ModelShard::add_held(shard::Worker worker, const tensor::Tensor& rows) {
  const std::lock_guard lock(mutex_);
  return status_of([&] { add_rows_of(worker, rows); });
}

void ModelShard::read_rows(shard::Worker worker, std::span<const int64_t> rows, std::byte* out) {
  const std::lock_guard lock(mutex_);
  const Stream& stream = device_.current();
  in_pieces(rows.size(), spec_.row_bytes(), [&](uint64_t first, uint64_t count) {
    Scratch scratch(stream);
    void* const room = must(scratch.make(count * spec_.row_bytes()));
    read_to(stream, scratch, rows.subspan(first, count), room);
    back_up_rows(stream, scratch, worker, rows.subspan(first, count));
    to_host(stream, out + first * spec_.row_bytes(), room, count * spec_.row_bytes());
  });
}

base::Status ModelShard::read_held(shard::Worker worker, const tensor::Tensor& rows) {
  const std::lock_guard lock(mutex_);
  return status_of([&] {
    const Stream& stream = device_.current();
    in_pieces(rows.held.count, spec_.row_bytes(), [&](uint64_t first, uint64_t count) {
      Scratch scratch(stream);
      const std::span some(rows.held.ids + first, count);
      read_to(stream, scratch, some, rows.data + first * spec_.row_bytes());
      back_up_rows(stream, scratch, worker, some);
    });
  });
}

}  // namespace mv::device
