#pragma once
// Places: in whose memory a strategy's arrays are, and what is computed there.

#include <memory>
#include <new>
#include <vector>

#include "api/distlearn/arrays.hpp"
#include "api/node/node.hpp"
#include "tensor/device.hpp"

namespace mv::distlearn {

/// A device has no memory for Buffers. Their owner's call has changed nothing.
class NoRoom final : public std::bad_alloc {};

/// For each array the device in whose memory it is; null: it is in the host's.
using Places = std::vector<tensor::Device*>;

/// All on the host if `find` is null.
base::Result<Places> places_of(const Arrays& arrays, const api::FindDevice& find);
/// The device on which all arrays are that have elements; null if there is none.
tensor::Device* common_device(const Arrays& arrays, const Places& places);
/// Waits for the work of these devices.
base::Status wait_for(const Places& places);
/// The status of a call, after whose end the caller may use the arrays: waits, unless a signal has interrupted the call.
base::Status end_call(const Places& places, base::Status status);

// The arrays of one index are in one place. Arrays other than `values` have their storage dtype.

/// sums += terms
base::Status add(const Arrays& sums, const Arrays& terms, const Places& places);
/// to = from, one of which is `values`.
base::Status convert(const Arrays& to, const Arrays& from, const Places& places);
/// difference = alpha (values - center), values -= difference. The difference may be in the center's memory.
base::Status elastic(const Arrays& values, const Arrays& center, const Arrays& difference, double alpha, const Places& places);

/// What the outer step of local SGD works on.
struct OuterArrays {
  Arrays values, outer, velocity, moved;
  Places places;
};
base::Status outer_step(const OuterArrays& arrays, math::Outer what, const math::OuterSettings& settings);
/// cut() of each of them.
OuterArrays cut(const OuterArrays& arrays, uint64_t first, uint64_t count);

/// Own memory for arrays of the same shape; 16-bit floats become f32.
class Buffers {
 public:
  Buffers() = default;
  /// Each array where `places` tell. New ones are zeros, others keep their values. After an error, or NoRoom, each is in one of both places.
  base::Status settle(const Arrays& like, const Places& places);
  const Arrays& arrays() const { return arrays_; }
  const Places& places() const { return places_; }
  bool empty() const { return memory_.empty(); }
  base::Status fill_zero();
  /// An array on a device as a matrix.
  tensor::Tensor matrix(size_t i, size_t rows, size_t cols) const;
  /// All elements as f32, for tests.
  std::vector<float> floats() const;

 private:
  /// In one of both.
  struct Memory {
    std::vector<std::byte> here;
    std::shared_ptr<tensor::Block> there;
  };
  static base::Result<Memory> make(uint64_t bytes, tensor::Device* place);
  base::Status move(size_t i, tensor::Device* place);
  std::vector<Memory> memory_;
  Arrays arrays_;
  Places places_;
};

}  // namespace mv::distlearn
