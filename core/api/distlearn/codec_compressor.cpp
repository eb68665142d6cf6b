// CodecCompressor: averages gradients through the codecs of tables. Each rank encodes all of its arrays as one, and all
// ranks decode what they receive.

#include <utility>

#include "api/distlearn/compressor.hpp"

namespace mv::distlearn {
namespace {

class CodecCompressor final : public Compressor {
 public:
  CodecCompressor(api::Node& node, api::GroupRef group, codec::CodecRef codec) : Compressor(node, std::move(group)), codec_(std::move(codec)) {}
  ~CodecCompressor() override { peers_.withdraw(); }  // before the lent memory is freed

  std::vector<float> residual() const override { return residual_; }

 private:
  base::Status begin(const Gradients& gradients) override {
    const uint64_t elements = elements_of(gradients.arrays);
    residual_.assign(elements, 0);
    values_.assign(elements, 0);
    mine_.resize(codec_->encoded_bytes(elements));
    return {};
  }

  base::Status reduce(const Gradients& gradients, base::Nanos timeout) override {
    const auto encode = [&] {
      size_t at = 0;
      for_each_element(gradients.arrays, [&](auto& value) { values_[at++] = static_cast<float>(value); });
      codec_->encode(values_.data(), residual_.data(), values_.size(), mine_.data());
      return base::Status();
    };
    const auto take = [&] {
      contributors_ = contributed_;
      if (auto status = add_all(); !status.ok()) return status;
      size_t at = 0;
      for_each_element(gradients.arrays, [&]<typename T>(T& value) { value = static_cast<T>(values_[at++]); });
      return base::Status();
    };
    return peers_.carry_out(
        "mv_compressed_average",
        {encode, [&] { return count_contributors(); }, [&] { return peers_.allgather(mine_, all_); }, take}, timeout);
  }

  /// Counts the ranks that contribute to this step. Draining ranks take part, as in every all-reduce, and so learn of
  /// the exchange that follows.
  base::Status count_contributors() {
    marker_ = 1;
    auto status = peers_.allreduce(marker(), math::Reduction::kMax);
    if (status.ok()) contributed_ = peers_.contributors();
    return status;
  }
  Arrays marker() { return {{reinterpret_cast<std::byte*>(&marker_), 1, MV_U8}}; }

  base::Status add_all() {
    std::fill(values_.begin(), values_.end(), 0.0F);
    for (uint64_t rank = 0; rank < peers_.size(); ++rank) {
      const std::span<const std::byte> encoded(all_.data() + rank * mine_.size(), mine_.size());
      if (auto status = codec_->check(encoded, values_.size()); !status.ok()) return status;
      codec_->decode_add(encoded.data(), values_.data(), values_.size());
    }
    for (float& value : values_) value /= static_cast<float>(contributed_);
    return {};
  }

  base::Status drain(base::Nanos timeout) override {
    const auto nothing = [&] {
      std::vector<float> zeros(values_.size());
      codec_->encode(zeros.data(), std::vector<float>(values_.size()).data(), zeros.size(), mine_.data());
      return base::Status();
    };
    return peers_.carry_out("mv_compressed_finish", {nothing, [&] { return answer(); }}, timeout);
  }

  /// Takes part in the exchange of encoded gradients that follows each marker. Leaves the ranks'
  /// other all-reduces unchanged.
  base::Status answer() {
    for (bool finished = false;;) {
      if (!has_marker_) {
        const auto fill = [&](const collective::Shape& shape) {
          marker_ = 0;
          is_marker_ = !shape.finished && shape.reduction == math::Reduction::kMax && shape.arrays.size() == 1 &&
                       shape.arrays[0].count == 1 && shape.arrays[0].dtype == MV_U8;
          return is_marker_ ? marker() : Arrays();
        };
        if (auto status = peers_.drain_once(fill, &finished); !status.ok() || finished) return status;
        has_marker_ = is_marker_;
        continue;
      }
      if (auto status = peers_.allgather(mine_, all_); !status.ok()) return status;
      has_marker_ = false;
    }
  }

  const codec::CodecRef codec_;
  std::vector<float> residual_, values_;
  std::vector<std::byte> mine_, all_;
  uint8_t marker_ = 0;
  uint64_t contributed_ = 0;
  bool is_marker_ = false, has_marker_ = false;
};

}  // namespace

std::unique_ptr<Compressor> make_codec_compressor(api::Node& node, api::GroupRef group, codec::CodecRef codec) {
  return std::make_unique<CodecCompressor>(node, std::move(group), std::move(codec));
}

}  // namespace mv::distlearn
