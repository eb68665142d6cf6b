#include "shard/spec.hpp"

#include <fmt/core.h>

#include "shard/updater/updater.hpp"

namespace mv::shard {

Consistency Spec::consistency(bool node_is_sync, size_t workers) const {
  if (workers < 2) return Consistency::kAsync;  // no other worker to wait for
  if (merges()) return Consistency::kMerge;
  if (staleness > 0) return Consistency::kStale;
  return staleness == 0 || node_is_sync ? Consistency::kSync : Consistency::kAsync;
}

bool Spec::same_shape(const Spec& other) const {
  return kind == other.kind && dtype == other.dtype && rows == other.rows && cols == other.cols && flags == other.flags &&
         updater == other.updater && staleness == other.staleness && initial == other.initial &&
         initial_range == other.initial_range && seed == other.seed && capacity == other.capacity && home == other.home &&
         device == other.device;
}

bool Spec::same_but_for_parameters(const Spec& other) const {
  Spec alike = other;
  if (alike.updater.name == updater.name) alike.updater = updater;
  return same_shape(alike);
}

std::string Spec::describe() const {
  const std::string_view type = tensor::dtype_name(dtype);
  std::string text;
  if (kind == MV_ARRAY) text = fmt::format("an array of {} {}", rows, type);
  if (kind == MV_MATRIX) text = fmt::format("a {} x {} matrix of {}", rows, cols, type);
  if (kind == MV_SPARSE) text = fmt::format("a sparse {} x {} matrix of {}", rows, cols, type);
  if (kind == MV_KEYVALUE) text = fmt::format("a key-value table of {} {}", cols, type);
  if ((flags & kRowSparse) != 0) text += ", row-sparse";
  if (rejects_nonfinite()) text += ", finite only";
  if (merges()) text += ", merged";
  if (!has_backups()) text += ", without back-ups";
  if (is_sliced()) text += ", in slices";
  if (updater.name != "add") text += fmt::format(", updater {}", to_text(updater));
  if (staleness != MV_UNSET) text += fmt::format(", staleness {}", staleness);
  if (initial != 0 || initial_range != 0) text += fmt::format(", initially {}", initial);
  if (initial_range != 0) text += fmt::format(" +- {} by seed {}", initial_range, seed);
  if (home != 0) text += fmt::format(", on one server by {}", home);
  if (is_on_device()) text += fmt::format(", on device {}", device);
  if (capacity != 0) text += fmt::format(", at most {} keys", capacity);
  return text;
}

std::string Spec::describe_unlike(const Spec& other) const {
  std::string mine = describe(), theirs = other.describe();
  while (mine != theirs) {
    const size_t last = mine.rfind(", "), others_last = theirs.rfind(", ");
    if (last == std::string::npos || others_last == std::string::npos || mine.substr(last) != theirs.substr(others_last)) break;
    mine.resize(last);
    theirs.resize(others_last);
  }
  return mine;
}

}  // namespace mv::shard
