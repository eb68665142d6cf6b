#pragma once
// The register that holds the newest decided view of the members.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.hpp"

namespace mv::cluster {

/// A linearizable register with compare-and-set. The master writes each view to it before it acts on the view. A server
/// that takes the place of a lost master reads the register, and writes a view in which it is the master itself. A
/// deposed master can no longer write, because its revision is old. So at most one process decides which server serves
/// which part, even if several believe that they are the master.
///
/// Loop thread only. A callback runs on the loop thread, at most once, and possibly before the call returns. No
/// callback runs after the destructor.
class Keeper {
 public:
  struct Content {
    uint64_t revision = 0;          ///< 0: nothing was ever written. Grows with each write, by one or more
    std::vector<std::byte> view{};  ///< the bytes that were written
  };
  using Read = std::function<void(base::Result<Content>)>;
  using Written = std::function<void(base::Result<uint64_t>)>;

  virtual ~Keeper() = default;
  /// MV_EUNREACHABLE: the keeper does not answer now (no majority, no connection); the caller may try again.
  virtual void read(Read done) = 0;
  /// Replaces the content if its revision is still `revision`, and returns the new revision. MV_ESTATE: another process
  /// has written meanwhile; nothing was changed. MV_EUNREACHABLE: it is unknown whether the view was written; read()
  /// shows it.
  virtual void write(uint64_t revision, std::vector<std::byte> view, Written done) = 0;
};

}  // namespace mv::cluster
