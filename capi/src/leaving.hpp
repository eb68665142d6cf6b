#pragma once
// The end of a node: mv_shutdown(), mv_abort(), and the end of a process that calls neither.

namespace mv::capi {

struct NodeEntry;
struct State;

/// Closes the groups of a node directly: its messages do not cover operations over shared memory, and other ranks would wait
/// for this one.
void close_groups(State& state, const NodeEntry& entry);

/// Installs the exit handler, once: a process that ends with status 0 shuts its nodes down, another one aborts them.
/// Called after the first node was opened, so that the handler runs before the destructors of statics.
void watch_exit();

}  // namespace mv::capi
