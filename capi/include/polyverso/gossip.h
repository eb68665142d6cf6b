/** Gossip: every node trains a model of its own, and averages it now and then with a peer's. It needs no master, no mv_init() and no
 *  ranks: nodes are named in a configuration, come and go as they like, and find each other again.
 *
 *  It is the interface of the module beside polyverso.h, which includes it. docs/gossip.md has the configuration; it is that of the
 *  Python package dpwa ("distributed pair-wise averaging"), whose two calls around a training step are four here:
 *
 *    mv_gossip_add(gossip, parameters, count, MV_F32);     copies the parameters, array by array
 *    mv_gossip_publish(gossip, loss);                      lets peers see them, as one version
 *    mv_gossip_fetch_start(gossip, &started);              with fetch_probability, begins to fetch a peer's
 *    ... train ...
 *    mv_gossip_fetch_wait(gossip, loss, &fetched);         waits for that, and works out how much of it counts
 *    mv_gossip_average(gossip, parameters, count, MV_F32)  if fetched.got: averages with it, array by array
 *
 *  Any thread may call any function; those on one node's model run one after the other.
 */
#ifndef POLYVERSO_GOSSIP_H
#include "polyverso.h" /* and this header from there, behind what it needs */
#endif
#ifndef POLYVERSO_GOSSIP_H
#define POLYVERSO_GOSSIP_H

#ifdef __cplusplus
extern "C" {
#endif

/** A node that gossips. */
typedef int64_t mv_gossip;

/** Begins to listen at the address of the node `name`, and to serve its peers.
 *  @param config  a YAML file: nodes, fetch_probability, timeout_ms, interpolation and the rest
 *  @return MV_EINVAL with file, line and key of what is wrong; MV_ENOTFOUND for a file or name that is not there, MV_EADDRINUSE */
MV_API mv_status mv_gossip_open(const char *config, const char *name, mv_gossip *gossip);
/** The same with the YAML itself in `config`. A node of its own may have the port 0: any free one, see mv_gossip_state_text(). */
MV_API mv_status mv_gossip_open_text(const char *config, const char *name, mv_gossip *gossip);
/** Stops to serve, closes all connections and gives the handle back. */
MV_API mv_status mv_gossip_close(mv_gossip gossip);

/** Copies the next array of the snapshot under way. A node's snapshots have the same arrays as its peers' have, number by number; but a
 *  single one of MV_RAW may have any length.
 *  @param data  `count` elements (MV_RAW: bytes)
 *  @return MV_ENONFINITE for NaN or infinity, MV_EDTYPE, MV_ENOMEM: the snapshot under way is dropped */
MV_API mv_status mv_gossip_add(mv_gossip gossip, const void *data, uint64_t count, mv_dtype dtype);
/** The same for an array whose dimensions are known: where both sides give two or more of an array and they differ, a peer's snapshot is
 *  refused, though it has as many elements. mv_gossip_add() gives none, as does one dimension: either goes with any.
 *  @param count  elements; the product of the shape. MV_ESHAPE otherwise
 *  @param shape  dims lengths, the last of which varies fastest in memory; NULL with dims 0 */
MV_API mv_status mv_gossip_add_shaped(mv_gossip gossip, const void *data, uint64_t count, mv_dtype dtype, const int64_t *shape, uint64_t dims);
/** Completes the snapshot: from now on peers who fetch get this one, with this node's clock, which grows by 1, and `loss`. Never waits
 *  for a peer that is reading.
 *  @return MV_ESTATE if nothing was added; MV_ENONFINITE for the loss: the snapshot under way is dropped */
MV_API mv_status mv_gossip_publish(mv_gossip gossip, double loss);

/** Sets this node's clock, as for one that goes on from a checkpoint; the next mv_gossip_publish() adds 1 to it. The factor of
 *  `interpolation: clock` goes by it.
 *  @return MV_EINVAL for a number that is below 0 or not finite */
MV_API mv_status mv_gossip_set_clock(mv_gossip gossip, double clock);

/** Begins, with the configuration's fetch_probability, to fetch the newest snapshot of a peer, and returns at once.
 *  @param started  out: 1, or 0 if chance decided against it
 *  @return MV_ESTATE if nothing was published yet, or a fetch is under way */
MV_API mv_status mv_gossip_fetch_start(mv_gossip gossip, int32_t *started);

typedef struct mv_gossip_fetched {
  uint32_t size;      /**< sizeof(mv_gossip_fetched), set by MV_GOSSIP_FETCHED_INIT */
  uint32_t version;   /**< MV_STRUCT_VERSION */
  int32_t got;        /**< 1: a peer's snapshot is here. 0: no fetch was started, or no peer had one. With `interpolation: noloco` also 1, and
                           `peer` empty, where none had one: its step is made alone */
  uint32_t reserved;
  double factor;      /**< of the peer's share, in 0 .. 1: see mv_gossip_average() */
  double peer_clock;
  double peer_loss;
  uint64_t bytes;     /**< of its first array */
  char peer[256];     /**< its name */
  char why[256];      /**< without a peer, the reason */
} mv_gossip_fetched;

#define MV_GOSSIP_FETCHED_INIT { sizeof(mv_gossip_fetched), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, {0}, {0} }

/** Waits until the fetch has got a whole snapshot, or every peer has failed, or timeout_ms have passed since it began; works out the
 *  factor; and moves this node's clock to factor * peer_clock + (1 - factor) * clock. That nobody was there is no error.
 *  @param loss  this node's, now
 *  @return MV_EINTR after a signal, the fetch goes on; MV_ENONFINITE for the loss */
MV_API mv_status mv_gossip_fetch_wait(mv_gossip gossip, double loss, mv_gossip_fetched *fetched);
/** Averages the next array with what was fetched, in the order of mv_gossip_add(), and in place:
 *    data = factor * peer's + (1 - factor) * data
 *  After an exchange (`exchange: symmetric`) both nodes move from what they had published towards each other, so that the sum of their
 *  models stays what it was, whatever has been trained meanwhile: data += factor * (peer's - own published).
 *  With `interpolation: noloco` it is the outer step of that method, on the slow model of this array that the node keeps.
 *  @return MV_ESTATE if nothing was fetched, all was taken, or this node has published twice since; MV_ESHAPE; MV_EDTYPE for MV_RAW */
MV_API mv_status mv_gossip_average(mv_gossip gossip, void *data, uint64_t count, mv_dtype dtype);
/** Copies the next array of what was fetched, instead of averaging with it. MV_ESTATE with `interpolation: noloco`. */
MV_API mv_status mv_gossip_read(mv_gossip gossip, void *data, uint64_t count, mv_dtype dtype);

typedef struct mv_gossip_info {
  uint32_t size;          /**< sizeof(mv_gossip_info), set by MV_GOSSIP_INFO_INIT */
  uint32_t version;       /**< MV_STRUCT_VERSION */
  double clock;
  double loss;            /**< the last one that the node was told */
  double factor;          /**< the last one */
  double disagreement;    /**< root mean square of the last peer's model less this node's */
  uint64_t updates;       /**< snapshots published */
  uint64_t averaged;      /**< peers' snapshots taken in */
  uint64_t served_versions; /**< snapshots that peers have begun to fetch by messages */
  uint64_t served_bytes;  /**< of snapshots, as encoded, by messages */
  uint64_t fetched_bytes;
  uint64_t valid, half, unsettled; /**< symmetric exchanges, by how they ended: see docs/gossip.md */
  uint64_t peers;         /**< as many as mv_gossip_peers() has to tell of */
  char name[256];
  char address[256];      /**< HOST:PORT where it listens */
  char last_fetch[256];   /**< whom the last fetch got something from, or why from nobody */
} mv_gossip_info;

#define MV_GOSSIP_INFO_INIT { sizeof(mv_gossip_info), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0} }

typedef struct mv_gossip_peer {
  uint32_t size;          /**< sizeof(mv_gossip_peer), set by MV_GOSSIP_PEER_INIT */
  uint32_t version;       /**< MV_STRUCT_VERSION */
  double score;           /**< 10 .. 1000: the higher, the likelier it is asked */
  double clock, loss;     /**< of what was fetched from it last */
  double disagreement;    /**< with it, then */
  uint64_t fetched, failed; /**< snapshots, attempts */
  int32_t connected;      /**< 1: there is a connection */
  int32_t waiting;        /**< 1: for this node to begin an exchange */
  char name[256];
  char address[256];
  char transport[32];          /**< "shared memory", "tcp", or "" without a connection */
  char problem[256];      /**< the last one; "" since the last success */
} mv_gossip_peer;

#define MV_GOSSIP_PEER_INIT { sizeof(mv_gossip_peer), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, {0} }

/** How this node stands. Other languages have mv_gossip_state_text() with MV_JSON as a map. Texts that are too long are cut. */
MV_API mv_status mv_gossip_state(mv_gossip gossip, mv_gossip_info *state);
/** The peers that this node knows, in the order of their names.
 *  @param peers     `capacity` structs, each from its _INIT; NULL with capacity 0
 *  @param count     out: how many peers there are; of more than `capacity` the first are told of */
MV_API mv_status mv_gossip_peers(mv_gossip gossip, mv_gossip_peer *peers, uint64_t capacity, uint64_t *count);

/** How this node stands: its clock, loss, last factor, and how far it was from the peer that it was averaged with last (disagreement: the
 *  root mean square of what the models are apart); what it has served; and each peer with its score, clock, loss, disagreement, and what
 *  went wrong with it. `polyverso status --master HOST:PORT` shows the same from outside.
 *  @param flags  mv_text_flag: MV_JSON for programs
 *  @param text, capacity, length  as in mv_table_list() */
MV_API mv_status mv_gossip_state_text(mv_gossip gossip, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);
/** The same figures in Prometheus's text format. A node whose configuration has `metrics: PORT` serves them over HTTP, at /metrics.
 *  @param text, capacity, length  as in mv_table_list() */
MV_API mv_status mv_gossip_metrics_text(mv_gossip gossip, char *text, uint64_t capacity, uint64_t *length);
/** How all nodes of a configuration stand, asked from outside, one after the other: what mv_gossip_state_text() tells of each, or why it gives no
 *  answer. `polyverso status --gossip FILE` shows it.
 *  @param config  a YAML file, as for mv_gossip_open()
 *  @param flags  MV_JSON: a list of objects; those of nodes without an answer have name, address and error
 *  @param text, capacity, length  as in mv_table_list()
 *  @return MV_EINVAL, MV_ENOTFOUND as mv_gossip_open(); MV_EINTR after a signal */
MV_API mv_status mv_gossip_status_text(const char *config, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);
/** Makes a peer known from now on. MV_EDISAGREE if the name or the address is. */
MV_API mv_status mv_gossip_add_peer(mv_gossip gossip, const char *name, const char *host, int32_t port);
/** Asks this peer no more; it may go on to ask. MV_ENOTFOUND. */
MV_API mv_status mv_gossip_remove_peer(mv_gossip gossip, const char *name);

#ifdef __cplusplus
}
#endif
#endif
