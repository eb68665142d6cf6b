#pragma once
// An ipc tree: either a separate node in a cluster of its own, or the process's own node; and the group of all workers.

#include <polyverso/polyverso.h>

#include "shared.hpp"

namespace mv::native {

class Tree : public Shared {
 public:
  static constexpr const char* kKind = "ipc.tree";

  /// Takes ownership of node and group. Others may still need a tree that Lua collects: then a thread leaves in the background, and the end
  /// of the process waits for it.
  Tree(mv_node node, mv_group group) : node_(node), group_(group) {}
  ~Tree() override { leave(); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  const char* kind() const override { return kKind; }

  mv_group group() const { return group_; }
  /// Leaves in the background, once.
  void leave();
  /// Leaves because the process has failed, unless the tree has left: the others get the exit status as the reason.
  void abort(int exit_status);

 private:
  const mv_node node_;
  const mv_group group_;
  bool has_left_ = false;
};

/// join(index, nodes, master, bind): a tree in a cluster of its own; join(): a tree on the process's own node
int join_tree(lua_State* L);

/// Makes the metatables.
void open_trees(lua_State* L);

}  // namespace mv::native
