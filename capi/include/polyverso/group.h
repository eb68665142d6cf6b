/** Groups: workers that reduce arrays together. Every rank of a group makes the same calls in the same order; each call
 *  is one operation. Only mv_send() and mv_recv() are between two ranks.
 *
 *    mv_group_open(0, NULL, 0, &group);                                                  all workers
 *    mv_allreduce(group, NULL, gradients, count, MV_F32, MV_REDUCE_AVG, NULL);           in place; equal bits on all ranks
 *    mv_group_close(group);
 *
 *  Part of polyverso.h, which includes it; the rules of polyverso.h hold here too. docs/groups.md is the guide.
 *
 *  Errors of every function below that takes part in an operation:
 *    MV_EDISAGREE  the ranks do not make the same operation; the message names two of them and their operations. All
 *                  ranks get it, and the group continues with the next operation. Without shared memory, a rank that
 *                  has already done its part of a reduce, broadcast, gather or scatter gets the error from its next
 *                  operation, and the group is broken.
 *    MV_EPEERLOST  a rank is lost, or has left (mv_group_close(), mv_group_abort(), mv_shutdown()): the message names it
 *    MV_ETIMEOUT   naming the missing ranks; the default deadline is gate_timeout_ms
 *    MV_EINTR      after a signal, if the call had no pointer for a request
 *    MV_ECANCELED  on the other ranks, if a rank has cancelled, a signal has ended its call, or it gave up opening the
 *                  group.
 *
 *  After any of the last four the group is broken: operations fail at once on every rank. mv_group_shrink() makes a new
 *  group of the survivors, mv_group_grow() one of survivors and newcomers.
 *  A failed operation leaves its outputs undefined.
 *
 *  Arrays may be in the memory of devices that this process uses (mv_tensor_address()): they are copied to pinned memory
 *  of the host first, in the order of the device's work so far (mv_device_set_stream()), and results are copied back
 *  before the call, or its request, ends. All-reduces of 64 KiB or more go between the devices by NCCL instead, if all
 *  ranks have NCCL and their arrays are on devices (docs/cuda.md); the errors are the same. Custom reductions take
 *  memory of the host only: MV_EINVAL. */
#ifndef POLYVERSO_GROUP_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_GROUP_H
#define POLYVERSO_GROUP_H

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ groups */

typedef int64_t mv_group;

/** Opens a group of these workers; collective among them. Their order does not matter: ranks are in the order of worker
 *  ids.
 *  @param workers  worker ids, including this process's; NULL with count 0: all workers
 *  @return MV_ETIMEOUT naming the workers that have not opened it: call again; MV_EINVAL; MV_EPEERLOST if a worker is
 *          lost before it has opened the group. A worker that is lost or aborts after that breaks the group, but the
 *          group opens on all others, and they can shrink it */
MV_API mv_status mv_group_open(mv_node node, const int64_t *workers, uint64_t count, mv_group *group);
/** Opens a group of the workers on this machine, identified by its host name. */
MV_API mv_status mv_group_open_host(mv_node node, mv_group *group);
/** Closes the handle. Other ranks that wait for this one in later operations get MV_EPEERLOST. */
MV_API mv_status mv_group_close(mv_group group);
/** Closes the handle because this rank has failed, and breaks the group: the operations of the other ranks, running and
 *  later ones, fail with MV_EPEERLOST and a message that names this rank and has `reason`. They can continue without
 *  this rank: mv_group_shrink(). The node continues.
 *  @param reason as in mv_abort() */
MV_API mv_status mv_group_abort(mv_group group, const char *reason);

typedef struct mv_group_info {
  uint32_t size;            /**< sizeof(mv_group_info), set by MV_GROUP_INFO_INIT */
  uint32_t version;         /**< MV_STRUCT_VERSION */
  int64_t rank;             /**< this process's rank in the group */
  int64_t ranks;            /**< the number of ranks */
  int64_t hosts;            /**< the number of machines */
  uint64_t bytes_sent;      /**< values, by this rank, since the group was opened */
  uint64_t bytes_received;
  uint64_t operations;      /**< begun by this rank */
  int32_t broken;           /**< the mv_status that broke the group; MV_OK while it works */
  uint32_t reserved;
  char transport[16];       /**< "shm": shared memory; "messages" */
  char why[256];            /**< if `broken`, the reason */
  int64_t elder;            /**< the lowest of the ranks that have been members for the longest time: after mv_group_grow()
                                 it has the state of the training, which newcomers lack. 0 in a group that was opened */
  uint64_t generation;      /**< how many times groups have shrunk and grown to this one; a newcomer has the same number */
  char tuning[1024];        /**< how the algorithms of the group's all-reduces are chosen, as a text: in shared memory the
                                 algorithm of each size and whether a trial, an earlier one or a constant chose it, otherwise
                                 the costs of messages. docs/groups.md */
  char collective[16];      /**< the implementation of all-reduces: "own", this library's, "mpi", or "nccl" for arrays on
                                 devices: see the setting collective */
  char collective_why[240]; /**< the reason */
} mv_group_info;

#define MV_GROUP_INFO_INIT { sizeof(mv_group_info), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, 0, 0, {0}, {0}, {0} }

MV_API mv_status mv_group_describe(mv_group group, mv_group_info *info);
/** The worker ids of the group, in the order of ranks.
 *  @param count  out: how many there are; if more than capacity, MV_EINVAL, and only `count` is written */
MV_API mv_status mv_group_members(mv_group group, int64_t *workers, uint64_t capacity, uint64_t *count);
/** Opens a new group of the ranks that are not lost; collective among them. This breaks the old group if it was not
 *  broken; it stays open until it is closed. If the new group breaks, either of the two can be shrunk. Blocking only.
 *  @return MV_EPEERLOST if the others continue without this process; MV_ETIMEOUT naming the ranks that have not
 *          called it, MV_ENOMEM: call again; MV_ESTATE if the group of the survivors is open and works, or this
 *          process has closed it */
MV_API mv_status mv_group_shrink(mv_group group, const mv_call_options *options, mv_group *survivors);

/** Opens a new group of the ranks that are not lost and of workers that join by this name; collective among the ranks.
 *  If the group is not broken, has at least `ranks` ranks, and no worker has asked all of its ranks to join, the group
 *  continues. The call then costs as much as a small all-reduce, so a loop may make it at each step. Otherwise the call
 *  waits until the new group has at least `ranks` ranks, and breaks the old group, which stays open until it is closed.
 *  On a broken group, the call shrinks and grows in one step.
 *  Ranks of the new group follow the order of worker ids, as in any group, and the numbers of its operations start again.
 *  The new group does not contain ranks or newcomers that are lost meanwhile. If one rank calls mv_group_shrink()
 *  instead, it contains no newcomers. Newcomers have no state: mv_group_info.elder is a rank that has it. Blocking only.
 *  @param name   the name that newcomers pass to mv_group_join(), at most 255 bytes; NULL: "". Groups that grow at the
 *                same time need different names
 *  @param ranks  the least number of ranks to wait for; 0: waits for nobody. If ranks ask for different numbers, the
 *                greatest counts
 *  @param grown  out: the new group, or 0 if the group continues
 *  @return as mv_group_shrink(). MV_EDISAGREE on all ranks if they make another operation, or grow with different names:
 *          the group continues. MV_ETIMEOUT naming the ranks that have not called it, or saying how many newcomers have
 *          asked and which lost workers nobody has replaced: call again */
MV_API mv_status mv_group_grow(mv_group group, const char *name, uint64_t ranks, const mv_call_options *options, mv_group *grown);
/** Joins a group of which this worker is not a member, or which it has left, when its members next call mv_group_grow()
 *  with this name. A new process that replaces a lost worker calls this instead of mv_group_open(). The costs by which
 *  algorithms are chosen are those of the group's lowest rank. Blocking only.
 *  @param name  as in mv_group_grow()
 *  @return MV_ETIMEOUT: no group has grown with this name; the request is withdrawn, call again. MV_ESTATE if this process
 *          is not a worker, or another thread joins with this name */
MV_API mv_status mv_group_join(mv_node node, const char *name, const mv_call_options *options, mv_group *group);

/* -------------------------------------------------------------- operations */

/** avg is the sum divided by the number of contributors; floats only. Integers wrap. 16-bit floats are summed in f32
 *  and rounded at each rank that they pass. min and max are NaN if either operand is NaN. */
enum mv_reduction { MV_REDUCE_SUM = 1, MV_REDUCE_PROD = 2, MV_REDUCE_MIN = 3, MV_REDUCE_MAX = 4, MV_REDUCE_AVG = 5 };

enum mv_group_flag { MV_DRAINING = 1 /**< this rank takes part without counting as a contributor */ };

typedef struct mv_array {
  void *data;
  uint64_t count; /**< elements */
  mv_dtype dtype;
  uint32_t note;  /**< 0 .. 15, the caller's own: mv_allreduce_drain() reports it, and it has no other effect; else 0 */
} mv_array;

/** out = the reduction of all ranks' `in`, the same bits on every rank. Between devices, NCCL reduces in an order of its
 *  own, so that sums of floats have other bits than on the host.
 *  @param in  NULL or equal to out: in place. Otherwise it must not overlap out */
MV_API mv_status mv_allreduce(mv_group group, const void *in, void *out, uint64_t count, mv_dtype dtype, int32_t reduction,
                              const mv_call_options *options);
/** mv_allreduce() of several arrays, of any dtypes, in one operation: many small arrays cost as much as one of their
 *  total size.
 *  @param in            as many arrays as `out`, of the same shapes; NULL: in place
 *  @param out           must not overlap each other, nor the inputs of other arrays (MV_EINVAL): tied parameters come
 *                       once
 *  @param flags         mv_group_flag
 *  @param contributors  out: the number of ranks that were not draining; may be NULL. With MV_ASYNC written when the
 *                       request is done */
MV_API mv_status mv_allreduce_many(mv_group group, const mv_array *in, const mv_array *out, uint64_t arrays, int32_t reduction, uint32_t flags,
                                   uint64_t *contributors, const mv_call_options *options);
/** mv_allreduce(), but only `root` gets the result; the others' `out` is not touched and may be NULL. */
MV_API mv_status mv_reduce(mv_group group, const void *in, void *out, uint64_t count, mv_dtype dtype, int32_t reduction, int64_t root,
                           const mv_call_options *options);
/** data = root's, on every rank. Any dtype, including MV_RAW. */
MV_API mv_status mv_broadcast(mv_group group, void *data, uint64_t count, mv_dtype dtype, int64_t root, const mv_call_options *options);
MV_API mv_status mv_broadcast_many(mv_group group, const mv_array *data, uint64_t arrays, int64_t root, const mv_call_options *options);
/** out = all ranks' `in`, of `count` elements each, in the order of ranks.
 *  @param in  may be this rank's own part of out */
MV_API mv_status mv_allgather(mv_group group, const void *in, uint64_t count, void *out, mv_dtype dtype, const mv_call_options *options);
/** Reduces ranks * count elements; out = the rank-th `count` of them.
 *  @param out  may be this rank's own part of `in` */
MV_API mv_status mv_reduce_scatter(mv_group group, const void *in, void *out, uint64_t count, mv_dtype dtype, int32_t reduction,
                                   const mv_call_options *options);
/** all = all ranks' `mine`, of `count` elements each, in the order of ranks, on `root`. Any dtype, including MV_RAW.
 *  @param all  ranks * count elements; not touched, and may be NULL, on other ranks than root
 *  @param mine on root it may be root's own part of `all` */
MV_API mv_status mv_gather(mv_group group, const void *mine, void *all, uint64_t count, mv_dtype dtype, int64_t root, const mv_call_options *options);
/** mine = the rank-th `count` elements of root's `all`. Any dtype, including MV_RAW.
 *  @param all  ranks * count elements; not read, and may be NULL, on other ranks than root
 *  @param mine on root it may be root's own part of `all` */
MV_API mv_status mv_scatter(mv_group group, const void *all, void *mine, uint64_t count, mv_dtype dtype, int64_t root,
                            const mv_call_options *options);
/** Every rank sends `count` elements to every rank: the r-th `count` of `receive` = this rank's of `send` on rank r. Any
 *  dtype, including MV_RAW. Both have ranks * count elements, and must not overlap. */
MV_API mv_status mv_alltoall(mv_group group, const void *send, void *receive, uint64_t count, mv_dtype dtype, const mv_call_options *options);
/** mv_alltoall() with a number of elements for each pair of ranks. Elements for and from rank 0 come first, then those
 *  of rank 1, and so on, without gaps.
 *  @param send_counts     by rank: the elements that this rank sends to it
 *  @param receive_counts  by rank: the elements that this rank receives from it, as many as that rank sends to this one;
 *                         otherwise MV_EDISAGREE. Both arrays are copied */
MV_API mv_status mv_alltoall_counts(mv_group group, const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts,
                                    mv_dtype dtype, const mv_call_options *options);
/** Returns when all ranks have called it. */
MV_API mv_status mv_group_barrier(mv_group group, const mv_call_options *options);

/* ---------------------------------------------------------- between two ranks */

/** Sends `count` elements to rank `to`, which receives them with mv_recv(). The other ranks do not take part. A send may
 *  overlap with all other operations of the group. mv_group_info.operations does not count it. A value of up to 64 KiB
 *  may be sent before the other rank receives it; a longer one returns when it has been received. Any dtype, including
 *  MV_RAW.
 *  @param tag  any number; a receive takes only messages with its own tag
 *  @return MV_EINVAL if `to` is this rank. MV_OK does not mean that a rank that leaves the group has received it */
MV_API mv_status mv_send(mv_group group, const void *data, uint64_t count, mv_dtype dtype, int64_t to, int64_t tag, const mv_call_options *options);

#define MV_ANY_RANK (-1) /**< of mv_recv(): from any rank */

/** Receives `count` elements from rank `from`. Messages of one rank with the same tag are received in the order in which
 *  they were sent. A time-out, a signal or a cancellation does not break the group if no message has arrived yet.
 *  @param from    a rank, or MV_ANY_RANK: the message that arrived first
 *  @param source  out: the rank that sent it; may be NULL. With MV_ASYNC written when the request is done
 *  @return MV_ESHAPE, MV_EDTYPE: the message has another number of elements, label or dtype. The message is lost, and the
 *          group continues. MV_EPEERLOST if `from`, or with MV_ANY_RANK every other rank, has left the group */
MV_API mv_status mv_recv(mv_group group, void *data, uint64_t count, mv_dtype dtype, int64_t from, int64_t tag, int64_t *source,
                         const mv_call_options *options);

/* ---------------------------------------------------------- uneven endings */

/** The next operation of the other ranks, for a rank that drains: it has run out of data, and takes part in the
 *  others' all-reduces until all ranks drain. */
typedef struct mv_drained {
  uint32_t size;       /**< sizeof(mv_drained), set by MV_DRAINED_INIT */
  uint32_t version;    /**< MV_STRUCT_VERSION */
  int32_t finished;    /**< 1: all ranks drain; the next operation is an ordinary one */
  int32_t reduction;   /**< mv_reduction of the next operation; 0: mv_allreduce_custom() */
  uint64_t arrays;     /**< how many arrays the operation has */
} mv_drained;

#define MV_DRAINED_INIT { sizeof(mv_drained), MV_STRUCT_VERSION, 0, 0, 0 }

/** Waits for the next operation of the other ranks. Unless all ranks drain, they reduce next->arrays arrays, and this
 *  rank must call mv_allreduce_many() (or mv_allreduce_custom()) of that shape with MV_DRAINING; until that operation
 *  has ended, no other call is accepted.
 *  @param arrays  out: counts, dtypes and notes, with data NULL; up to `capacity` of them are written. If there are
 *                 more, MV_EINVAL, with their number in next->arrays: call again with enough room
 *  @return MV_ETIMEOUT, MV_EINTR: call again, the group is not broken; MV_EDISAGREE if the others make anything but
 *          an all-reduce */
MV_API mv_status mv_allreduce_drain(mv_group group, mv_array *arrays, uint64_t capacity, mv_drained *next, const mv_call_options *options);
/** Takes part in all-reduces with neutral values (zeros for sums) until all ranks drain.
 *  @return MV_EDISAGREE if the other ranks call mv_allreduce_custom() */
MV_API mv_status mv_allreduce_zeros(mv_group group, const mv_call_options *options);

/* ---------------------------------------------------------- custom reductions */

/** mine = f(mine, theirs), array by array. Runs on the thread that made the call. Any status but MV_OK fails the
 *  operation on all ranks. Inside it, blocking operations of the same group are MV_EREENTRANT. */
typedef mv_status (*mv_reducer)(void *user, const mv_array *mine, const mv_array *theirs, uint64_t arrays);

/** An all-reduce in place by the caller's own function, over a binary tree: values[rank 0] ends on all ranks, so
 *  they have equal bits whatever f does. Blocking only.
 *
 *  Values may be in the memory of devices. Then `mine` and `theirs` are there, too, and are copied through the host's
 *  memory. Before f returns, its work on the device must be done, or be queued on the library's stream
 *  (mv_device_current_stream()). */
MV_API mv_status mv_allreduce_custom(mv_group group, const mv_array *values, uint64_t arrays, mv_reducer reducer, void *user, uint32_t flags,
                                     uint64_t *contributors, const mv_call_options *options);

/** mv_allreduce_custom() step by step, for languages whose functions must not be called from C:
 *
 *    mv_custom_begin(group, values, arrays, 0, NULL, &custom);
 *    while (mv_custom_next(custom, theirs, &more) == MV_OK && more)  values = f(values, theirs), mv_custom_done(custom, MV_OK);
 *    mv_custom_end(custom, &contributors);
 *
 *  `values` are lent until mv_custom_end(). */
typedef int64_t mv_custom;
MV_API mv_status mv_custom_begin(mv_group group, const mv_array *values, uint64_t arrays, uint32_t flags, const mv_call_options *options,
                                 mv_custom *custom);
/** Waits for the next values to reduce.
 *  @param theirs  out: as many arrays as begun with, valid until mv_custom_done()
 *  @param more    out: 0: there are no more values, and the result is complete
 *  @return MV_EINTR after a signal: call again */
MV_API mv_status mv_custom_next(mv_custom custom, mv_array *theirs, int32_t *more);
/** Reports that the values are reduced. A status other than MV_OK fails the operation on all ranks. */
MV_API mv_status mv_custom_done(mv_custom custom, mv_status status);
/** Closes the handle. Before the end of the operation it withdraws it.
 *  @param contributors  out; may be NULL
 *  @return the operation's status */
MV_API mv_status mv_custom_end(mv_custom custom, uint64_t *contributors);

#ifdef __cplusplus
}
#endif
#endif
