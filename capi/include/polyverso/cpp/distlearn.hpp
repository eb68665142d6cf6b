/// Training strategies. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_DISTLEARN_HPP
#define POLYVERSO_CPP_DISTLEARN_HPP

#include <polyverso/cpp/group.hpp>
#include <polyverso/cpp/table.hpp>

namespace polyverso {

/// What all strategies have. A strategy must be destroyed before its group or its table. After Interrupted, make the same call again.
template <mv_status (*Close)(mv_strategy)>
class Strategy {
 public:
  struct Meter {
    std::uint64_t steps, operations, payload, dense;  // as mv_strategy_meter() explains
  };
  mv_strategy id() const noexcept { return handle_.id(); }
  void close() { handle_.close(); }
  Meter meter() const {
    Meter result{};
    check(mv_strategy_meter(id(), &result.steps, &result.operations, &result.payload, &result.dense));
    return result;
  }
  /// Cancels a call that a signal has interrupted.
  void cancel() const { check(mv_strategy_cancel(id())); }

 protected:
  explicit Strategy(mv_strategy id) noexcept : handle_(id) {}
  ~Strategy() = default;
  Strategy(Strategy&&) noexcept = default;
  Strategy& operator=(Strategy&&) noexcept = default;

 private:
  detail::Handle<Close> handle_;
};

/// Data-parallel SGD. The functions return the number of ranks that contributed.
class AllReduceSgd : public Strategy<mv_sgd_close> {
 public:
  explicit AllReduceSgd(const Group& group) : Strategy(detail::value<mv_strategy>(mv_sgd_open, group.id())) {}
  std::uint64_t sum_gradients(const Arrays& gradients, const Call& call = {}) const {
    std::uint64_t contributors = 0;
    detail::block(call, [&](auto* options) { return mv_sgd_sum_gradients(id(), gradients.data(), gradients.size(), &contributors, options); });
    return contributors;
  }
  std::uint64_t sum_and_normalize(const Arrays& gradients, const Call& call = {}) const {
    std::uint64_t contributors = 0;
    detail::block(call, [&](auto* options) { return mv_sgd_sum_and_normalize(id(), gradients.data(), gradients.size(), &contributors, options); });
    return contributors;
  }
  void synchronize(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_sgd_synchronize(id(), parameters.data(), parameters.size(), options); });
  }
};

/// Elastic averaging with a centre on each rank.
class AllReduceEa : public Strategy<mv_ea_close> {
 public:
  AllReduceEa(const Group& group, std::int64_t tau, double alpha) : Strategy(detail::value<mv_strategy>(mv_ea_open, group.id(), tau, alpha)) {}
  void average(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_ea_average(id(), parameters.data(), parameters.size(), options); });
  }
  void synchronize_center(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_ea_synchronize_center(id(), parameters.data(), parameters.size(), options); });
  }
  void synchronize_parameters(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_ea_synchronize_parameters(id(), parameters.data(), parameters.size(), options); });
  }
  void read_center(const Arrays& parameters) const { check(mv_ea_read_center(id(), parameters.data(), parameters.size())); }
};

/// Elastic averaging with a table as centre.
class AsyncEa : public Strategy<mv_async_ea_close> {
 public:
  AsyncEa(const Table& centre, std::int64_t tau, double alpha) : Strategy(detail::value<mv_strategy>(mv_async_ea_open, centre.id(), tau, alpha)) {}
  void average(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_async_ea_average(id(), parameters.data(), parameters.size(), options); });
  }
  void read(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_async_ea_read(id(), parameters.data(), parameters.size(), options); });
  }
};

/// Local SGD, DiLoCo and Streaming DiLoCo: "inner_steps=100 outer_rate=0.7 outer_momentum=0.9".
class LocalSgd : public Strategy<mv_local_sgd_close> {
 public:
  explicit LocalSgd(const Group& group, const std::string& settings = "")
      : Strategy(detail::value<mv_strategy>(mv_local_sgd_open, group.id(), settings.c_str())) {}
  void step(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_local_sgd_step(id(), parameters.data(), parameters.size(), options); });
  }
  void synchronize(const Arrays& parameters, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_local_sgd_synchronize(id(), parameters.data(), parameters.size(), options); });
  }
};

/// Averages of compressed gradients: "int8", "topk ratio=0.01", "powersgd rank=4".
class Compressed : public Strategy<mv_compressed_close> {
 public:
  Compressed(const Group& group, const std::string& how) : Strategy(detail::value<mv_strategy>(mv_compressed_open, group.id(), how.c_str())) {}
  /// @param rows for each array its number of rows as a matrix; empty: all are vectors
  std::uint64_t average(const Arrays& gradients, Ids rows = {}, const Call& call = {}) const {
    std::uint64_t contributors = 0;
    detail::block(call, [&](auto* options) {
      return mv_compressed_average(id(), gradients.data(), gradients.size(), rows.data(), rows.size(), &contributors, options);
    });
    return contributors;
  }
  void finish(const Arrays& gradients, Ids rows = {}, const Call& call = {}) const {
    detail::block(call, [&](auto* options) {
      return mv_compressed_finish(id(), gradients.data(), gradients.size(), rows.data(), rows.size(), options);
    });
  }
};

}  // namespace polyverso

#endif
