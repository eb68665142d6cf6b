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

local status = mv.mv_table_get(table[0], values, 2, 1, nil)
print(ffi.string(mv.mv_status_name(status)) .. ": " .. ffi.string(mv.mv_last_error()))
check(mv.mv_shutdown(0))
