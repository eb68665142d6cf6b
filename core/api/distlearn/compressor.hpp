#pragma once
// Compressor: averages gradients in compressed form. Each rank adds its residual to its next gradient.

#include <memory>
#include <string_view>

#include "api/distlearn/peers.hpp"
#include "codec/codec.hpp"

namespace mv::distlearn {

/// Gradients of one step: the arrays, and the number of rows of each that is a matrix (0 and 1: it is a vector).
struct Gradients {
  Arrays arrays;
  std::vector<uint64_t> rows;
};

class Compressor {
 public:
  /// Parses "powersgd rank=4", or a codec's text: "int8", "topk ratio=0.01". MV_EINVAL lists what is known.
  static base::Result<std::unique_ptr<Compressor>> make(api::Node& node, api::GroupRef group, std::string_view text);
  virtual ~Compressor() = default;
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// gradients = approximately the average of the contributing ranks, bit-equal on all. All steps
  /// have arrays of one shape.
  base::Status average(const Gradients& gradients, uint64_t* contributors, base::Nanos timeout);
  /// Takes part in the others' averages without contributing, until no rank makes any more. The values are ignored.
  base::Status finish(const Gradients& gradients, base::Nanos timeout);

  /// The residuals so far, one array after another, as f32. Empty before the first step.
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

/// Sends each rank's gradient through a codec to all ranks, which sum the decoded gradients.
std::unique_ptr<Compressor> make_codec_compressor(api::Node& node, api::GroupRef group, codec::CodecRef codec);
/// PowerSGD (Vogels, Karimireddy, Jaggi 2019): sends a matrix as two matrices of `rank` columns.
std::unique_ptr<Compressor> make_power_sgd(api::Node& node, api::GroupRef group, uint64_t rank);

}  // namespace mv::distlearn
