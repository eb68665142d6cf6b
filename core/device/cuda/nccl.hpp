#pragma once
// NCCL, which the plug-in loads when ranks first reduce arrays on devices: everything else works without it.

#include "device/plugin.h"

namespace mv::device::cuda {

/// The functions of the plug-in's table that begin with comm_. The device of a communicator is the current one.
mv_status about_nccl(char* text, uint64_t bytes);
mv_status make_nccl_id(mv_device_comm_id* id);
mv_status make_nccl(int32_t device, const mv_device_comm_id& id, int32_t ranks, int32_t rank, mv_device_comm* comm);
int32_t device_of_nccl(mv_device_comm comm);
mv_status allreduce_nccl(mv_device_comm comm, mv_device_stream stream, const mv_device_part* parts, uint64_t count, int32_t reduction);
mv_status poll_nccl(mv_device_comm comm, int32_t* done);
void free_nccl(mv_device_comm comm, bool aborts);

}  // namespace mv::device::cuda
