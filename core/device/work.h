/** The kernels of a device: for each a number, and a struct of what it works on. Pointers are to memory of the device,
 *  aligned to their elements. Ranges of one kernel are disjoint or identical. `dtype` is any but MV_RAW unless a line says
 *  otherwise; halves are computed in f32 and rounded once.
 *
 *  Every kernel gives the processor's bits, except MV_POW of floats, which is within 2 units in the last place, and the
 *  sums of MV_DEVICE_MEASURE. A NaN is a NaN, with any payload. */
#ifndef POLYVERSO_DEVICE_WORK_H
#define POLYVERSO_DEVICE_WORK_H

#include <polyverso/tensor.h>

/** XX(NUMBER, name): the struct is mv_device_name. Numbers are never reused within a version of the interface. */
#define MV_DEVICE_KERNELS(XX)  \
  XX(FILL, fill)               \
  XX(RANGE, range)             \
  XX(CAST, cast)               \
  XX(ARRANGE, arrange)         \
  XX(UNARY, unary)             \
  XX(BINARY, binary)           \
  XX(AXPY, axpy)               \
  XX(MIX, mix)                 \
  XX(ELASTIC, elastic)         \
  XX(EXPAND, expand)           \
  XX(MERGE, merge)             \
  XX(RANDOM, random)           \
  XX(SUM, sum)                 \
  XX(FOLD, fold)               \
  XX(UPDATE, update)           \
  XX(ENCODE_BITS, encode_bits) \
  XX(DECODE_BITS, decode_bits) \
  XX(ENCODE_HALF, encode_half) \
  XX(ENCODE_INT8, encode_int8) \
  XX(DECODE_INT8, decode_int8) \
  XX(TAKE, take)               \
  XX(PUT, put)                 \
  XX(USED, used)               \
  XX(LOOKUP, lookup)           \
  XX(INSERT, insert)           \
  XX(ERASE, erase)             \
  XX(REINDEX, reindex)         \
  XX(INITIAL, initial)         \
  XX(TOP_K, top_k)             \
  XX(PUT_TOP_K, put_top_k)     \
  XX(OUTER, outer)             \
  XX(NONFINITE, nonfinite)     \
  XX(PAIR_STEP, pair_step)     \
  XX(BACK_UP, back_up)         \
  XX(UPDATE_ROWS, update_rows)

enum mv_device_kernel {
#define XX(number, name) MV_DEVICE_##number,
  MV_DEVICE_KERNELS(XX)
#undef XX
};

/** out[i] = value, an element in the dtype's own bits. */
typedef struct mv_device_fill {
  void* out;
  uint64_t count;
  uint8_t value[8];
  mv_dtype dtype;
} mv_device_fill;
/** out[i] = start + i * step */
typedef struct mv_device_range {
  void* out;
  uint64_t count;
  double start, step;
  mv_dtype dtype;
} mv_device_range;
/** out[i] = in[i], as mv_tensor_cast() converts. */
typedef struct mv_device_cast {
  void* out;
  const void* in;
  uint64_t count;
  mv_dtype to, from;
} mv_device_cast;
/** out[i0, i1, ...] = in[i0 * steps[0] + i1 * steps[1] + ...]: broadcasts (step 0) and transposes. Elements of `size`
 *  bytes, a power of two up to 8. */
typedef struct mv_device_arrange {
  void* out;
  const void* in;
  uint64_t count;
  uint32_t size, dims;
  uint64_t lengths[MV_MAX_DIMS], steps[MV_MAX_DIMS];
} mv_device_arrange;
/** An mv_tensor_unary_op; of integers MV_NEG and MV_ABS only. */
typedef struct mv_device_unary {
  void* out;
  const void* in;
  uint64_t count;
  int32_t op;
  mv_dtype dtype;
} mv_device_unary;
/** An array, or one element that is repeated: in memory, or here, where data is NULL. */
typedef struct mv_device_operand {
  const void* data;
  uint8_t value[8];
  uint64_t is_single;
} mv_device_operand;
/** An mv_tensor_binary_op, but MV_DIV of integers. Comparisons give u8, all others the dtype. */
typedef struct mv_device_binary {
  void* out;
  mv_device_operand a, b;
  uint64_t count;
  int32_t op;
  mv_dtype dtype;
} mv_device_binary;
/** y[i] += alpha * x[i], product and sum rounded separately, computed in y's dtype. */
typedef struct mv_device_axpy {
  void* y;
  const void* x;
  uint64_t count;
  double alpha;
  mv_dtype dtype, x_dtype;
} mv_device_axpy;
/** dst[i] = factor * src[i] + (1 - factor) * dst[i]; with `base`, unless it is NULL, dst[i] += factor * (src[i] - base[i]). Floats
 *  only. Unless `squares` is NULL, the first double of each pair, one for a tile, becomes the sum of the squared distances between
 *  src and dst, or base; the second becomes 0. */
typedef struct mv_device_mix {
  void* dst;
  const void *src, *base;
  double* squares;
  uint64_t count;
  double factor;
  mv_dtype dtype;
} mv_device_mix;
/** difference[i] = alpha * (values[i] - center[i]), and values[i] -= difference[i]. Floats only; center and difference, which may be
 *  the same array, are f32 for values that are halves. */
typedef struct mv_device_elastic {
  void* values;
  const void* center;
  void* difference;
  uint64_t count;
  double alpha;
  mv_dtype dtype;
} mv_device_elastic;
/** math/local_sgd.hpp: `what` is an Outer. Floats only; the other arrays are f32 for values that are halves. */
typedef struct mv_device_outer {
  void *values, *outer, *velocity, *moved;
  uint64_t count;
  double rate, momentum, mixing;
  int32_t what;
  mv_dtype dtype;
} mv_device_outer;
/** math/outer_step.hpp: NoLoCo's step. f32 and f64. `slow` may be own_slow, and the peer's arrays the node's own. The first double of each pair
 *  of `squares`, one for a tile, becomes the sum of the squared distances between the two models; the second becomes 0. */
typedef struct mv_device_pair_step {
  void *model, *slow, *momentum;
  const void *own_slow, *own_delta, *peer_slow, *peer_delta;
  double* squares;
  uint64_t count;
  double alpha, beta, gamma;
  mv_dtype dtype;
} mv_device_pair_step;
/** out[row, col] = the sum over k of p[row, k] * q[col, k], in order and in f32; with `from`, unless it is NULL, from[row, col] minus
 *  that. `dtype` is out's, any float. */
typedef struct mv_device_expand {
  void* out;
  const float *p, *q, *from;
  uint64_t rows, cols, rank;
  mv_dtype dtype;
} mv_device_expand;
/** dst[i] = sources[0][i] + sources[1][i] + ..., in this order and in one pass; or their product, minimum, maximum, or
 *  the sum divided by the divisor (floats only). */
#define MV_DEVICE_SOURCES 16
enum mv_device_merge_op { MV_DEVICE_MERGE_SUM, MV_DEVICE_MERGE_PROD, MV_DEVICE_MERGE_MIN, MV_DEVICE_MERGE_MAX, MV_DEVICE_MERGE_MEAN };
typedef struct mv_device_merge {
  void* dst;
  const void* sources[MV_DEVICE_SOURCES];
  uint64_t count, source_count, divisor;
  int32_t op;
  mv_dtype dtype;
} mv_device_merge;
/** mv_tensor_uniform() and mv_tensor_normal(): a is low or the mean, b is high or the deviation. Integers are `width` ones
 *  from `from` on; width 0 means 2^64. */
typedef struct mv_device_random {
  void* out;
  uint64_t count;
  int64_t seed;
  double a, b;
  int64_t from;
  uint64_t width;
  int32_t is_normal;
  mv_dtype dtype;
} mv_device_random;
/** One stage of a sum of floats, whose order is that of the library's sums. Elements are outer x along x inner, and each of
 *  the outer x inner results is a sum over `along`, as a double.
 *   - MV_DEVICE_SUM_CHUNKS: the sum of each chunk of 512: 16 sums of every 16th element, and the sum of these. For
 *     inner == 1.
 *   - MV_DEVICE_SUM_PAIRS: pairwise sums of up to 512 neighbours. `rest`, or NULL: one value for each outer to begin with;
 *     a last group of less than 512 goes to `rest_out`.
 *   - MV_DEVICE_SUM_COLUMNS: in order, f64 with its rounding errors. For inner > 1.
 *   - MV_DEVICE_SUM_FINISH: out[i], of the dtype, from in[i], a double: an mv_tensor_reduce_op of `along` terms. */
enum mv_device_sum_stage { MV_DEVICE_SUM_CHUNKS, MV_DEVICE_SUM_PAIRS, MV_DEVICE_SUM_COLUMNS, MV_DEVICE_SUM_FINISH };
typedef struct mv_device_sum {
  void* out;
  const void *in, *rest;
  void* rest_out;
  uint64_t outer, along, inner;
  int32_t stage, op; /**< op: MV_NORM adds squares; FINISH takes their root or the mean */
  mv_dtype dtype;
} mv_device_sum;
/** Sums of integers, and extremes: each result folds up to 512 neighbours along `along`. Repeated until there is one.
 *  Sums are i64 and wrap. Extremes keep their dtype, and the positions of the first extreme or the first NaN. */
typedef struct mv_device_fold {
  void* out;
  int64_t* positions_out; /**< NULL for sums */
  const void* in;
  const int64_t* positions; /**< NULL: the positions along `along` */
  uint64_t outer, along, inner;
  int32_t op;
  mv_dtype dtype;
} mv_device_fold;

/** XX(NUMBER, the updater's name, its formula, elements that it takes at once, its most states, whether it has sums) */
#define MV_DEVICE_FORMULAS(XX)                                 \
  XX(SGD, "sgd", sgd, 1, 0, 0)                                 \
  XX(MOMENTUM, "momentum", momentum, 1, 1, 0)                  \
  XX(ADAGRAD, "adagrad", adagrad, 1, 1, 0)                     \
  XX(FTRL, "ftrl", ftrl, 1, 2, 0)                              \
  XX(DCASGD, "dcasgd", dcasgd, 1, 1, 0)                        \
  XX(MX_SGD, "mx.sgd", optimizer::sgd, 1, 1, 0)                \
  XX(MX_SIGNUM, "mx.signum", optimizer::signum, 1, 1, 0)       \
  XX(MX_FTML, "mx.ftml", optimizer::ftml, 1, 3, 0)             \
  XX(MX_LBSGD, "mx.lbsgd", optimizer::lbsgd, 1, 2, 1)          \
  XX(MX_DCASGD, "mx.dcasgd", optimizer::dcasgd, 1, 2, 0)       \
  XX(MX_NAG, "mx.nag", optimizer::nag, 1, 1, 0)                \
  XX(MX_SGLD, "mx.sgld", optimizer::sgld, 32, 0, 0)            \
  XX(MX_ADAM, "mx.adam", optimizer::adam, 1, 2, 0)             \
  XX(MX_ADAGRAD, "mx.adagrad", optimizer::adagrad, 1, 1, 0)    \
  XX(MX_RMSPROP, "mx.rmsprop", optimizer::rmsprop, 1, 3, 0)    \
  XX(MX_ADADELTA, "mx.adadelta", optimizer::adadelta, 1, 2, 0) \
  XX(MX_TEST, "mx.test", optimizer::test, 1, 1, 0)             \
  XX(MX_FTRL, "mx.ftrl", optimizer::ftrl, 1, 2, 0)             \
  XX(MX_ADAMAX, "mx.adamax", optimizer::adamax, 1, 2, 0)       \
  XX(MX_NADAM, "mx.nadam", optimizer::nadam, 1, 2, 0)          \
  XX(MX_ADAMW, "mx.adamw", optimizer::adamw, 1, 2, 0)          \
  XX(MX_LAMB, "mx.lamb", optimizer::lamb, 1, 2, 1)             \
  XX(MX_LION, "mx.lion", optimizer::lion, 1, 1, 0)

enum mv_device_formula {
#define XX(number, text, formula, batch, states, has_sums) MV_DEVICE_FORMULA_##number,
  MV_DEVICE_FORMULAS(XX)
#undef XX
};

#define MV_DEVICE_STATES 8
#define MV_DEVICE_NUMBERS 20
/** Elements of a tile: no kernel divides its work more finely. */
#define MV_DEVICE_TILE 4096

/** One tensor that an optimizer updates. The sums are computed by MV_DEVICE_MEASURE. */
typedef struct mv_device_key {
  void* values;
  const void* gradient;
  const void* backup; /**< dcasgd's, see MV_DEVICE_BACK_UP, or NULL */
  void* states[MV_DEVICE_STATES];
  uint64_t count;
  uint64_t first_tile;               /**< it has the tiles from this one on */
  uint64_t first;                    /**< the number of its first element in the tensor */
  uint64_t stream;                   /**< selects the random numbers */
  double numbers[MV_DEVICE_NUMBERS]; /**< parameters, or the numbers of this update */
  double sums[2];
} mv_device_key;
/** Updates any number of tensors in one launch: each array is read once and written once.
 *   - MV_DEVICE_APPLY: the update.
 *   - Before it, for formulas with sums: MV_DEVICE_MEASURE, which writes a pair of sums for each tile and the states, and
 *     MV_DEVICE_SUM_TILES, which makes those of each key. Their order depends on the count only, but is not the
 *     processor's.
 *  `tile_keys` tells the key of each tile. */
enum mv_device_update_stage { MV_DEVICE_APPLY, MV_DEVICE_MEASURE, MV_DEVICE_SUM_TILES };
typedef struct mv_device_update {
  mv_device_key* keys;
  const uint32_t* tile_keys;
  double* tile_sums; /**< MEASURE to SUM_TILES: 2 for each tile */
  uint64_t key_count, tiles;
  uint32_t formula;
  int32_t stage;
  mv_dtype dtype, gradient_dtype; /**< dtype: f32 or f64, also of the states; the gradient's: any float */
} mv_device_update;

/** The codecs 1bit (bits 1) and 2bit (bits 2, scale = threshold): a word of 32 bits for 32 or 16 floats. */
typedef struct mv_device_encode_bits {
  const void* gradient;
  float* residual;
  uint32_t* out;
  uint64_t count;
  float threshold, scale;
  uint32_t bits;
  mv_dtype gradient_dtype; /**< of codecs: f32, f16 or bf16 */
} mv_device_encode_bits;
typedef struct mv_device_decode_bits {
  const uint32_t* encoded;
  float* values;
  uint64_t count;
  float scale;
  uint32_t bits;
  int32_t adds;
} mv_device_decode_bits;
/** The codecs fp16 and bf16. They are decoded by MV_DEVICE_CAST, or added by MV_DEVICE_AXPY. */
typedef struct mv_device_encode_half {
  const void* gradient;
  float* residual;
  void* out;
  uint64_t count;
  mv_dtype dtype, gradient_dtype;
} mv_device_encode_half;
/** The codec int8. */
typedef struct mv_device_encode_int8 {
  const void* gradient;
  float *residual, *scales;
  int8_t* out;
  uint64_t count, block;
  mv_dtype gradient_dtype;
  int32_t reserved;
} mv_device_encode_int8;
typedef struct mv_device_decode_int8 {
  const int8_t* encoded;
  const float* scales;
  float* values;
  uint64_t count, block;
  int32_t adds;
} mv_device_decode_int8;

/** What the stages of MV_DEVICE_TOP_K tell each other. All 0 at first. */
typedef struct mv_device_top_k_state {
  uint64_t counts[2048]; /**< of magnitudes, by their next bits */
  uint64_t wanted;       /**< how many of those that begin with the bits found so far are sent */
  uint32_t found;        /**< the first bits of the least magnitude that is sent */
  uint32_t reserved;
} mv_device_top_k_state;
/** The codec topk: the k elements of residual + gradient with the greatest magnitudes, the first ones among equals, as k
 *  ascending indices and k floats. The least of these magnitudes is found in three digits of 11, 10 and 10 bits:
 *   - MV_DEVICE_TOP_K_ADD: adds the gradient to the residual, and counts the magnitudes for each first digit.
 *   - MV_DEVICE_TOP_K_COUNT: for digits 1 and 2: counts those that begin with the digits found so far.
 *   - MV_DEVICE_TOP_K_FIND: after each of these, finds the digit, and clears the counts.
 *   - MV_DEVICE_TOP_K_TILES: counts the greater and the equal magnitudes of each tile.
 *   - MV_DEVICE_TOP_K_PLACES: sums these counts over the tiles before each one.
 *   - MV_DEVICE_TOP_K_SEND: writes what is sent to its place, and sets its residual to 0. */
enum mv_device_top_k_stage {
  MV_DEVICE_TOP_K_ADD,
  MV_DEVICE_TOP_K_COUNT,
  MV_DEVICE_TOP_K_FIND,
  MV_DEVICE_TOP_K_TILES,
  MV_DEVICE_TOP_K_PLACES,
  MV_DEVICE_TOP_K_SEND
};
typedef struct mv_device_top_k {
  const void* gradient;
  float* residual;
  uint32_t* out;
  uint64_t count, k;
  mv_device_top_k_state* state;
  uint64_t* tiles; /**< a pair for each tile: the greater and the equal ones */
  int32_t stage;
  uint32_t digit;
  mv_dtype gradient_dtype;
  int32_t reserved;
} mv_device_top_k;
/** values[index] = the sent value, or += with `adds`. Indices beyond `count` are ignored. */
typedef struct mv_device_put_top_k {
  const uint32_t* encoded;
  float* values;
  uint64_t count, k;
  int32_t adds, reserved;
} mv_device_put_top_k;

/** Rows of one width: in one array, or, if `chunks` is not NULL, in chunks of 2^shift rows. Chunks may be in memory of
 *  the host that kernels access. */
typedef struct mv_device_rows {
  void* data;
  void* const* chunks;
  uint32_t shift, reserved;
} mv_device_rows;
/** No row. */
#define MV_DEVICE_NO_ROW UINT64_MAX
/** Rows of `width` elements. out row i = the sum of the rows from[starts[i]] .. from[starts[i + 1] - 1] of `in`, in this
 *  order; with starts NULL, row from[i], and unchanged if that is MV_DEVICE_NO_ROW. Halves are summed in f32 and rounded
 *  once. */
typedef struct mv_device_take {
  void* out;
  mv_device_rows in;
  const uint64_t *from, *starts;
  uint64_t rows, width;
  mv_dtype dtype;
} mv_device_take;
/** out row to[i] = in row i. No row is named twice. */
typedef struct mv_device_put {
  mv_device_rows out;
  const void* in;
  const uint64_t* to;
  uint64_t rows, width;
  mv_dtype dtype;
} mv_device_put;
/** MV_DEVICE_APPLY for some rows of a table, each named once: row i of the gradient is that of row rows[i]. Of formulas that take one element at once,
 *  with sums of 0. */
typedef struct mv_device_update_rows {
  mv_device_rows values, states[MV_DEVICE_STATES]; /**< of the dtype; a state without memory: the formula has fewer */
  const void* gradient;
  const void* backup; /**< dcasgd's, see MV_DEVICE_BACK_UP, or NULL: an array of all rows */
  const uint64_t* rows;
  uint64_t count, width;
  double numbers[MV_DEVICE_NUMBERS];
  uint32_t formula;
  mv_dtype dtype, gradient_dtype; /**< as in mv_device_update */
  int32_t reserved;
} mv_device_update_rows;
/** out row rows[i], or with `rows` NULL row i, becomes that of `in` with all bits inverted: the form of an update's backup. Of both, `width` is the
 *  number of 32-bit words of a row. No row is named twice. */
typedef struct mv_device_back_up {
  uint32_t* out;
  const uint32_t* in;
  const uint64_t* rows;
  uint64_t count, width;
} mv_device_back_up;
/** out[i] = 1 if row i holds anything but zeros of either sign, else 0. */
typedef struct mv_device_used {
  uint8_t* out;
  const void* in;
  uint64_t rows, width;
  mv_dtype dtype;
} mv_device_used;

/** *found becomes 1 if any element is NaN or infinite. Floats only. */
typedef struct mv_device_nonfinite {
  uint32_t* found;
  const void* in;
  uint64_t count;
  mv_dtype dtype;
  int32_t reserved;
} mv_device_nonfinite;

#define MV_DEVICE_EMPTY_WORD 0
#define MV_DEVICE_ERASED_WORD UINT32_MAX
/** A hash index, from ids to the numbers of rows: 2^bits words in open addressing with linear probing. A word is
 *  MV_DEVICE_EMPTY_WORD or MV_DEVICE_ERASED_WORD, or has the row's number plus 1 in its `bits` low bits and those of the id's hash, base::mix(), in
 *  the others. The upper bits of the hash tell where the search begins. `ids`, of width 1, has the id of each row. */
typedef struct mv_device_index {
  uint32_t* words;
  uint64_t bits;
  mv_device_rows ids;
} mv_device_index;
/** rows[i] = the row of ids[i], or MV_DEVICE_NO_ROW. *misses, unless it is NULL, becomes 1 if there is any of these. Unless
 *  used_at.chunks is NULL, the row of used_at with this number, which has width 1 and u32, becomes `now`. */
typedef struct mv_device_lookup {
  mv_device_index index;
  const int64_t* ids;
  uint64_t *rows, *misses;
  uint64_t count;
  mv_device_rows used_at;
  uint32_t now, reserved;
} mv_device_lookup;
/** Ids that the index does not have, each once, get the rows rows[i], which no id has. There are at least as many empty
 *  words as there are ids, and one more. */
typedef struct mv_device_insert {
  mv_device_index index;
  const int64_t* ids;
  const uint64_t* rows;
  uint64_t count;
} mv_device_insert;
/** Erases ids, each once, whose rows are rows[i]. */
typedef struct mv_device_erase {
  mv_device_index index;
  const int64_t* ids;
  const uint64_t* rows;
  uint64_t count;
} mv_device_erase;
/** Enters all rows of the words `from`, 2^bits, into an index that is empty and has room for them. */
typedef struct mv_device_reindex {
  mv_device_index index;
  const uint32_t* from;
  uint64_t bits;
} mv_device_reindex;
/** out row to[i], or with `to` NULL row i, becomes the initial values of ids[i]: see InitialValues in core/shard/keyed/. With
 *  `unless`, only where unless[i] is MV_DEVICE_NO_ROW. `value` is for range 0, an element in the dtype's own bits. */
typedef struct mv_device_initial {
  mv_device_rows out;
  const int64_t* ids;
  const uint64_t *to, *unless;
  uint64_t rows, width;
  double initial, range;
  uint64_t seed; /**< mixed */
  uint8_t value[8];
  mv_dtype dtype;
} mv_device_initial;

#endif
