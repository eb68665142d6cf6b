#include "lent.hpp"

namespace mv::native {

namespace {

int handle_method(lua_State* L) {
  const auto* lent = check_shared<Lent>(L, 1);
  return guarded(L, [&](Failure& failure) {
    const int64_t all = -1;
    mv_tensor another = 0;
    if (mv_tensor_reshape(lent->tensor(), &all, 1, &another) != MV_OK) return failure = mv_last_error(), 0;
    push_integer(L, another);
    return 1;
  });
}

}  // namespace

int lend(lua_State* L) {
  const auto tensor = static_cast<mv_tensor>(luaL_checknumber(L, 1));
  push_shared(L, std::make_shared<Lent>(tensor));
  return 1;
}

void open_lent(lua_State* L) {
  static constexpr luaL_Reg kMethods[] = {{"handle", handle_method}, {nullptr, nullptr}};
  open_kind(L, Lent::kKind, kMethods);
  lua_pop(L, 1);
}

}  // namespace mv::native
