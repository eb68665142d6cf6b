#include "api/distlearn/all_reduce_sgd.hpp"

#include <algorithm>

namespace mv::distlearn {

base::Status AllReduceSgd::sum(const Arrays& gradients, Sum which, uint64_t* contributors, base::Nanos timeout) {
  if (auto status = check_floats(gradients); !status.ok()) return status;
  const auto reduction = which == Sum::kNormalized ? math::Reduction::kAverage : math::Reduction::kSum;
  const char* const name = which == Sum::kNormalized ? "mv_sgd_sum_and_normalize" : "mv_sgd_sum_gradients";
  return peers_.carry_out(name,
                          {
                              [&] { return peers_.allreduce(gradients, reduction); },
                              [&] {
                                ++steps_;
                                peers_.meter.steps += 1;
                                peers_.meter.dense_bytes += bytes_of(gradients);
                                if (contributors != nullptr) *contributors = peers_.contributors();
                                return base::Status();
                              },
                          },
                          timeout);
}

base::Status AllReduceSgd::synchronize(const Arrays& parameters, base::Nanos timeout) {
  if (auto status = check_floats(parameters); !status.ok()) return status;
  return peers_.carry_out("mv_sgd_synchronize",
                          {
                              [&] { return peers_.drain({}, {}); },  // all ranks, including one without a step
                              [&] { return peers_.allgather_number(steps_); },
                              [&] {
                                const auto& steps = peers_.numbers();
                                const auto most = std::max_element(steps.begin(), steps.end());  // the lowest of equals
                                return peers_.broadcast(parameters, static_cast<uint64_t>(most - steps.begin()));
                              },
                              [&] {
                                steps_ = 0;
                                return base::Status();
                              },
                          },
                          timeout);
}

}  // namespace mv::distlearn
