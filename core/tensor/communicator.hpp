#pragma once
// All-reduces between the devices of several ranks, without the host: see device/plugin.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.hpp"
#include "tensor/dtype.hpp"

namespace mv::tensor {

/// One rank's end of a communicator. No function waits for other ranks. One thread at a time.
class Communicator {
 public:
  using Id = std::array<std::byte, 128>;
  struct Buffers {
    const void* in;
    void* out;
    size_t count;
    mv_dtype dtype;
  };

  /// Aborts what is under way, unless close() was called.
  virtual ~Communicator() = default;
  /// Begins an all-reduce, after all work that the device's stream has so far. Averages divide by the number of ranks. All
  /// ranks get the same bits.
  /// @param reduction  an mv_reduction
  virtual base::Status allreduce(std::span<const Buffers> parts, int32_t reduction) = 0;
  /// Whether all that was begun is done: the making of the communicator, an all-reduce.
  virtual base::Result<bool> is_idle() = 0;
  /// Ends it in order: the other ranks may still be at the end of an all-reduce that is done here.
  virtual void close() noexcept = 0;
};

}  // namespace mv::tensor
