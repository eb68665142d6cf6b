#pragma once
// A tensor's memory in a message to another thread of the process: both threads share the memory, without a copy.

#include <polyverso/polyverso.h>

#include "shared.hpp"

namespace mv::native {

/// Owns a handle of the C API, so that the memory lives as long as the message.
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

/// lent(handle): takes ownership of the handle
int lend(lua_State* L);

/// Makes the metatable, with handle(): another handle of the same memory, which the caller frees.
void open_lent(lua_State* L);

}  // namespace mv::native
