# Python: cffi in its ABI mode, which reads C declarations and needs no compiler.
# docs: begin
import cffi; ffi = cffi.FFI()
ffi.cdef("""int mv_init(void *); const char *mv_last_error(void);
  int mv_table_create_text(int64_t, const char *, const float *, uint64_t, int, int64_t *);
  int mv_table_add(int64_t, float *, uint64_t, int, void *); int mv_table_get(int64_t, float *, uint64_t, int, void *);""")
mv, table, values = ffi.dlopen("libpolyverso.so.0"), ffi.new("int64_t *"), ffi.new("float[3]", [1, 2, 3])
def check(status): assert status == 0, ffi.string(mv.mv_last_error()).decode()
null = ffi.NULL; check(mv.mv_init(null)); check(mv.mv_table_create_text(0, b"size=3 name=w", null, 0, 1, table))
check(mv.mv_table_add(table[0], values, 3, 1, null)); check(mv.mv_table_get(table[0], values, 3, 1, null))
# docs: end

import select

ffi.cdef("""
  typedef struct { uint32_t size, version, flags, reserved; int64_t timeout_ms; int64_t *request; } mv_call_options;
  int mv_barrier(int64_t, const mv_call_options *); int mv_shutdown(int64_t); const char *mv_status_name(int);
  int mv_event_fd(int64_t, int *); int mv_poll(int64_t, int64_t *, uint64_t, uint64_t *, int64_t);
  int mv_request_wait(int64_t, int64_t);
""")


def show(label):
    check(mv.mv_barrier(0, null))
    check(mv.mv_table_get(table[0], values, 3, 1, null))
    print(label + ":", *values)
    check(mv.mv_barrier(0, null))


show("after one add")

delta, request, finished = ffi.new("float[3]", [1, 2, 3]), ffi.new("int64_t *"), ffi.new("int64_t *")
count, fd = ffi.new("uint64_t *"), ffi.new("int *")
options = ffi.new("mv_call_options *", {"size": 32, "version": 1, "flags": 1, "request": request})
check(mv.mv_event_fd(0, fd))
check(mv.mv_table_add(table[0], delta, 3, 1, options))
readable = select.select([fd[0]], [], [], 10)[0]
check(mv.mv_poll(0, finished, 1, count, 0))
print("event fd:", "readable," if readable else "silent,", count[0], "finished")
assert finished[0] == request[0]
check(mv.mv_request_wait(request[0], 0))
show("after two adds")

# A store whose updater is a function of this program: mv_poll() calls it.
ffi.cdef("""
  typedef struct { uint32_t size, version; uint64_t count; const int64_t *numbers; const char **names; } kv_keys;
  typedef struct { uint32_t size, version; uint64_t count; const int64_t *tensors; const uint64_t *per_key; } kv_values;
  typedef int (*kv_updater)(void *, const char *, int64_t, int64_t);
  int mv_tensor_view(void *, uint64_t, int, const int64_t *, uint64_t, int64_t *); int mv_tensor_axpy(double, int64_t, int64_t);
  int kv_create(int64_t, const char *, int64_t *); int kv_free(int64_t); int kv_set_updater(int64_t, kv_updater, void *);
  int kv_init(int64_t, const kv_keys *, const kv_values *); int kv_pull(int64_t, const kv_keys *, const kv_values *, void *);
  int kv_push(int64_t, const kv_keys *, const kv_values *, const mv_call_options *);
""")
updated = []


@ffi.callback("kv_updater")
def updater(_, key, merged, stored):
    updated.append(ffi.string(key).decode())
    return mv.mv_tensor_axpy(2, merged, stored)


store, tensor, three = ffi.new("int64_t *"), ffi.new("int64_t *"), ffi.new("int64_t *", 3)
shared = ffi.new("float[3]", [1, 2, 3])
keys, tensors = ffi.new("kv_keys *", [32, 1, 1, three]), ffi.new("kv_values *", [32, 1, 1, tensor])
check(mv.mv_tensor_view(shared, 3, 1, three, 1, tensor))
check(mv.kv_create(0, b"local", store))
check(mv.kv_init(store[0], keys, tensors))
check(mv.kv_set_updater(store[0], updater, null))
check(mv.kv_push(store[0], keys, tensors, ffi.new("mv_call_options *", {"size": 32, "version": 1, "flags": 2})))
assert not updated
check(mv.mv_poll(0, null, 0, count, 0))
check(mv.kv_pull(store[0], keys, tensors, null))
print(f"update on key {' '.join(updated)}:", *shared)
check(mv.kv_free(store[0]))

status = mv.mv_table_get(table[0], values, 2, 1, null)
print(ffi.string(mv.mv_status_name(status)).decode() + ": " + ffi.string(mv.mv_last_error()).decode())
check(mv.mv_shutdown(0))
