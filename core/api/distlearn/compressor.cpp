#include "api/distlearn/compressor.hpp"

#include <charconv>
#include <string>

namespace mv::distlearn {

base::Result<std::unique_ptr<Compressor>> Compressor::make(api::Node& node, api::GroupRef group, std::string_view text) {
  constexpr std::string_view kPower = "powersgd";
  if (text == kPower) return make_power_sgd(node, std::move(group), 1);
  constexpr std::string_view kRank = " rank=";
  if (text.starts_with(kPower) && text.substr(kPower.size()).starts_with(kRank)) {
    const std::string_view digits = text.substr(kPower.size() + kRank.size());
    uint32_t rank = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error != std::errc() || end != digits.data() + digits.size() || rank < 1)
      return base::error(MV_EINVAL, "\"{}\": expected a rank of 1 or more, as in \"powersgd rank=4\"", text);
    return make_power_sgd(node, std::move(group), rank);
  }
  auto spec = codec::parse(text);
  if (!spec.ok()) return base::error(spec.status().code(), "{}; or \"powersgd rank=4\"", spec.status().text());
  if (spec.value().is_none()) return base::error(MV_EINVAL, "\"{}\" compresses nothing: use mv_allreduce_many() instead", text);
  return make_codec_compressor(node, std::move(group), codec::make(spec.value()));
}

base::Status Compressor::check(const Gradients& gradients) {
  if (auto status = check_floats(gradients.arrays); !status.ok()) return status;
  for (size_t i = 0; i < gradients.arrays.size(); ++i) {
    const uint64_t rows = gradients.rows[i];
    if (rows > 1 && gradients.arrays[i].count % rows != 0)
      return base::error(MV_ESHAPE, "array {}: {} elements can't be split into {} rows", i, gradients.arrays[i].count, rows);
  }
  if (shape_.arrays.empty()) {
    shape_ = gradients;
    return begin(gradients);
  }
  if (auto status = check_alike(shape_.arrays, gradients.arrays); !status.ok()) return status;
  return gradients.rows == shape_.rows ? base::Status() : base::Status(MV_ESHAPE, "the arrays' rows differ from those of the first call");
}

base::Status Compressor::average(const Gradients& gradients, uint64_t* contributors, base::Nanos timeout) {
  if (auto status = check(gradients); !status.ok()) return status;
  if (auto status = reduce(gradients, timeout); !status.ok()) return status;
  peers_.meter.steps += 1;
  peers_.meter.dense_bytes += bytes_of(gradients.arrays);
  if (contributors != nullptr) *contributors = contributors_;
  return {};
}

base::Status Compressor::finish(const Gradients& gradients, base::Nanos timeout) {
  if (auto status = check(gradients); !status.ok()) return status;
  return drain(timeout);
}

}  // namespace mv::distlearn
