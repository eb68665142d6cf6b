#pragma once
// The time at which a server processes a request.

#include <optional>

#include "base/clock.hpp"

namespace mv::table {

/// Loop thread only.
class RequestClock {
 public:
  explicit RequestClock(const base::Clock& clock) : clock_(clock) {}
  base::Nanos now() const { return moment_ ? *moment_ : clock_.now(); }

  /// Freezes now() while it lives: reading the clock costs as much as a part of a request for many tables.
  class Moment {
   public:
    explicit Moment(RequestClock& clock) : clock_(clock) { clock_.moment_ = clock_.clock_.now(); }
    Moment(const Moment&) = delete;
    Moment& operator=(const Moment&) = delete;
    ~Moment() { clock_.moment_.reset(); }

   private:
    RequestClock& clock_;
  };

 private:
  const base::Clock& clock_;
  std::optional<base::Nanos> moment_;
};

}  // namespace mv::table
