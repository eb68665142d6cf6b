# Nim: its dynlib pragma, which opens the library when the program starts.
# docs: begin
{.pragma: mv, cdecl, dynlib: "libpolyverso.so.0", importc.}
proc mv_init(options: pointer): cint {.mv.}; proc mv_last_error(): cstring {.mv.}
proc mv_table_create_text(node: int64, spec: cstring, data: pointer, n: uint64, dtype: cint, t: ptr int64): cint {.mv.}
proc mv_table_add(table: int64, data: pointer, count: uint64, dtype: cint, options: pointer): cint {.mv.}
proc mv_table_get(table: int64, data: pointer, count: uint64, dtype: cint, options: pointer): cint {.mv.}
var (table, data) = (0'i64, [1'f32, 2, 3]); proc check(status: cint) = (if status != 0: quit $mv_last_error())
check mv_init(nil); check mv_table_create_text(0, "size=3 name=w", nil, 0, 1, addr table)
check mv_table_add(table, addr data, 3, 1, nil); check mv_table_get(table, addr data, 3, 1, nil)
# docs: end

import std/[posix, strutils]

type CallOptions = object
  size, version, flags, reserved: uint32
  timeout_ms: int64
  request: ptr int64

proc mv_barrier(node: int64, options: pointer): cint {.mv.}
proc mv_shutdown(node: int64): cint {.mv.}
proc mv_status_name(status: cint): cstring {.mv.}
proc mv_event_fd(node: int64, fd: ptr cint): cint {.mv.}
proc mv_poll(node: int64, finished: ptr int64, capacity: uint64, count: ptr uint64, timeout_ms: int64): cint {.mv.}
proc mv_request_wait(request: int64, timeout_ms: int64): cint {.mv.}

proc show(label: string) =
  check mv_barrier(0, nil)
  check mv_table_get(table, addr data, 3, 1, nil)
  echo label, ": ", data.join(" ")
  check mv_barrier(0, nil)

show("after one add")

var
  delta = [1'f32, 2, 3]
  request, finished: int64
  count: uint64
  fd: cint
  options = CallOptions(size: 32, version: 1, flags: 1, request: addr request)
check mv_event_fd(0, addr fd)
check mv_table_add(table, addr delta, 3, 1, addr options)
var waiting = TPollfd(fd: fd, events: POLLIN)
let readable = poll(addr waiting, 1, 10_000) == 1
check mv_poll(0, addr finished, 1, addr count, 0)
echo "event fd: ", (if readable: "readable" else: "silent"), ", ", count, " finished"
doAssert finished == request
check mv_request_wait(request, 0)
show("after two adds")

# A store whose updater is a proc of this program: mv_poll() runs it.
type
  One = object # kv_keys and kv_values
    size, version: uint32
    count: uint64
    place: ptr int64
    other: pointer
  Updater = proc (user: pointer, key: cstring, merged, stored: int64): cint {.cdecl.}

proc mv_tensor_view(values: pointer, n: uint64, dtype: cint, shape: ptr int64, dims: uint64, t: ptr int64): cint {.mv.}
proc mv_tensor_axpy(alpha: cdouble, x, y: int64): cint {.mv.}
proc kv_create(node: int64, kind: cstring, store: ptr int64): cint {.mv.}
proc kv_init(store: int64, keys, values: ptr One): cint {.mv.}
proc kv_push(store: int64, keys, values: ptr One, options: pointer): cint {.mv.}
proc kv_pull(store: int64, keys, values: ptr One, options: pointer): cint {.mv.}
proc kv_set_updater(store: int64, updater: Updater, user: pointer): cint {.mv.}
proc kv_free(store: int64): cint {.mv.}

var updated = "no key"
proc updater(user: pointer, key: cstring, merged, stored: int64): cint {.cdecl.} =
  updated = $key
  mv_tensor_axpy(2, merged, stored)

var
  (store, tensor, three) = (0'i64, 0'i64, 3'i64)
  shared = [1'f32, 2, 3]
  keys = One(size: 32, version: 1, count: 1, place: addr three)
  tensors = One(size: 32, version: 1, count: 1, place: addr tensor)
  forget = CallOptions(size: 32, version: 1, flags: 2)
check mv_tensor_view(addr shared, 3, 1, addr three, 1, addr tensor)
check kv_create(0, "local", addr store)
check kv_init(store, addr keys, addr tensors)
check kv_set_updater(store, updater, nil)
check kv_push(store, addr keys, addr tensors, addr forget)
doAssert updated == "no key"
check mv_poll(0, nil, 0, addr count, 0)
check kv_pull(store, addr keys, addr tensors, nil)
echo "update on key ", updated, ": ", shared.join(" ")
check kv_free(store)

let status = mv_table_get(table, addr data, 2, 1, nil)
echo mv_status_name(status), ": ", mv_last_error()
check mv_shutdown(0)
