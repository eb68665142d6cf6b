/** Polyverso: model parameters shared between processes, in any language.
 *
 *  This header is the whole interface: C99 and plain data. No exception crosses it, and it needs no global variables.
 *  The Perl, Python and Lua modules are generated from it. Any program that can dlopen() can call it directly.
 *
 *  Rules that hold for every function, and are therefore not repeated below:
 *   - Every function returns MV_OK (0) or a negative mv_status; results are returned through pointers. On an error
 *     nothing is written through them, and mv_last_error() returns a sentence about that call.
 *   - Any thread may call any function, concurrently with any other, unless its comment says otherwise.
 *   - Handles (mv_node, mv_table, mv_request) are integers below 2^53. A stale, closed, invented or wrong-kind handle
 *     is MV_EHANDLE, never a crash. Node 0 is the default node, the one of mv_init().
 *   - The caller lends the pointers it passes until the call returns, except where a request outlives the call: see
 *     mv_call_options. Strings are UTF-8, NUL-terminated.
 *   - Sizes and counts are 64-bit and count elements, not bytes, except with the dtype MV_RAW.
 *   - Time-outs are in milliseconds: 0 = the node's default, MV_FOREVER (-1) = none.
 *   - In a forked child every function except those of tensor.h returns MV_EFORK until the child itself calls
 *     mv_init(), opens a gossip node, or creates a store of a type that needs no node. */
#ifndef POLYVERSO_POLYVERSO_H
#define POLYVERSO_POLYVERSO_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MV_API __attribute__((visibility("default")))
#else
#define MV_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ version */

#define MV_VERSION_MAJOR 0
#define MV_VERSION_MINOR 1
#define MV_VERSION_PATCH 0
/** Version of every option struct in this header; see MV_INIT_OPTIONS_INIT and the other _INIT macros. */
#define MV_STRUCT_VERSION 1

/** Version of the loaded library as major * 10000 + minor * 100 + patch. Never fails. */
MV_API int32_t mv_version(void);
/** The version of the loaded library as text, "0.1.0". Static storage. Never fails. */
MV_API const char *mv_version_text(void);

/* ------------------------------------------------------------------- status */

typedef int32_t mv_status;

/** XX(value, NAME, family, text). The family names the exception class that the languages raise:
 *  argument (the caller's data or arguments), handle, state (the call is not allowed in the current state), timeout,
 *  peer (another process or the connection to it), step (the rules of sync mode), interrupt, system (this machine). */
#define MV_STATUS_MAP(XX)                                                                      \
  XX(-1, EINVAL, argument, "an argument is not valid")                                         \
  XX(-2, ESHAPE, argument, "the data does not have the table's shape")                         \
  XX(-3, EDTYPE, argument, "the data does not have the table's dtype")                         \
  XX(-4, ERANGE, argument, "a row id is outside the table")                                    \
  XX(-5, ENONFINITE, argument, "the data holds NaN or infinity, which this table refuses")     \
  XX(-6, ENOTFOUND, argument, "there is no such thing")                                        \
  XX(-7, EHANDLE, handle, "no such handle, or it is closed, or of another kind")               \
  XX(-8, ESTATE, state, "not initialised, or already shut down")                               \
  XX(-9, EDISAGREE, state, "this disagrees with what was said before or elsewhere")            \
  XX(-10, EREENTRANT, state, "a blocking call inside a callback")                              \
  XX(-11, EFORK, state, "this process was forked from one that had called mv_init")            \
  XX(-12, EPENDING, state, "the request is not finished yet")                                  \
  XX(-13, ECANCELED, state, "the request was cancelled")                                       \
  XX(-14, ETIMEOUT, timeout, "the deadline passed")                                            \
  XX(-15, EPEERLOST, peer, "another process is gone")                                          \
  XX(-16, EUNREACHABLE, peer, "another process can't be reached")                              \
  XX(-17, EADDRINUSE, peer, "the address is already in use")                                   \
  XX(-18, EAUTH, peer, "another secret, another user, or no member of the cluster")            \
  XX(-19, EVERSION, peer, "the protocol versions differ")                                      \
  XX(-20, EPROTOCOL, peer, "another process sent something that is not this protocol")         \
  XX(-21, EOUTOFSTEP, step, "the workers do not make the same adds and gets in sync mode")     \
  XX(-22, EINTR, interrupt, "a signal interrupted the wait")                                   \
  XX(-23, ENOMEM, system, "out of memory")                                                     \
  XX(-24, ESYSTEM, system, "the operating system refused")                                     \
  XX(-25, ENOSYS, system, "not available in this build")                                       \
  XX(-26, EINTERNAL, system, "a defect in the library: please report it")

enum mv_status_code {
  MV_OK = 0,
#define XX(value, name, family, text) MV_##name = value,
  MV_STATUS_MAP(XX)
#undef XX
};

/** "MV_ESHAPE" for MV_ESHAPE; "MV_UNKNOWN" for a number that is no status. Static storage. Never fails. */
MV_API const char *mv_status_name(mv_status status);
/** One general sentence about a status. Static storage. Never fails. */
MV_API const char *mv_status_message(mv_status status);
/** The family of a status, as in MV_STATUS_MAP; "ok" for 0. Static storage. Never fails. */
MV_API const char *mv_status_family(mv_status status);
/** The error of this thread's last failed call, as a sentence with names and numbers; "" if no call has failed.
 *  Thread-local storage, valid until this thread's next failing call. Never fails. */
MV_API const char *mv_last_error(void);
/** Before a callback fails: the reason, such as "ValueError: ...". It is part of the errors that the failure causes, also
 *  in other processes. It counts for this thread's next updater, controller or reducer that returns a status other than
 *  MV_OK, or is reported with one to kv_update_done(), kv_command_done() or mv_custom_done(). MV_OK discards it.
 *  @param text one line, of which at most 1000 bytes are kept; control characters become spaces, bytes that are
 *              not UTF-8 become U+FFFD; NULL: discards
 *  @return MV_OK, or MV_ENOMEM: the errors will have the status only */
MV_API mv_status mv_callback_error(const char *text);

/* ------------------------------------------------------------------ logging */

enum mv_log_level { MV_LOG_TRACE = 0, MV_LOG_DEBUG = 1, MV_LOG_INFO = 2, MV_LOG_WARN = 3, MV_LOG_ERROR = 4, MV_LOG_OFF = 5 };

/** Sets how much the library writes to standard error: an mv_log_level. The default is POLYVERSO_LOG_LEVEL, else
 *  MV_LOG_WARN. Process-wide. MV_EINVAL outside 0..5. May be called before mv_init(). */
MV_API mv_status mv_log_level_set(int32_t level);

/* ---------------------------------------------------------- nodes: init, shutdown */

/** A member of a cluster. A process usually has one, the default node; every function accepts 0 for it. */
typedef int64_t mv_node;

#define MV_FOREVER (-1)
#define MV_UNSET (-1)

enum mv_role { MV_ROLE_UNSET = 0, MV_ROLE_WORKER = 1, MV_ROLE_SERVER = 2, MV_ROLE_ALL = 3 };

/** The settings with which a node starts. A field left as MV_INIT_OPTIONS_INIT sets it is taken from the environment
 *  (POLYVERSO_<FIELD>, upper case, as `polyverso run` sets it), else from the default. An explicit value overrides
 *  the environment; the log reports the override. */
typedef struct mv_init_options {
  uint32_t size;                /**< sizeof(mv_init_options), set by MV_INIT_OPTIONS_INIT */
  uint32_t version;             /**< MV_STRUCT_VERSION */
  const char *text;             /**< further settings, see mv_init_text(); one that contradicts a field is
                                     MV_EDISAGREE */
  int32_t sync;                 /**< 1 = sync mode, 0 = async; default: as other processes set it, else 0. Processes
                                     that set it must agree */
  int32_t role;                 /**< an mv_role; default MV_ROLE_ALL: worker and server at once */
  int64_t rank;                 /**< 0 .. nodes - 1; default: assigned by the master in the order of arrival */
  int64_t nodes;                /**< processes in the cluster, including servers; default 1 */
  const char *master;           /**< "host:port" where rank 0 listens and the others connect; no default for nodes >
                                     1 */
  const char *bind;             /**< "host" or "host:port" to listen on; default: loopback, port 0 = any free one */
  const char *secret;           /**< shared by the cluster; required beyond loopback, and between users; also
                                     the key of encryption: `tls` in mv_init_text() */
  const char *transport;        /**< permitted transports: "auto" (default; shared memory within a machine, TCP
                                     beyond, UCX where there is an RDMA device and tls=off), "shm" (as auto, but never
                                     UCX), "tcp", "ucx", "mpi" or "inproc" */
  const char *faults;           /**< for tests: "drop=0.01 duplicate=0.01 delay_ms=5 seed=7", applied to all
                                     messages; default none */
  int64_t timeout_ms;           /**< one request to one server; default 60,000 */
  int64_t gate_timeout_ms;      /**< barriers, table creation, sync mode's gets and adds; default 600,000 */
  int64_t init_timeout_ms;      /**< until all processes have arrived; default 60,000 */
  int64_t heartbeat_timeout_ms; /**< silence after which a peer counts as lost; default 5,000 */
  uint64_t inflight_bytes;      /**< payload of unfinished asynchronous adds beyond which a call blocks; default 256
                                     MiB */
  int64_t spin_us;              /**< microseconds that a waiting thread spins before it sleeps, at most 50; default
                                     50, and up to 8 times that in groups whose ranks outnumber the machine's
                                     processors, where waiters yield meanwhile; 0 = never */
  const char *checkpoint;       /**< directory of the checkpoints that worker 0 saves automatically, every
                                     checkpoint_every_ms */
  int64_t checkpoint_every_ms;  /**< default 60,000 if `checkpoint` is set */
  int64_t checkpoint_keep;      /**< how many of these checkpoints are kept, the newest ones; default 3 */
  const char *advertise;        /**< "host" or "host:port" at which other processes are to reach this one; default:
                                     where it listens */
  const char *metrics;          /**< "port" or "host:port" of an HTTP server with mv_metrics_text() at /metrics,
                                     mv_trace_text() at /trace, and /healthz; without a host on loopback; port 0 =
                                     any free one, which is logged; default none */
  int64_t replicas;             /**< the number of other servers that keep a copy of each server's tables, and take over
                                     if it dies: see docs/failures.md. 0 to 15, and fewer than there are servers. All
                                     processes must agree; default 0 */
} mv_init_options;

#define MV_INIT_OPTIONS_INIT                                                                            \
  { sizeof(mv_init_options), MV_STRUCT_VERSION, NULL, MV_UNSET, MV_ROLE_UNSET, MV_UNSET, 0, NULL, NULL, \
    NULL, NULL, NULL, 0, 0, 0, 0, 0, MV_UNSET, NULL, 0, 0, NULL, NULL, MV_UNSET }

/** Starts the default node, or joins the cluster that the options or the environment describe, and returns when all of
 *  its processes have arrived. With no options and an empty environment the node is a complete cluster of one process,
 *  without a port. Counted: each call needs one mv_shutdown(0).
 *  @param options NULL = all from environment and defaults
 *  @return MV_EDISAGREE  a second call whose options contradict the first's, or processes that contradict each other
 *          MV_EINVAL     an invalid value; the message names the setting and its source
 *          MV_EADDRINUSE, MV_EUNREACHABLE, MV_EAUTH, MV_EVERSION, MV_EPROTOCOL, MV_ETIMEOUT  joining failed
 *          MV_EINTR      after a signal: joining continues; call again with the same options, or mv_shutdown(0) to
 *                        give up */
MV_API mv_status mv_init(const mv_init_options *options);
/** mv_init() from "key=value" text. Keys are the names of the fields of mv_init_options, separated by white space,
 *  commas or semicolons: "sync=1 role=worker timeout_ms=500". Values that contain separators go in double quotes. An
 *  unknown key is MV_EINVAL, and the message lists the known ones. The text "help" is MV_EINVAL too; the message
 *  then describes each key in a line. Further keys: `log_level` (a number or trace|debug|info|warn|error|off), `tls`
 *  (off|auto|psk|mutual, by default auto), `tls_cert`, `tls_key`, `tls_ca`: docs/security.md; `keeper`, where the
 *  cluster has a name by which processes without a master find it, and `keeper_auth`: docs/launchers.md;
 *  `max_servers`: mv_cluster_resize(); `max_workers`: mv_active_workers(); `stuck_after_ms`: mv_status_text();
 *  `trace_events`: mv_trace_text(); `collective_costs`, by which groups choose algorithms: mv_doctor_text(); `tuning`
 *  (auto|trial|fixed, or the name of an algorithm), the choice of algorithms in shared memory: docs/groups.md;
 *  `collective`, the implementation of groups' all-reduces: auto, own, in an MPI job mpi (docs/groups.md), or between
 *  devices nccl (docs/cuda.md). */
MV_API mv_status mv_init_text(const char *text);
/** mv_init() from a command line, as in Multiverso. Every "-key=value" or "--key=value" with a known key (also
 *  Multiverso's -ps_role=) is used and removed from argv, and *argc is lowered; all other arguments stay, in order.
 *  @param argc in and out; may be NULL together with argv
 *  @param argv argv[0] is left alone */
MV_API mv_status mv_init_args(int *argc, char **argv);
/** Starts a further node in this process, for tests and for embedding several clusters; not counted.
 *  @param node out: the handle for functions that take an mv_node; close it with mv_shutdown(*node) */
MV_API mv_status mv_node_open(const mv_init_options *options, mv_node *node);
/** Ends one mv_init(), or the node of an mv_node_open(). The last one waits until this worker's adds are applied, and
 *  reports to the other processes that this worker has finished (no call waits for it any more). If this process is
 *  also a server, it then serves until every worker has finished or is lost. Handles of the node are stale afterwards.
 *  @return MV_OK, also if other processes are lost; the first unreported error of a fire-and-forget add; MV_EINTR
 *          after a signal: the node still serves, call again; MV_ETIMEOUT if adds were not acknowledged within
 *          gate_timeout_ms: the other processes are notified nevertheless; MV_EPEERLOST from a process that is only a
 *          server: the others have declared it lost and continue without it, or too few processes were left to decide
 *          about the members; MV_ESTATE without an mv_init() */
MV_API mv_status mv_shutdown(mv_node node);
/** Ends the node at once, because this program has failed: the other processes see this one as lost, and their calls
 *  that need it fail with MV_EPEERLOST and a message that has `reason`, "worker 1: ValueError: ... (rank 1, ...)". Adds
 *  that were not acknowledged may be lost. Waits until the others have the message, at most a second. Ends the default
 *  node (node 0) however often mv_init() was called. Handles of the node are stale afterwards.
 *
 *  A process that calls exit() or returns from main() while a node runs ends the node at exit: with exit status 0 as
 *  mv_shutdown() does, with another status as mv_abort() does, and the status is the reason.
 *  @param reason one line, of which at most 1000 bytes are kept; control characters become spaces, bytes that are
 *              not UTF-8 become U+FFFD; NULL or "": none
 *  @return MV_OK, also if the node has ended already or never existed (node 0); MV_EHANDLE */
MV_API mv_status mv_abort(mv_node node, const char *reason);

/** The rank of this process in the cluster: 0 .. size - 1. */
MV_API mv_status mv_rank(mv_node node, int64_t *rank);
/** The number of processes in the cluster. */
MV_API mv_status mv_size(mv_node node, int64_t *size);
/** The number of this process among the workers, -1 for a process that is only a server. Worker 0 is the master
 *  worker. */
MV_API mv_status mv_worker_id(mv_node node, int64_t *worker_id);
/** The number of workers when this process joined, those that have finished or are lost included. mv_active_workers()
 *  counts those that are there now. */
MV_API mv_status mv_num_workers(mv_node node, int64_t *num_workers);
/** The number of this process among the servers, -1 for a process that is only a worker. */
MV_API mv_status mv_server_id(mv_node node, int64_t *server_id);
MV_API mv_status mv_num_servers(mv_node node, int64_t *num_servers);
/** 1 on worker 0, else 0. */
MV_API mv_status mv_is_master(mv_node node, int32_t *is_master);
/** 1 in sync mode, else 0. */
MV_API mv_status mv_is_sync(mv_node node, int32_t *is_sync);

/** The format of a text. 0: for people. */
enum mv_text_flag { MV_JSON = 1 /**< as JSON, for programs */ };

/** For mv_status_text() and mv_cluster_status_text(). */
enum mv_status_flag {
  /** For a display that asks again soon: a process that does not answer within half a second (else one second) is shown
   *  as silent; and with more than 32 processes, the JSON has the 20 pairs with the most bytes per second (`busiest`)
   *  instead of all (`peers` of each member), which are many MiB if hundreds are connected to each other */
  MV_LIVE = 16
};

/** For mv_doctor_text(). */
enum mv_doctor_flag {
  MV_REACH = 2, /**< without a node: only the connection to the master (POLYVERSO_MASTER, POLYVERSO_SECRET), whatever
                     else is set */
  MV_TUNE = 4   /**< with a node: only the measured cost of messages between workers. Collective among all workers,
                     takes seconds */
};

/** Reports the findings of a diagnosis, and how to fix each problem. Without a running node (node = 0): the settings that
 *  mv_init() would use, with their sources; the capabilities of this machine, tested; its devices for tensors, or what
 *  they lack; whether the master can be reached, step by step. With a node: the transport to each peer, why it is not a
 *  better one, and the peer's response time. docs/operations.md lists the fields of the JSON.
 *  With MV_TUNE the text is the value for the setting `collective_costs`, by which groups choose their algorithms:
 *  docs/allreduce.md. MV_ESTATE without a node, or with one worker only; MV_ECANCELED after a signal; MV_EPEERLOST.
 *  @param flags   mv_text_flag and mv_doctor_flag
 *  @param text    as in mv_table_list(). The last line is "all is well" unless something needs attention; in JSON:
 *                 "well": true
 *  @param length  as in mv_table_list(). A report that did not fit is kept for two seconds: this thread's next call
 *                 returns it without a new examination */
MV_API mv_status mv_doctor_text(mv_node node, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);

/* ----------------------------------------------------------------- requests */

/** An unfinished call. mv_request_wait() and mv_request_test() release it once it has finished. Release a handle
 *  that is abandoned before with mv_request_release(): it takes memory until then. */
typedef int64_t mv_request;

enum mv_call_flag {
  MV_ASYNC = 1, /**< return at once; `request` receives a handle. An add copies its data; the buffer of a get must
                     live until completion */
  MV_FORGET = 2 /**< adds only: return at once, no handle. An error is reported by the next call on the table, the
                     barrier or the shutdown */
};

/** How a call waits. Every function that takes these options accepts NULL: blocking, with the node's default
 *  deadline. */
typedef struct mv_call_options {
  uint32_t size;       /**< sizeof(mv_call_options), set by MV_CALL_OPTIONS_INIT */
  uint32_t version;    /**< MV_STRUCT_VERSION */
  uint32_t flags;      /**< mv_call_flag, or 0 */
  uint32_t reserved;   /**< 0 */
  int64_t timeout_ms;  /**< for this call; for an asynchronous one too, counted from the call */
  mv_request *request; /**< out: the handle, with MV_ASYNC. Without MV_ASYNC: if given, a blocking call that a signal
                            interrupts returns MV_EINTR and continues under this handle, its buffers still lent, so
                            that no work is lost or done twice: handle the signal, then call mv_request_wait() or
                            _cancel(). If not given: the call is withdrawn. Set to 0 if no handle is left */
  uint64_t label;      /**< for operations of groups and strategies, otherwise 0: what the arrays are, such as a hash of
                            their names and shapes. MV_EDISAGREE if another rank has another label; 0 fits all */
} mv_call_options;

#define MV_CALL_OPTIONS_INIT \
  { sizeof(mv_call_options), MV_STRUCT_VERSION, 0, 0, 0, NULL, 0 }

/** Waits until the request has finished, returns its status, and releases it.
 *  @param timeout_ms how long to wait here: 0 = as long as the request's own deadline allows. If it passes first,
 *                    MV_ETIMEOUT with the request still alive (mv_last_error() says that it is)
 *  @return the request's own status; MV_EINTR after a signal, the request alive */
MV_API mv_status mv_request_wait(mv_request request, int64_t timeout_ms);
/** Reports, without waiting, whether the request has finished. *done = 0: still running, MV_OK. *done = 1: finished;
 *  returns its status and releases it (*done is written even when that status is an error). */
MV_API mv_status mv_request_test(mv_request request, int32_t *done);
/** Withdraws the request and releases it. When this returns, its buffers belong to the caller again. An add may have
 *  been applied: mv_last_error() then says "outcome unknown". @return MV_OK, whatever the outcome */
MV_API mv_status mv_request_cancel(mv_request request);
/** Releases the handle without waiting; the call itself continues if it is still running. The error of an add, or of
 *  another call that lends no buffer, is reported like that of a fire-and-forget add (MV_FORGET). For finalizers: never
 *  waits, on any thread.
 *  @return MV_EPENDING while the call is running and uses the caller's buffers (a get, a pull, an operation of a
 *          group): keep them, and the handle, and try again later; or call mv_request_cancel() */
MV_API mv_status mv_request_release(mv_request request);
/** The status of a finished request, without releasing it; MV_EPENDING while it runs, MV_EHANDLE if it is not a
 *  request. mv_last_error() returns its message. */
MV_API mv_status mv_request_error(mv_request request);
/** Returns requests that have finished since the last call, each once. They still need mv_request_wait() or _test(),
 *  which then return at once.
 *  @param finished  caller's array, receives handles; may be NULL with capacity 0, to run callbacks only
 *  @param count     out: how many were written; call again if it equals capacity
 *  @param timeout_ms how long to wait for the first; 0 here means not at all. MV_OK with *count = 0 if it passes */
MV_API mv_status mv_poll(mv_node node, mv_request *finished, uint64_t capacity, uint64_t *count, int64_t timeout_ms);
/** A descriptor that is readable while finished requests or callbacks wait for mv_poll(), or events for a program that
 *  has called mv_membership_next(): level-triggered, for epoll, asyncio, AnyEvent, luv. Never read or close it. It
 *  lives as long as the node. */
MV_API mv_status mv_event_fd(mv_node node, int32_t *fd);

/** Waits until every server has applied this worker's earlier adds, including fire-and-forget ones, and until all
 *  workers that have not finished have called it. For workers only (MV_ESTATE on a server).
 *  @return MV_EPEERLOST if a worker or server was lost meanwhile; the first unreported error of a fire-and-forget add;
 *          MV_ETIMEOUT naming the missing workers: withdrawn, may be repeated; MV_EINTR: the next call continues it */
MV_API mv_status mv_barrier(mv_node node, const mv_call_options *options);

/* ------------------------------------------------------------------- tables */

/** Numbers shared by all workers, split over the servers. */
typedef int64_t mv_table;

/** Element types. A table has one of the numbered ones. Integers wrap around. MV_F16 and MV_BF16 travel as two
 *  bytes; the servers store and add them as 32-bit floats, and round to nearest, ties to even, when they are read. */
typedef int32_t mv_dtype;
enum mv_dtype_code {
  MV_RAW = 0, /**< for a call's data: bytes in the table's own dtype and byte order; `count` then counts bytes */
  MV_F32 = 1,
  MV_F64 = 2,
  MV_I64 = 3,
  MV_I32 = 4,
  MV_U8 = 5,
  MV_F16 = 6, /**< IEEE 754 binary16 */
  MV_BF16 = 7, /**< the upper half of an IEEE 754 binary32 */
  MV_I8 = 8
};

enum mv_table_kind {
  MV_ARRAY = 1,   /**< one column, dense; contiguous ranges on the servers */
  MV_MATRIX = 2,  /**< dense rows; contiguous ranges of rows on the servers */
  MV_SPARSE = 3,  /**< a matrix that stores only rows that were changed; row r is on server r modulo servers */
  MV_KEYVALUE = 4 /**< rows of `cols` values under any 64-bit key; only changed ones are stored, distributed by a
                       hash of the key */
};
enum mv_table_flag {
  MV_REJECT_NONFINITE = 1, /**< adds, sets and initial values with NaN or infinity are MV_ENONFINITE */
  MV_MERGE = 2, /**< synchronous training in rounds: every worker's i-th add is its part of round i. When all workers'
                    parts have arrived on a server, their sum, in the order of ranks, goes through the updater once.
                    An add returns when its part has arrived; a get waits for the rounds of this worker's adds, and
                    for no others. Rounds do not wait for workers that have finished */
  MV_NO_BACKUPS = 4 /**< replicas=0 for this table: in a cluster with replicas, its calls cost as without them. If one of
                         its servers is lost, calls on that server's part are MV_EPEERLOST until the table is loaded
                         from a checkpoint, or destroyed and created again. A server that is drained loses nothing */
};

typedef struct mv_table_spec {
  uint32_t size;    /**< sizeof(mv_table_spec), set by MV_TABLE_SPEC_INIT */
  uint32_t version; /**< MV_STRUCT_VERSION */
  const char *name; /**< the table's identity, at most 255 bytes; NULL: "table-<n>", where n counts this node's
                         unnamed tables */
  int32_t kind;     /**< an mv_table_kind */
  mv_dtype dtype;   /**< any but MV_RAW; default MV_F32 */
  uint64_t rows;    /**< array: elements; matrix, sparse: rows, at least 1; key-value: 0 */
  uint64_t cols;    /**< matrix, sparse, key-value: columns, at least 1; array: 1 */
  uint32_t flags;   /**< mv_table_flag */
  uint32_t reserved; /**< 0 */
  const char *updater;  /**< how the servers apply an add, with parameters: see mv_table_set_updater(); NULL = "add" */
  int64_t staleness;    /**< MV_UNSET: the node's mode, sync or async. 0: sync mode for this table. s > 0:
                             stale-synchronous, see mv_table_clock() */
  double initial;       /**< sparse, key-value: the value of elements that were never changed */
  double initial_range; /**< sparse, key-value: that value is instead uniformly random in initial +- initial_range, a
                             function of seed, id and column only (SplitMix64) */
  uint64_t seed;        /**< see initial_range */
  uint64_t capacity;    /**< key-value: keys kept on all servers together; beyond that, each server drops its least
                             recently used. 0 = no limit */
  int64_t device;       /**< the number of a device whose memory holds each server's part, with the states of its updater;
                             adds are applied there, and keys are found there. What the device has no memory for is in
                             the host's, which the device's kernels access over the bus. Every server needs a device of
                             this number, or the table is MV_ENOSYS or MV_ENOTFOUND. On devices, the updater dcasgd of
                             sparse and key-value tables is MV_ENOSYS, and a capacity MV_EINVAL. MV_HOST, the default:
                             the host's memory. mv_device_find() finds the number of a name */
} mv_table_spec;

#define MV_TABLE_SPEC_INIT \
  { sizeof(mv_table_spec), MV_STRUCT_VERSION, NULL, MV_ARRAY, MV_F32, 0, 1, 0, 0, NULL, MV_UNSET, 0, 0, 0, 0, MV_HOST }

/** Creates a table. Collective: every worker calls it with the same spec, and it returns on all of them when the table
 *  holds its initial value on every server.
 *  @param data  the initial value, rows * cols elements, row-major; NULL with count 0 = zeros. Only worker 0's is used;
 *               it is assigned without the updater and sync mode's counters. The others' is checked for its shape only
 *  @return MV_EDISAGREE  specs differ between workers, on all of them; the message shows both
 *          MV_EINTR      after a signal: withdrawn, but the deadline keeps running; call again
 *          MV_ETIMEOUT   naming the missing workers
 *          MV_EINVAL, MV_ESHAPE, MV_EDTYPE, MV_ENONFINITE, MV_ENOMEM, MV_EPEERLOST */
MV_API mv_status mv_table_create(mv_node node, const mv_table_spec *spec, const void *data, uint64_t count, mv_dtype dtype,
                                 mv_table *table);
/** mv_table_create() with the spec as text; keys are the names of the fields: "kind=matrix rows=10 cols=64 dtype=f64
 *  name=weights reject_nonfinite=1 updater=\"adagrad rate=0.1\"". `size=100` is short for kind=array rows=100, and
 *  `device` may be a name, as in device=cuda:0. */
MV_API mv_status mv_table_create_text(mv_node node, const char *spec, const void *data, uint64_t count, mv_dtype dtype,
                                      mv_table *table);
/** Opens an existing table by name. Not collective. MV_ENOTFOUND if there is none. */
MV_API mv_status mv_table_open(mv_node node, const char *name, mv_table *table);
/** Closes this handle, after this worker's earlier calls on the table. The table lives on. */
MV_API mv_status mv_table_close(mv_table table);
/** Frees the table on all servers and closes the handle. One worker calls it, when no worker uses the table any
 *  more. Other workers' later calls on it are MV_ENOTFOUND. */
MV_API mv_status mv_table_destroy(mv_table table);

typedef struct mv_table_info {
  uint32_t size;       /**< sizeof(mv_table_info), set by MV_TABLE_INFO_INIT */
  uint32_t version;    /**< MV_STRUCT_VERSION */
  char name[256];
  int32_t kind;        /**< an mv_table_kind */
  mv_dtype dtype;
  uint64_t rows, cols;
  uint32_t flags;      /**< mv_table_flag */
  uint32_t servers;    /**< servers that own a part */
  uint64_t bytes;      /**< of the values, on all servers, as transferred */
  uint64_t adds, gets; /**< through this handle, so far */
  char updater[256];   /**< as mv_table_set_updater() takes it, with all parameters, or as many as fit */
  int64_t staleness;   /**< as in the spec */
  uint64_t clock;      /**< this worker's, see mv_table_clock() */
  uint64_t stored;     /**< rows, elements or keys that the servers store */
  uint64_t memory_bytes; /**< memory of values, updater states and indexes on all servers */
  uint64_t state_bytes;  /**< of these, the updater states */
  uint64_t updates;      /**< adds that an optimizer (an updater named "mx.…") has counted, on the server that has
                              counted most */
} mv_table_info;

#define MV_TABLE_INFO_INIT \
  { sizeof(mv_table_info), MV_STRUCT_VERSION, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0, 0, 0 }

/** Describes the table; asks the servers how much they store. @param info the caller's, with size and version set;
 *  filled */
MV_API mv_status mv_table_describe(mv_table table, mv_table_info *info);
/** The tables of the cluster, as JSON: [{"name": "w", "kind": "matrix", "dtype": "f32", "rows": 10, "cols": 64,
 *  "updater": "add", "staleness": -1, "merge": false}, …].
 *  @param text     caller's buffer, NUL-terminated on return; NULL with capacity 0 asks for the length only
 *  @param length   out: bytes needed without the NUL; if >= capacity, text was cut */
MV_API mv_status mv_table_list(mv_node node, char *text, uint64_t capacity, uint64_t *length);

/** Adds `data` to the table, element by element. In sync mode the add counts in this worker's round, and is applied in
 *  the order (round, number of the add, rank), the same on every run.
 *  @param data  rows * cols elements, row-major, of the table's dtype; lent until the call returns, or copied with
 *               MV_ASYNC and MV_FORGET. It may be in the memory of a device that this process uses
 *               (mv_tensor_address()), as in all functions below that take `data`, and in mv_table_create(): it is
 *               copied to the host and back in the order of the device's work so far. If all of the table is on that
 *               device in this process, it is used in place: like functions of tensors, the call may return when the
 *               work is queued (mv_device_wait()). Rows are on the host
 *  @param count elements (MV_RAW: bytes)
 *  @return MV_OK         once every server has applied it (blocking)
 *          MV_ESHAPE, MV_EDTYPE, MV_ENONFINITE  nothing was sent
 *          MV_ETIMEOUT   mv_last_error() distinguishes "not applied" from "outcome unknown"
 *          MV_EPEERLOST  a server was lost: the message names it
 *          MV_EOUTOFSTEP  in sync mode
 *
 *  One worker's adds to one table are applied in the order of its calls. Adds are atomic per stripe of at most 1
 *  MiB. */
MV_API mv_status mv_table_add(mv_table table, const void *data, uint64_t count, mv_dtype dtype, const mv_call_options *options);
/** mv_table_add() to some rows of a matrix or sparse table, elements of an array (its rows have one column), or keys of
 *  a key-value table, which are created if missing.
 *  @param rows      row_count ids in 0 .. rows - 1, or any 64-bit keys, in any order; values of repeated ids are summed
 *                   first, so that the updater sees each id once; lent or copied like data
 *  @param data      row_count * cols elements, row i for rows[i]
 *  @return as mv_table_add(), and MV_ERANGE: nothing was sent */
MV_API mv_status mv_table_add_rows(mv_table table, const int64_t *rows, uint64_t row_count, const void *data, uint64_t count,
                                   mv_dtype dtype, const mv_call_options *options);
/** Copies the table into `data`. The result includes all earlier adds of this worker. In sync mode it also includes, of
 *  the other workers' adds, exactly those that they made before their get of the same number; it has the same bits on
 *  all workers.
 *  @param data  rows * cols elements of the table's dtype; with MV_ASYNC it must live until completion or cancel
 *  @return MV_ESHAPE, MV_EDTYPE, MV_ETIMEOUT (in sync mode it names the missing workers; counters are unchanged),
 *          MV_EPEERLOST, MV_EOUTOFSTEP; on an error the contents of `data` are undefined */
MV_API mv_status mv_table_get(mv_table table, void *data, uint64_t count, mv_dtype dtype, const mv_call_options *options);
/** mv_table_get() of some rows: row i of `data` receives rows[i]; ids in any order, repeats allowed. Rows and keys
 *  that a sparse or key-value table does not store read as their initial value, and stay unstored. */
MV_API mv_status mv_table_get_rows(mv_table table, const int64_t *rows, uint64_t row_count, void *data, uint64_t count,
                                   mv_dtype dtype, const mv_call_options *options);
/** mv_table_get() without sync mode's gates: the values on the servers at this moment, which include at least this
 *  worker's applied adds. It advances no counter, so one worker alone may call it, for validation. */
MV_API mv_status mv_table_peek(mv_table table, void *data, uint64_t count, mv_dtype dtype, const mv_call_options *options);
MV_API mv_status mv_table_peek_rows(mv_table table, const int64_t *rows, uint64_t row_count, void *data, uint64_t count,
                                    mv_dtype dtype, const mv_call_options *options);
/** Assigns the table's values, without the updater and sync mode's counters: for loading a model, between two
 *  barriers. Parameters and errors as mv_table_add(). Of repeated rows the last one wins. */
MV_API mv_status mv_table_set(mv_table table, const void *data, uint64_t count, mv_dtype dtype, const mv_call_options *options);
MV_API mv_status mv_table_set_rows(mv_table table, const int64_t *rows, uint64_t row_count, const void *data, uint64_t count,
                                   mv_dtype dtype, const mv_call_options *options);

/** Removes rows of a sparse table or keys of a key-value table, with their updater state: they read as their initial
 *  value again. Ids that are not stored are skipped. Ordered and acknowledged like an add; in sync mode it does
 *  not count in the worker's round.
 *  @return MV_EINVAL for arrays and matrices */
MV_API mv_status mv_table_erase_rows(mv_table table, const int64_t *rows, uint64_t row_count, const mv_call_options *options);
/** Returns the stored rows of a sparse or key-value table, in chunks of at most `capacity`. Begin with cursor 0,
 *  continue with *next until it is -1. A row that is stored during the whole scan is returned exactly once; one that is
 *  added or removed meanwhile, at most once. The order has no meaning.
 *  @param rows   capacity ids, written
 *  @param data   count = capacity * cols elements of the table's dtype, row i for rows[i]; or NULL with count 0: ids
 *                only
 *  @param next   out: the cursor of the next call; -1 = end
 *  @param found  out: rows written, possibly 0 before the end
 *  @return MV_EINVAL for arrays and matrices, or a cursor that is not from this table */
MV_API mv_status mv_table_scan(mv_table table, int64_t cursor, int64_t *rows, uint64_t capacity, void *data, uint64_t count,
                               mv_dtype dtype, int64_t *next, uint64_t *found);
/** Ends one of this worker's iterations on a table with staleness s > 0. Adds made after a worker's c-th call have
 *  clock c. A get at clock c returns once it includes all adds of all workers of clock up to c - s - 1; it always
 *  includes this worker's own, and may include newer ones (stale-synchronous parallel: Ho et al., NIPS 2013). The
 *  fastest worker therefore waits, in its get, for a worker that is more than s behind. Gets do not wait for workers
 *  that have finished. This call never waits itself. On other tables it only counts. */
MV_API mv_status mv_table_clock(mv_table table);
/** Sets the updater, by which the servers apply adds from now on, or new parameters for it (a decaying rate). Ordered
 *  and acknowledged like this worker's adds; one worker calls it. With w the values and g the added ones, element by
 *  element:
 *    "add"       w += g (the default)
 *    "assign"    w = g
 *    "replace"   w = g, and rows that an add of rows does not name become zeros; arrays and matrices only
 *    "sgd"       rate=0.01 decay=0: w -= rate (g + decay w)
 *    "momentum"  rate=0.01 momentum=0.9 dampening=0 nesterov=0 decay=0: g' = g + decay w; v = momentum v + (1 -
 *                dampening) g'; w -= rate v, or with nesterov=1 w -= rate (g' + momentum v)
 *    "adagrad"   rate=0.01 epsilon=1e-10 decay=0: g' = g + decay w; s += g'^2; w -= rate g' / (sqrt(s) + epsilon)
 *    "ftrl"      alpha=0.1 beta=1 l1=0 l2=0: FTRL-Proximal per coordinate (McMahan et al., KDD 2013)
 *    "dcasgd"    rate=0.01 lambda=0.04 mean_square=0 epsilon=1e-7: w -= rate (g + lambda g^2 (w - b)), b the value that
 *                the adding worker last got; with mean_square=m, such as 0.95, lambda / sqrt(M + epsilon) replaces
 *                lambda, with M = m M + (1 - m) g^2 (Zheng et al., ICML 2017)
 *  Or one of MXNet's optimizers, with MXNet's parameter names and defaults: "mx.adam learning_rate=0.001 wd=0.01
 *  clip_gradient=1".
 *  These are mx.sgd, mx.signum, mx.ftml, mx.lbsgd, mx.dcasgd, mx.nag, mx.sgld, mx.adam, mx.adagrad, mx.rmsprop,
 *  mx.adadelta, mx.test, mx.ftrl, mx.adamax, mx.nadam, mx.adamw, mx.lamb and mx.lion; docs/optimizers.md has their
 *  formulas. All of them take wd, rescale_grad, clip_gradient, lr_mult, wd_mult, begin_num_update, and a schedule:
 *  lr_scheduler=factor|multifactor|poly|cosine with step=100:200, factor, stop_factor_lr, base_lr, max_update, pwr,
 *  final_lr, warmup_steps, warmup_begin_lr, warmup_mode. They count the table's adds (mv_table_info.updates); schedules
 *  and bias corrections depend on that count. An add of rows changes only these rows.
 *  "add", "assign" and "replace" take any dtype; all others need a floating-point one. The same updater with other
 *  parameters keeps its states and its count; another updater begins with zeros.
 *  @return MV_EINVAL for an unknown updater or parameter, with the known ones listed; for mx.lamb, and mx.lbsgd with
 *          warmup_strategy=lars, on tables whose norm cannot be computed: keyed ones, and those that are split over
 *          servers or stripes of 1 MiB */
MV_API mv_status mv_table_set_updater(mv_table table, const char *updater, const mv_call_options *options);

/* ------------------------------------------------------------- cluster status */

/** The status of the cluster: its members, their transports and traffic, the progress of the workers on the tables, and
 *  which process waits for which, since when. Any member may call it at any time: it waits for no other call, and
 *  answers within four seconds even if other processes are stopped, silent or lost; these are shown as such. A wait of
 *  10 s (`stuck_after_ms`) in a sync round, a get of a stale-synchronous table, a barrier or a table's creation logs
 *  this text automatically, once.
 *  @param flags   mv_text_flag and mv_status_flag; docs/operations.md lists the fields of the JSON
 *  @param text, capacity, length  as in mv_table_list(). A text that did not fit is kept for this thread for two
 *                                 seconds: a second call with more room gets the same text, without asking the
 *                                 members again */
MV_API mv_status mv_status_text(mv_node node, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);
/** Shows a number of the program, such as its loss, in the status of the cluster. mv_status_text() has the latest number
 *  of each name and process, how often it was reported, and how long ago; mv_metrics_text() has it as
 *  polyverso_reported{name="..."}. Costs about 0.1 us, sends nothing, and never waits.
 *  @param name   UTF-8, 1 to 255 bytes; at most 64 names in a process
 *  @param value  any number, also NaN and infinity, which are null in JSON
 *  @return MV_EINVAL for an invalid name, or one more than 64; MV_ESTATE */
MV_API mv_status mv_report(mv_node node, const char *name, double value);
/** mv_status_text() of a cluster of which this process is not a member. It does not become one, and does not disturb
 *  the members. Needs no node.
 *  @param settings as for mv_init_text(), of which `master`, `secret`, `tls…` and `init_timeout_ms` (here 5,000
 *                  unless set) count, also in the environment (POLYVERSO_MASTER, …); may be NULL
 *  @return MV_EUNREACHABLE, MV_EAUTH, MV_EVERSION, MV_EPROTOCOL, MV_ETIMEOUT, MV_EPEERLOST; MV_EINVAL if no master
 *          is named; MV_EINTR after a signal */
MV_API mv_status mv_cluster_status_text(const char *settings, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);
/** The last lines that this library has logged in a process of a cluster: at most 100, of level MV_LOG_INFO or above, or
 *  of the process's own level if that is lower, whether or not they were written to its standard error. At most 20 lines
 *  of a second are kept. The program's own output is not among them. Needs no node; a process that nobody asks sends
 *  nothing. An answer takes a second at most.
 *  @param settings as for mv_cluster_status_text()
 *  @param rank     of the process
 *  @param flags    mv_text_flag. JSON: `rank`, `lines` (the oldest first), `left_out` (lines that were not kept). The text
 *                  has control characters replaced
 *  @return as mv_cluster_status_text(); MV_EINVAL for a negative rank, MV_ENOTFOUND if there is no process of this rank,
 *          MV_ETIMEOUT if it does not answer, MV_EPEERLOST if it is lost */
MV_API mv_status mv_cluster_log_text(const char *settings, int64_t rank, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);

/* ------------------------------------------------------------- observation */

/** This process's metrics in Prometheus's text format. Names begin with "polyverso_" (and the usual "process_"), units
 *  are seconds and bytes, labels are ranks of peers, tables, transports and kinds, never keys. docs/operations.md has
 *  the list.
 *  @param text, capacity, length  as in mv_table_list(). Each call computes the text again, so it may be longer than
 *                                 the last one */
MV_API mv_status mv_metrics_text(mv_node node, char *text, uint64_t capacity, uint64_t *length);
/** The last messages, calls and waits of this process as JSON in Chrome's trace event format, for ui.perfetto.dev or
 *  chrome://tracing: one track for each peer and direction. `trace_events` sets how many events are kept
 *  (mv_init_text(), POLYVERSO_TRACE_EVENTS; default 16,384 if `metrics` is set, else none). `polyverso trace` combines
 *  the traces of all processes.
 *  @param text, capacity, length  as in mv_metrics_text()
 *  @return MV_ESTATE if no events are kept */
MV_API mv_status mv_trace_text(mv_node node, char *text, uint64_t capacity, uint64_t *length);

/* -------------------------------------------------------------- checkpoints */

/** Saves all tables with their updaters' states and clocks. Collective: every worker calls it. The checkpoint includes
 *  everything that each worker did before its call and nothing after it. Workers wait for each other as in a barrier.
 *  The servers then write in the background, and copy values that a worker changes meanwhile before the change.
 *  In `directory`, which must have this path on all servers, it makes "checkpoint-<number>": one safetensors file for
 *  each server and finally, by a rename, "manifest.json", without which it does not count. Missing directories are made.
 *  @param keep     how many complete checkpoints are kept in the directory, the newest ones; 0 = all
 *  @param options  blocking: returns when the checkpoint is complete and on the disk. MV_ASYNC: returns when training
 *                  may continue; the request finishes with the checkpoint
 *  @return MV_ESYSTEM with the file and the reason (a full disk): no checkpoint was made, earlier ones are untouched */
MV_API mv_status mv_checkpoint_save(mv_node node, const char *directory, uint64_t keep, const mv_call_options *options);
/** Loads all tables of a checkpoint, on any number of servers and workers. Collective, between two barriers. Existing
 *  tables must have the same specs (MV_EDISAGREE), and take twice their memory meanwhile: no table changes before every
 *  server has read all of its part. The other tables are created, and a later mv_table_create() or mv_table_open()
 *  finds them with their values.
 *  @param path     a checkpoint, or a directory of checkpoints: then its newest complete one
 *  @return MV_ENOTFOUND if there is none; MV_EINVAL for a damaged or incomplete one, with the reason: nothing was
 *          changed */
MV_API mv_status mv_checkpoint_load(mv_node node, const char *path, const mv_call_options *options);
/** The contents of a checkpoint, a directory of checkpoints, or one of their files, as JSON: tables with their
 *  specs, files, sizes, checksums, and "damage": what is wrong with it, if anything. Needs no node. Text as in
 *  mv_table_list(). */
MV_API mv_status mv_checkpoint_inspect(const char *path, char *text, uint64_t capacity, uint64_t *length);

#ifdef __cplusplus
}
#endif

#ifndef POLYVERSO_CORE /* defined while the library's own core is built, which includes only the parts it needs */
#include "tensor.h"    /* mv_tensor_* */
#include "kvstore.h"   /* kv_* */
#include "gossip.h"    /* mv_gossip_* */
#include "group.h"     /* mv_group_*, mv_allreduce_* */
#include "distlearn.h" /* training strategies on groups and tables */
#include "membership.h" /* mv_cluster_drain, mv_membership_next */
#endif

#endif
