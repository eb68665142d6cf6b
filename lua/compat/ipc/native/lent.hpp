#pragma once
// A tensor's memory on its way to another thread of the process: no copy is made, both look at the same.

#include <polyverso/polyverso.h>

#include "shared.hpp"

namespace mv::native {

/// Owns a handle of the C API, so that the memory lives while the message does.
class Lent : public Shared {
 public:
  static constexpr const char* kKind = "ipc.memory";

  explicit Lent(mv_tensor tensor) : tensor_(tensor) {}
  ~Lent() override { mv_tensor_free(tensor_); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  const char* kind() const override { return kKind; }
  mv_tensor tensor() const { return tensor_; }

 private:
  const mv_tensor tensor_;
};

/// lent(handle): takes the handle over
int lend(lua_State* L);

/// Makes the metatable, with handle(): a further handle upon the same memory, the caller's to free.
void open_lent(lua_State* L);

}  // namespace mv::native
