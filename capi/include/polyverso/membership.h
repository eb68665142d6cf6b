/** The members of a running cluster: draining of servers, the number of servers and workers, and membership events.
 *
 *  Part of polyverso.h, which includes it. docs/failures.md describes what the end of a process does to the others. */
#ifndef POLYVERSO_MEMBERSHIP_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_MEMBERSHIP_H
#define POLYVERSO_MEMBERSHIP_H

#ifdef __cplusplus
extern "C" {
#endif

/** Drains this process, which must be a server: hands its tables over to other servers, so that it can end without
 *  loss, with or without replicas. The other servers get copies while workers continue, and then take over. Workers'
 *  calls only take longer. Afterwards mv_shutdown() does not wait for the workers. `polyverso server` calls this at
 *  SIGTERM.
 *
 *  A process that is also a worker finishes as a worker first, as in mv_shutdown(): its adds are flushed, its groups are
 *  closed, and no call of another worker waits for it any more. From then on, calls on its tables, stores and groups, and
 *  barriers, return MV_ESTATE, also if the drain fails. No other thread may be inside such a call meanwhile. If not all of
 *  its adds could be flushed, the tables are handed over, and the result is that of mv_shutdown().
 *
 *  Several calls may wait for the same drain, on any thread, even while another thread serves in mv_shutdown().
 *  @param timeout_ms how long to wait for the end; 0: only begin; -1: for ever
 *  @return MV_OK           other servers have the tables, or all workers have finished
 *          MV_ETIMEOUT     not yet: the drain continues, and this server still serves. The message says what it waits for
 *          MV_EUNREACHABLE there is no other server, or all others are draining too
 *          MV_EINVAL       this process is no server
 *          MV_EPEERLOST    the master, which decides, is lost
 *          MV_EINTR        after a signal: the drain continues, call again
 *          After an error, this server continues to serve. */
MV_API mv_status mv_cluster_drain(mv_node node, int64_t timeout_ms);

/** Changes the number of servers of a running cluster that was started with room for them (`max_servers` in
 *  mv_init_text(), `polyverso run --max-servers`). With fewer servers than now, those with the highest ranks drain, as by
 *  mv_cluster_drain(), and leave. With more, `polyverso run` starts the missing ones; elsewhere start `polyverso server`
 *  with the settings of the others. A new server gets parts of the tables, one after the other, while workers continue;
 *  with replicas it gets copies of parts that lose theirs. Any member may call this; the last call counts.
 *  @param servers    the wanted number: 1 + replicas to max_servers
 *  @param timeout_ms how long to wait until the cluster has them; 0: only for the master's answer; -1: for ever
 *  @return MV_OK           the cluster has this many servers, and no part moves any more; with timeout_ms 0: it is decided
 *          MV_ETIMEOUT     not yet: the change continues. The message says what is missing
 *          MV_EINVAL       there is no room for as many, or too few can leave: the master and workers that are servers stay
 *          MV_EUNREACHABLE no server can take over the parts of one that would leave
 *          MV_EPEERLOST    the master, which decides, is lost
 *          MV_EINTR        after a signal: the change continues, call again */
MV_API mv_status mv_cluster_resize(mv_node node, uint64_t servers, int64_t timeout_ms);
/** mv_cluster_resize() with timeout_ms 0, for a process outside of the cluster; `polyverso scale` calls it.
 *  @param settings  as for mv_cluster_status_text()
 *  @return also MV_EUNREACHABLE, MV_EAUTH, MV_ETIMEOUT if the cluster can't be reached; MV_EINTR after a signal */
MV_API mv_status mv_cluster_resize_at(const char *settings, uint64_t servers);

/** The number of workers that have neither finished nor are lost, as far as this process knows at this moment. It changes
 *  if the cluster was started with room for more workers (`max_workers` in mv_init_text(), `polyverso run --max-workers`):
 *  then a new process with role=worker may join at any time. It takes a place that is vacant, or that of a worker that is
 *  gone. Calls on a table wait for it from the moment at which it has created or opened the table, and barriers at once.
 *  mv_membership_next() reports each change.
 *  @param workers out: 0 to the greatest number of workers */
MV_API mv_status mv_active_workers(mv_node node, int64_t *workers);

/** What has happened to a member. */
typedef enum mv_membership_kind {
  MV_MEMBER_JOINED = 0,    /**< a new process has joined: in the place of one that is gone, or as a further server or worker */
  MV_MEMBER_LEFT = 1,      /**< a worker has finished; calls no longer wait for it */
  MV_MEMBER_LOST = 2,      /**< its process is lost */
  MV_MEMBER_DRAINING = 3,  /**< a server is draining: its tables move to others, and nothing is lost */
  MV_MEMBER_DRAINED = 4,   /**< this server has handed its tables over and left */
  MV_MEMBER_TOOK_OVER = 5  /**< this server serves the tables of `part` from now on; its rank may be this process's own */
} mv_membership_kind;

typedef struct mv_membership_event {
  uint32_t size;     /**< sizeof(mv_membership_event), set by MV_MEMBERSHIP_EVENT_INIT */
  uint32_t version;  /**< MV_STRUCT_VERSION */
  int32_t kind;      /**< an mv_membership_kind */
  int32_t role;      /**< the member's mv_role */
  int64_t rank;      /**< the member's */
  int64_t part;      /**< MV_MEMBER_TOOK_OVER: the rank of the server that served these tables at first; otherwise -1 */
  uint64_t epoch;    /**< of the list of members after the event; it grows with every change */
  uint64_t dropped;  /**< older events that were dropped, because more than 256 waited */
  char reason[512];  /**< a sentence */
} mv_membership_event;

#define MV_MEMBERSHIP_EVENT_INIT \
  { sizeof(mv_membership_event), MV_STRUCT_VERSION, 0, 0, 0, 0, 0, 0, {0} }

/** Returns the oldest change of the membership that was not returned yet. There are events for changes of other members
 *  after this process has joined. From the first call on, waiting events make mv_event_fd() readable and end an
 *  mv_poll(), whose caller then calls this function until MV_ETIMEOUT.
 *  @param event      the caller's, with size and version set; filled
 *  @param timeout_ms how long to wait for an event; 0: not at all; -1: for ever
 *  @return MV_ETIMEOUT if there is none; MV_EINTR after a signal; MV_ESTATE if the node ends meanwhile */
MV_API mv_status mv_membership_next(mv_node node, mv_membership_event *event, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
