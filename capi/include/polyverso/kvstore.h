/** A key-value store in the manner of MXNet's: tensors under keys, pushed by all workers, merged, updated, pulled. Part of
 *  polyverso.h, which includes this; its rules hold here too.
 *
 *  Each key is a table on the servers (of the pace MV_MERGE for dist_sync), so that everything that holds for tables holds for keys:
 *  transports, exactness, checkpoints. Processes in different languages share one store when they create stores of the same type in
 *  the same order; the number 3 and the name "3" are the same key.
 *
 *  What happens in one process to one key happens in the order of its calls. A value that was pushed is a snapshot: changing
 *  the tensor afterwards changes nothing in the store.
 *
 *  A call that a signal interrupts ends with MV_EINTR. Made again it goes on, and does nothing twice; but for kv_pushpull() and
 *  kv_broadcast(), which are two calls in one.
 *
 *  A key that was initialised with a row-sparse tensor is a row-sparse key. On the servers each of its rows has its place, those that
 *  nobody touched take no memory, and what travels are the rows that are pushed or asked for.
 */
#ifndef POLYVERSO_KVSTORE_H
#include "polyverso.h" /* and this header from there, behind what it needs */
#endif
#ifndef POLYVERSO_KVSTORE_H
#define POLYVERSO_KVSTORE_H

#ifdef __cplusplus
extern "C" {
#endif

/** A store, as one process sees it. */
typedef int64_t kv_store;

/** Keys of one call: numbers, or names of 1 to 200 bytes without control characters; exactly one of the two is not NULL. A store's
 *  keys are all numbers or all names. No key may be there twice. */
typedef struct kv_keys {
  uint32_t size;            /**< sizeof(kv_keys), set by KV_KEYS_INIT */
  uint32_t version;         /**< MV_STRUCT_VERSION */
  uint64_t count;
  const int64_t *numbers;
  const char *const *names;
} kv_keys;

#define KV_KEYS_INIT { sizeof(kv_keys), MV_STRUCT_VERSION, 0, NULL, NULL }

/** Values of one call, key after key: of each key one tensor, or several (one a device), which are summed up when they are pushed,
 *  and which all receive what is pulled. */
typedef struct kv_values {
  uint32_t size;            /**< sizeof(kv_values), set by KV_VALUES_INIT */
  uint32_t version;         /**< MV_STRUCT_VERSION */
  uint64_t count;           /**< tensors */
  const mv_tensor *tensors;
  const uint64_t *per_key;  /**< how many of them each key has; NULL: count / keys.count */
  int64_t priority;         /**< of what this worker has queued for a server, higher ones leave first; 0 is the usual one. Calls on one
                                 key keep their order all the same */
} kv_values;

#define KV_VALUES_INIT { sizeof(kv_values), MV_STRUCT_VERSION, 0, NULL, NULL, 0 }

/** Creates a store. Not collective, but the stores of a cluster find each other by their type's kind and their number, so workers
 *  create theirs in the same order.
 *  @param node  for the dist types; the others live in this process alone and need no mv_init()
 *  @param type  in letters of any size: local, local_update_cpu, local_allreduce_cpu, local_allreduce_device, device, nccl, row_sparse (all
 *               of them: this process's devices are summed up here); dist, dist_sync, dist_sync_device, dist_device_sync (rounds: what all
 *               workers push to a key is merged and updates it once); p3 (the same, in slices of 128 KiB, between which what has a
 *               higher priority overtakes; the environment's DMLC_PS_VAN_TYPE=p3, for all workers, makes p3 of those before);
 *               dist_async, dist_async_device (every push updates at once)
 *  The environment's MXNET_KVSTORE_BIGARRAY_BOUND, the same for all workers: from so many elements on a key is spread over all servers;
 *  without it from 4 MB on.
 *  @return MV_EINVAL for another type, with the known ones */
MV_API mv_status kv_create(mv_node node, const char *type, kv_store *store);
/** Gives the handle back, after this worker's earlier calls. The keys of a dist store stay on the servers. */
MV_API mv_status kv_free(kv_store store);
/** The type as it was given, in small letters. Text as in mv_table_list(). */
MV_API mv_status kv_type(kv_store store, char *text, uint64_t capacity, uint64_t *length);
/** Place among the workers, 0 .. kv_num_workers() - 1. */
MV_API mv_status kv_rank(kv_store store, int64_t *rank);
MV_API mv_status kv_num_workers(kv_store store, int64_t *num_workers);

/** Brings keys into the store. Dist types: collective, every worker with the same keys, shapes and dtypes; worker 0's values count;
 *  returns when they are stored.
 *  @param values  one tensor a key (of several the first counts), dense or row-sparse
 *  @return MV_EDISAGREE for a key that is there, or specs that differ between workers; MV_EINVAL for keys that are no keys;
 *          MV_ESHAPE for nothing, or for a row-sparse tensor with rows of more than 1 MiB (p3: 128 KiB); MV_ENONFINITE */
MV_API mv_status kv_init(kv_store store, const kv_keys *keys, const kv_values *values);
/** Pushes values: summed up over the tensors of a key, and, for dist_sync, over all workers' pushes of the same number, they go through
 *  the key's updater: without an optimizer they replace the value. Returns when they are copied and on their way; an error on that
 *  way comes from the next call on the key.
 *  Row-sparse tensors bring the rows that they hold, those of several tensors and of several workers summed up by row. An optimizer steps
 *  these rows and no others; without one the key holds these rows, and zeros for all others. A dense tensor brings a row-sparse key
 *  all rows. A row-sparse tensor does the same to a dense key, where all workers push such in a round.
 *  @param options  NULL, or a deadline for the wait that begins where inflight_bytes are under way; MV_FORGET: see kv_set_updater()
 *  @return MV_ENOTFOUND for a key that was not initialised, MV_ESHAPE, MV_EDTYPE, MV_EINVAL, MV_ENONFINITE: nothing was pushed;
 *          MV_ESTATE for dist_async without an optimizer */
MV_API mv_status kv_push(kv_store store, const kv_keys *keys, const kv_values *values, const mv_call_options *options);
/** Besides mv_call_flag in the options of kv_pull() and kv_pushpull(): row-sparse tensors are filled too. (MXNet's ignore_sparse=False.) */
enum kv_call_flag { KV_SPARSE_TOO = 256 };

/** Pulls values into tensors. They hold this worker's earlier pushes; for dist_sync with all that belongs to their rounds.
 *  Row-sparse tensors are left as they are, without a word, whatever they are; with KV_SPARSE_TOO they come to hold the key's rows that
 *  are not zero, for which all of them travel. Dense tensors receive all rows of any key.
 *  @param options  NULL, or a deadline and KV_SPARSE_TOO; with MV_ASYNC one request stands for the whole call, and the tensors must
 *                  not be used before it is over
 *  @return as kv_push(); MV_ETIMEOUT naming who is missing; MV_EPEERLOST. On these the tensors are undefined */
MV_API mv_status kv_pull(kv_store store, const kv_keys *keys, const kv_values *values, const mv_call_options *options);
/** Pulls some rows of row-sparse keys into row-sparse tensors, which come to hold these rows, ascending and each once, and no others; so
 *  rows of zeros too. What was made of a tensor before (mv_tensor_parts()) stays as it was. Nothing else travels.
 *  @param out      one tensor a key, or several
 *  @param row_ids  dense tensors of whole numbers, of any dtype and shape, also empty, in any order, repeated or not: of each key one, for
 *                  all of its tensors in `out`, or as many as these
 *  @param options  as kv_pull()'s, without KV_SPARSE_TOO
 *  @return besides kv_pull()'s: MV_EINVAL for a dense key or a dense tensor, or an id that is no whole number; MV_ERANGE for one outside
 *          of the key's rows; MV_ESHAPE. On these nothing was changed */
MV_API mv_status kv_row_sparse_pull(kv_store store, const kv_keys *keys, const kv_values *out, const kv_values *row_ids,
                                    const mv_call_options *options);
/** kv_push() of `values`, then kv_pull() into `out`; with out NULL, into `values`. */
MV_API mv_status kv_pushpull(kv_store store, const kv_keys *keys, const kv_values *values, const kv_values *out,
                             const mv_call_options *options);
/** kv_init() of `values`, then kv_pull() into `out`; with out NULL, into `values`. */
MV_API mv_status kv_broadcast(kv_store store, const kv_keys *keys, const kv_values *values, const kv_values *out);

/** Keys that are initialised from now on refuse NaN and infinity (1) or take them (0, at first). Dist types: all workers alike, before
 *  kv_init(). A push of such values is MV_ENONFINITE, and nothing of the call was pushed. */
MV_API mv_status kv_set_reject_nonfinite(kv_store store, int32_t on);
/** Sets the optimizer of all keys, those of today and those to come: text as mv_table_set_updater() takes it, "sgd rate=0.1"; "assign" for
 *  none. One worker calls it, before the pushes that it is for; an equal one set again changes nothing. */
MV_API mv_status kv_set_optimizer(kv_store store, const char *optimizer);
/** How pushes travel from now on, of the keys of today and of those to come: dense ones of a floating-point dtype; all others, and initial
 *  values, travel as they are. What a codec leaves out of a push is kept by its sender and added to the next one. Dist types: what this worker
 *  sends to the servers, which decode it before it is merged; workers may differ. Other types: what each device gives to the sum.
 *  docs/kvstore.md has the codecs and how many bytes they make.
 *  @param codec  text: "2bit threshold=0.5" (MXNet's), "1bit threshold=0.5 scale=1", "fp16", "int8 block=256", "topk ratio=0.01"; "none", after
 *                which the next push of a key carries what was left. pull=fp16 or pull=int8 behind any of them: so the servers' answers to
 *                kv_pull() travel, too
 *  @return MV_EINVAL for another one, with the known ones; MV_ESTATE where a key was pushed already, unless the codec is "none" or the
 *          same again */
MV_API mv_status kv_set_gradient_compression(kv_store store, const char *codec);
/** Sets what the optimizer does otherwise for some keys, those there are or those to come: "lr_mult=0.1 wd_mult=0" (either, or both; "" for
 *  neither) in the place of its own lr_mult and wd_mult. It outlasts kv_set_optimizer(), also a later one. The worker that
 *  sets the optimizer calls it.
 *  @return MV_EINVAL for other parameters, or where the optimizer has none of these: MXNet's ("mx.…") have them */
MV_API mv_status kv_set_key_parameters(kv_store store, const kv_keys *keys, const char *parameters);

enum kv_save_flag {
  KV_DUMP_OPTIMIZER = 1 /**< the optimizer too: its parameters, its schedule and how many updates each key has had */
};
/** Gathers the states that the optimizer keeps of all keys on all servers, and writes them into one safetensors file of the calling
 *  process, whole or not at all. One worker calls it; the others push nothing meanwhile. It holds this worker's earlier pushes,
 *  and what gradient compression has left out, of all workers, who are asked for it in their kv_barrier().
 *  With KV_DUMP_OPTIMIZER a run that loads it goes on as if it had never ended, bit for bit, if it has the values too: pull and save them.
 *  @param flags  kv_save_flag
 *  @return MV_ETIMEOUT naming a worker that compresses and does not come to the barrier; MV_ESTATE without keys, without an optimizer, or
 *          with an updater callback, which remembers by itself; MV_ESYSTEM */
MV_API mv_status kv_save_optimizer_states(kv_store store, const char *path, uint32_t flags);
/** Puts them back, into a store with the same keys on any number of servers and workers. One worker calls it, before a kv_barrier() of all. A file that holds
 *  the optimizer brings its parameters and counts, and sets it where there is none yet.
 *  @return MV_EINVAL for a damaged file, or none of ours (MXNet's, pickled or by Storable, may hold code and is named as such); MV_EDISAGREE
 *          for states of another optimizer, or of other keys, shapes or dtypes: nothing was changed; MV_ENOTFOUND */
MV_API mv_status kv_load_optimizer_states(kv_store store, const char *path);

/** What a push does in a store of one process, instead of replacing the value: writes what is to be stored into `stored`. It runs on the
 *  thread that set it and on no other: inside that thread's calls on the store, or in its mv_poll() on any node.
 *  @param key     as in kv_init(); numbers as text
 *  @param merged  the sum over the key's tensors that were pushed
 *  @param stored  the stored value, to be changed in place; of a row-sparse key row-sparse: mv_tensor_axpy() brings rows into it. Both
 *                 tensors are the library's, and valid until the callback returns
 *  @return MV_OK; a negative status becomes the push's error, and the stored value stays as it was
 *  Inside it, calls on the store that would wait for it, and mv_poll(), are MV_EREENTRANT. Pushes with MV_FORGET are not. */
typedef mv_status (*kv_updater)(void *user, const char *key, mv_tensor merged, mv_tensor stored);

/** Sets the updater of a store of one process; of it and of kv_set_optimizer() the one called last counts. A push by this thread has been
 *  through the updater when kv_push() returns, with those of all its keys though one fails. A push with MV_FORGET, and one by another
 *  thread, wait: for this thread's mv_poll() (mv_event_fd() of every node is readable meanwhile), kv_pull(), kv_barrier() or next push. A
 *  pull waits for the pushes of its keys that came before it, as long as its deadline allows. What went wrong with an update that
 *  nobody waited for comes from the next call on the key.
 *  @param updater  or NULL: pushes replace values again, or go through the last optimizer; or KV_UPDATER_BY_HAND
 *  @return MV_ESTATE for dist types, whose values are updated on the servers: kv_set_optimizer();
 *          MV_EPENDING while updates wait for another thread that has set one */
MV_API mv_status kv_set_updater(kv_store store, kv_updater updater, void *user);
/** For languages whose functions must not run below a C function: this thread takes the updates itself, whenever it likes, at the latest
 *  when kv_pull() says MV_EPENDING (and then pulls again), and after kv_push() for the push's own outcome. mv_poll() returns at once while
 *  any wait. kv_pushpull() is MV_ESTATE: push, update, pull. */
#define KV_UPDATER_BY_HAND ((kv_updater)1)
/** The oldest update that waits, the same one until kv_update_done().
 *  @param merged, stored  as in kv_updater, until kv_update_done(); both 0 if none waits
 *  @param text, capacity, length  receive the key, as in mv_table_list()
 *  @return MV_ESTATE if the updater is not by hand, or another thread's */
MV_API mv_status kv_next_update(kv_store store, mv_tensor *merged, mv_tensor *stored, char *text, uint64_t capacity, uint64_t *length);
/** Ends what kv_next_update() began: `outcome` is MV_OK, or why the stored value is to stay as it was, which those who pushed from
 *  other threads will hear. MV_ESTATE if none has begun. */
MV_API mv_status kv_update_done(kv_store store, mv_status outcome);

/** Returns when all workers of the store have called it. It does not wait for pushes: their rounds may be open. */
MV_API mv_status kv_barrier(kv_store store, const mv_call_options *options);

/** What a server does with a command: words of the program's own. A negative status is the sender's error. */
typedef mv_status (*kv_controller)(void *user, int64_t head, const char *body);

/** Sends a command to all servers and returns when the controller of each has executed it: once, in the order of this worker's commands.
 *  On a process that is worker and server it executes commands meanwhile, where this thread has set the controller.
 *  @param head     a number of the program's own
 *  @param body     text of its own, up to 16 MiB
 *  @param options  NULL, a deadline, or MV_ASYNC
 *  @return the first error of a controller; MV_ESTATE naming a server without one (`polyverso server` has none), the others execute it all
 *          the same, or for a store of one process; MV_ETIMEOUT naming a server that has not executed it, and will not */
MV_API mv_status kv_send_command(kv_store store, int64_t head, const char *body, const mv_call_options *options);
/** Sets this server's controller: commands wait for the calling thread's mv_poll() (mv_event_fd() is readable meanwhile), its
 *  kv_send_command() or kv_run_server(). A process that is only a server lets commands wait until it has called this, kv_run_server()
 *  or mv_shutdown(); a worker's refuses them as long as it has no controller.
 *  @param controller  NULL for none; or KV_CONTROLLER_BY_HAND, for languages whose functions must not run below a C function
 *  @return MV_ESTATE if this process is no server */
MV_API mv_status kv_set_controller(mv_node node, kv_controller controller, void *user);
#define KV_CONTROLLER_BY_HAND ((kv_controller)1)
/** kv_set_controller(), and executes commands on this thread until all workers have finished; mv_shutdown() is to follow.
 *  @return MV_ESTATE if this process is a worker too; MV_EINTR after a signal: call again */
MV_API mv_status kv_run_server(mv_node node, kv_controller controller, void *user);

/** For kv_next_command(): there is one; there may be later; all workers have finished. */
enum kv_command_found { KV_COMMAND_NOT_YET = 0, KV_COMMAND_HERE = 1, KV_COMMAND_NEVER = 2 };
/** The oldest command that waits, the same one until kv_command_done().
 *  @param timeout_ms  how long to wait for one; 0 = not at all. It may return sooner
 *  @param found       out: a kv_command_found
 *  @param head        out: 0 without a command
 *  @param text, capacity, length  receive the body, as in mv_table_list()
 *  @return MV_ESTATE if the controller is not by hand, or another thread's; MV_EINTR after a signal */
MV_API mv_status kv_next_command(mv_node node, int64_t timeout_ms, int32_t *found, int64_t *head, char *text, uint64_t capacity,
                                 uint64_t *length);
/** Ends what kv_next_command() began; `outcome` is what the sender hears. MV_ESTATE if none has begun. */
MV_API mv_status kv_command_done(mv_node node, mv_status outcome);

/** This worker pushes no more: rounds go on without it. It may still pull. */
MV_API mv_status kv_leave(kv_store store);

/* ------------------------------------------------------------------- optimizers, without a store */

/** What an optimizer keeps beside a tensor.
 *  @param optimizer  text as kv_set_optimizer() takes it
 *  @param states     out: so many tensors of its dtype and shape, zeros at first
 *  @param shared     out: and one MV_F64 tensor of so many elements, which all tensors of the optimizer share, unless that is 0 */
MV_API mv_status kv_optimizer_states(const char *optimizer, int64_t *states, int64_t *shared);
/** One update of a tensor, as a store would make it: for programs that keep their tensors themselves. Needs no mv_init().
 *  @param count     this update's number among the tensor's, from 1
 *  @param before    how many updates the tensor with most of them, of all those that share the optimizer, has had before: schedules go by
 *                   it. At 0 the shared state begins anew
 *  @param value     MV_F32 or MV_F64; changed. Others step a copy. A row-sparse one is stepped as a whole, and holds the rows that are not zero
 *  @param gradient  of the value's shape and dtype, or MV_F16 or MV_BF16 for MV_F32; row-sparse: the rows alone are stepped by optimizers
 *                   that are lazy, others take the rest for zeros
 *  @param states    as kv_optimizer_states() tells, the shared one last; changed. Of one "key"; NULL for none
 *  @return MV_EINVAL, MV_ESHAPE or MV_EDTYPE: nothing was changed */
MV_API mv_status kv_optimizer_step(const char *optimizer, uint64_t count, uint64_t before, mv_tensor value, mv_tensor gradient,
                                   const kv_values *states);

/** The rate that the optimizer's schedule gives after so many updates, without multipliers: its learning_rate where it has none.
 *  @return MV_EINVAL for an unknown optimizer, or one without a rate that MXNet's schedules could change (all but "mx.…") */
MV_API mv_status kv_optimizer_rate(const char *optimizer, uint64_t updates, double *value);

#ifdef __cplusplus
}
#endif
#endif
