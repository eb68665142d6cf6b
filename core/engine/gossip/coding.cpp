#include "engine/gossip/coding.hpp"

#include <algorithm>
#include <cstring>

#include "codec/values.hpp"
#include "math/average.hpp"
#include "tensor/dtype.hpp"

namespace mv::gossip {

namespace {
/// Whether the codec shortens values of this dtype. Only 8-bit codes are shorter than 16-bit floats.
bool shortens(const codec::Codec& codec, mv_dtype dtype) {
  if (dtype == MV_F32 || dtype == MV_F64) return true;
  return (dtype == MV_F16 || dtype == MV_BF16) && codec.encoded_bytes(1024) < 2048;
}
}  // namespace

size_t Coding::Run::raw_bytes() const { return count * tensor::dtype_bytes(dtype); }

std::vector<Coding::Run> Coding::runs(std::span<const ArraySpec> parts, uint64_t first, uint64_t count) const {
  std::vector<Run> found;
  const uint64_t end = first + count;
  uint64_t start = 0;
  for (const ArraySpec& part : parts) {
    start = aligned_part(start);
    const uint64_t from = std::max(first, start), to = std::min(end, start + part.bytes());
    // Chunks begin and end on multiples of every element size.
    if (from < to)
      found.push_back({static_cast<size_t>(from - first), static_cast<size_t>((to - from) / tensor::dtype_bytes(part.dtype)), part.dtype,
                       shortens(*codec_, part.dtype)});
    start += part.bytes();
    if (start >= end) break;
  }
  return found;
}

size_t Coding::coded_bytes(const Run& run) const { return run.coded ? codec_->encoded_bytes(run.count) : run.raw_bytes(); }

uint64_t Coding::encoded_bytes(std::span<const ArraySpec> parts, uint64_t first, uint64_t count) const {
  if (codec_ == nullptr) return count;
  uint64_t bytes = 0;
  for (const Run& run : runs(parts, first, count)) bytes += coded_bytes(run);
  return bytes;
}

void Coding::encode_run(const Run& run, const std::byte* raw, std::byte* out) {
  left_out_.assign(run.count * (run.dtype == MV_F64 ? sizeof(double) : sizeof(float)), std::byte{0});
  codec::encode_values(*codec_, run.dtype, raw, left_out_.data(), run.count, out);
}

std::vector<std::byte> Coding::encode(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> raw) {
  std::vector<std::byte> encoded(encoded_bytes(parts, first, raw.size()));
  std::byte* out = encoded.data();
  for (const Run& run : runs(parts, first, raw.size())) {
    if (run.coded) encode_run(run, raw.data() + run.at, out);
    else std::memcpy(out, raw.data() + run.at, run.raw_bytes());
    out += coded_bytes(run);
  }
  return encoded;
}

base::Status Coding::decode(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> encoded, std::span<std::byte> raw) {
  for (const Run& run : runs(parts, first, raw.size())) {
    const auto code = encoded.first(coded_bytes(run));
    encoded = encoded.subspan(code.size());
    if (!run.coded) {
      std::memcpy(raw.data() + run.at, code.data(), code.size());
      continue;
    }
    if (auto status = codec_->check(code, run.count); !status.ok()) return status;
    codec::decode_values(*codec_, run.dtype, code.data(), raw.data() + run.at, run.count);
  }
  return {};
}

void Coding::correct(std::span<const ArraySpec> parts, uint64_t first, std::span<const std::byte> own, std::span<std::byte> values) {
  std::vector<std::byte> code, decoded;
  for (const Run& run : runs(parts, first, own.size())) {
    if (!run.coded) continue;
    code.resize(coded_bytes(run));
    decoded.resize(run.raw_bytes());
    encode_run(run, own.data() + run.at, code.data());
    codec::decode_values(*codec_, run.dtype, code.data(), decoded.data(), run.count);
    math::approach_bytes(run.dtype, values.data() + run.at, own.data() + run.at, decoded.data(), run.count, 1);
  }
}

}  // namespace mv::gossip
