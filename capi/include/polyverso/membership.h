/** The members of a cluster while it runs: servers that end in good order.
 *
 *  Part of polyverso.h, which includes it. docs/failures.md says what the ends of processes do to the others. */
#ifndef POLYVERSO_MEMBERSHIP_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_MEMBERSHIP_H
#define POLYVERSO_MEMBERSHIP_H

#ifdef __cplusplus
extern "C" {
#endif

/** Hands the tables of this process, which is only a server, over to other servers, so that it can end and nothing is
 *  lost, with or without replicas. The other servers get copies while workers go on; then they take over. Workers' calls
 *  only take longer. Afterwards mv_shutdown() does not wait for the workers. `polyverso server` calls this at SIGTERM.
 *
 *  One call after another may wait for the same hand-over, on any thread, also while another thread serves in
 *  mv_shutdown().
 *  @param timeout_ms how long to wait for the end; 0: only begin; -1: for ever
 *  @return MV_OK           other servers have the tables, or all workers have finished
 *          MV_ETIMEOUT     not yet: it goes on, and this server still serves. The message says what it waits for
 *          MV_EUNREACHABLE there is no other server that stays
 *          MV_ENOSYS       a table's updater keeps each worker's values (DC-ASGD): it can't be copied. The message names it
 *          MV_EINVAL       this process is a worker, or rank 0 (the master), which can't hand its place over
 *          MV_EPEERLOST    the master, who decides, is lost
 *          MV_EINTR        after a signal: it goes on, call again
 *          After an error, this server goes on serving. */
MV_API mv_status mv_cluster_drain(mv_node node, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
