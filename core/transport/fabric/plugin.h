/** The interface between the library and a plug-in for a communication library with fast networks, such as
 *  libpolyverso-ucx.so or libpolyverso-mpi-openmpi.so. It is narrow: one object for all peers, addresses as bytes, messages
 *  of a small header and a body, and a descriptor to wait on; and, where a launcher has started the processes, all-reduces
 *  by the communication library itself. A plug-in decides nothing: it knows neither frames nor the rules of admission.
 *
 *  Rules:
 *   - A plug-in exports one function, polyverso_fabric_plugin(), which returns its table, or NULL if it does not have this
 *     version of the interface.
 *   - A fabric is used by one thread at a time, which may change from call to call. The plug-in has no threads of its own,
 *     except while a team() is being made.
 *   - Functions with an mv_status return it, and after a failure error() has a sentence for the caller's thread that says
 *     what failed and what to do.
 *   - Nothing happens outside of calls, and only progress() reports events. No function calls the library back. */
#ifndef POLYVERSO_FABRIC_PLUGIN_H
#define POLYVERSO_FABRIC_PLUGIN_H

#include <polyverso/group.h>
#include <polyverso/polyverso.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this header. A plug-in and a library with different ones do not work together. */
#define MV_FABRIC_INTERFACE 5
#define MV_FABRIC_ENTRY "polyverso_fabric_plugin"

typedef struct mv_fabric_object* mv_fabric;       /**< this process in the network */
typedef struct mv_fabric_line_object* mv_fabric_line; /**< the way to one peer */
typedef struct mv_fabric_message_object* mv_fabric_message; /**< one that has arrived */
typedef struct mv_fabric_memory_object* mv_fabric_memory;   /**< memory that the network devices know */
typedef struct mv_fabric_key_object* mv_fabric_key;         /**< the right to read a peer's memory, by one line */
typedef struct mv_fabric_team_object* mv_fabric_team;       /**< processes of a job that reduce together */

typedef struct mv_fabric_options {
  uint32_t size;         /**< sizeof(mv_fabric_options) */
  int32_t loopback_only; /**< of the IP networks, uses only loopback, unless the communication library's own settings say otherwise */
  int64_t timeout_ms;    /**< of open(), where all processes of a job have to call it */
  int32_t gets;          /**< expose() and get() will be called */
} mv_fabric_options;

/** The address of a fabric in a job, for connect(): see mv_fabric_plugin::listen. */
typedef struct mv_fabric_place {
  int32_t rank;
  uint32_t port;
} mv_fabric_place;

typedef struct mv_fabric_about {
  char version[64];     /**< "UCX 1.13.1" */
  char networks[512];   /**< what it found: "self/memory, tcp/lo, tcp/eth0, posix/memory" */
  int32_t has_rdma;     /**< one of them reads and writes remote memory by itself: InfiniBand, RoCE, EFA */
  uint64_t most_header; /**< bytes; at least 1,024 */
  int32_t rank, size;   /**< of this process, in the job that a launcher has started; size is 0 if there is no such job */
  int32_t machines;     /**< of the job */
  uint64_t job;         /**< a random number that all processes of the job have, and those of another one do not */
} mv_fabric_about;

typedef enum mv_fabric_event_kind {
  MV_FABRIC_ARRIVED = 1,  /**< a message. `user` is NULL */
  MV_FABRIC_SENT = 2,     /**< a send has ended, successfully or not: its memory is free. `user` is the send's */
  MV_FABRIC_RECEIVED = 3, /**< a receive has ended: the body is in place, unless `status` says otherwise. `user` is the receive's */
  MV_FABRIC_FAILED = 4,   /**< a line has failed, and carries nothing more. `user` is the line's. error: what() */
  MV_FABRIC_TEAMED = 5,   /**< a team() is made, unless `status` says otherwise. `user` is the team's */
  MV_FABRIC_REDUCED = 6,  /**< a reduce() has ended: the result is in place, unless `status` says otherwise. `user` is the reduce's */
  MV_FABRIC_GOT = 7       /**< a get() has ended: the bytes are in place, unless `status` says otherwise. `user` is the get's */
} mv_fabric_event_kind;

typedef struct mv_fabric_event {
  mv_fabric_event_kind kind;
  mv_status status;
  const char* why; /**< of a failure */
  void* user;
  /* Of a message that has arrived. All of it stays until release(), or the end of a receive(). */
  mv_fabric_message message;
  const void* header;
  const void* body; /**< NULL if it is still at its sender: receive() fetches it */
  uint64_t header_bytes, body_bytes;
} mv_fabric_event;

typedef struct mv_fabric_plugin {
  uint32_t interface; /**< MV_FABRIC_INTERFACE */
  uint32_t size;      /**< sizeof(mv_fabric_plugin) */
  const char* name;   /**< "ucx" */
  const char* (*error)(void);

  mv_status (*open)(const mv_fabric_options* options, mv_fabric* fabric);
  /** Ends all lines at once, without waiting for what is on its way. */
  void (*close)(mv_fabric fabric);
  mv_status (*describe)(mv_fabric fabric, mv_fabric_about* about);
  /** What a peer needs for connect(). Valid until close(). */
  mv_status (*address)(mv_fabric fabric, const void** address, uint64_t* bytes);

  /** Gives the fabric a port of this process, beside the one of address(): peers connect() to the mv_fabric_place of it
   *  and of this process's rank. Ports from 1 << 16 on belong to the plug-in. MV_EADDRINUSE. NULL if there are no jobs. */
  mv_status (*listen)(mv_fabric fabric, uint32_t port);

  /** A descriptor that becomes readable when progress() has something to do, or may have, if arm() came before. */
  int32_t (*descriptor)(mv_fabric fabric);
  /** Whether the caller may wait for the descriptor now: 1, or 0 if progress() has to be called first. */
  int32_t (*arm)(mv_fabric fabric);
  /** Works on everything that is under way. The events stay until the next call. MV_ENOMEM: events are lost. */
  mv_status (*progress)(mv_fabric fabric, const mv_fabric_event** events, uint64_t* count);

  /** Begins a line to the process with this address. MV_EUNREACHABLE if no network in common leads there. A line to a port
   *  at which no fabric is fails with MV_EUNREACHABLE, once something is sent. */
  mv_status (*connect)(mv_fabric fabric, const void* address, uint64_t bytes, void* user, mv_fabric_line* line);
  /** Ends a line at once. Its sends end with events, and it reports no failure any more. */
  void (*disconnect)(mv_fabric fabric, mv_fabric_line line);

  /** Messages of one line arrive whole, mostly in the order of the calls. Header and body are lent until the send has
   *  ended: at once if `*ended` is set, else with an event. */
  mv_status (*send)(mv_fabric fabric, mv_fabric_line line, const void* header, uint64_t header_bytes, const void* body, uint64_t body_bytes,
                    void* user, int32_t* ended);
  /** Fetches a body that is still at its sender, to memory that stays until the event. The message ends with it. */
  mv_status (*receive)(mv_fabric fabric, mv_fabric_message message, void* to, uint64_t bytes, void* user);
  /** Ends a message. A body that is still at its sender is dropped. */
  void (*release)(mv_fabric fabric, mv_fabric_message message);

  /** Memory that stays registered with the network devices. If a reduce() whose values begin there has not ended, and its
   *  team was disbanded, memory_free() frees the memory once the communication library has ended that reduce. */
  mv_status (*memory_make)(mv_fabric fabric, uint64_t bytes, void** memory, mv_fabric_memory* handle);
  void (*memory_free)(mv_fabric fabric, mv_fabric_memory handle);

  /* Reading the memory of peers without their help. NULL, all four, if the communication library can't. */

  /** Lets peers read this memory, which has to stay until memory_free(). Who shall read it needs the key, which stays as long. */
  mv_status (*expose)(mv_fabric fabric, void* memory, uint64_t bytes, mv_fabric_memory* handle, const void** key, uint64_t* key_bytes);
  /** Prepares reading by this line what its peer has exposed with this key. MV_EUNREACHABLE if no network of the line can. */
  mv_status (*open_key)(mv_fabric fabric, mv_fabric_line line, const void* key, uint64_t bytes, mv_fabric_key* made);
  /** After the gets with the key have ended, or the line was disconnected. */
  void (*close_key)(mv_fabric fabric, mv_fabric_key key);
  /** Begins to read `bytes` bytes at `address` in the peer into `to`, which is lent until the event. Reads what is there at
   *  some moment between this call and the event, perhaps in pieces; gets that overlap in time have no order. */
  mv_status (*get)(mv_fabric fabric, mv_fabric_line line, mv_fabric_key key, uint64_t address, void* to, uint64_t bytes, void* user);

  /* All-reduces by the communication library. NULL, all three, if it has none. */

  /** Begins to make a team of `count` processes of the job, by their ranks in the job, with this one among them. All of
   *  them call it with the same ranks in the same order, and with the same key, which no other team in the making has.
   *  Ends with an event; a process that never calls it leaves the others without one. MV_ENOSYS. */
  mv_status (*team)(mv_fabric fabric, const int32_t* ranks, uint64_t count, uint64_t key, void* user, mv_fabric_team* team);
  /** Ends a team, made or in the making, without events. The communication library may still use the memory of its
   *  reduces: see memory_make(). */
  void (*disband)(mv_fabric fabric, mv_fabric_team team);
  /** Begins to replace the values by their reduction over the team. The processes of a team call it in the same order with
   *  as many values, of the same dtype. `reduction` is an enum mv_reduction, but no average. The values are lent until the event. MV_EDTYPE. */
  mv_status (*reduce)(mv_fabric fabric, mv_fabric_team team, void* values, uint64_t count, mv_dtype dtype, int32_t reduction, void* user);
} mv_fabric_plugin;

typedef const mv_fabric_plugin* (*mv_fabric_entry)(uint32_t interface);

#ifdef __cplusplus
}
#endif

#endif
