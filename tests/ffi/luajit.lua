-- LuaJIT: its own ffi library.
-- docs: begin
local ffi = require("ffi")
ffi.cdef[[int mv_init(void *); const char *mv_last_error(void);
  int mv_table_create_text(int64_t, const char *, const float *, uint64_t, int, int64_t *);
  int mv_table_add(int64_t, float *, uint64_t, int, void *); int mv_table_get(int64_t, float *, uint64_t, int, void *);]]
local mv, table, values = ffi.load("libpolyverso.so.0"), ffi.new("int64_t[1]"), ffi.new("float[3]", 1, 2, 3)
local function check(status) if status ~= 0 then error(ffi.string(mv.mv_last_error())) end end
check(mv.mv_init(nil)); check(mv.mv_table_create_text(0, "size=3 name=w", nil, 0, 1, table))
check(mv.mv_table_add(table[0], values, 3, 1, nil)); check(mv.mv_table_get(table[0], values, 3, 1, nil))
-- docs: end

ffi.cdef[[
  typedef struct { uint32_t size, version, flags, reserved; int64_t timeout_ms; int64_t *request; } mv_call_options;
  int mv_barrier(int64_t, const mv_call_options *); int mv_shutdown(int64_t); const char *mv_status_name(int);
  int mv_event_fd(int64_t, int *); int mv_poll(int64_t, int64_t *, uint64_t, uint64_t *, int64_t);
  int mv_request_wait(int64_t, int64_t);
  struct pollfd { int fd; short events, revents; }; int poll(struct pollfd *, unsigned long, int);
]]

local function show(label)
  check(mv.mv_barrier(0, nil))
  check(mv.mv_table_get(table[0], values, 3, 1, nil))
  print(("%s: %g %g %g"):format(label, values[0], values[1], values[2]))
  check(mv.mv_barrier(0, nil))
end
show("after one add")

local delta, request, finished = ffi.new("float[3]", 1, 2, 3), ffi.new("int64_t[1]"), ffi.new("int64_t[1]")
local count, fd = ffi.new("uint64_t[1]"), ffi.new("int[1]")
local options = ffi.new("mv_call_options", {size = 32, version = 1, flags = 1, request = request})
check(mv.mv_event_fd(0, fd))
check(mv.mv_table_add(table[0], delta, 3, 1, options))
local readable = ffi.C.poll(ffi.new("struct pollfd", {fd = fd[0], events = 1}), 1, 10000) == 1
check(mv.mv_poll(0, finished, 1, count, 0))
print(("event fd: %s, %d finished"):format(readable and "readable" or "silent", tonumber(count[0])))
assert(finished[0] == request[0])
check(mv.mv_request_wait(request[0], 0))
show("after two adds")

-- A store whose updater is a function of this program: mv_poll() calls it.
ffi.cdef[[
  typedef struct { uint32_t size, version; uint64_t count; int64_t *numbers; const char **names; } kv_keys;
  typedef struct { uint32_t size, version; uint64_t count; const int64_t *tensors; const uint64_t *per_key; } kv_values;
  typedef int (*kv_updater)(void *, const char *, int64_t, int64_t);
  int mv_tensor_view(void *, uint64_t, int, const int64_t *, uint64_t, int64_t *); int mv_tensor_axpy(double, int64_t, int64_t);
  int kv_create(int64_t, const char *, int64_t *); int kv_free(int64_t); int kv_set_updater(int64_t, kv_updater, void *);
  int kv_init(int64_t, const kv_keys *, const kv_values *); int kv_pull(int64_t, const kv_keys *, const kv_values *, void *);
  int kv_push(int64_t, const kv_keys *, const kv_values *, const mv_call_options *);
]]
local store, tensor, three = ffi.new("int64_t[1]"), ffi.new("int64_t[1]"), ffi.new("int64_t[1]", 3)
local shared, updated = ffi.new("float[3]", 1, 2, 3), "no key"
local updater = ffi.cast("kv_updater", function(_, key, merged, stored)
  updated = ffi.string(key)
  return mv.mv_tensor_axpy(2, merged, stored)
end)
local keys, tensors = ffi.new("kv_keys", {32, 1, 1, three}), ffi.new("kv_values", {32, 1, 1, tensor})
check(mv.mv_tensor_view(shared, 3, 1, three, 1, tensor))
check(mv.kv_create(0, "local", store)); check(mv.kv_init(store[0], keys, tensors))
check(mv.kv_set_updater(store[0], updater, nil))
check(mv.kv_push(store[0], keys, tensors, ffi.new("mv_call_options", {size = 32, version = 1, flags = 2})))
assert(updated == "no key")
local function poll() check(mv.mv_poll(0, nil, 0, count, 0)) end
jit.off(poll) -- C code must not call back into compiled code
poll()
check(mv.kv_pull(store[0], keys, tensors, nil))
print(("update on key %s: %g %g %g"):format(updated, shared[0], shared[1], shared[2]))
check(mv.kv_free(store[0]))

local status = mv.mv_table_get(table[0], values, 2, 1, nil)
print(ffi.string(mv.mv_status_name(status)) .. ": " .. ffi.string(mv.mv_last_error()))
check(mv.mv_shutdown(0))
