/* Training strategies, for every language: lists of arrays are passed, and changed in place. */
MV_ARRAYS(gradients)
MV_ARRAYS(parameters)
%apply uint64_t *found { uint64_t *steps, uint64_t *operations, uint64_t *payload, uint64_t *dense };

MV_RESUMES(mv_sgd_sum_gradients)
MV_RESUMES(mv_sgd_sum_and_normalize)
MV_RESUMES(mv_sgd_synchronize)
MV_RESUMES(mv_ea_average)
MV_RESUMES(mv_ea_synchronize_center)
MV_RESUMES(mv_ea_synchronize_parameters)
MV_RESUMES(mv_async_ea_open)
MV_RESUMES(mv_async_ea_average)
MV_RESUMES(mv_async_ea_read)
MV_RESUMES(mv_local_sgd_step)
MV_RESUMES(mv_local_sgd_synchronize)
MV_RESUMES(mv_compressed_average)
MV_RESUMES(mv_compressed_finish)
MV_WAITS(mv_sgd_close)
MV_WAITS(mv_ea_close)
MV_WAITS(mv_async_ea_close)
MV_WAITS(mv_local_sgd_close)
MV_WAITS(mv_compressed_close)
MV_WAITS(mv_strategy_cancel)

%include <polyverso/distlearn.h>
