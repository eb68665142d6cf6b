#pragma once
// The object behind an mv_strategy.

#include <memory>
#include <mutex>
#include <variant>

#include "api/distlearn/all_reduce_ea.hpp"
#include "api/distlearn/all_reduce_sgd.hpp"
#include "api/distlearn/async_ea.hpp"
#include "api/distlearn/compressor.hpp"
#include "api/distlearn/local_sgd.hpp"
#include "api/staging/staging.hpp"

namespace mv::capi {

/// A strategy's call with arrays on devices that a signal has interrupted: what it was given, and the copies with which it continues.
struct Interrupted {
  distlearn::Arrays given, staged;
  std::shared_ptr<api::Staging> staging;
};

struct Strategy {
  bool computes_on_host = false;  ///< a device had no memory for what the strategy keeps beside the caller's arrays
  Interrupted interrupted;  ///< before `of`, whose end withdraws an operation that uses the copies
  std::variant<std::unique_ptr<distlearn::AllReduceSgd>, std::unique_ptr<distlearn::AllReduceEa>, std::unique_ptr<distlearn::AsyncEa>,
               std::unique_ptr<distlearn::LocalSgd>, std::unique_ptr<distlearn::Compressor>>
      of;
  std::mutex call;  ///< one at a time
};

}  // namespace mv::capi
