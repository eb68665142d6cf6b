#pragma once
// What an add does to a table's values. One file for each updater, and one line for it in registry.cpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "shard/spec.hpp"

namespace mv::shard {

/// How far a tensor has come, a table or one key of a store: what rates and corrections go by.
struct Turn {
  uint64_t count = 1;  ///< this update's number among the tensor's, from 1
  uint64_t latest =
      1;  ///< the largest count of all tensors that share the optimizer, this update's among them: for schedules
  uint64_t before = 0;                       ///< the same before this update
  double rate_factor = 1, decay_factor = 1;  ///< MXNet's lr_mult and wd_mult of the tensor, besides the spec's
  uint64_t stream = 0;                       ///< sets the random numbers of tensors, and of pieces of one, apart
};

/// What an update needs besides the elements and what lies beside them, worked out once for all of a tensor.
struct Step {
  static constexpr size_t kNumbers = 20, kSums = 2;
  std::array<double, kNumbers> numbers{};  ///< as the formula wants them
  uint64_t stream = 0;                     ///< of its random numbers
  std::array<double, kSums> sums{};        ///< over the whole tensor: see Updater::sums()
};

/// Some neighbouring elements, all of one row or of one stripe, and what lies beside them. All arrays have `count`
/// elements of the storage dtype, perhaps unaligned, and are the updater's alone during the call.
struct Block {
  size_t count = 0;
  std::byte* values = nullptr;
  const std::byte* added = nullptr;
  std::byte* const* states = nullptr;  ///< Updater::states() arrays, zeros at first
  /// Updater::keeps_backups(): the values that this worker last got, or null if it got none. Every bit is inverted, so
  /// that the zeros of fresh memory are a NaN, which stands for a value that it never got.
  const std::byte* backup = nullptr;
  const Step* step = nullptr;  ///< Updater::counts(): of this update
  uint64_t first = 0;          ///< Updater::counts(): the number of the first element in the tensor
};

/// Stateless but for its parameters; what it remembers is its caller's to keep: states beside the values, the count of
/// updates and `shared`. Any thread.
///
/// An update of a tensor by one that counts:
///   updater.advance(turn, shared);  Step step = updater.step(turn, shared);
///   where sums() > 0: updater.measure(block, step.sums) for all of its blocks, which changes states but no values
///   updater.apply(block), with block.step = &step, for all of its blocks
class Updater {
 public:
  virtual ~Updater() = default;
  /// State arrays for each element.
  virtual size_t states() const { return 0; }
  /// Wants to know what each worker last got: gets must then reach the server.
  virtual bool keeps_backups() const { return false; }
  /// An add of rows is all there is afterwards: rows that it does not name become zeros.
  virtual bool replaces() const { return false; }

  /// Wants a Step.
  virtual bool counts() const { return false; }
  /// What all tensors of the optimizer share, as it is at first.
  virtual std::span<const double> shared() const { return {}; }
  /// Moves `shared` on, once for each update of a tensor.
  virtual void advance(const Turn&, std::span<double> /*shared*/) const {}
  /// turn.count is at least 1, `shared` after advance().
  virtual Step step(const Turn&, std::span<const double> /*shared*/) const { return {}; }

  /// Sums over the tensor that it wants before any of its values change (the norms of LARS and LAMB).
  virtual size_t sums() const { return 0; }
  /// Adds this block's share to Step::sums.
  virtual void measure(const Block&, double* /*sums*/) const {}

  /// Rows may be updated without the others, as MXNet does with row-sparse gradients; else it would take a gradient of
  /// some rows for one whose other rows are zeros.
  virtual bool is_lazy() const { return true; }

  virtual void apply(const Block& block) const = 0;
};

/// The updater of a spec that check_updater() accepts.
std::unique_ptr<Updater> make_updater(const UpdaterSpec& spec, mv_dtype storage);

/// Reads "adagrad rate=0.1" or "mx.adam wd=0.01", filling in defaults; empty text is "add". MV_EINVAL with what is known.
base::Result<UpdaterSpec> parse_updater(std::string_view text);
/// Gives one parameter of a spec another value. MV_EINVAL where the updater has none of this name.
base::Status set_parameter(UpdaterSpec& spec, std::string_view name, double value);
/// Whether there is such an updater, for this dtype, with such parameters: also for specs that came over the wire.
base::Status check_updater(const UpdaterSpec& spec, mv_dtype dtype);
/// "adagrad rate=0.1 epsilon=1e-10 decay=0"; of an optimizer's common parameters those that are not as usual.
std::string to_text(const UpdaterSpec& spec);
/// The updater that Updater::replaces(): of a store's keys while they have no optimizer.
inline constexpr const char* kReplacing = "replace";

/// Updater::keeps_backups() of the updater of this spec.
bool keeps_backups(const UpdaterSpec& spec);

}  // namespace mv::shard
