#pragma once
// What exported functions of groups have in common.

#include <exception>
#include <thread>

#include "api/group/group.hpp"
#include "boundary.hpp"
#include "outcome.hpp"
#include "state.hpp"

namespace mv::capi {

/// Runs work(State&, const GroupEntry&) of an exported function, whose name begins the error message. If memory runs out, the group breaks: the other
/// ranks would wait for this one.
template <typename Work>
mv_status with_group(const char* function, mv_group group, Work work) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_group(state, function, group);
    if (!pin.ok()) return pin.status();
    try {
      return named(function, work(state, *pin.value()));
    } catch (const std::exception&) {
      pin.value()->group->give_up(base::Status(MV_ENOMEM, "out of memory"));  // short enough to need no allocation
      throw;
    }
  });
}

/// MV_EREENTRANT inside the function of a custom reduction of this group, for whose end a blocking operation would wait.
inline base::Status not_reducing(const GroupEntry& entry) {
  if (entry.reducing->load(std::memory_order_relaxed) != std::this_thread::get_id()) return {};
  return base::Status(MV_EREENTRANT, "this thread is inside the function of a custom reduction of this group: the call would wait for it");
}

/// with_group() for work that blocks until other ranks take part.
template <typename Work>
mv_status with_group_of_others(const char* function, mv_group group, Work work) {
  return with_group(function, group, [&](State& state, const GroupEntry& entry) -> base::Status {
    if (auto status = not_reducing(entry); !status.ok()) return status;
    return work(state, entry);
  });
}

}  // namespace mv::capi
