#pragma once
// What stands behind mv_strategy.

#include <memory>
#include <mutex>
#include <variant>

#include "distlearn/all_reduce_ea.hpp"
#include "distlearn/all_reduce_sgd.hpp"
#include "distlearn/async_ea.hpp"
#include "distlearn/compressor.hpp"
#include "distlearn/local_sgd.hpp"

namespace mv::capi {

struct Strategy {
  std::variant<std::unique_ptr<distlearn::AllReduceSgd>, std::unique_ptr<distlearn::AllReduceEa>, std::unique_ptr<distlearn::AsyncEa>,
               std::unique_ptr<distlearn::LocalSgd>, std::unique_ptr<distlearn::Compressor>>
      of;
  std::mutex call;  ///< one at a time
};

}  // namespace mv::capi
