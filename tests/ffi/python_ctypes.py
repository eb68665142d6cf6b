# Python without numpy or the Polyverso module: ctypes, from the standard library.
# docs: begin
from ctypes import CDLL, byref, c_char_p, c_float, c_int, c_int64, c_uint64, c_void_p
mv, table, values = CDLL("libpolyverso.so.0"), c_int64(), (c_float * 3)(1, 2, 3)
mv.mv_last_error.restype = c_char_p
mv.mv_table_create_text.argtypes = [c_int64, c_char_p, c_void_p, c_uint64, c_int, c_void_p]
mv.mv_table_add.argtypes = mv.mv_table_get.argtypes = [c_int64, c_void_p, c_uint64, c_int, c_void_p]
def check(status): assert status == 0, mv.mv_last_error().decode()
check(mv.mv_init(None)); check(mv.mv_table_create_text(0, b"size=3 name=w", None, 0, 1, byref(table)))
check(mv.mv_table_add(table, values, 3, 1, None)); check(mv.mv_table_get(table, values, 3, 1, None))
# docs: end

import select
from ctypes import POINTER, Structure, c_uint32, pointer

mv.mv_status_name.restype = c_char_p
mv.mv_barrier.argtypes = [c_int64, c_void_p]
mv.mv_shutdown.argtypes = [c_int64]
mv.mv_event_fd.argtypes = [c_int64, c_void_p]
mv.mv_poll.argtypes = [c_int64, c_void_p, c_uint64, c_void_p, c_int64]
mv.mv_request_wait.argtypes = [c_int64, c_int64]


class CallOptions(Structure):
    _fields_ = [("size", c_uint32), ("version", c_uint32), ("flags", c_uint32), ("reserved", c_uint32)]
    _fields_ += [("timeout_ms", c_int64), ("request", POINTER(c_int64))]


def show(label):
    check(mv.mv_barrier(0, None))
    check(mv.mv_table_get(table, values, 3, 1, None))
    print(label + ":", *values)
    check(mv.mv_barrier(0, None))


show("after one add")

delta, request, finished, count, fd = (c_float * 3)(1, 2, 3), c_int64(), c_int64(), c_uint64(), c_int()
options = CallOptions(size=32, version=1, flags=1, request=pointer(request))
check(mv.mv_event_fd(0, byref(fd)))
check(mv.mv_table_add(table, delta, 3, 1, byref(options)))
readable = select.select([fd.value], [], [], 10)[0]
check(mv.mv_poll(0, byref(finished), 1, byref(count), 0))
print("event fd:", "readable," if readable else "silent,", count.value, "finished")
assert finished.value == request.value
check(mv.mv_request_wait(request, 0))
show("after two adds")

# A store whose updater is a function of this program: mv_poll() calls it.
from ctypes import CFUNCTYPE, c_double


class Keys(Structure):
    _fields_ = [("size", c_uint32), ("version", c_uint32), ("count", c_uint64), ("numbers", POINTER(c_int64)), ("names", c_void_p)]


class Values(Structure):
    _fields_ = [("size", c_uint32), ("version", c_uint32), ("count", c_uint64), ("tensors", POINTER(c_int64)), ("per_key", c_void_p)]


Updater = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, c_int64)
mv.mv_tensor_view.argtypes = [c_void_p, c_uint64, c_int, c_void_p, c_uint64, c_void_p]
mv.mv_tensor_axpy.argtypes = [c_double, c_int64, c_int64]
mv.kv_create.argtypes = [c_int64, c_char_p, c_void_p]
mv.kv_init.argtypes = [c_int64, c_void_p, c_void_p]
mv.kv_push.argtypes = mv.kv_pull.argtypes = [c_int64, c_void_p, c_void_p, c_void_p]
mv.kv_set_updater.argtypes = [c_int64, Updater, c_void_p]
mv.kv_free.argtypes = [c_int64]
updated = []


@Updater
def updater(_, key, merged, stored):
    updated.append(key.decode())
    return mv.mv_tensor_axpy(2, merged, stored)


store, tensor, three, shared = c_int64(), c_int64(), c_int64(3), (c_float * 3)(1, 2, 3)
keys, tensors = byref(Keys(32, 1, 1, pointer(three))), byref(Values(32, 1, 1, pointer(tensor)))
check(mv.mv_tensor_view(shared, 3, 1, byref(three), 1, byref(tensor)))
check(mv.kv_create(0, b"local", byref(store)))
check(mv.kv_init(store, keys, tensors))
check(mv.kv_set_updater(store, updater, None))
check(mv.kv_push(store, keys, tensors, byref(CallOptions(size=32, version=1, flags=2))))
assert not updated
check(mv.mv_poll(0, None, 0, byref(count), 0))
check(mv.kv_pull(store, keys, tensors, None))
print(f"update on key {' '.join(updated)}:", *shared)
check(mv.kv_free(store))

status = mv.mv_table_get(table, values, 2, 1, None)
print(mv.mv_status_name(status).decode() + ": " + mv.mv_last_error().decode())
check(mv.mv_shutdown(0))
