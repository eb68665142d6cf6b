/** A key-value store in the style of MXNet's: tensors under keys, pushed by all workers, merged, updated, pulled. Part
 *  of polyverso.h, which includes it; the rules of polyverso.h hold here too.
 *
 *  Each key is a table on the servers (with the flag MV_MERGE for dist_sync), so keys have all properties of tables:
 *  transports, exactness, checkpoints. Processes in different languages share one store when they create stores of the
 *  same type in the same order; the number 3 and the name "3" are the same key.
 *
 *  The calls of one process on one key take effect in order. A pushed value is a snapshot: changing the tensor
 *  afterwards changes nothing in the store.
 *
 *  A call that a signal interrupts returns MV_EINTR. The same call made again continues, and does nothing twice. The
 *  exceptions are kv_pushpull() and kv_broadcast(), which consist of two calls.
 *
 *  A key that was initialised with a row-sparse tensor is a row-sparse key. The servers store its rows individually.
 *  Untouched rows take no memory, and only pushed or requested rows are transferred. */
#ifndef POLYVERSO_KVSTORE_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_KVSTORE_H
#define POLYVERSO_KVSTORE_H

#ifdef __cplusplus
extern "C" {
#endif

/** A store, as one process sees it. */
typedef int64_t kv_store;

/** The keys of one call: numbers, or names of 1 to 200 bytes of UTF-8 without control characters; exactly one of the
 *  two pointers is not NULL. The keys of a store are all numbers or all names. A call must not name a key twice. */
typedef struct kv_keys {
  uint32_t size;            /**< sizeof(kv_keys), set by KV_KEYS_INIT */
  uint32_t version;         /**< MV_STRUCT_VERSION */
  uint64_t count;
  const int64_t *numbers;
  const char *const *names;
} kv_keys;

#define KV_KEYS_INIT { sizeof(kv_keys), MV_STRUCT_VERSION, 0, NULL, NULL }

/** The values of one call, key after key. Each key has one tensor, or several (one for each device): a push sums
 *  them, and a pull fills all of them. Tensors may be in the memory of CUDA devices, each in its own. Their values are
 *  copied through the host, except for keys that are on a device: see kv_create(). */
typedef struct kv_values {
  uint32_t size;            /**< sizeof(kv_values), set by KV_VALUES_INIT */
  uint32_t version;         /**< MV_STRUCT_VERSION */
  uint64_t count;           /**< tensors */
  const mv_tensor *tensors;
  const uint64_t *per_key;  /**< how many tensors each key has; NULL: count / keys.count */
  int64_t priority;         /**< requests that this worker has queued for a server are sent by descending priority;
                                 usually 0. Calls on one key keep their order nevertheless */
} kv_values;

#define KV_VALUES_INIT { sizeof(kv_values), MV_STRUCT_VERSION, 0, NULL, NULL, 0 }

/** Creates a store. Not collective, but the stores of a cluster are matched by the kind of their type and by their
 *  number, so all workers create theirs in the same order.
 *  @param node  for the dist types; stores of the other types exist in this process alone and need no mv_init()
 *  @param type  case-insensitive: local, local_update_cpu, local_allreduce_cpu, local_allreduce_device, device, nccl,
 *               row_sparse (all of these sum the devices of this process); dist, dist_sync, dist_sync_device,
 *               dist_device_sync (rounds: the pushes of all workers to a key are merged and update it once); p3 (the
 *               same, in slices of 128 KiB, between which values of a higher priority overtake; DMLC_PS_VAN_TYPE=p3 in
 *               the environment of all workers turns the dist types above into p3); dist_async, dist_async_device
 *               (every push updates at once)
 *  MXNET_KVSTORE_BIGARRAY_BOUND in the environment, the same for all workers, is the number of elements from which a
 *  key is spread over all servers; without it, keys are spread from 4 MB on.
 *  In a device, local_allreduce_device or nccl store, a key whose first value is a tensor of a device stays there and is
 *  updated there. All other keys are in the memory of hosts.
 *  @return MV_EINVAL for another type, with the known ones listed */
MV_API mv_status kv_create(mv_node node, const char *type, kv_store *store);
/** Closes the handle, after this worker's earlier calls. The keys of a dist store stay on the servers. */
MV_API mv_status kv_free(kv_store store);
/** The type passed to kv_create(), in lower case. Text as in mv_table_list(). */
MV_API mv_status kv_type(kv_store store, char *text, uint64_t capacity, uint64_t *length);
/** The number of this process among the workers, 0 .. kv_num_workers() - 1. */
MV_API mv_status kv_rank(kv_store store, int64_t *rank);
MV_API mv_status kv_num_workers(kv_store store, int64_t *num_workers);

/** Creates keys in the store. Dist types: collective, with the same keys, shapes and dtypes on every worker; worker 0's
 *  values are used; returns when they are stored.
 *  @param values  one tensor for each key (of several the first is used), dense or row-sparse
 *  @return MV_EDISAGREE for a key that exists, or specs that differ between workers; MV_EINVAL for invalid keys;
 *          MV_ESHAPE for a tensor without elements, or for a row-sparse tensor with rows of more than 1 MiB (p3: 128
 *          KiB); MV_ENONFINITE; MV_EPEERLOST or MV_ETIMEOUT if another worker is missing: then make the same call again,
 *          and it goes on with the workers that are left. The loss of one worker may be reported by several calls */
MV_API mv_status kv_init(kv_store store, const kv_keys *keys, const kv_values *values);
/** Pushes values. They are summed over the tensors of a key and, for dist_sync, over all workers' pushes of the same
 *  number; the sum goes through the key's updater, or replaces the value if there is no optimizer. Returns when the
 *  values are copied and being sent; a later error is reported by the next call on the key.
 *  Row-sparse tensors push the rows that they hold, summed by row over several tensors and several workers. An
 *  optimizer updates only these rows; without one, the key holds these rows, and zeros for all others. A dense tensor
 *  pushes all rows to a row-sparse key. A row-sparse tensor has the same effect on a dense key as on a row-sparse one,
 *  if all workers push row-sparse tensors in that round.
 *  @param options  NULL, or a deadline for the wait that begins when inflight_bytes are in flight; MV_FORGET: see
 *                  kv_set_updater()
 *  @return MV_ENOTFOUND for a key that was not initialised, MV_ESHAPE, MV_EDTYPE, MV_EINVAL, MV_ENONFINITE: nothing
 *          was pushed; MV_ESTATE for dist_async without an optimizer */
MV_API mv_status kv_push(kv_store store, const kv_keys *keys, const kv_values *values, const mv_call_options *options);
/** A further flag in the options of kv_pull() and kv_pushpull(): fill row-sparse tensors too. (MXNet's
 *  ignore_sparse=False.) */
enum kv_call_flag { KV_SPARSE_TOO = 256 };

/** Pulls values into tensors. They include this worker's earlier pushes; for dist_sync, with all other pushes of their
 *  rounds. Row-sparse tensors are silently skipped. With KV_SPARSE_TOO they receive the rows of the key that are not
 *  zero, for which all rows are transferred. Dense tensors receive all rows of any key.
 *  @param options  NULL, or a deadline and KV_SPARSE_TOO; with MV_ASYNC one request covers the whole call, and the
 *                  tensors must not be used before it has finished
 *  @return as kv_push(); MV_ETIMEOUT naming the missing workers; MV_EPEERLOST. After these two the contents of the
 *          tensors are undefined */
MV_API mv_status kv_pull(kv_store store, const kv_keys *keys, const kv_values *values, const mv_call_options *options);
/** Pulls some rows of row-sparse keys into row-sparse tensors, which then hold exactly these rows, ascending and each
 *  once, including rows of zeros. Views made of a tensor before (mv_tensor_parts()) stay as they were. No other rows
 *  are transferred.
 *  @param out      one tensor for each key, or several
 *  @param row_ids  dense tensors of whole numbers, of any dtype and shape, possibly empty, in any order, repeats
 *                  allowed: one for each key, for all of its tensors in `out`, or as many as these
 *  @param options  as for kv_pull(), without KV_SPARSE_TOO
 *  @return as kv_pull(), and MV_EINVAL for a dense key or a dense tensor, or an id that is not a whole number;
 *          MV_ERANGE for an id outside the key's rows; MV_ESHAPE. After these nothing was changed */
MV_API mv_status kv_row_sparse_pull(kv_store store, const kv_keys *keys, const kv_values *out, const kv_values *row_ids,
                                    const mv_call_options *options);
/** kv_push() of `values`, then kv_pull() into `out`; with out NULL, into `values`. */
MV_API mv_status kv_pushpull(kv_store store, const kv_keys *keys, const kv_values *values, const kv_values *out,
                             const mv_call_options *options);
/** kv_init() of `values`, then kv_pull() into `out`; with out NULL, into `values`. */
MV_API mv_status kv_broadcast(kv_store store, const kv_keys *keys, const kv_values *values, const kv_values *out);

/** Keys that are initialised from now on refuse NaN and infinity (1) or accept them (0, the default). Dist types:
 *  all workers make the same call, before kv_init(). A push of such values is MV_ENONFINITE, and nothing of the call
 *  was pushed. */
MV_API mv_status kv_set_reject_nonfinite(kv_store store, int32_t on);
/** Sets the optimizer of all present and future keys: text as mv_table_set_updater() takes it, "sgd rate=0.1";
 *  "assign" for none. One worker calls it, before the pushes to which it should apply; setting an equal one again
 *  changes nothing. */
MV_API mv_status kv_set_optimizer(kv_store store, const char *optimizer);
/** Sets the codec that compresses pushes from now on, for present and future dense keys of a floating-point dtype; all
 *  other keys, and initial values, are transferred uncompressed. The sender keeps the residual that a codec leaves out
 *  of a push, and adds it to the next one. Dist types: applies to what this worker sends to the servers, which decode
 *  it before it is merged; workers may differ. Other types: applies to what each device gives to the sum.
 *  docs/kvstore.md lists the codecs and their sizes in bytes.
 *  @param codec  text: "2bit threshold=0.5" (MXNet's), "1bit threshold=0.5 scale=1", "fp16", "bf16", "int8 block=256",
 *                "topk ratio=0.01"; "none", after which the next push of a key carries its residual. pull=fp16,
 *                pull=bf16 or pull=int8 after any of them also compresses the servers' answers to kv_pull()
 *  @return MV_EINVAL for another codec, with the known ones listed; MV_ESTATE if a key was pushed already, unless
 *          the codec is "none" or the same again */
MV_API mv_status kv_set_gradient_compression(kv_store store, const char *codec);
/** Overrides the optimizer's parameters for some keys, existing or future: "lr_mult=0.1 wd_mult=0" (either, or both; ""
 *  for neither) replace its own lr_mult and wd_mult. Stays in force after kv_set_optimizer(), also after a later one.
 *  The worker that sets the optimizer calls it.
 *  @return MV_EINVAL for other parameters, or if the optimizer has neither of these: MXNet's ("mx.…") have them */
MV_API mv_status kv_set_key_parameters(kv_store store, const kv_keys *keys, const char *parameters);

enum kv_save_flag {
  KV_DUMP_OPTIMIZER = 1 /**< the optimizer too: its parameters, its schedule and the update count of each key */
};
/** Collects the optimizer's states of all keys from all servers, and writes them into one safetensors file of the
 *  calling process, atomically. One worker calls it; the others push nothing meanwhile. The states include this
 *  worker's earlier pushes, and the residuals of gradient compression of all workers, which deliver them in their
 *  kv_barrier().
 *  With KV_DUMP_OPTIMIZER a run that loads the file continues as if it had never ended, bit for bit, if it has the
 *  values too: pull and save them.
 *  @param flags  kv_save_flag
 *  @return MV_ETIMEOUT naming a worker that compresses and does not come to the barrier; MV_ESTATE without keys,
 *          without an optimizer, or with an updater callback, which keeps its own states; MV_ESYSTEM */
MV_API mv_status kv_save_optimizer_states(kv_store store, const char *path, uint32_t flags);
/** Loads the states into a store with the same keys on any number of servers and workers. One worker calls it, before a
 *  kv_barrier() of all. A file that contains the optimizer restores its parameters and counts, and sets it if the store
 *  has none yet.
 *  @return MV_EINVAL for a damaged file, or one of another format (the message names MXNet's, pickled or by
 *          Storable, which may contain code); MV_EDISAGREE for states of another optimizer, or of other keys, shapes
 *          or dtypes: nothing was changed; MV_ENOTFOUND */
MV_API mv_status kv_load_optimizer_states(kv_store store, const char *path);

/** Handles a push in a store of one process, instead of replacing the value: writes the new value into `stored`. It
 *  runs only on the thread that set it: inside that thread's calls on the store, or in its mv_poll() on any node.
 *  @param key     as in kv_init(); numbers as text
 *  @param merged  the sum over the pushed tensors of the key
 *  @param stored  the stored value, to be changed in place; row-sparse for a row-sparse key: mv_tensor_axpy() adds rows
 *                 to it. Both tensors belong to the library, and are valid until the callback returns
 *  @return MV_OK; a negative status becomes the push's error, and the stored value stays as it was
 *  Inside it, mv_poll() and calls on the store that would wait for it are MV_EREENTRANT. Pushes with MV_FORGET are
 *  allowed. */
typedef mv_status (*kv_updater)(void *user, const char *key, mv_tensor merged, mv_tensor stored);

/** Sets the updater of a store of one process. The last call of this function or kv_set_optimizer() wins. When
 *  kv_push() returns on this thread, the updater has handled the push, for all its keys even if one fails. A push with
 *  MV_FORGET, and one by another thread, are queued for this thread's mv_poll() (mv_event_fd() of every node is
 *  readable meanwhile), kv_pull(), kv_barrier() or next push. A pull waits for the earlier pushes of its keys, as long
 *  as its deadline allows. The error of an update for which no call waited is reported by the next call on the key.
 *  @param updater  or NULL: pushes replace values again, or go through the last optimizer; or KV_UPDATER_MANUAL
 *  @return MV_ESTATE for dist types, whose values are updated on the servers: kv_set_optimizer();
 *          MV_EPENDING while updates wait for another thread that has set an updater */
MV_API mv_status kv_set_updater(kv_store store, kv_updater updater, void *user);
/** For languages whose functions must not be called from C: this thread processes the updates itself, at any time,
 *  at the latest when kv_pull() returns MV_EPENDING (it then pulls again), and after kv_push() for the push's own
 *  outcome. mv_poll() returns at once while any update is queued. kv_pushpull() is MV_ESTATE: push, update, pull. */
#define KV_UPDATER_MANUAL ((kv_updater)1)
/** The oldest queued update, the same one until kv_update_done().
 *  @param merged, stored  as in kv_updater, until kv_update_done(); both 0 if none is queued
 *  @param text, capacity, length  receive the key, as in mv_table_list()
 *  @return MV_ESTATE if the updater is not manual, or was set by another thread */
MV_API mv_status kv_next_update(kv_store store, mv_tensor *merged, mv_tensor *stored, char *text, uint64_t capacity, uint64_t *length);
/** Ends the update of kv_next_update(). `outcome` is MV_OK, or an error: the stored value then stays as it was, and
 *  pushers on other threads get the error. MV_ESTATE if no update has begun. */
MV_API mv_status kv_update_done(kv_store store, mv_status outcome);

/** Returns when all workers of the store have called it. It does not wait for pushes: their rounds may be open. */
MV_API mv_status kv_barrier(kv_store store, const mv_call_options *options);

/** Executes a command on a server; its meaning is the program's own. A negative status is reported to the sender. */
typedef mv_status (*kv_controller)(void *user, int64_t head, const char *body);

/** Sends a command to all servers and returns when the controller of each has executed it: once, in the order of this
 *  worker's commands. On a process that is worker and server, this call executes commands meanwhile, if this thread has
 *  set the controller.
 *  @param head     a number with a meaning of the program's own
 *  @param body     the program's own text, up to 16 MiB
 *  @param options  NULL, a deadline, or MV_ASYNC
 *  @return the first error of a controller; MV_ESTATE naming a server without one (`polyverso server` has none),
 *          while the others execute the command all the same, or for a store of one process; MV_ETIMEOUT naming a
 *          server that has not executed it, and will not */
MV_API mv_status kv_send_command(kv_store store, int64_t head, const char *body, const mv_call_options *options);
/** Sets this server's controller. Commands wait for the calling thread's mv_poll() (mv_event_fd() is readable
 *  meanwhile), kv_send_command() or kv_run_server(). A process that is only a server queues commands until it has
 *  called this, kv_run_server() or mv_shutdown(); one that is also a worker refuses them as long as it has no
 *  controller.
 *  @param controller  NULL for none; or KV_CONTROLLER_MANUAL, for languages whose functions must not be called from C
 *  @return MV_ESTATE if this process is not a server */
MV_API mv_status kv_set_controller(mv_node node, kv_controller controller, void *user);
#define KV_CONTROLLER_MANUAL ((kv_controller)1)
/** kv_set_controller(), then executes commands on this thread until all workers have finished; call mv_shutdown() next.
 *  @return MV_ESTATE if this process is a worker too; MV_EINTR after a signal: call again */
MV_API mv_status kv_run_server(mv_node node, kv_controller controller, void *user);

/** For kv_next_command(): none yet; there is one; all workers have finished. */
enum kv_command_found { KV_COMMAND_NOT_YET = 0, KV_COMMAND_HERE = 1, KV_COMMAND_NEVER = 2 };
/** The oldest queued command, the same one until kv_command_done().
 *  @param timeout_ms  how long to wait for one; 0 = not at all. It may return sooner
 *  @param found       out: a kv_command_found
 *  @param head        out: 0 without a command
 *  @param text, capacity, length  receive the body, as in mv_table_list()
 *  @return MV_ESTATE if the controller is not manual, or was set by another thread; MV_EINTR after a signal */
MV_API mv_status kv_next_command(mv_node node, int64_t timeout_ms, int32_t *found, int64_t *head, char *text, uint64_t capacity,
                                 uint64_t *length);
/** Ends the command of kv_next_command(); the sender receives `outcome`. MV_ESTATE if no command has begun. */
MV_API mv_status kv_command_done(mv_node node, mv_status outcome);

/** This worker stops pushing: rounds continue without it. It may still pull. */
MV_API mv_status kv_leave(kv_store store);

/* ------------------------------------------------------------------- optimizers, without a store */

/** How many tensors of state an optimizer keeps for a tensor.
 *  @param optimizer  text as kv_set_optimizer() takes it
 *  @param states     out: the number of tensors of its dtype and shape, initially zeros
 *  @param shared     out: the number of elements of one more MV_F64 tensor, which all tensors of the optimizer
 *                    share; 0 = none */
MV_API mv_status kv_optimizer_states(const char *optimizer, int64_t *states, int64_t *shared);
/** One update of a tensor, as a store would make it: for programs that keep their tensors themselves. Needs no
 *  mv_init().
 *  @param count     the number of this update of the tensor, from 1
 *  @param before    the number of earlier updates of the most updated tensor, among all that share the optimizer:
 *                   schedules depend on it. At 0 the shared state is reset
 *  @param value     MV_F32 or MV_F64; changed. For other dtypes, update a copy. A row-sparse one is updated as a whole,
 *                   and then holds the rows that are not zero
 *  @param gradient  of the value's shape and dtype, or MV_F16 or MV_BF16 for MV_F32; row-sparse: lazy optimizers update
 *                   only its rows, others treat the rest as zeros
 *  @param states    as kv_optimizer_states() reports, the shared one last; changed. The tensors of one "key"; NULL for
 *                   none
 *  Value and gradient must be in one place. Tensors of a device are updated there, if the states are there, too, and
 *  otherwise on the host, by copies.
 *  @return MV_EINVAL, MV_ESHAPE or MV_EDTYPE: nothing was changed */
MV_API mv_status kv_optimizer_step(const char *optimizer, uint64_t count, uint64_t before, mv_tensor value, mv_tensor gradient,
                                   const kv_values *states);

/** The rate that the optimizer's schedule gives after this number of updates, without multipliers: its learning_rate if
 *  it has no schedule.
 *  @return MV_EINVAL for an unknown optimizer, or one without a rate that MXNet's schedules could change (all but
 *          "mx.…") */
MV_API mv_status kv_optimizer_rate(const char *optimizer, uint64_t updates, double *value);

/** The states of such an optimizer as a safetensors file in memory, with a checksum of everything: dtypes, shapes and
 *  elements of the tensors, and a text. Needs no mv_init().
 *  @param format  names the kind of file; kv_decode_states() must be given the same. UTF-8
 *  @param about   a description of the tensors in the caller's own form, such as JSON, with everything else that is to
 *                 be saved. UTF-8, less than 64 MiB; kv_decode_states() returns it
 *  @param states  the tensors, dense, of any dtypes and shapes; per_key and priority are not used. NULL for none
 *  @param bytes   out: the file, an MV_U8 tensor of one dimension, which the caller must free
 *  @return MV_EINVAL for a row-sparse tensor (save mv_tensor_to_dense() of it), for text that is not UTF-8 or is too
 *          long; MV_EHANDLE; MV_ENOMEM */
MV_API mv_status kv_encode_states(const char *format, const char *about, const kv_values *states, mv_tensor *bytes);
/** Reads a file of kv_encode_states(), from any source: it contains no code, and is checked completely before anything
 *  is returned.
 *  @param format   as in kv_encode_states()
 *  @param values   the whole file, count bytes: MV_RAW or MV_U8 (MV_EDTYPE otherwise). Lent until the call returns
 *  @param about    out: the text. Lent by the library until this thread's next kv_decode_states()
 *  @param tensors  out: tensor_count new tensors, in the order of `states`, which the caller must free. The array of
 *                  handles is lent, as `about` is
 *  @return MV_EINVAL for a damaged or truncated file, or one of another format (the message names Python's pickle and
 *          Perl's Storable, which may contain code); MV_ESHAPE for a tensor beyond any memory; MV_ENOMEM. No tensor
 *          was made */
MV_API mv_status kv_decode_states(const char *format, const void *values, uint64_t count, mv_dtype dtype, const char **about,
                                  const mv_tensor **tensors, uint64_t *tensor_count);

#ifdef __cplusplus
}
#endif
#endif
