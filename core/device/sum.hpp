#pragma once
// Sums of tensors from several places.

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "device/graphs.hpp"
#include "device/scratch.hpp"
#include "device/paths.hpp"
#include "device/tensors.hpp"

namespace mv::device {

/// Sums on one device, all of them in one list of work. Sums of three or more devices may be made in parts (Path::kByParts): each device that
/// has a value sums a part of the elements, for which it copies that part of all values, and the parts are then copied together. In this way all
/// connections between the devices are used, and not only those of one. The order of the operands, and so the bits, are the same.
class Sums {
 public:
  /// @param stream  the device's, on which the sums are computed
  Sums(TensorDevice& device, const Stream& stream);
  /// A sum of dense tensors of one shape and dtype, wherever they are, in their order; halves are summed as floats and rounded once. Its
  /// place is `out`, or with null memory that the stream has as long as this lives, or that of the only one of `values`.
  /// `values` stay until run() returns.
  void add(std::span<const tensor::Tensor> values, void* out = nullptr);
  /// Allocates memory for all sums, and begins them. MV_ENOMEM: no sum has been made.
  base::Status run();
  const void* at(size_t sum) const { return sums_[sum].out; }

 private:
  struct Sum {
    std::span<const tensor::Tensor> values;
    void* out;
    bool is_split = false;
  };
  /// What one device does.
  struct Share {
    TensorDevice& device;
    const Stream& stream;
    size_t bytes = 0;  ///< of its room
    std::optional<Room> room = {};
    WorkList work = {};
  };
  /// Some elements of a sum.
  struct Slice {
    size_t first, count;
  };

  Share& share_of(TensorDevice& device);
  bool can_split(const Sum& sum) const;
  template <typename Visit>
  void for_each_slice(const Sum& sum, const Visit& visit);
  size_t room_for(const Share& share, const Sum& sum, size_t count) const;
  base::Status plan(Path path);
  base::Result<std::vector<const void*>> gather(Share& share, const Sum& sum, Slice slice);
  void list(Share& share, const Sum& sum, void* out, std::span<const void* const> here, size_t count);
  base::Status list_all();
  base::Status begin();
  base::Result<Path> run(Path path);

  std::vector<Sum> sums_;
  std::deque<Share> shares_;  ///< the first is the device of the sums; then others that have values
  WorkList collected_;      ///< copies of the shares of sums that other devices have made
};

}  // namespace mv::device
