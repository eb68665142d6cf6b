#pragma once
// Updaters: the formulas by which adds change a table's values. Each has a file of its own and a line in registry.cpp.

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

/// The progress of a tensor (a table or one key of a store), on which rates and corrections depend.
struct Turn {
  uint64_t count = 1;  ///< the number of this update of the tensor, from 1
  uint64_t latest =
      1;  ///< the largest count of all tensors that share the optimizer, including this update: for schedules
  uint64_t before = 0;                       ///< `latest` before this update
  double rate_factor = 1, decay_factor = 1;  ///< MXNet's lr_mult and wd_mult of the tensor, in addition to the spec's
  uint64_t stream = 0;                       ///< separates the random numbers of tensors, and of the pieces of one
};

/// The numbers of an update, computed once for all elements of a tensor.
struct Step {
  static constexpr size_t kNumbers = 20, kSums = 2;
  std::array<double, kNumbers> numbers{};  ///< in the order of the formula
  uint64_t stream = 0;                     ///< selects the random numbers
  std::array<double, kSums> sums{};        ///< over the whole tensor: see Updater::sums()
};

/// Contiguous elements of one row or of one stripe, with their states and backups. All arrays have `count` elements of
/// the storage dtype, perhaps unaligned. During the call only the updater accesses them.
struct Block {
  size_t count = 0;
  std::byte* values = nullptr;
  const std::byte* added = nullptr;
  std::byte* const* states = nullptr;  ///< Updater::states() arrays, zeros at first
  /// If Updater::keeps_backups(): the values that this worker last got, or null if it got none. All bits are inverted,
  /// so that the zeros of fresh memory are a NaN, which means that the worker never got the value.
  const std::byte* backup = nullptr;
  const Step* step = nullptr;  ///< if Updater::counts(): the numbers of this update
  uint64_t first = 0;          ///< if Updater::counts(): the number of the first element in the tensor
};

/// A formula and its parameters. It has no other state: the caller keeps the state arrays, the count of updates and
/// `shared`. Any thread.
///
/// An update of a tensor by an updater that counts:
///   updater.advance(turn, shared);  Step step = updater.step(turn, shared);
///   if sums() > 0: updater.measure(block, step.sums) for all blocks, which changes states but no values
///   updater.apply(block), with block.step = &step, for all blocks
class Updater {
 public:
  virtual ~Updater() = default;
  /// The number of state arrays, each with one value for each element.
  virtual size_t states() const { return 0; }
  /// Needs the values that each worker last got. Gets must then reach the server.
  virtual bool keeps_backups() const { return false; }
  /// An add of rows replaces the table: rows that it does not name become zeros.
  virtual bool replaces() const { return false; }

  /// Counts updates, and needs a Step for each.
  virtual bool counts() const { return false; }
  /// The initial value of the state that all tensors of the optimizer share.
  virtual std::span<const double> shared() const { return {}; }
  /// Advances `shared`, once for each update of a tensor.
  virtual void advance(const Turn&, std::span<double> /*shared*/) const {}
  /// turn.count is at least 1, `shared` after advance().
  virtual Step step(const Turn&, std::span<const double> /*shared*/) const { return {}; }

  /// The number of sums over the tensor that are needed before any value changes (for the norms of LARS and LAMB).
  virtual size_t sums() const { return 0; }
  /// Adds this block's share to Step::sums.
  virtual void measure(const Block&, double* /*sums*/) const {}

  /// A row-sparse gradient updates only its rows, as in MXNet. If false, the gradients of all other rows count as
  /// zeros.
  virtual bool is_lazy() const { return true; }

  virtual void apply(const Block& block) const = 0;
};

/// The updater of a spec, which check_updater() must accept.
std::unique_ptr<Updater> make_updater(const UpdaterSpec& spec, mv_dtype storage);

/// Parses "adagrad rate=0.1" or "mx.adam wd=0.01", with defaults for the rest; empty text is "add". MV_EINVAL lists the
/// known names.
base::Result<UpdaterSpec> parse_updater(std::string_view text);
/// Changes one parameter of a spec. MV_EINVAL if the updater has no such parameter, or the value is out of range.
base::Status set_parameter(UpdaterSpec& spec, std::string_view name, double value);
/// Checks that the updater exists and takes this dtype and these parameters. Also for specs from the network.
base::Status check_updater(const UpdaterSpec& spec, mv_dtype dtype);
/// "adagrad rate=0.1 epsilon=1e-10 decay=0". An optimizer's common parameters appear only if they are not the defaults.
std::string to_text(const UpdaterSpec& spec);
/// The name of the updater with Updater::replaces(). A store's keys use it while they have no optimizer.
inline constexpr const char* kReplacing = "replace";

}  // namespace mv::shard
