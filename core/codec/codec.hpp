#pragma once
// Gradient compression: values as fewer bytes, and what they leave out kept for the next time.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"

namespace mv::codec {

/// A codec with all of its parameters, as it goes over the wire.
struct Spec {
  std::string name;                ///< empty: none
  std::vector<double> parameters;  ///< in the order of the codec's own list
  bool operator==(const Spec&) const = default;
  bool is_none() const { return name.empty(); }
};

/// Stateless but for its parameters: what it leaves out is its caller's to keep. Any thread. Encoded bytes need no alignment.
///
/// The sum of all that was sent and of the residual is the sum of all gradients: exactly where the additions are (as with
/// multiples of a power of two), else to their rounding. A NaN or an infinity stays in the residual, or travels; after
/// it the element is lost for good, as it would be in a sum without a codec.
class Codec {
 public:
  explicit Codec(Spec spec) : spec_(std::move(spec)) {}
  virtual ~Codec() = default;
  const Spec& spec() const { return spec_; }
  /// Of `count` values, whatever they are.
  virtual size_t encoded_bytes(size_t count) const = 0;
  /// t = residual + gradient; what `out`, encoded_bytes(count) of it, says of t is sent; residual = t - that.
  virtual void encode(const float* gradient, float* residual, size_t count, std::byte* out) const = 0;
  /// values[i] = what was sent.
  virtual void decode(const std::byte* encoded, float* values, size_t count) const = 0;
  /// values[i] += what was sent.
  virtual void decode_add(const std::byte* encoded, float* values, size_t count) const = 0;
  /// Whether these may be `count` encoded values: to be asked before anything that came from elsewhere is decoded.
  /// MV_EPROTOCOL.
  base::Status check(std::span<const std::byte> encoded, size_t count) const;

  /// It says something of every value, so that it suits values that are pulled, of which no residual is kept.
  virtual bool suits_values() const { return false; }

 private:
  /// Beyond the size.
  virtual bool is_sound(const std::byte* /*encoded*/, size_t /*count*/) const { return true; }

  const Spec spec_;
};
using CodecRef = std::shared_ptr<const Codec>;

/// The codec of a spec that check() accepts; null for none.
CodecRef make(const Spec& spec);
/// Whether there is such a codec, with such parameters: also for specs that came over the wire.
base::Status check(const Spec& spec);
/// Reads {"2bit", "threshold=0.5"} or {"type=2bit", "threshold=0.5"}, in any order of what has a value, filling in
/// defaults; "none" is none. MV_EINVAL with what is known.
base::Result<Spec> parse(std::span<const base::TextPair> pairs);
base::Result<Spec> parse(std::string_view text);
/// "2bit threshold=0.5", "none"
std::string to_text(const Spec& spec);

}  // namespace mv::codec
