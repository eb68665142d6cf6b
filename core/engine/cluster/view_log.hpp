#pragma once
// Views as messages: whole, or only what has changed since a view that the receiver has.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "engine/cluster/view.hpp"
#include "wire/frame.hpp"

namespace mv::cluster {

/// A view as it was received.
struct Update {
  uint64_t base = 0;          ///< the receiver needs the view with this number, or a newer one; 0: `view` is whole
  bool workers_gone = false;  ///< View::workers_gone() of the whole view
  View view = {};             ///< with a base, only the members and the reasons of losses that are newer than it
};

/// @param payload  holds the view if `header` has no members. MV_EPROTOCOL if it is not valid
base::Result<Update> read_update(const wire::View& header, std::span<const std::byte> payload);

/// Makes `view` the view that was sent. False if it is older than the update's base, or of other members; then it is
/// unchanged.
bool apply(const Update& update, View& view);

/// Remembers in which view each member last changed, so that a change of the membership costs each receiver only the
/// members that have changed. This needs no earlier views. A receiver may have any view from the update's base on: the
/// update has all members that have changed since then, as they are now.
class ViewLog {
 public:
  /// This process knows nothing of the views before this one. Receivers that have an older one get the whole view.
  void begin(const View& view);
  /// `next` follows `before`, the last view of begin() or follow().
  void follow(const View& before, const View& next);
  /// The number of the last view.
  uint64_t last() const { return last_; }
  /// The message with `view`, the last one. @param has  the number of the receiver's view; 0: none, or it is unknown
  base::Frame write(wire::FrameBuilder& builder, const View& view, uint64_t has) const;

 private:
  uint64_t first_ = 0, last_ = 0;
  std::vector<uint64_t> changed_;  ///< for each member: the number of the view in which it last changed
  std::deque<uint64_t> losses_;    ///< for each of View::loss_texts: the number of its view
};

}  // namespace mv::cluster
