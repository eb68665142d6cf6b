/* Tensors in the memory of devices, as arguments of C functions, for every language. */
#ifndef POLYVERSO_SWIG_DEVICES_H
#define POLYVERSO_SWIG_DEVICES_H

#include <polyverso/tensor.h>
#include <string.h>

/* Whether the function accepts addresses in the memory of devices as its arrays, though not as row ids: those of tables' values, of gossip.h,
 * group.h and distlearn.h, but for custom reductions: their received values are copied to the languages' arrays by the host. */
static int pv_takes_devices(const char *function) {
  static const char *const families[] = {"mv_table_create", "mv_table_add", "mv_table_set", "mv_table_get", "mv_table_peek",
                                         "mv_allreduce", "mv_reduce",  "mv_broadcast", "mv_allgather", "mv_gather", "mv_scatter", "mv_alltoall",
                                         "mv_send",      "mv_recv",    "mv_sgd_",      "mv_ea_",       "mv_async_ea_", "mv_local_sgd_", "mv_compressed_",
                                         "mv_gossip_"};
  for (size_t i = 0; i < sizeof families / sizeof *families; ++i)
    if (strncmp(function, families[i], strlen(families[i])) == 0) return 1;
  return 0;
}

/* The name, in messages and for pv_takes_devices(), of the function's array i: the counts of alltoalls are read on the host. */
static const char *pv_array_of(const char *function, uint64_t i) {
  return i % 2 == 1 && strcmp(function, "mv_alltoall_counts") == 0 ? "counts of mv_alltoall_counts" : function;
}

/* mv_tensor_data(), also of a dense tensor on a device, if the function for which it is takes that. */
static mv_status pv_data_of(mv_tensor tensor, int takes_devices, void **data, uint64_t *count, mv_dtype *dtype) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  if (!takes_devices || mv_tensor_describe(tensor, &info) != MV_OK || info.device == MV_HOST || info.row_sparse)
    return mv_tensor_data(tensor, data, count, dtype);
  uint64_t address = 0;
  const mv_status status = mv_tensor_address(tensor, &address);
  *data = (void *)(uintptr_t)address;
  if (count) *count = info.count;
  if (dtype) *dtype = info.dtype;
  return status;
}

#endif
