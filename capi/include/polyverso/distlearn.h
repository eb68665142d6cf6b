/** Training spread over the ranks of a group: every rank has a model of its own, and these calls, beside a training loop, hold them together.
 *
 *  It is the interface of the module beside polyverso.h, which includes it. docs/distlearn.md has a loop for each. Models and gradients
 *  are arrays of f32, f64, f16 or bf16 in the caller's memory, the same ones in every call; halves are worked on as f32.
 *
 *  Ranks may make different numbers of steps. Whoever has none left calls the strategy's ..._synchronize (or mv_compressed_finish), which takes part
 *  in what the others still do until all have come there; nobody waits for ever.
 *
 *  All calls block. After a signal they return MV_EINTR and go on, in the caller's memory: make the same call again, which does
 *  nothing twice, or mv_strategy_cancel(). Other errors are those of the group's operations: MV_EPEERLOST names a rank that is lost,
 *  MV_EDISAGREE what ranks don't agree on, MV_ETIMEOUT those that did not come. Calls on one strategy come from one thread at a time. */
#ifndef POLYVERSO_DISTLEARN_H
#include "polyverso.h" /* and this header from there, behind what it needs */
#endif
#ifndef POLYVERSO_DISTLEARN_H
#define POLYVERSO_DISTLEARN_H

#ifdef __cplusplus
extern "C" {
#endif

/** Any of the following. */
typedef int64_t mv_strategy;

/** What a strategy has sent, beside what an all-reduce of all of its arrays in every step would have been.
 *  @param steps      out: that this rank has made
 *  @param operations out: of the group, or of the table
 *  @param payload    out: bytes that this rank has given to them
 *  @param dense      out: bytes of the arrays of all steps */
MV_API mv_status mv_strategy_meter(mv_strategy strategy, uint64_t *steps, uint64_t *operations, uint64_t *payload, uint64_t *dense);
/** Gives up a call that a signal has interrupted, so that its memory is the caller's again. Its group is broken then. */
MV_API mv_status mv_strategy_cancel(mv_strategy strategy);

/* ------------------------------------------------------------- AllReduceSGD */

/** One mini-batch spread over the ranks. */
typedef mv_strategy mv_allreduce_sgd;

/** @param group  stays the caller's to close, after the strategy */
MV_API mv_status mv_sgd_open(mv_group group, mv_allreduce_sgd *sgd);
/** gradients = their sum over all ranks, the same bits on all.
 *  @param contributors  out, or NULL: how many ranks took part with gradients of their own
 *  @return MV_EDTYPE for what is no float; MV_EDISAGREE for arrays of another shape than another rank's */
MV_API mv_status mv_sgd_sum_gradients(mv_allreduce_sgd sgd, const mv_array *gradients, uint64_t count, uint64_t *contributors,
                                      const mv_call_options *options);
/** The same, divided by the contributors of this step. */
MV_API mv_status mv_sgd_sum_and_normalize(mv_allreduce_sgd sgd, const mv_array *gradients, uint64_t count, uint64_t *contributors,
                                          const mv_call_options *options);
/** Ends a series of steps: with zeros for gradients until every rank has come here. Then all have the parameters of the rank that made most
 *  steps, the lowest among equals; where nobody made one, the lowest rank's. Counting begins anew. */
MV_API mv_status mv_sgd_synchronize(mv_allreduce_sgd sgd, const mv_array *parameters, uint64_t count, const mv_call_options *options);
MV_API mv_status mv_sgd_close(mv_allreduce_sgd sgd);

/* -------------------------------------------------------------- AllReduceEA */

/** Elastic averaging: ranks train by themselves, held together by a centre of which each has a copy. */
typedef mv_strategy mv_allreduce_ea;

/** @param tau    steps from one average to the next
 *  @param alpha  the weight of the centre. Beyond 2 / (ranks + 1) it is unstable without gradients: a warning says so
 *  @return MV_EINVAL */
MV_API mv_status mv_ea_open(mv_group group, int64_t tau, double alpha, mv_allreduce_ea *ea);
/** After each step. Every tau-th time: d = alpha (parameters - centre); parameters -= d; centre += all ranks' d. The centre begins as the
 *  parameters of the strategy's first call, which therefore are to be the same everywhere: mv_ea_synchronize_parameters() makes them so. */
MV_API mv_status mv_ea_average(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** Ends a series of steps: takes part in what others still average, and makes one more move towards the centre, the sum of which is not
 *  added any more. Then all ranks have the lowest rank's centre, free of what rounding did to it; parameters stay each rank's own. */
MV_API mv_status mv_ea_synchronize_center(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** Ends a series of steps in the same way. Then all ranks have the lowest rank's parameters, and those for a centre. */
MV_API mv_status mv_ea_synchronize_parameters(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** parameters = the centre, which no rank has trained but all have: for validation. MV_ESTATE before the first other call. */
MV_API mv_status mv_ea_read_center(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count);
MV_API mv_status mv_ea_close(mv_allreduce_ea ea);

/* ------------------------------------------- asynchronous elastic averaging */

/** The centre is a table, and each worker meets it alone. */
typedef mv_strategy mv_async_ea;

/** @param centre  an array or a matrix of f32 or f64 that adds what it is given, with as many elements as the parameters have;
 *                 its initial value is where the centre begins */
MV_API mv_status mv_async_ea_open(mv_table centre, int64_t tau, double alpha, mv_async_ea *ea);
/** Every tau-th time: d = alpha (parameters - centre); parameters -= d; centre += d. With the gradient taken before this call and
 *  applied after it, f(x) = x^2 / 2 and a learning rate of eta it is stable for alpha <= (4 - 2 eta) / (4 - eta). */
MV_API mv_status mv_async_ea_average(mv_async_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** parameters = the centre. */
MV_API mv_status mv_async_ea_read(mv_async_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
MV_API mv_status mv_async_ea_close(mv_async_ea ea);

/* ------------------------------------------ local SGD, DiLoCo and its stream */

/** Ranks train by themselves and meet every so many steps. */
typedef mv_strategy mv_local_sgd;

/** @param settings  as text, NULL for the defaults: "inner_steps=100 outer_rate=0.7 outer_momentum=0.9".
 *         inner_steps=1     from one exchange of everything to the next
 *         outer_rate=1      of the step by what all ranks have moved on average; 1 without momentum averages parameters: local SGD
 *         outer_momentum=0  Nesterov's; DiLoCo's are 0.7 and 0.9
 *         fragments=1       parts of the model that are exchanged each at its own time: Streaming DiLoCo
 *         overlap=0         steps that are made while an exchange is under way, fewer than inner_steps / fragments
 *         mixing=0          with an overlap: parameters = mixing * (what they have become) + (1 - mixing) * (what was agreed on)
 *  @return MV_EINVAL with the setting that makes no sense */
MV_API mv_status mv_local_sgd_open(mv_group group, const char *settings, mv_local_sgd *local);
/** After each inner step. */
MV_API mv_status mv_local_sgd_step(mv_local_sgd local, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** Ends a series of steps: takes part in others' exchanges until all ranks have come here; then one exchange of everything among those who have
 *  moved since their last, after which all have the same bits. Where nobody has made a step, all have the lowest rank's parameters:
 *  so training begins. */
MV_API mv_status mv_local_sgd_synchronize(mv_local_sgd local, const mv_array *parameters, uint64_t count, const mv_call_options *options);
MV_API mv_status mv_local_sgd_close(mv_local_sgd local);

/* ------------------------------------------------------ compressed gradients */

/** Averages of gradients that travel as less than they are. What is left out stays with its rank, and goes into its next one. */
typedef mv_strategy mv_compressed;

/** @param how  "int8" (block scales), "topk ratio=0.01", "powersgd rank=4", or any other codec of kv_set_gradient_compression() */
MV_API mv_status mv_compressed_open(mv_group group, const char *how, mv_compressed *compressed);
/** gradients = about their average over those ranks that contribute; the same bits on all.
 *  @param rows, row_count  of each array how many rows it has as a matrix, which powersgd factors; 0 or 1: it is a vector. NULL and 0: all are */
MV_API mv_status mv_compressed_average(mv_compressed compressed, const mv_array *gradients, uint64_t count, const int64_t *rows, uint64_t row_count,
                                       uint64_t *contributors, const mv_call_options *options);
/** Takes part in others' averages without a contribution until all ranks have come here. */
MV_API mv_status mv_compressed_finish(mv_compressed compressed, const mv_array *gradients, uint64_t count, const int64_t *rows, uint64_t row_count,
                                      const mv_call_options *options);
MV_API mv_status mv_compressed_close(mv_compressed compressed);

#ifdef __cplusplus
}
#endif
#endif
