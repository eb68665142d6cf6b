// The list of all updaters, and how one is made from a spec.

#include "shard/updater/registry.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include "base/similar.hpp"
#include "shard/updater/optimizer/traits.hpp"

namespace mv::shard {

namespace {

const Kind* const kKinds[] = {&kAdd,
                              &kAssign,
                              &kReplace,
                              &kSgd,
                              &kMomentum,
                              &kAdagrad,
                              &kFtrl,
                              &kDcasgd,
                              &optimizer::kSgd,
                              &optimizer::kSignum,
                              &optimizer::kFtml,
                              &optimizer::kLbsgd,
                              &optimizer::kDcasgd,
                              &optimizer::kNag,
                              &optimizer::kSgld,
                              &optimizer::kAdam,
                              &optimizer::kAdagrad,
                              &optimizer::kRmsprop,
                              &optimizer::kAdadelta,
                              &optimizer::kTest,
                              &optimizer::kFtrl,
                              &optimizer::kAdamax,
                              &optimizer::kNadam,
                              &optimizer::kAdamw,
                              &optimizer::kLamb,
                              &optimizer::kLion};

/// An updater that is no optimizer: its kind's formula and its parameters.
class KindUpdater final : public Updater {
 public:
  KindUpdater(const Kind& kind, std::vector<double> parameters, mv_dtype storage)
      : kind_(kind), parameters_(std::move(parameters)), storage_(storage) {}
  size_t states() const override { return kind_.states(parameters_); }
  bool keeps_backups() const override { return kind_.keeps_backups; }
  bool replaces() const override { return kind_.replaces; }
  void apply(const Block& block) const override { kind_.apply(parameters_, storage_, block); }

 private:
  const Kind& kind_;
  const std::vector<double> parameters_;
  const mv_dtype storage_;
};

/// An optimizer: its formula takes the numbers of a Step.
class Optimizer final : public Updater {
 public:
  Optimizer(const Kind& kind, std::vector<double> parameters, mv_dtype storage)
      : kind_(kind), traits_(*kind.optimizer), parameters_(std::move(parameters)), storage_(storage) {}
  size_t states() const override { return kind_.states(parameters_); }
  bool counts() const override { return true; }
  std::span<const double> shared() const override { return traits_.shared; }
  void advance(const Turn& turn, std::span<double> shared) const override {
    optimizer::advance(kind_, parameters_, turn, shared);
  }
  Step step(const Turn& turn, std::span<const double> shared) const override {
    return optimizer::make_step(kind_, parameters_, turn, shared);
  }
  size_t sums() const override { return traits_.sums != nullptr ? traits_.sums(parameters_) : 0; }
  void measure(const Block& block, double* sums) const override {
    traits_.measure(block.step->numbers, storage_, block, sums);
  }
  bool is_lazy() const override { return traits_.is_lazy != nullptr && traits_.is_lazy(parameters_); }
  void apply(const Block& block) const override { kind_.apply(block.step->numbers, storage_, block); }

 private:
  const Kind& kind_;
  const optimizer::Traits& traits_;
  const std::vector<double> parameters_;
  const mv_dtype storage_;
};

}  // namespace

const Kind* find_kind(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, [](const Kind* kind) { return std::string_view(kind->name); });
  return found != std::end(kKinds) ? *found : nullptr;
}

base::Status unknown_updater(std::string_view name) {
  std::string known;
  for (const Kind* kind : kKinds) known += fmt::format("{}{}", known.empty() ? "" : ", ", kind->name);
  const auto names = kKinds | std::views::transform([](const Kind* kind) { return std::string_view(kind->name); });
  std::string guess = base::did_you_mean(name, names);
  // MXNet's own names lack the prefix.
  const std::string of_mxnet = fmt::format("mx.{}", name);
  if (guess.empty() || find_kind(of_mxnet) != nullptr) guess = base::did_you_mean(of_mxnet, names);
  return base::error(MV_EINVAL, "unknown updater \"{}\"; known: {}{}", name, known, guess);
}

std::unique_ptr<Updater> make_updater(const UpdaterSpec& spec, mv_dtype storage) {
  const Kind& kind = *find_kind(spec.name);
  if (kind.optimizer != nullptr) return std::make_unique<Optimizer>(kind, spec.parameters, storage);
  return std::make_unique<KindUpdater>(kind, spec.parameters, storage);
}

}  // namespace mv::shard
