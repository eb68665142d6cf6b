/** Gossip: every node trains a model of its own, and sometimes averages it with a peer's. It needs no master, no
 *  mv_init() and no ranks: nodes are named in a configuration, join and leave at any time, and reconnect automatically.
 *
 *  Part of polyverso.h, which includes it. docs/gossip.md describes the configuration. It is that of the Python package
 *  dpwa ("distributed pair-wise averaging"), whose two calls around a training step are these:
 *
 *    mv_gossip_add(gossip, parameters, count, MV_F32);     copies the parameters, array by array
 *    mv_gossip_publish(gossip, loss);                      makes them visible to peers, as one version
 *    mv_gossip_fetch_start(gossip, &started);              with fetch_probability, begins to fetch a peer's
 *    ... train ...
 *    mv_gossip_fetch_wait(gossip, loss, &fetched);         waits for it, and computes the peer's share
 *    mv_gossip_average(gossip, parameters, count, MV_F32)  if fetched.got: averages with it, array by array
 *
 *  Arrays may be in the memory of devices: `data` is then an address, such as that of mv_tensor_address(). What
 *  is published is copied to the host, after the work that the device's stream has so far, and floats are averaged on
 *  the device; a call returns when that is done.
 *
 *  Any thread may call any function; calls on one node's model are serialized. */
#ifndef POLYVERSO_GOSSIP_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_GOSSIP_H
#define POLYVERSO_GOSSIP_H

#ifdef __cplusplus
extern "C" {
#endif

/** A gossiping node. */
typedef int64_t mv_gossip;

/** Starts the node `name`: listens at its address and serves its peers.
 *  @param config  a YAML file: nodes, fetch_probability, timeout_ms, interpolation and the rest
 *  @return MV_EINVAL with file, line and key of the error; MV_ENOTFOUND for a missing file or name, MV_EADDRINUSE */
MV_API mv_status mv_gossip_open(const char *config, const char *name, mv_gossip *gossip);
/** mv_gossip_open() with the YAML itself in `config`. This node's own port may be 0: any free one, see
 *  mv_gossip_state_text(). */
MV_API mv_status mv_gossip_open_text(const char *config, const char *name, mv_gossip *gossip);
/** Stops serving, closes all connections and the handle. */
MV_API mv_status mv_gossip_close(mv_gossip gossip);

/** Copies the next array of the snapshot that is being built. The snapshots of a node and of its peers have the same
 *  arrays, number by number, except that a single array of MV_RAW may have any length.
 *  @param data  `count` elements (MV_RAW: bytes)
 *  @return MV_ENONFINITE for NaN or infinity, MV_EDTYPE, MV_ENOMEM: the snapshot that is being built is dropped */
MV_API mv_status mv_gossip_add(mv_gossip gossip, const void *data, uint64_t count, mv_dtype dtype);
/** mv_gossip_add() for an array with known dimensions. If both sides give two or more dimensions for an array and they
 *  differ, a peer's snapshot is refused, even with the same number of elements. mv_gossip_add() gives none; none or a
 *  single dimension matches anything.
 *  @param count  elements; the product of the shape. MV_ESHAPE otherwise
 *  @param shape  dims lengths, the last of which varies fastest in memory; NULL with dims 0 */
MV_API mv_status mv_gossip_add_shaped(mv_gossip gossip, const void *data, uint64_t count, mv_dtype dtype, const int64_t *shape, uint64_t dims);
/** Completes the snapshot: from now on peers that fetch get this one, with this node's clock, which grows by 1, and
 *  `loss`. Never waits for a peer that is reading.
 *  @return MV_ESTATE if nothing was added; MV_ENONFINITE for the loss: the snapshot that is being built is dropped */
MV_API mv_status mv_gossip_publish(mv_gossip gossip, double loss);

/** Sets this node's clock, for example after loading a checkpoint; the next mv_gossip_publish() adds 1 to it.
 *  `interpolation: clock` computes its factor from it.
 *  @return MV_EINVAL for a number that is below 0 or not finite */
MV_API mv_status mv_gossip_set_clock(mv_gossip gossip, double clock);

/** Begins, with the configuration's fetch_probability, to fetch a peer's newest snapshot, and returns at once.
 *  @param started  out: 1, or 0 if the random decision was against it
 *  @return MV_ESTATE if nothing was published yet, or a fetch is running */
MV_API mv_status mv_gossip_fetch_start(mv_gossip gossip, int32_t *started);

typedef struct mv_gossip_fetched {
  uint32_t size;      /**< sizeof(mv_gossip_fetched), set by MV_GOSSIP_FETCHED_INIT */
  uint32_t version;   /**< MV_STRUCT_VERSION */
  int32_t got;        /**< 1: a peer's snapshot has arrived. 0: no fetch was started, or no peer had one. With
                           `interpolation: noloco` also 1, with an empty `peer`, if no peer had one: its step is made
                           alone */
  uint32_t reserved;
  double factor;      /**< the peer's share, in 0 .. 1: see mv_gossip_average() */
  double peer_clock;
  double peer_loss;
  uint64_t bytes;     /**< of the snapshot's first array */
  char peer[256];     /**< the peer's name */
  char why[256];      /**< if there is no peer, the reason */
} mv_gossip_fetched;

#define MV_GOSSIP_FETCHED_INIT { sizeof(mv_gossip_fetched), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, {0}, {0} }

/** Waits until the fetch has received a complete snapshot, or every peer has failed, or timeout_ms have passed since it
 *  began; computes the factor; and sets this node's clock to factor * peer_clock + (1 - factor) * clock. It is not an
 *  error if no peer had a snapshot.
 *  @param loss  this node's, now
 *  @return MV_EINTR after a signal, the fetch continues; MV_ENONFINITE for the loss */
MV_API mv_status mv_gossip_fetch_wait(mv_gossip gossip, double loss, mv_gossip_fetched *fetched);
/** Averages the next array with the fetched one, in the order of mv_gossip_add(), and in place:
 *    data = factor * peer's + (1 - factor) * data
 *  After an exchange (`exchange: symmetric`) both nodes move from their published values towards each other, so that
 *  the sum of their models stays the same, whatever was trained meanwhile: data += factor * (peer's - own published).
 *  With `interpolation: noloco` it is the outer step of that method, on the slow model of this array that the node
 *  keeps.
 *  @return MV_ESTATE if nothing was fetched, all arrays were used, or this node has published twice since;
 *          MV_ESHAPE; MV_EDTYPE for MV_RAW */
MV_API mv_status mv_gossip_average(mv_gossip gossip, void *data, uint64_t count, mv_dtype dtype);
/** Copies the next fetched array, instead of averaging with it. MV_ESTATE with `interpolation: noloco`. */
MV_API mv_status mv_gossip_read(mv_gossip gossip, void *data, uint64_t count, mv_dtype dtype);

typedef struct mv_gossip_info {
  uint32_t size;          /**< sizeof(mv_gossip_info), set by MV_GOSSIP_INFO_INIT */
  uint32_t version;       /**< MV_STRUCT_VERSION */
  double clock;
  double loss;            /**< the last one passed to this node */
  double factor;          /**< the last one */
  double disagreement;    /**< root mean square of the difference between the last peer's model and this node's */
  uint64_t updates;       /**< snapshots published */
  uint64_t averaged;      /**< peers' snapshots averaged with */
  uint64_t served_versions; /**< snapshots that peers have begun to fetch by messages */
  uint64_t served_bytes;  /**< of snapshots, as encoded, by messages */
  uint64_t fetched_bytes;
  uint64_t valid, half, unsettled; /**< symmetric exchanges, by outcome: see docs/gossip.md */
  uint64_t peers;         /**< the number of peers that mv_gossip_peers() lists */
  char name[256];
  char address[256];      /**< HOST:PORT where it listens */
  char last_fetch[256];   /**< the peer of the last fetch, or why there was none */
} mv_gossip_info;

#define MV_GOSSIP_INFO_INIT { sizeof(mv_gossip_info), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0} }

typedef struct mv_gossip_peer {
  uint32_t size;          /**< sizeof(mv_gossip_peer), set by MV_GOSSIP_PEER_INIT */
  uint32_t version;       /**< MV_STRUCT_VERSION */
  double score;           /**< 10 .. 1000: a peer with a higher score is chosen more often */
  double clock, loss;     /**< of the snapshot last fetched from it */
  double disagreement;    /**< with that snapshot */
  uint64_t fetched, failed; /**< snapshots, attempts */
  int32_t connected;      /**< 1: there is a connection */
  int32_t waiting;        /**< 1: waits for this node to begin an exchange */
  char name[256];
  char address[256];
  char transport[32];     /**< "shared memory", "tcp", or "" without a connection */
  char problem[256];      /**< the last error; "" since the last success */
} mv_gossip_peer;

#define MV_GOSSIP_PEER_INIT { sizeof(mv_gossip_peer), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, {0}, {0} }

/** This node's state. The bindings return mv_gossip_state_text() with MV_JSON as a map instead. Texts that are too
 *  long are cut. */
MV_API mv_status mv_gossip_state(mv_gossip gossip, mv_gossip_info *state);
/** The known peers of this node, in the order of their names.
 *  @param peers     `capacity` structs, each from its _INIT; NULL with capacity 0
 *  @param count     out: how many peers there are; if more than `capacity`, only the first are written */
MV_API mv_status mv_gossip_peers(mv_gossip gossip, mv_gossip_peer *peers, uint64_t capacity, uint64_t *count);

/** This node's state as text: its clock, loss, last factor, and its distance from the peer of the last average
 *  (disagreement: the root mean square of the models' difference); what it has served; and each peer with its score,
 *  clock, loss, disagreement and last error. `polyverso status --master HOST:PORT` shows the same from outside.
 *  @param flags  mv_text_flag: MV_JSON for programs
 *  @param text, capacity, length  as in mv_table_list() */
MV_API mv_status mv_gossip_state_text(mv_gossip gossip, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);
/** The metrics of this node in Prometheus's text format. A node whose configuration has `metrics: PORT` serves them over
 *  HTTP, at /metrics.
 *  @param text, capacity, length  as in mv_table_list() */
MV_API mv_status mv_gossip_metrics_text(mv_gossip gossip, char *text, uint64_t capacity, uint64_t *length);
/** The state of all nodes of a configuration, asked from outside, one after the other: mv_gossip_state_text() of each,
 *  or why it does not answer. `polyverso status --gossip FILE` shows it.
 *  @param config  a YAML file, as for mv_gossip_open()
 *  @param flags  MV_JSON: a list of objects; those of nodes without an answer have name, address and error
 *  @param text, capacity, length  as in mv_table_list()
 *  @return MV_EINVAL, MV_ENOTFOUND as mv_gossip_open(); MV_EINTR after a signal */
MV_API mv_status mv_gossip_status_text(const char *config, uint32_t flags, char *text, uint64_t capacity, uint64_t *length);
/** Adds a peer. MV_EDISAGREE if the name or the address is already known. */
MV_API mv_status mv_gossip_add_peer(mv_gossip gossip, const char *name, const char *host, int32_t port);
/** This node stops fetching from the peer, which may still fetch from this node. MV_ENOTFOUND. */
MV_API mv_status mv_gossip_remove_peer(mv_gossip gossip, const char *name);

#ifdef __cplusplus
}
#endif
#endif
