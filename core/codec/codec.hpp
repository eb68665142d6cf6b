#pragma once
// Gradient compression: encodes values in fewer bytes and keeps the error, the residual, for the next gradient.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/setting_text.hpp"

namespace mv::codec {

/// A codec's name with all of its parameters, as sent over the wire.
struct Spec {
  std::string name;                ///< empty: none
  std::vector<double> parameters;  ///< in the order of the codec's own list
  bool operator==(const Spec&) const = default;
  bool is_none() const { return name.empty(); }
};

/// A codec with fixed parameters. It has no other state: the caller keeps the residual. Any thread. Encoded bytes need
/// no alignment.
///
/// The sum of all sent values and the residual equals the sum of all gradients: exactly if the additions are exact (as
/// for multiples of a power of two), otherwise up to rounding. A NaN or an infinity stays in the residual, or is sent.
/// The element is then lost for good, as in a sum without a codec.
class Codec {
 public:
  explicit Codec(Spec spec) : spec_(std::move(spec)) {}
  virtual ~Codec() = default;
  const Spec& spec() const { return spec_; }
  /// The size of `count` encoded values, independent of the values.
  virtual size_t encoded_bytes(size_t count) const = 0;
  /// Encodes t = residual + gradient into encoded_bytes(count) at `out`; then residual = t - the sent values.
  virtual void encode(const float* gradient, float* residual, size_t count, std::byte* out) const = 0;
  /// values[i] = the sent value.
  void decode(const std::byte* encoded, float* values, size_t count) const { unpack(encoded, values, count, false); }
  /// values[i] += the sent value.
  void decode_add(const std::byte* encoded, float* values, size_t count) const { unpack(encoded, values, count, true); }
  /// Checks that the bytes are valid for `count` encoded values: call it before decoding received bytes. MV_EPROTOCOL.
  base::Status check(std::span<const std::byte> encoded, size_t count) const;

  /// Whether it encodes every value. Such a codec also suits pulled values, which have no residual.
  virtual bool suits_values() const { return false; }

 private:
  virtual void unpack(const std::byte* encoded, float* values, size_t count, bool adds) const = 0;
  /// Checks of the content; check() checks the size.
  virtual bool is_sound(const std::byte* /*encoded*/, size_t /*count*/) const { return true; }

  const Spec spec_;
};
using CodecRef = std::shared_ptr<const Codec>;

/// The codec of a spec that check() accepts; null for none.
CodecRef make(const Spec& spec);
/// Checks that the codec exists and accepts these parameters; also for received specs.
base::Status check(const Spec& spec);
/// Parses {"2bit", "threshold=0.5"} or {"type=2bit", "threshold=0.5"}, in any order, and adds defaults; "none" is none.
/// MV_EINVAL lists the known names.
base::Result<Spec> parse(std::span<const base::TextPair> pairs);
base::Result<Spec> parse(std::string_view text);
/// "2bit threshold=0.5", "none"
std::string to_text(const Spec& spec);

}  // namespace mv::codec
