#pragma once
// Bad weather as text: "drop=0.01 duplicate=0.01 delay_ms=5 break=0.001 seed=7".

#include <cstdint>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::transport {

/// What may happen to each message on its way out. All zero: nothing.
struct Faults {
  double drop = 0;       ///< probability that it is lost
  double duplicate = 0;  ///< that it is sent twice
  double cut = 0;        ///< "break": that the connection breaks before it
  base::Nanos delay{0};  ///< "delay_ms": it waits for a time between 0 and this, so messages overtake each other
  double rate = 0;       ///< bytes a second that all messages together leave at, one behind the other; 0: at once
  uint64_t seed = 1;     ///< of the dice

  bool any() const { return drop > 0 || duplicate > 0 || cut > 0 || delay > base::Nanos{0} || rate > 0; }
};

/// Keys separated by white space, commas or semicolons, in any order; later ones win. MV_EINVAL names what is wrong.
base::Result<Faults> parse_faults(std::string_view text);

}  // namespace mv::transport
