#pragma once
// The end of a node: mv_shutdown(), mv_abort(), and the end of a process that calls neither.

namespace mv::capi {

/// Installs the exit handler, once: a process that ends with status 0 shuts its nodes down, another one aborts them.
/// Called after the first node was opened, so that the handler runs before the destructors of statics.
void watch_exit();

}  // namespace mv::capi
