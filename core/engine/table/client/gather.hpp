#pragma once
// An answer of one server, given to a function.

#include <functional>
#include <span>
#include <utility>

#include "base/pool.hpp"
#include "engine/rpc/pending.hpp"

namespace mv::table {

/// A Pending that calls a function.
class Gather final : public rpc::Pending {
 public:
  using Finish = std::function<void(const base::Status&, const wire::Message*, std::span<const std::byte>)>;
  Gather(base::Pool& pool, Finish finish) : pool_(pool), finish_(std::move(finish)) {}
  base::SinkRef place(const wire::Message&, size_t bytes) override {
    const base::Pool::Block block = pool_.take(bytes);
    return base::Sink::into(block.bytes, block.memory);
  }
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) override {
    finish_(status, answer, payload);
  }

 private:
  base::Pool& pool_;
  Finish finish_;
};

}  // namespace mv::table
