"""A small script that uses groups through the C interface, for processes that are killed."""

# Reduces values of several sizes until a rank is lost. Then shrinks the group and reports its ranks and the result of a
# reduction. The argument is the length of the largest array.
REDUCER = """
import ctypes, sys
mv = ctypes.CDLL("libpolyverso.so.0")
mv.mv_last_error.restype = mv.mv_status_name.restype = ctypes.c_char_p

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece: the log goes to the same pipe
    sys.stdout.flush()

def name(status):
    return mv.mv_status_name(status).decode()

def check(status):
    if status != 0:
        say("failed", name(status), mv.mv_last_error().decode())
        sys.exit(1)

i64, u64 = ctypes.c_int64, ctypes.c_uint64
F32, SUM = 1, 1
rank, size = i64(), i64()
check(mv.mv_init(None))
check(mv.mv_rank(i64(0), ctypes.byref(rank)))

def reduce(group, count, value):
    array = (ctypes.c_float * count)(*([value] * count))
    status = mv.mv_allreduce(group, None, array, u64(count), ctypes.c_int32(F32), ctypes.c_int32(SUM), None)
    return status, array

def ranks(group):
    count, members = u64(), (i64 * 16)()
    check(mv.mv_group_members(group, members, u64(16), ctypes.byref(count)))
    return list(members[:count.value])

group = i64()
check(mv.mv_group_open(i64(0), None, u64(0), ctypes.byref(group)))
say("up")
step = 0
sizes = [1, 300, 5000, int(sys.argv[1])]
while True:
    members = ranks(group)
    status, array = reduce(group, sizes[step % 4], 1.0)
    if status != 0:
        say("lost", name(status), mv.mv_last_error().decode())
        survivors = i64()
        check(mv.mv_group_shrink(group, None, ctypes.byref(survivors)))
        check(mv.mv_group_close(group))
        group = survivors
        status, array = reduce(group, 3, 1.0)
        check(status)
        say("goes on", int(array[2]), *ranks(group))
        break
    if array[0] != len(members) or array[-1] != len(members):
        say("wrong", array[0], array[-1])
        sys.exit(1)
    step += 1
check(mv.mv_shutdown(i64(0)))
say("ended")
"""
