/** Tensors: arrays of numbers, for scripts without an array library, and memory that tables and all-reduce use without
 *  a copy. Part of polyverso.h, which includes it; the rules of polyverso.h hold here too. In addition:
 *   - No function here needs mv_init(), waits, or communicates.
 *   - A tensor's elements are in row-major order, without gaps, at a multiple of 64 bytes unless it is a view. Memory
 *     that the library allocates is shared memory: on one host its bytes reach another process's table without being
 *     copied here.
 *   - A forked child keeps the tensors, and may use and free them at once. The parent never sees what the child writes.
 *     The child sees what the parent writes in place after the fork, in pages that the child has not written itself.
 *   - Distinct tensors may be used by any threads at once. If a thread writes a tensor while another thread uses it, or
 *     one with the same memory, the caller must order the two.
 *   - A tensor has 0 to MV_MAX_DIMS dimensions, each of length 0 or more; without dimensions it holds one element.
 *   - A tensor's elements are in the memory of the host or of a device; see the last section. The functions here compute
 *     where the tensors are, and results are made there. All tensors of a call must be in one place (MV_EINVAL), except
 *     those of mv_tensor_copy() and mv_tensor_close().
 *   - The messages of mv_last_error() name dtypes and shapes: "f32 (2, 3)".
 *   - If `out` is 0, *result receives a new tensor, which the caller must free. Otherwise `out` is a tensor of the
 *     result's shape: it receives the values, converted to its own dtype, and *result is set to it. It may be an
 *     operand, or share memory with one. */
#ifndef POLYVERSO_TENSOR_H
#include "polyverso.h" /* polyverso.h includes this header, after what it needs */
#endif
#ifndef POLYVERSO_TENSOR_H
#define POLYVERSO_TENSOR_H

#ifdef __cplusplus
extern "C" {
#endif

/** A dense tensor, or a row-sparse one, which holds some rows; all others are zero. */
typedef int64_t mv_tensor;

#define MV_MAX_DIMS 8
/** The host's memory, as the number of a device. */
#define MV_HOST (-1)
/** As an axis: reduce over all axes; the result has no dimensions. */
#define MV_ALL_AXES (-1)

/* ------------------------------------------------------------------- creation, description */

/** A dense tensor of zeros.
 *  @param dtype any but MV_RAW
 *  @param shape dims lengths; NULL with dims 0
 *  @return MV_EINVAL for an invalid dtype or number of dimensions; MV_ESHAPE for a negative length or a size beyond
 *          any memory; MV_ENOMEM */
MV_API mv_status mv_tensor_create(mv_dtype dtype, const int64_t *shape, uint64_t dims, mv_tensor *tensor);
/** mv_tensor_create() with a copy of `values`.
 *  @param count elements; must be the product of the shape. MV_ESHAPE otherwise */
MV_API mv_status mv_tensor_from(const void *values, uint64_t count, mv_dtype dtype, const int64_t *shape, uint64_t dims,
                                mv_tensor *tensor);
/** A tensor that views the caller's own memory, which is lent until this tensor and all that share its memory (slices,
 *  reshapes, rows) are freed; `mv_tensor_info.sharers` counts them. (The modules of the languages keep the lent object
 *  alive that long.)
 *  @param values aligned to the size of its elements */
MV_API mv_status mv_tensor_view(void *values, uint64_t count, mv_dtype dtype, const int64_t *shape, uint64_t dims,
                                mv_tensor *tensor);
/** A row-sparse tensor of `height` rows that holds copies of some.
 *  @param rows   row_count ids in 0 .. height - 1, in any order; rows of repeated ids are summed
 *  @param values a dense tensor (row_count, ...), row i for rows[i]; the result's shape is (height, ...)
 *  @return MV_ERANGE for an id outside; MV_ESHAPE */
MV_API mv_status mv_tensor_sparse(const int64_t *rows, uint64_t row_count, mv_tensor values, int64_t height,
                                  mv_tensor *tensor);
/** Closes the handle. The memory is freed with the last tensor that shares it, and reused for later ones. */
MV_API mv_status mv_tensor_free(mv_tensor tensor);

typedef struct mv_tensor_info {
  uint32_t size;      /**< sizeof(mv_tensor_info), set by MV_TENSOR_INFO_INIT */
  uint32_t version;   /**< MV_STRUCT_VERSION */
  mv_dtype dtype;
  uint32_t dims;      /**< dimensions */
  int64_t shape[MV_MAX_DIMS];
  uint64_t count;     /**< elements, the product of the shape */
  uint64_t bytes;     /**< of the elements in memory; row-sparse: of the rows held */
  int32_t is_view;    /**< 1: its memory is, or was, another tensor's, or is lent by the caller */
  int32_t is_lent;    /**< 1: in the caller's memory, see mv_tensor_view() */
  int32_t is_shared;  /**< 1: in shared memory */
  int32_t row_sparse; /**< 1: holds some rows only */
  uint64_t rows_held; /**< row-sparse: the number of rows held */
  uint64_t storage;   /**< identifies the memory: the same for all tensors that share it, never reused */
  uint64_t sharers;   /**< open tensors in it, including this one */
  int64_t device;     /**< the number of the device whose memory it is in, or MV_HOST */
} mv_tensor_info;

#define MV_TENSOR_INFO_INIT { sizeof(mv_tensor_info), MV_STRUCT_VERSION, 0, 0, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, MV_HOST }

/** Describes the tensor. @param about the caller's, with size and version set; filled */
MV_API mv_status mv_tensor_describe(mv_tensor tensor, mv_tensor_info *about);
/** The memory of the elements, as mv_table_add(), mv_table_get() and other functions take it. Valid until the last
 *  tensor in this memory is freed.
 *  @param count, dtype  out; each may be NULL
 *  @return MV_EINVAL for a row-sparse tensor: mv_tensor_parts() gives its two; or for one on a device, whose memory the
 *          host does not reach: mv_tensor_to() copies it, and mv_tensor_address() tells where it is */
MV_API mv_status mv_tensor_data(mv_tensor tensor, void **data, uint64_t *count, mv_dtype *dtype);
/** The tensor as text: a line with dtype and shape, then the elements in brackets; of long dimensions, the first and
 *  last three.
 *  @param picture  caller's buffer, NUL-terminated on return; NULL with capacity 0 asks for the length only
 *  @param length   out: bytes needed without the NUL; if >= capacity, the text was cut */
MV_API mv_status mv_tensor_text(mv_tensor tensor, char *picture, uint64_t capacity, uint64_t *length);

/** Reads one element.
 *  @param index    dims positions, each in 0 .. length - 1 (MV_ERANGE)
 *  @param value    out: the element, or the nearest double
 *  @param integer  out: the element; of floats, as mv_tensor_cast() to MV_I64 converts it */
MV_API mv_status mv_tensor_get(mv_tensor tensor, const int64_t *index, uint64_t dims, double *value, int64_t *integer);
/** Sets one element, converted as mv_tensor_cast() does. MV_EINVAL for row-sparse tensors. */
MV_API mv_status mv_tensor_set(mv_tensor tensor, const int64_t *index, uint64_t dims, double value);

/* ------------------------------------------------------------------- copies and views */

/** A copy of the same dtype; or, into `out`, of out's dtype, repeated along dimensions of length 1 as in
 *  mv_tensor_binary(). `out` may be in another place than the tensor. A row-sparse `out`, here and in all functions,
 *  receives the rows of a row-sparse result. */
MV_API mv_status mv_tensor_copy(mv_tensor tensor, mv_tensor out, mv_tensor *result);
/** A copy of another dtype. Floats round to nearest, ties to even, once. Floats to integers are truncated towards
 *  zero; values beyond the integer's range become its minimum or maximum, NaN becomes 0. Integers to narrower ones
 *  keep their lowest bits (they wrap, as in NumPy). */
MV_API mv_status mv_tensor_cast(mv_tensor tensor, mv_dtype dtype, mv_tensor *result);
/** The same elements in another shape: a view. One length may be -1: it is computed from the others. */
MV_API mv_status mv_tensor_reshape(mv_tensor tensor, const int64_t *shape, uint64_t dims, mv_tensor *result);
/** Rows begin .. end - 1: a view with as many dimensions. MV_ERANGE unless 0 <= begin <= end <= rows. */
MV_API mv_status mv_tensor_slice(mv_tensor tensor, int64_t begin, int64_t end, mv_tensor *result);
/** One row: a view with one dimension less. */
MV_API mv_status mv_tensor_row(mv_tensor tensor, int64_t row, mv_tensor *result);
/** Some rows, copied. Of a dense tensor: a dense one of row_count rows in the order of the ids, which may repeat. Of
 *  a row-sparse tensor: a row-sparse one of the same shape with those of the rows that the tensor holds. */
MV_API mv_status mv_tensor_take(mv_tensor tensor, const int64_t *rows, uint64_t row_count, mv_tensor *result);
/** A matrix with rows and columns exchanged, copied. */
MV_API mv_status mv_tensor_transpose(mv_tensor tensor, mv_tensor *result);
/** The parts of a row-sparse tensor: the ids of its rows, MV_I64, ascending, and the rows, as two dense views of its
 *  memory. The ids must not be written. */
MV_API mv_status mv_tensor_parts(mv_tensor tensor, mv_tensor *ids, mv_tensor *values);
/** A dense copy of a row-sparse tensor, or of a dense one. */
MV_API mv_status mv_tensor_to_dense(mv_tensor tensor, mv_tensor *result);
/** A row-sparse copy of a dense tensor, with the rows that are not all zeros, or of a row-sparse one. */
MV_API mv_status mv_tensor_to_sparse(mv_tensor tensor, mv_tensor *result);

/* ------------------------------------------------------------------- values */

/** All elements = value, converted as mv_tensor_cast() does. */
MV_API mv_status mv_tensor_fill(mv_tensor tensor, double value);
/** Element i = start + i * step, computed as doubles. */
MV_API mv_status mv_tensor_range(mv_tensor tensor, double start, double step);
/** Random numbers, the same for a seed on every machine and in every language, and of every dtype up to its rounding:
 *  element i is a function of seed and i only (Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
 *  as easy as 1, 2, 3", SC 2011). Floats are in [low, high], high only by rounding; integers in low .. high - 1.
 *  @return MV_EINVAL unless low < high and both are finite, for integers whole and within the dtype */
MV_API mv_status mv_tensor_uniform(mv_tensor tensor, int64_t seed, double low, double high);
/** Normally distributed random numbers, as above, by inversion (Wichura, "Algorithm AS 241", 1988). Floats only. */
MV_API mv_status mv_tensor_normal(mv_tensor tensor, int64_t seed, double mean, double deviation);

/* ------------------------------------------------------------------- arithmetic */

/** Operations on one element. Integers: NEG and ABS wrap around, the others compute and return MV_F64. */
enum mv_tensor_unary_op { MV_NEG = 1, MV_ABS = 2, MV_SQRT = 3, MV_EXP = 4, MV_LOG = 5 };
/** Operations on two elements. Integers wrap around; MV_DIV of integers computes and returns MV_F64. MV_MIN and
 *  MV_MAX return NaN if either operand is NaN. The comparisons return MV_U8, 0 or 1. */
enum mv_tensor_binary_op {
  MV_ADD = 1,
  MV_SUB = 2,
  MV_MUL = 3,
  MV_DIV = 4,
  MV_POW = 5,
  MV_MIN = 6,
  MV_MAX = 7,
  MV_EQ = 8,
  MV_NE = 9,
  MV_LT = 10,
  MV_LE = 11,
  MV_GT = 12,
  MV_GE = 13
};

/** Element by element. Floats give the same bits on every machine, except for MV_POW of MV_F64, which uses the C
 *  library. MV_F16 and MV_BF16 compute as MV_F32 and round. */
MV_API mv_status mv_tensor_unary(int32_t op, mv_tensor tensor, mv_tensor out, mv_tensor *result);
/** a op b, element by element. Different shapes are broadcast: they are matched from the last dimension on, and a
 *  missing dimension, or one of length 1, is repeated: a row (3) or (1, 3) is combined with every row of (2, 3).
 *  Different dtypes are first converted to a common one, as in NumPy: the wider of two floats or two integers (MV_F16
 *  with MV_BF16: MV_F32), MV_F64 for a float with an integer, but the float for one with MV_U8 or MV_I8.
 *  @return MV_ESHAPE with both shapes; MV_EINVAL for a negative power of integers, or for row-sparse tensors, except
 *          for MV_ADD and MV_SUB of two of them, whose result is row-sparse: see mv_tensor_axpy() */
MV_API mv_status mv_tensor_binary(int32_t op, mv_tensor a, mv_tensor b, mv_tensor out, mv_tensor *result);
/** tensor op value, or with swapped = 1 value op tensor; the value has the tensor's dtype.
 *  @return as mv_tensor_binary(), and MV_EDTYPE for an integer tensor with a value that its dtype cannot represent,
 *          except with MV_DIV and comparisons; MV_EINVAL for a row-sparse tensor, except with MV_MUL and MV_DIV by
 *          the value, which apply to its rows */
MV_API mv_status mv_tensor_scalar(int32_t op, mv_tensor tensor, double value, int32_t swapped, mv_tensor out,
                                  mv_tensor *result);
/** y += alpha * x, with x of y's shape, each dense or row-sparse. Of a row-sparse x only the rows that it holds are
 *  added; a row-sparse y afterwards holds the rows of both. Dtypes as in mv_tensor_binary(); the result is rounded
 *  to y's. */
MV_API mv_status mv_tensor_axpy(double alpha, mv_tensor x, mv_tensor y);

enum mv_tensor_reduce_op {
  MV_SUM = 1,
  MV_MEAN = 2,
  MV_LEAST = 3,
  MV_GREATEST = 4,
  MV_ARGMIN = 5,
  MV_ARGMAX = 6,
  MV_NORM = 7 /**< the root of the sum of squares */
};
/** Reduces along one axis, which the result then lacks, or along all. Sums of floats are computed in double precision,
 *  sums of doubles pairwise or with compensation; MV_SUM, MV_MEAN and MV_NORM (the root of the sum of squares) of
 *  MV_F16 and MV_BF16 return MV_F32. MV_SUM of integers returns MV_I64, wrapping around, MV_MEAN and MV_NORM MV_F64.
 *  MV_ARGMIN and MV_ARGMAX return the first position, MV_I64. NaN counts as both the least and the greatest value.
 *  @param axis  0 .. dims - 1, or MV_ALL_AXES
 *  @return MV_EINVAL for the least or greatest of no elements */
MV_API mv_status mv_tensor_reduce(int32_t op, mv_tensor tensor, int64_t axis, mv_tensor *result);
/** The sum of the products of two tensors of one shape, in double precision. */
MV_API mv_status mv_tensor_dot(mv_tensor a, mv_tensor b, double *value);
/** Whether two tensors have the same shape and |a - b| <= absolute + relative * |b| everywhere; with 0 and 0: equal.
 *  NaN is not close to anything. */
MV_API mv_status mv_tensor_close(mv_tensor a, mv_tensor b, double relative, double absolute, int32_t *close);

enum mv_tensor_matmul_flag { MV_TRANSPOSE_A = 1, MV_TRANSPOSE_B = 2 };
/** The product of two matrices, (m, k) and (k, n), of one float dtype, or of their transposes. Each element is summed in
 *  the order of k, and that of 16-bit floats as float, to be rounded once. */
MV_API mv_status mv_tensor_matmul(mv_tensor a, mv_tensor b, int32_t flags, mv_tensor out, mv_tensor *result);

/* ------------------------------------------------------------------- devices
 * A device computes on tensors in its own memory. Devices come from a plug-in, libpolyverso_cuda.so, which the library
 * loads when a function first names a device: the one that POLYVERSO_DEVICE_PLUGIN names, or the one beside the library.
 * Without a plug-in, a driver or a device, the functions that need one are MV_ENOSYS with a message that says what to do,
 * and everything else continues to work. docs/cuda.md has more.
 *   - Results have the same bits as on the host. The exceptions are MV_POW of floats, within 2 units in the last place of
 *     a double, mv_tensor_matmul(), whose order of sums is cuBLAS's, and the sign and payload of a NaN.
 *   - Work on a device is done in the order of the calls, on one stream, and a call returns when its work has been
 *     queued. A call that gives values to the host waits for them: mv_tensor_get(), mv_tensor_text(), mv_tensor_dot(),
 *     mv_tensor_close(), mv_tensor_to() and mv_tensor_copy() to the host, and stores.
 *   - Memory is given back in the order of the stream too, so a tensor may be freed while work that uses it is queued.
 *   - The ids of a row-sparse tensor are in the host's memory; its values are on the device.
 *   - A forked child can't use devices after its parent has used any: MV_EFORK.
 *   - MV_ENOMEM: the device has too little memory. MV_ESYSTEM: an error, such as an invalid address in a kernel, has made
 *     the device unusable; each later call that needs the device fails with the same status. */

/** The number of devices: 0 if there is no plug-in, driver or device; mv_device_describe(0) then says why. */
MV_API mv_status mv_device_count(int32_t *count);
/** The number of a device by its name.
 *  @param name    "cuda:1", "gpu:1", or "cuda" and "gpu" for the first one; "cpu" or "host"
 *  @param device  out: 0 or more, or MV_HOST
 *  @return MV_EINVAL for another name. The device need not exist */
MV_API mv_status mv_device_find(const char *name, int32_t *device);

typedef struct mv_device_info {
  uint32_t size;         /**< sizeof(mv_device_info), set by MV_DEVICE_INFO_INIT */
  uint32_t version;      /**< MV_STRUCT_VERSION */
  char name[24];         /**< "cuda:0" */
  char model[96];        /**< "NVIDIA H100 80GB HBM3" */
  char bus[24];          /**< its PCI address, or "" */
  char driver[48];       /**< the driver's version */
  char runtime[48];      /**< the plug-in's runtime */
  int32_t architecture;  /**< 90 for sm_90 */
  int32_t processors;    /**< multiprocessors */
  uint64_t memory;       /**< bytes of the device */
  uint64_t unused;       /**< of which are free */
} mv_device_info;

#define MV_DEVICE_INFO_INIT { sizeof(mv_device_info), MV_STRUCT_VERSION, "", "", "", "", "", 0, 0, 0, 0 }

/** Describes a device. @param about  the caller's, with size and version set; filled
 *  @return MV_ENOSYS, which says what is missing; MV_ENOTFOUND for another number */
MV_API mv_status mv_device_describe(int32_t device, mv_device_info *about);
/** Waits until all work of a device that was queued before is done, and reports its errors. */
MV_API mv_status mv_device_wait(int32_t device);
/** The stream on which work of the device is queued from now on, by all threads: one of the caller's own, such as that
 *  of another library, so that its work and this library's are done in order. Work that was queued before is done first.
 *  A call of another thread that is in progress may queue the rest of its work on the stream before.
 *  @param stream  a cudaStream_t as a number, which must stay until another one is set; 0 for the library's own */
MV_API mv_status mv_device_set_stream(int32_t device, uint64_t stream);
/** The stream on which work of the device is queued, a cudaStream_t as a number: another library's stream that waits for
 *  it finds the tensors complete.
 *  @param stream  out */
MV_API mv_status mv_device_current_stream(int32_t device, uint64_t *stream);
/** Lets work that is queued on another stream from now on begin after this library's work so far.
 *  @param stream  a cudaStream_t of the same device, as a number; 0 is the default stream */
MV_API mv_status mv_device_order(int32_t device, uint64_t stream);
/** The reverse: lets this library's work from now on begin after the work on another stream so far. */
MV_API mv_status mv_device_follow(int32_t device, uint64_t stream);

/** mv_tensor_create() on a device. @param device  its number, or MV_HOST */
MV_API mv_status mv_tensor_create_on(int32_t device, mv_dtype dtype, const int64_t *shape, uint64_t dims, mv_tensor *tensor);
/** A copy of the tensor on a device, or on the host. MV_HOST: complete on return. */
MV_API mv_status mv_tensor_to(mv_tensor tensor, int32_t device, mv_tensor *result);
/** mv_tensor_view() of a device's memory: of an array of PyTorch, CuPy or JAX, as DLPack and __cuda_array_interface__
 *  describe it. Work that writes this memory must be done, or queued on the stream of mv_device_current_stream(), or on a
 *  stream for which mv_device_follow() was called.
 *  @param address  of the first element, in the device's memory, aligned to the size of the elements
 *  @param count    elements; must be the product of the shape */
MV_API mv_status mv_tensor_view_on(int32_t device, uint64_t address, uint64_t count, mv_dtype dtype, const int64_t *shape,
                                   uint64_t dims, mv_tensor *tensor);
/** The address of the elements, in the memory of the device that mv_tensor_info names. Valid until the last tensor in
 *  this memory is freed. MV_EINVAL for a row-sparse tensor. @param address  out */
MV_API mv_status mv_tensor_address(mv_tensor tensor, uint64_t *address);

#ifdef __cplusplus
}
#endif
#endif
