#pragma once
// wait_for(): asks an engine a question from a caller's thread and waits for the answer.

#include <atomic>
#include <memory>
#include <utility>

#include "api/call/calls.hpp"

namespace mv::api {

/// Runs `ask(told)` on the loop and waits until the engine calls `told` with the answer.
template <typename T, typename Ask>
base::Result<T> wait_for(Calls& calls, Ask ask) {
  struct Told {
    std::atomic<bool> done{false};
    base::Result<T> what = base::Status();
  };
  const auto told = std::make_shared<Told>();
  calls.loop().post([ask, told] {
    ask([told](base::Result<T> what) {
      told->what = std::move(what);
      told->done.store(true, std::memory_order_release);
    });
  });
  const auto done = [&] { return told->done.load(std::memory_order_acquire); };
  while (calls.loop().drive_until(done, base::kNever) == transport::Driven::kInterrupted) {
  }
  return done() ? std::move(told->what) : calls.ended();
}

}  // namespace mv::api
