#pragma once
// What an add does to a table's values. One file for each updater, and one line for it in registry.cpp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "table/spec.hpp"

namespace mv::table {

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
};

/// Stateless but for its parameters; the states lie beside the values. Any thread. Each element goes by itself: one
/// that wants more (how often a row was changed, the norm of a whole value) will say so by a further function here, and
/// find it in a further field of Block.
class Updater {
 public:
  virtual ~Updater() = default;
  /// State arrays for each element.
  virtual size_t states() const { return 0; }
  /// Wants to know what each worker last got: gets must then reach the server.
  virtual bool keeps_backups() const { return false; }
  virtual void apply(const Block& block) const = 0;
};

/// The updater of a spec that check_updater() accepts.
std::unique_ptr<Updater> make_updater(const UpdaterSpec& spec, mv_dtype storage);

/// Reads "adagrad rate=0.1", filling in defaults; empty text is "add". MV_EINVAL with what is known.
base::Result<UpdaterSpec> parse_updater(std::string_view text);
/// Whether there is such an updater, for this dtype, with such parameters: also for specs that came over the wire.
base::Status check_updater(const UpdaterSpec& spec, mv_dtype dtype);
/// "adagrad rate=0.1 epsilon=1e-10 decay=0"
std::string to_text(const UpdaterSpec& spec);
/// Updater::keeps_backups() of the updater of this spec.
bool keeps_backups(const UpdaterSpec& spec);

}  // namespace mv::table
