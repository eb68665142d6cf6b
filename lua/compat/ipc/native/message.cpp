#include "message.hpp"

#include <cmath>
#include <cstring>

namespace mv::native {

namespace {

enum class Tag : uint8_t { kNil, kFalse, kTrue, kNumber, kInteger, kString, kTable, kFunction, kEnvironment, kPacked, kShared };

constexpr int kDepth = 100;  // nesting depth of tables
constexpr char kPack = 0, kUnpack = 0;

void push_hook(lua_State* L, const char* which) {
  lua_pushlightuserdata(L, const_cast<char*>(which));
  lua_rawget(L, LUA_REGISTRYINDEX);
}

/// Converts the error on top of the stack to text, and pops it.
std::string popped_text(lua_State* L) {
  std::string text = lua_isstring(L, -1) ? text_of(L, -1) : "an error that is not a string";
  lua_pop(L, 1);
  return text;
}

// ------------------------------------------------------------------ writing

class Encoder {
 public:
  Encoder(lua_State* L, const Manner& manner, Message& message, Failure& failure)
      : L(L), manner_(manner), message_(message), failure_(failure) {}

  bool value(int index, int depth) {
    if (depth > kDepth) return refuse("tables nested deeper than 100, or one that contains itself, can't be sent");
    if (lua_checkstack(L, 8) == 0) return refuse("out of stack");
    index = absolute(L, index);
    switch (lua_type(L, index)) {
      case LUA_TNIL: return tag(Tag::kNil);
      case LUA_TBOOLEAN: return tag(lua_toboolean(L, index) != 0 ? Tag::kTrue : Tag::kFalse);
      case LUA_TNUMBER: return number(index);
      case LUA_TSTRING: return string(index);
      case LUA_TTABLE: return table(index, depth);
      case LUA_TFUNCTION: return function(index, depth);
      case LUA_TUSERDATA: return userdata(index, depth);
      default: return refuse(std::string("a ") + luaL_typename(L, index) + " can't be sent");
    }
  }

 private:
  bool refuse(std::string why) {
    failure_ = std::move(why);
    return false;
  }

  bool tag(Tag tag) {
    message_.bytes.push_back(static_cast<char>(tag));
    return true;
  }

  template <typename Plain>
  void plain(Plain value) {
    message_.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  bool number(int index) {
#if LUA_VERSION_NUM >= 503
    if (lua_isinteger(L, index)) {
      tag(Tag::kInteger);
      plain(static_cast<int64_t>(lua_tointeger(L, index)));
      return true;
    }
#endif
    tag(Tag::kNumber);
    plain(static_cast<double>(lua_tonumber(L, index)));
    return true;
  }

  bool string(int index) {
    size_t length = 0;
    const char* text = lua_tolstring(L, index, &length);
    tag(Tag::kString);
    plain(static_cast<uint64_t>(length));
    message_.bytes.append(text, length);
    return true;
  }

  bool table(int index, int depth) {
    tag(Tag::kTable);
    const size_t at = message_.bytes.size();
    uint64_t pairs = 0;
    plain(pairs);
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
      ++pairs;
      if (!value(-2, depth + 1) || !value(-1, depth + 1)) return false;
      lua_pop(L, 1);
    }
    std::memcpy(message_.bytes.data() + at, &pairs, sizeof pairs);
    return true;
  }

  static int append(lua_State*, const void* part, size_t size, void* to) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(part), size);
    return 0;
  }

  bool function(int index, int depth) {
    if (lua_iscfunction(L, index) != 0) return refuse("a C function can't be sent");
    std::string code;
    lua_pushvalue(L, index);
#if LUA_VERSION_NUM >= 503
    const int dumped = lua_dump(L, append, &code, 0);
#else
    const int dumped = lua_dump(L, append, &code);
#endif
    lua_pop(L, 1);
    if (dumped != 0 || code.empty()) return refuse("a function can't be sent: this Lua can't dump its code");
    tag(Tag::kFunction);
    plain(static_cast<uint64_t>(code.size()));
    message_.bytes += code;
    const size_t at = message_.bytes.size();
    uint32_t upvalues = 0;
    plain(upvalues);
    while (const char* name = lua_getupvalue(L, index, static_cast<int>(upvalues) + 1)) {
      if (!upvalue(name, depth)) return false;
      ++upvalues;
    }
    std::memcpy(message_.bytes.data() + at, &upvalues, sizeof upvalues);
    return true;
  }

  /// The value on top of the stack; pops it.
  bool upvalue(const char* name, int depth) {
#if LUA_VERSION_NUM >= 502
    if (std::strcmp(name, "_ENV") == 0) {  // the receiver uses its own globals
      lua_pop(L, 1);
      return tag(Tag::kEnvironment);
    }
#endif
    if (!manner_.upvalues)
      return refuse(std::string("a function with the upvalue \"") + name +
                    "\" can't be sent: the copy would have its own variable. Pass its value as an argument");
    if (!value(-1, depth + 1)) return false;
    lua_pop(L, 1);
    return true;
  }

  bool userdata(int index, int depth) {
    if (auto shared = shared_at(L, index)) {
      if (!manner_.in_process) return refuse(std::string("a ") + shared->kind() + " can't be sent to another process");
      tag(Tag::kShared);
      plain(static_cast<uint64_t>(message_.shared.size()));
      message_.shared.push_back(std::move(shared));
      return true;
    }
    push_hook(L, &kPack);
    lua_pushvalue(L, index);
    lua_pushboolean(L, manner_.in_process ? 1 : 0);
    if (lua_pcall(L, 2, 1, 0) != 0) return refuse(popped_text(L));
    if (lua_isnil(L, -1)) return refuse("userdata that is not a tensor can't be sent");
    tag(Tag::kPacked);
    if (!value(-1, depth + 1)) return false;
    lua_pop(L, 1);
    return true;
  }

  lua_State* L;
  const Manner& manner_;
  Message& message_;
  Failure& failure_;
};

// ------------------------------------------------------------------ reading untrusted bytes

class Decoder {
 public:
  Decoder(lua_State* L, const Message& message, size_t& at, const Manner& manner, int into, Failure& failure)
      : L(L), message_(message), at_(at), manner_(manner), into_(into), failure_(failure) {}

  bool value(int depth) {
    uint8_t tag = 0;
    if (depth > kDepth) return refuse("invalid message: tables nested deeper than 100");
    if (lua_checkstack(L, 8) == 0) return refuse("out of stack");
    if (!plain(tag)) return false;
    if (depth == 0 && into_ != 0 && static_cast<Tag>(tag) != Tag::kPacked) return refuse("recv() needs a tensor, the message is not a tensor");
    switch (static_cast<Tag>(tag)) {
      case Tag::kNil: lua_pushnil(L); return true;
      case Tag::kFalse: lua_pushboolean(L, 0); return true;
      case Tag::kTrue: lua_pushboolean(L, 1); return true;
      case Tag::kNumber: return number<double>();
      case Tag::kInteger: return number<int64_t>();
      case Tag::kString: return string();
      case Tag::kTable: return table(depth);
      case Tag::kFunction: return function(depth);
      case Tag::kEnvironment: push_globals(L); return true;
      case Tag::kPacked: return packed(depth);
      case Tag::kShared: return shared();
    }
    return refuse("invalid message: a value of an unknown kind");
  }

 private:
  bool refuse(std::string why) {
    failure_ = std::move(why);
    return false;
  }

  size_t left() const { return message_.bytes.size() - at_; }

  template <typename Plain>
  bool plain(Plain& value) {
    if (left() < sizeof value) return refuse("invalid message: it ends too early");
    std::memcpy(&value, message_.bytes.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }

  template <typename Number>
  bool number() {
    Number value = 0;
    if (!plain(value)) return false;
    if constexpr (std::is_integral_v<Number>)
      push_integer(L, value);
    else
      lua_pushnumber(L, value);
    return true;
  }

  /// The bytes after a length; null with a failure.
  const char* bytes(uint64_t& length) {
    if (!plain(length)) return nullptr;
    if (length > left()) {
      refuse("invalid message: it ends too early");
      return nullptr;
    }
    const char* found = message_.bytes.data() + at_;
    at_ += length;
    return found;
  }

  bool string() {
    uint64_t length = 0;
    const char* text = bytes(length);
    if (text == nullptr) return false;
    lua_pushlstring(L, text, length);
    return true;
  }

  bool table(int depth) {
    uint64_t pairs = 0;
    if (!plain(pairs)) return false;
    lua_newtable(L);
    for (; pairs > 0; --pairs) {
      if (!value(depth + 1)) return false;
      if (lua_isnil(L, -1) || (lua_type(L, -1) == LUA_TNUMBER && std::isnan(lua_tonumber(L, -1))))
        return refuse("invalid message: a table with an invalid key");
      if (!value(depth + 1)) return false;
      lua_rawset(L, -3);
    }
    return true;
  }

  bool function(int depth) {
    uint64_t length = 0;
    uint32_t upvalues = 0;
    const char* code = bytes(length);
    if (code == nullptr || !plain(upvalues)) return false;
    if (!manner_.functions)
      return refuse("refused a function from another process, because it runs as code of this one: ipc.acceptFunctions(true) allows functions");
    if (luaL_loadbuffer(L, code, length, "=received") != 0) return refuse(popped_text(L));
    for (uint32_t i = 1; i <= upvalues; ++i) {
      if (!value(depth + 1)) return false;
      if (lua_setupvalue(L, -2, static_cast<int>(i)) == nullptr) return refuse("invalid message: a function with more upvalues than its code has");
    }
    return true;
  }

  bool packed(int depth) {
    push_hook(L, &kUnpack);
    if (!value(depth + 1)) return false;
    if (depth == 0 && into_ != 0)
      lua_pushvalue(L, into_);
    else
      lua_pushnil(L);
    return lua_pcall(L, 2, 1, 0) == 0 || refuse(popped_text(L));
  }

  bool shared() {
    uint64_t which = 0;
    if (!plain(which)) return false;
    if (!manner_.in_process || which >= message_.shared.size()) return refuse("invalid message: a reference to an object that is not shared");
    push_shared(L, message_.shared[which]);
    return true;
  }

  lua_State* L;
  const Message& message_;
  size_t& at_;
  const Manner& manner_;
  const int into_;
  Failure& failure_;
};

}  // namespace

bool encode(lua_State* L, int index, const Manner& manner, Message& message, Failure& failure) {
  const int top = lua_gettop(L);
  const bool done = Encoder(L, manner, message, failure).value(index, 0);
  lua_settop(L, top);
  return done;
}

bool decode(lua_State* L, const Message& message, size_t& at, const Manner& manner, int into, Failure& failure) {
  const int top = lua_gettop(L);
  if (Decoder(L, message, at, manner, into, failure).value(0)) return true;
  lua_settop(L, top);
  return false;
}

int encode_bytes(lua_State* L) {
  luaL_checkany(L, 1);
  return guarded(L, [&](Failure& failure) {
    Message message;
    if (!encode(L, 1, {}, message, failure)) return 0;
    lua_pushlstring(L, message.bytes.data(), message.bytes.size());
    return 1;
  });
}

int decode_bytes(lua_State* L) {
  luaL_checkstring(L, 1);
  return guarded(L, [&](Failure& failure) {
    const Message message{text_of(L, 1), {}};
    size_t at = 0;
    if (!decode(L, message, at, {}, 0, failure)) return 0;
    if (at != message.bytes.size()) failure = "invalid message: trailing bytes after the value";
    return 1;
  });
}

int set_hooks(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  const char* const keys[] = {&kPack, &kUnpack};
  for (int i = 0; i < 2; ++i) {
    lua_pushlightuserdata(L, const_cast<char*>(keys[i]));
    lua_pushvalue(L, i + 1);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  return 0;
}

}  // namespace mv::native
