#pragma once
// The faults to inject, as text: "drop=0.01 duplicate=0.01 delay_ms=5 break=0.001 seed=7".

#include <cstdint>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::transport {

/// The faults that may happen to each outgoing message. All zero: none.
struct Faults {
  double drop = 0;       ///< probability that the message is lost
  double duplicate = 0;  ///< probability that it is sent twice
  double cut = 0;        ///< "break": probability that the connection breaks before it
  base::Nanos delay{0};  ///< "delay_ms": a random delay from 0 to this, which reorders messages
  double rate = 0;       ///< bytes per second of all messages together, in sequence; 0: unlimited
  uint64_t seed = 1;     ///< of the random numbers

  bool any() const { return drop > 0 || duplicate > 0 || cut > 0 || delay > base::Nanos{0} || rate > 0; }
};

/// Parses keys separated by white space, commas or semicolons, in any order; later ones win. MV_EINVAL names the error.
base::Result<Faults> parse_faults(std::string_view text);

}  // namespace mv::transport
