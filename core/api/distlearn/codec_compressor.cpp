// CodecCompressor: averages gradients through the codecs of tables. Each rank encodes all of its arrays as one, and all
// ranks decode what they receive. Gradients that are all on one device which has the codec are encoded and decoded there.

#include <cstring>
#include <utility>

#include "api/distlearn/compressor.hpp"
#include "api/group/stage.hpp"
#include "codec/on_device.hpp"

namespace mv::distlearn {
namespace {

class CodecCompressor final : public Compressor {
 public:
  CodecCompressor(api::Node& node, api::GroupRef group, codec::CodecRef codec) : Compressor(node, std::move(group)), codec_(std::move(codec)) {}
  ~CodecCompressor() override { peers_.withdraw(); }  // before the lent memory is freed

  std::vector<float> residual() const override { return residual_.floats(); }

 private:
  base::Status begin(const Gradients& gradients) override {
    elements_ = elements_of(gradients.arrays);
    encoded_bytes_ = codec_->encoded_bytes(elements_);
    mine_.resize(encoded_bytes_ + (encodes_zero() ? 0 : sizeof(uint32_t)));
    return {};
  }

  /// Whether zeros are decoded as zeros. If not, as with 1bit, a word after the encoded values says whether the rank contributes.
  bool encodes_zero() const {
    float zero = 0, residual = 0, decoded = 0;
    std::vector<std::byte> encoded(codec_->encoded_bytes(1));
    codec_->encode(&zero, &residual, 1, encoded.data());
    codec_->decode_add(encoded.data(), &decoded, 1);
    return decoded == 0;
  }

  void say_that_it_contributes(bool contributes) {
    const uint32_t word = contributes ? 1 : 0;
    if (mine_.size() > encoded_bytes_) std::memcpy(mine_.data() + encoded_bytes_, &word, sizeof word);
  }
  bool contributes(uint64_t rank) const {
    uint32_t word = 1;
    if (mine_.size() > encoded_bytes_) std::memcpy(&word, of_rank(rank).data() + encoded_bytes_, sizeof word);
    return word != 0;
  }

  base::Status reduce(const Gradients& gradients, base::Nanos timeout) override {
    if (auto status = settle(gradients.arrays); !status.ok()) return status;
    const auto take = [&] {
      contributors_ = contributed_;
      if (auto status = check_all(); !status.ok()) return status;
      return device() != nullptr ? take_there(gradients.arrays) : take_here(gradients.arrays);
    };
    return peers_.carry_out("mv_compressed_average",
                            {[&] { return device() != nullptr ? encode_there(gradients.arrays) : encode_here(gradients.arrays); },
                             [&] { return count_contributors(); }, [&] { return peers_.allgather(mine_, all_); }, take},
                            timeout);
  }

  base::Status settle(const Arrays& gradients) {
    auto given = peers_.places_of(gradients, given_);
    if (!given.ok()) return given.status();
    tensor::Device* place = common_device(gradients, given.value());
    if (place != nullptr && !codec::is_on_device(*codec_, MV_F32, *place)) place = nullptr;
    if (!encoded_.empty() && encoded_.places().front() != place) encoded_ = {};
    const size_t room = place != nullptr ? codec::codecs_of(*place).encoding_room(*codec_, elements_) : 0;
    const Array floats{nullptr, elements_, MV_F32}, words{nullptr, (room + 3) / 4, MV_F32};
    for (const auto& [buffers, like] : {std::pair(&residual_, floats), std::pair(&values_, floats), std::pair(&encoded_, words)})
      if (auto status = buffers->settle({like}, {place}); !status.ok()) return status;
    given_ = std::move(given).value();
    return {};
  }

  tensor::Device* device() const { return values_.places().front(); }
  static float* floats_of(const Buffers& buffers) { return reinterpret_cast<float*>(buffers.arrays().front().data); }

  // ---- on the host

  base::Status encode_here(Arrays gradients) {
    const auto staging = api::stage_arrays(gradients, peers_.find_device());
    if (!staging.ok()) return staging.status();
    float* to = floats_of(values_);
    for_each_element(gradients, [&](auto& value) { *to++ = static_cast<float>(value); });
    codec_->encode(floats_of(values_), floats_of(residual_), elements_, mine_.data());
    say_that_it_contributes(true);
    return {};
  }

  base::Status take_here(Arrays gradients) {
    const std::span<float> values(floats_of(values_), elements_);
    std::ranges::fill(values, 0.0F);
    for (uint64_t rank = 0; rank < peers_.size(); ++rank)
      if (contributes(rank)) codec_->decode_add(of_rank(rank).data(), values.data(), elements_);
    for (float& value : values) value /= static_cast<float>(contributed_);
    const auto staging = api::stage_arrays(gradients, peers_.find_device());
    if (!staging.ok()) return staging.status();
    size_t at = 0;
    for_each_element(gradients, [&]<typename T>(T& value) { value = static_cast<T>(values[at++]); });
    return staging.value() != nullptr ? staging.value()->finish() : base::Status();
  }

  // ---- on a device

  base::Status encode_there(const Arrays& gradients) {
    tensor::Device& there = *device();
    float* to = floats_of(values_);
    for (const Array& gradient : gradients) {
      if (auto status = there.cast(MV_F32, to, gradient.dtype, gradient.data, gradient.count); !status.ok()) return status;
      to += gradient.count;
    }
    std::byte* const out = encoded_.arrays().front().data;
    const codec::Encoding all{values_.arrays().front().data, MV_F32, floats_of(residual_), elements_, out};
    if (auto status = codec::codecs_of(there).encode(*codec_, {&all, 1}); !status.ok()) return status;
    say_that_it_contributes(true);
    return there.to_host(mine_.data(), out, encoded_bytes_);
  }

  base::Status take_there(const Arrays& gradients) {
    tensor::Device& there = *device();
    float* values = floats_of(values_);
    if (auto status = values_.fill_zero(); !status.ok()) return status;
    std::byte* const in = encoded_.arrays().front().data;
    const codec::Decoding all{in, values, elements_};
    for (uint64_t rank = 0; rank < peers_.size(); ++rank) {
      if (!contributes(rank)) continue;
      if (auto status = there.from_host(in, of_rank(rank).data(), encoded_bytes_); !status.ok()) return status;
      if (auto status = codec::codecs_of(there).decode(*codec_, {&all, 1}, true); !status.ok()) return status;
    }
    if (auto status = there.divide(MV_F32, values, contributed_, elements_); !status.ok()) return status;
    for (const Array& gradient : gradients) {
      if (auto status = there.cast(gradient.dtype, gradient.data, MV_F32, values, gradient.count); !status.ok()) return status;
      values += gradient.count;
    }
    return there.wait();
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

  std::span<const std::byte> of_rank(uint64_t rank) const { return {all_.data() + rank * mine_.size(), mine_.size()}; }

  base::Status check_all() const {
    for (uint64_t rank = 0; rank < peers_.size(); ++rank)
      if (auto status = codec_->check(of_rank(rank).first(encoded_bytes_), elements_); !status.ok()) return status;
    return {};
  }

  base::Status drain(base::Nanos timeout) override {
    const auto nothing = [&] {
      std::vector<float> zeros(elements_);
      codec_->encode(zeros.data(), std::vector<float>(elements_).data(), zeros.size(), mine_.data());
      say_that_it_contributes(false);
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
  Places given_;  ///< of the gradients
  uint64_t elements_ = 0, encoded_bytes_ = 0;
  Buffers residual_, values_;  ///< on the gradients' device, if they are on one that has the codec
  Buffers encoded_;            ///< there: the bytes of one rank
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
