#include "api/staging/staging.hpp"

#include <utility>

#include "api/group/group.hpp"
#include "api/node/node.hpp"

namespace mv::api {

using collective::Array;
using collective::Kind;
using collective::Operation;

base::Result<std::byte*> Staging::stage(const std::byte* memory, size_t bytes, Use use, const FindDevice& find) {
  auto* const own = const_cast<std::byte*>(memory);
  if (memory == nullptr || bytes == 0 || use == Use::kNone) return own;
  const auto device = find(memory);
  if (!device.ok()) return device.status();
  if (device.value() == nullptr) return own;
  auto block = device.value()->staging().allocate(bytes, tensor::Allocator::Content::kAnything);
  if (!block.ok()) return block.status();
  std::byte* const copy = block.value()->data();
  if (use != Use::kWritten)
    if (auto status = device.value()->to_host(copy, memory, bytes); !status.ok()) return status;
  copies_.push_back({device.value(), own, std::move(block).value(), bytes, use != Use::kRead});
  return copy;
}

base::Result<std::shared_ptr<Staging>> Staging::of_arrays(std::vector<Array>& arrays, const FindDevice& find) {
  const auto staging = std::make_shared<Staging>();
  for (Array& array : arrays) {
    auto staged = staging->stage(array.data, array.bytes(), Use::kBoth, find);
    if (!staged.ok()) return staged.status();
    array.data = staged.value();
  }
  return staging->copies_.empty() ? std::shared_ptr<Staging>() : staging;
}

Staging::Use Staging::use_of_out(const Operation& operation, uint64_t rank) {
  const bool is_root = rank == operation.root;
  if (operation.kind == Kind::kSend) return Use::kRead;
  if (operation.kind == Kind::kBroadcast) return is_root ? Use::kRead : Use::kWritten;
  if (operation.kind == Kind::kReduce && !is_root) return operation.in.empty() ? Use::kRead : Use::kNone;
  return operation.in.empty() ? Use::kBoth : Use::kWritten;
}

base::Result<std::shared_ptr<Staging>> Staging::of_operation(Operation& operation, uint64_t rank, uint64_t ranks, const FindDevice& find) {
  const auto staging = std::make_shared<Staging>();
  const Use use = use_of_out(operation, rank);
  for (size_t i = 0; i < operation.out.size(); ++i) {
    const Sizes sizes = sizes_of(operation, i, rank, ranks);
    if (!operation.in.empty()) {
      auto in = staging->stage(operation.in[i], sizes.in, Use::kRead, find);
      if (!in.ok()) return in.status();
      operation.in[i] = in.value();
    }
    auto out = staging->stage(operation.out[i].data, sizes.out, use, find);
    if (!out.ok()) return out.status();
    operation.out[i].data = out.value();
  }
  return staging->copies_.empty() ? std::shared_ptr<Staging>() : staging;
}

base::Status Staging::finish() const {
  for (const Copy& copy : copies_)
    if (copy.is_result)
      if (auto status = copy.device->from_host(copy.memory, copy.block->data(), copy.bytes); !status.ok()) return status;
  return {};
}

Started run_staged(Node& node, Group& group, Operation operation, const std::shared_ptr<Staging>& staging, const CallOptions& options) {
  if (staging == nullptr) return group.run(std::move(operation), options);
  const bool blocks = options.mode == Mode::kBlocking;
  if (blocks && !options.keep_on_interrupt) {
    Started started = group.run(std::move(operation), options);
    if (started.status.ok()) started.status = staging->finish();
    return started;
  }
  // As a part of a call that ends when the results are copied.
  CallOptions part = options;
  part.mode = Mode::kAsync;
  part.tag = 0;
  part.group = node.group(options);
  using Turn = Staging::Turn;
  if (blocks) staging->turn_ = Turn::kWaits;
  Started started = group.run(std::move(operation), part);
  started.call = nullptr;
  node.close_group(part.group, [staging] {
    Turn waits = Turn::kWaits;
    return staging->turn_.compare_exchange_strong(waits, Turn::kEnded) ? base::Status() : staging->finish();
  });
  if (!started.status.ok()) {
    static_cast<void>(node.cancel(part.group));
    return started;
  }
  if (!blocks) return {{}, std::move(part.group)};
  bool alive = false;
  started.status = node.wait(part.group, base::Nanos(0), &alive);
  Turn waits = Turn::kWaits;
  const bool is_left = alive && staging->turn_.compare_exchange_strong(waits, Turn::kLeft);
  if (is_left) started.call = std::move(part.group);
  if (!is_left && (alive || started.status.ok())) started.status = staging->finish();
  return started;
}

}  // namespace mv::api
