# Python without numpy or the module: ctypes, of the standard library.
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

status = mv.mv_table_get(table, values, 2, 1, None)
print(mv.mv_status_name(status).decode() + ": " + mv.mv_last_error().decode())
check(mv.mv_shutdown(0))
