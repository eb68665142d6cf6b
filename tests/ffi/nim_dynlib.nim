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

let status = mv_table_get(table, addr data, 2, 1, nil)
echo mv_status_name(status), ": ", mv_last_error()
check mv_shutdown(0)
