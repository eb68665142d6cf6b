/** The interface between the library and a plug-in for one kind of devices, such as libpolyverso_cuda.so. It is narrow so
 *  that a plug-in for HIP or SYCL can have it too: memory, copies, streams and events, one function that launches any of
 *  the kernels of work.h, graphs, matrix products, and all-reduces between devices. A plug-in decides nothing: it knows
 *  neither tensors nor optimizers' names.
 *
 *  Rules:
 *   - A plug-in exports one function, polyverso_device_plugin(), which returns its table, or NULL if it does not have this
 *     version of the interface.
 *   - Every function of the table may be called by any thread. It returns an mv_status, and after a failure error() has a
 *     sentence for the caller's thread that says what failed and what to do.
 *   - A device has a number, from 0. Streams, events and memory belong to the device on which they were made.
 *   - Work on one stream is done in order. A function with a stream returns before its work is done, so memory that it
 *     uses must stay until the stream is waited for, or be released on the same stream.
 *   - The calling thread's current device, where a kind of devices has that, is afterwards what it was before.
 *   - A kernel computes the same bits as the library does on the processor, unless work.h says otherwise. */
#ifndef POLYVERSO_DEVICE_PLUGIN_H
#define POLYVERSO_DEVICE_PLUGIN_H

#include <polyverso/polyverso.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this header. A plug-in and a library with different ones do not work together. */
#define MV_DEVICE_INTERFACE 8
#define MV_DEVICE_ENTRY "polyverso_device_plugin"

typedef void* mv_device_stream;
typedef void* mv_device_event;
typedef void* mv_device_graph;

typedef struct mv_device_about {
  char name[96];                /**< "NVIDIA H100 80GB HBM3" */
  char bus[24];                 /**< the PCI address, "0000:3b:00.0", or "" */
  char driver[48], runtime[48]; /**< versions as texts */
  uint64_t memory, unused;      /**< bytes of the device, and how many are free */
  int32_t major, minor;         /**< of the architecture: 9, 0 for sm_90 */
  int32_t processors;
} mv_device_about;

/** Matrices by columns, as BLAS has them. gemm: c = alpha op(a) op(b) + beta c, where c is rows x cols and the inner
 *  dimension `inner`. geam (is_sum): c = alpha op(a) + beta op(b). The order of gemm's sums is the plug-in's own: equal
 *  inputs give equal bits on one device, but not the processor's bits. Halves are summed in f32. */
typedef struct mv_device_blas {
  int32_t is_sum, transpose_a, transpose_b;
  mv_dtype dtype; /**< f32 or f64; gemm also f16 and bf16 */
  uint64_t rows, cols, inner;
  uint64_t a_step, b_step, c_step; /**< elements from one column to the next */
  const void *a, *b;
  void* c;
  double alpha, beta;
} mv_device_blas;

typedef void* mv_device_comm;

/** Identifies a communicator that is being made. One rank gets it from comm_id(), and hands it to the others. */
typedef struct mv_device_comm_id {
  uint8_t bytes[128];
} mv_device_comm_id;

/** One array of an all-reduce between devices. */
typedef struct mv_device_part {
  const void* in;
  void* out; /**< may be `in` */
  uint64_t count;
  mv_dtype dtype;
} mv_device_part;

typedef struct mv_device_plugin {
  uint32_t interface; /**< MV_DEVICE_INTERFACE */
  uint32_t size;      /**< sizeof(mv_device_plugin) */
  const char* name;   /**< "cuda": the kind in "cuda:0" */
  const char* (*error)(void);

  /** The number of devices. MV_ENOSYS if there is none, or no driver, or one that is too old. */
  mv_status (*count)(int32_t* devices);
  mv_status (*describe)(int32_t device, mv_device_about* about);
  /** Whether `device` reads and writes the memory of `peer` without the host. */
  mv_status (*reaches)(int32_t device, int32_t peer, int32_t* reaches);

  mv_status (*stream_make)(int32_t device, mv_device_stream* stream);
  mv_status (*stream_free)(int32_t device, mv_device_stream stream);
  /** Waits until the work on the stream is done. Reports the errors of that work. */
  mv_status (*stream_wait)(int32_t device, mv_device_stream stream);

  mv_status (*event_make)(int32_t device, mv_device_event* event);
  mv_status (*event_free)(int32_t device, mv_device_event event);
  mv_status (*event_record)(int32_t device, mv_device_event event, mv_device_stream stream);
  /** Later work on the stream, which may be of another device, begins after the event. */
  mv_status (*event_order)(int32_t device, mv_device_stream stream, mv_device_event event);
  /** Waits for the work before the event. */
  mv_status (*event_wait)(mv_device_event event);
  /** Whether the work before the event is done. Returns at once. */
  mv_status (*event_poll)(mv_device_event event, int32_t* done);
  /** The time between two events, whose work is waited for. */
  mv_status (*event_millis)(mv_device_event from, mv_device_event to, double* millis);

  /** Memory of the device, aligned to 256 bytes, in the order of the stream. MV_ENOMEM. */
  mv_status (*allocate)(int32_t device, mv_device_stream stream, uint64_t bytes, void** memory);
  mv_status (*release)(int32_t device, mv_device_stream stream, void* memory);
  /** Memory of the host that devices copy from and to at full speed. */
  mv_status (*pin)(uint64_t bytes, void** memory);
  mv_status (*unpin)(void* memory);
  /** The number of the device in whose memory the address is, or MV_HOST: it is memory of the host, or of nobody known. */
  mv_status (*locate)(const void* memory, int32_t* device);
  /** Copies between any two of: memory of the host, of this device, and of another one. Memory of the host that is not
   *  pinned may be used again, or read, on return. */
  mv_status (*copy)(int32_t device, mv_device_stream stream, void* to, const void* from, uint64_t bytes);

  /** Launches one kernel of work.h: its number there, and its struct, or an array of structs that are independent of each other. A plug-in may
   *  compute several of these in one launch. */
  mv_status (*launch)(int32_t device, mv_device_stream stream, uint32_t kernel, const void* work, uint64_t bytes);
  /** MV_ENOSYS if the plug-in's library for it is missing, also for matrices without elements. */
  mv_status (*blas)(int32_t device, mv_device_stream stream, const mv_device_blas* work);

  /** Bytes of the device's memory: those that allocate() may still give, and all. */
  mv_status (*room)(int32_t device, uint64_t* unused, uint64_t* all);
  /** Memory that kernels and copies of the device use as its own, though only the first `on_device` bytes, or fewer, are
   *  there: the others are the host's, and accessed over the bus. For work on the stream. Aligned to 256 bytes.
   *  @param on_device  in: the most; out: the bytes that are on the device. MV_ENOSYS if there is no such memory; MV_ENOMEM */
  mv_status (*allocate_spilled)(int32_t device, mv_device_stream stream, uint64_t bytes, uint64_t* on_device, void** memory);
  /** Work that uses the memory has been waited for. */
  mv_status (*release_spilled)(int32_t device, void* memory);

  /** Graphs: work with fixed addresses that is launched many times, as a whole. A plug-in may lack them: MV_ENOSYS. Between
   *  graph_begin() and graph_end(), copies between memory of devices and launches of kernels on the stream are recorded
   *  instead of carried out. Only the calling thread uses the stream meanwhile, and for nothing else. */
  mv_status (*graph_begin)(int32_t device, mv_device_stream stream);
  /** Always ends the recording. After a failure there is no graph, and *graph is NULL. */
  mv_status (*graph_end)(int32_t device, mv_device_stream stream, mv_device_graph* graph);
  /** Carries the work out in the order of any stream of the device. After a failure nothing was carried out. */
  mv_status (*graph_launch)(int32_t device, mv_device_stream stream, mv_device_graph graph);
  /** The graph may still be under way. */
  mv_status (*graph_free)(int32_t device, mv_device_graph graph);

  /* Communicators: all-reduces between devices of several ranks, in one process or in several. A rank calls the functions of
   * one communicator by one thread at a time, and none of them waits for another rank. All ranks make the same
   * all-reduces in the same order. comm_about, comm_id and comm_make: MV_ENOSYS if the plug-in's library for it is missing. */

  /** The name and version of that library: "NCCL 2.28.9". */
  mv_status (*comm_about)(char* text, uint64_t bytes);
  mv_status (*comm_id)(mv_device_comm_id* id);
  /** Begins to make rank `rank`'s end of a communicator of `ranks` ranks, each of which has another device. */
  mv_status (*comm_make)(int32_t device, const mv_device_comm_id* id, int32_t ranks, int32_t rank, mv_device_comm* comm);
  /** Begins an all-reduce, after the work that the stream has. comm_poll() must have reported that earlier ones are done. All
   *  ranks get the same bits; the order of operands is the library's own, and the minimum and maximum of floats may ignore
   *  NaN.
   *  @param reduction  an mv_reduction; averages, of floats only, divide by the number of ranks */
  mv_status (*comm_allreduce)(mv_device_comm comm, mv_device_stream stream, const mv_device_part* parts, uint64_t count, int32_t reduction);
  /** Whether all that was begun on the communicator is done, or else its error. Returns at once. */
  mv_status (*comm_poll)(mv_device_comm comm, int32_t* done);
  /** Ends the communicator. If `aborts` is not 0, or a rank does not answer, all-reduces under way end with undefined
   *  results. Memory that they use is free on return. */
  mv_status (*comm_free)(mv_device_comm comm, int32_t aborts);
} mv_device_plugin;

typedef const mv_device_plugin* (*mv_device_entry)(uint32_t interface);

#ifdef __cplusplus
}
#endif

#endif
