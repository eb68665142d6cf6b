#pragma once
// Averages of gradients that travel as less than they are. What is left out stays with its rank, and goes into its next one.

#include <memory>
#include <string_view>

#include "api/distlearn/peers.hpp"
#include "codec/codec.hpp"

namespace mv::distlearn {

/// Gradients of one step: arrays, and of those that are matrices how many rows they have (0 and 1: none, it is a vector).
struct Gradients {
  Arrays arrays;
  std::vector<uint64_t> rows;
};

class Compressor {
 public:
  /// "powersgd rank=4", or a codec's text: "int8", "topk ratio=0.01". MV_EINVAL with what is known.
  static base::Result<std::unique_ptr<Compressor>> make(api::Node& node, api::GroupRef group, std::string_view text);
  virtual ~Compressor() = default;
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// gradients = about their average over those ranks that contribute; the same bits on all. All steps have arrays of one shape.
  base::Status average(const Gradients& gradients, uint64_t* contributors, base::Nanos timeout);
  /// Takes part in others' averages without a contribution, until nobody makes any more. The gradients' values don't matter.
  base::Status finish(const Gradients& gradients, base::Nanos timeout);

  /// What was left out so far, one behind the other, as f32. Empty before the first step.
  virtual std::vector<float> residual() const = 0;
  Peers& peers() { return peers_; }

 protected:
  Compressor(api::Node& node, api::GroupRef group) : peers_(node, std::move(group)) {}
  virtual base::Status begin(const Gradients& gradients) = 0;
  virtual base::Status reduce(const Gradients& gradients, base::Nanos timeout) = 0;
  virtual base::Status drain(base::Nanos timeout) = 0;

  Peers peers_;
  uint64_t contributors_ = 0;  ///< of the last average

 private:
  base::Status check(const Gradients& gradients);
  Gradients shape_;  ///< of the first call
};

/// Every rank's gradient goes through a codec and to all others, who sum up what was said of it.
std::unique_ptr<Compressor> make_codec_compressor(api::Node& node, api::GroupRef group, codec::CodecRef codec);
/// PowerSGD (Vogels, Karimireddy, Jaggi 2019): a matrix travels as two of `rank` columns.
std::unique_ptr<Compressor> make_power_sgd(api::Node& node, api::GroupRef group, uint64_t rank);

}  // namespace mv::distlearn
