/** Distributed training on the ranks of a group: every rank has a model of its own, and these calls in its training
 *  loop keep the models together.
 *
 *  Part of polyverso.h, which includes it. docs/distlearn.md has a training loop for each strategy. Models and
 *  gradients are arrays of f32, f64, f16 or bf16 in the caller's memory. Every call gets arrays of the same sizes and
 *  dtypes; 16-bit floats are processed as f32. Arrays may be in the memory of devices, as in group.h; most strategies
 *  then compute there (docs/cuda.md), after the work that the device's stream has so far, and return when the work is
 *  done.
 *
 *  Ranks may make different numbers of steps. A rank without further steps calls the strategy's ..._synchronize (or
 *  mv_compressed_finish), which takes part in the operations of the other ranks until all have called it; no rank waits
 *  for ever.
 *
 *  All calls block. After a signal a call returns MV_EINTR and continues, in the caller's memory: make the same call
 *  again, which does nothing twice, or call mv_strategy_cancel(). Other errors are those of the group's operations:
 *  MV_EPEERLOST names a lost rank, MV_EDISAGREE the difference between the ranks, MV_ETIMEOUT the missing ranks.
 *  Only one thread at a time may call functions of one strategy. */
#ifndef POLYVERSO_DISTLEARN_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_DISTLEARN_H
#define POLYVERSO_DISTLEARN_H

#ifdef __cplusplus
extern "C" {
#endif

/** A strategy of any of the types below. */
typedef int64_t mv_strategy;

/** The traffic of a strategy, and for comparison that of an all-reduce of all of its arrays in every step.
 *  @param steps      out: made by this rank
 *  @param operations out: of the group, or of the table
 *  @param payload    out: bytes that this rank has passed to them
 *  @param dense      out: bytes of the arrays of all steps */
MV_API mv_status mv_strategy_meter(mv_strategy strategy, uint64_t *steps, uint64_t *operations, uint64_t *payload, uint64_t *dense);
/** Cancels a call that a signal has interrupted, which returns its memory to the caller. Its group is broken
 *  afterwards. */
MV_API mv_status mv_strategy_cancel(mv_strategy strategy);

/* ------------------------------------------------------------- AllReduceSGD */

/** Data-parallel SGD: one mini-batch divided among the ranks. */
typedef mv_strategy mv_allreduce_sgd;

/** @param group the caller must close it, after the strategy */
MV_API mv_status mv_sgd_open(mv_group group, mv_allreduce_sgd *sgd);
/** gradients = their sum over all ranks, the same bits on all.
 *  @param contributors  out, or NULL: the number of ranks that took part with gradients of their own
 *  @return MV_EDTYPE for other dtypes than floats; MV_EDISAGREE if ranks pass arrays of different shapes */
MV_API mv_status mv_sgd_sum_gradients(mv_allreduce_sgd sgd, const mv_array *gradients, uint64_t count, uint64_t *contributors,
                                      const mv_call_options *options);
/** mv_sgd_sum_gradients(), divided by the contributors of this step. */
MV_API mv_status mv_sgd_sum_and_normalize(mv_allreduce_sgd sgd, const mv_array *gradients, uint64_t count, uint64_t *contributors,
                                          const mv_call_options *options);
/** Ends a series of steps: contributes zeros as gradients until every rank has called it. Then all ranks get the
 *  parameters of the rank that made the most steps (of several, the lowest; if no rank made a step, the lowest of
 *  all). The step counts are reset. */
MV_API mv_status mv_sgd_synchronize(mv_allreduce_sgd sgd, const mv_array *parameters, uint64_t count, const mv_call_options *options);
MV_API mv_status mv_sgd_close(mv_allreduce_sgd sgd);

/* -------------------------------------------------------------- AllReduceEA */

/** Elastic averaging: each rank trains by itself, and is pulled towards a common centre, of which each has a copy. */
typedef mv_strategy mv_allreduce_ea;

/** @param tau    steps between averages
 *  @param alpha  the weight of the centre. Above 2 / (ranks + 1) the method is unstable without gradients: this logs a
 *                warning
 *  @return MV_EINVAL */
MV_API mv_status mv_ea_open(mv_group group, int64_t tau, double alpha, mv_allreduce_ea *ea);
/** Call after each step. Every tau-th time: d = alpha (parameters - centre); parameters -= d; centre += all ranks'
 *  d. The initial centre is the parameters of the strategy's first call, which therefore must be equal on all ranks:
 *  mv_ea_synchronize_parameters() makes them equal. */
MV_API mv_status mv_ea_average(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** Ends a series of steps: takes part in the averages of the other ranks, and makes one more move towards the
 *  centre, whose sum is not added to it. Then all ranks get the lowest rank's centre, which removes differences by
 *  rounding; parameters stay each rank's own. */
MV_API mv_status mv_ea_synchronize_center(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** Ends a series of steps like mv_ea_synchronize_center(). Then all ranks get the lowest rank's parameters, which
 *  also become the centre. */
MV_API mv_status mv_ea_synchronize_parameters(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** parameters = the centre, a model common to all ranks, for validation. MV_ESTATE before the first other call. */
MV_API mv_status mv_ea_read_center(mv_allreduce_ea ea, const mv_array *parameters, uint64_t count);
MV_API mv_status mv_ea_close(mv_allreduce_ea ea);

/* ------------------------------------------- asynchronous elastic averaging */

/** Elastic averaging with a table as centre, to which each worker synchronizes independently. */
typedef mv_strategy mv_async_ea;

/** @param centre  an array or a matrix of f32 or f64 with the updater "add", with as many elements as the
 *                 parameters; its initial value is the initial centre */
MV_API mv_status mv_async_ea_open(mv_table centre, int64_t tau, double alpha, mv_async_ea *ea);
/** Every tau-th time: d = alpha (parameters - centre); parameters -= d; centre += d. With f(x) = x^2 / 2, a learning rate
 *  of eta, and a gradient that is taken before this call and applied after it, the method is stable for
 *  alpha <= (4 - 2 eta) / (4 - eta). */
MV_API mv_status mv_async_ea_average(mv_async_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** parameters = the centre. */
MV_API mv_status mv_async_ea_read(mv_async_ea ea, const mv_array *parameters, uint64_t count, const mv_call_options *options);
MV_API mv_status mv_async_ea_close(mv_async_ea ea);

/* ------------------------------------- local SGD, DiLoCo and Streaming DiLoCo */

/** Local SGD: ranks train by themselves and exchange every inner_steps steps. */
typedef mv_strategy mv_local_sgd;

/** @param settings  as text, NULL for the defaults: "inner_steps=100 outer_rate=0.7 outer_momentum=0.9".
 *         inner_steps=1     steps between full exchanges
 *         outer_rate=1      rate of the outer step, by the average move of all ranks; 1 without momentum averages the
 *                           parameters: local SGD
 *         outer_momentum=0  Nesterov's; DiLoCo uses 0.7 and 0.9
 *         fragments=1       parts of the model, each exchanged at a time of its own: Streaming DiLoCo
 *         overlap=0         steps that are made during an exchange, fewer than inner_steps / fragments
 *         mixing=0          with an overlap: parameters = mixing * (their current values) + (1 - mixing) * (the
 *                           exchanged result)
 *  @return MV_EINVAL naming the invalid setting */
MV_API mv_status mv_local_sgd_open(mv_group group, const char *settings, mv_local_sgd *local);
/** Call after each inner step. */
MV_API mv_status mv_local_sgd_step(mv_local_sgd local, const mv_array *parameters, uint64_t count, const mv_call_options *options);
/** Ends a series of steps: takes part in the exchanges of the other ranks until all have called it; then makes one
 *  full exchange among the ranks that have moved since their last, after which all have the same bits. If no rank
 *  has made a step, all get the lowest rank's parameters: call it at the start of training. */
MV_API mv_status mv_local_sgd_synchronize(mv_local_sgd local, const mv_array *parameters, uint64_t count, const mv_call_options *options);
MV_API mv_status mv_local_sgd_close(mv_local_sgd local);

/* ------------------------------------------------------ compressed gradients */

/** Averages of gradients that are transferred compressed. Each rank keeps its residual, and adds it to its next
 *  gradient. */
typedef mv_strategy mv_compressed;

/** @param how  "int8" (block scales), "topk ratio=0.01", "powersgd rank=4", or any other codec of
 *              kv_set_gradient_compression() */
MV_API mv_status mv_compressed_open(mv_group group, const char *how, mv_compressed *compressed);
/** gradients = approximately their average over the ranks that contribute; the same bits on all.
 *  @param rows, row_count  for each array, its number of rows as a matrix, which powersgd factors; 0 or 1: it is a
 *                          vector. NULL and 0: all are */
MV_API mv_status mv_compressed_average(mv_compressed compressed, const mv_array *gradients, uint64_t count, const int64_t *rows, uint64_t row_count,
                                       uint64_t *contributors, const mv_call_options *options);
/** Takes part in the averages of the other ranks without a contribution until all ranks have called it. */
MV_API mv_status mv_compressed_finish(mv_compressed compressed, const mv_array *gradients, uint64_t count, const int64_t *rows, uint64_t row_count,
                                      const mv_call_options *options);
MV_API mv_status mv_compressed_close(mv_compressed compressed);

#ifdef __cplusplus
}
#endif
#endif
