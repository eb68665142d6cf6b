/* Groups: on every rank, results equal those of a loop over all ranks, bit by bit; every rank learns of failures. */
#include <math.h>
#include <stdlib.h>

#include "nodes.h"

enum { kNodes = 4 };
/** NULL: shared memory. With an argument: messages, because tests that tamper with messages need them. */
static const char* transport = NULL;

static mv_group open_all(const struct member* self) {
  mv_group group = 0;
  expect_ok(mv_group_open(self->node, NULL, 0, &group));
  return group;
}

/* ------------------------------------------------------------ each rank's values, exact in every dtype */

static double value_of(int rank, uint64_t element) { return (double)((element * 7 + (uint64_t)rank * 3) % 5) + 1; }

static double expected(int reduction, int nodes, uint64_t element) {
  double result = value_of(0, element);
  for (int rank = 1; rank < nodes; ++rank) {
    const double value = value_of(rank, element);
    switch (reduction) {
      case MV_REDUCE_PROD:
        result *= value;
        break;
      case MV_REDUCE_MIN:
        result = fmin(result, value);
        break;
      case MV_REDUCE_MAX:
        result = fmax(result, value);
        break;
      default:
        result += value;
    }
  }
  return reduction == MV_REDUCE_AVG ? result / nodes : result;
}

static size_t size_of(mv_dtype dtype) { return dtype == MV_F64 || dtype == MV_I64 ? 8 : dtype == MV_F32 || dtype == MV_I32 ? 4 : 1; }

static void put(void* values, mv_dtype dtype, uint64_t i, double value) {
  switch (dtype) {
    case MV_F32:
      ((float*)values)[i] = (float)value;
      break;
    case MV_F64:
      ((double*)values)[i] = value;
      break;
    case MV_I32:
      ((int32_t*)values)[i] = (int32_t)value;
      break;
    case MV_I64:
      ((int64_t*)values)[i] = (int64_t)value;
      break;
    case MV_U8:
      ((uint8_t*)values)[i] = (uint8_t)value;
      break;
    default:
      ((int8_t*)values)[i] = (int8_t)value;
  }
}

static double at(const void* values, mv_dtype dtype, uint64_t i) {
  switch (dtype) {
    case MV_F32:
      return ((const float*)values)[i];
    case MV_F64:
      return ((const double*)values)[i];
    case MV_I32:
      return ((const int32_t*)values)[i];
    case MV_I64:
      return (double)((const int64_t*)values)[i];
    case MV_U8:
      return ((const uint8_t*)values)[i];
    default:
      return ((const int8_t*)values)[i];
  }
}

static void* filled(mv_dtype dtype, int rank, uint64_t count) {
  void* values = malloc(count * size_of(dtype) + 1);
  assert_non_null(values);
  for (uint64_t i = 0; i < count; ++i) put(values, dtype, i, value_of(rank, i));
  return values;
}

static void expect_reduced(const void* values, mv_dtype dtype, uint64_t count, int reduction, int nodes) {
  for (uint64_t i = 0; i < count; ++i)
    assert_true(at(values, dtype, i) ==
                (dtype == MV_F32 ? (float)expected(reduction, nodes, i) : expected(reduction, nodes, i)));
}

/* ------------------------------------------------------------ results */

static void reduces_everything(struct member* self) {
  static const mv_dtype kDtypes[] = {MV_F32, MV_F64, MV_I32, MV_I64, MV_U8, MV_I8};
  static const uint64_t kCounts[] = {0, 1, 3, 1000, 300001};
  const mv_group group = open_all(self);
  for (size_t d = 0; d < COUNT_OF(kDtypes); ++d) {
    for (int reduction = MV_REDUCE_SUM; reduction <= MV_REDUCE_AVG; ++reduction) {
      if (reduction == MV_REDUCE_AVG && d > 1) continue;
      if (reduction == MV_REDUCE_PROD && size_of(kDtypes[d]) == 1) continue; /* wraps */
      for (size_t c = 0; c < COUNT_OF(kCounts); ++c) {
        if (kCounts[c] > 1000 && (d > 1 || reduction == MV_REDUCE_PROD)) continue;
        void* const in = filled(kDtypes[d], self->index, kCounts[c]);
        void* const out = filled(kDtypes[d], 9, kCounts[c]);
        expect_ok(mv_allreduce(group, in, out, kCounts[c], kDtypes[d], reduction, NULL));
        expect_reduced(out, kDtypes[d], kCounts[c], reduction, self->nodes);
        for (uint64_t i = 0; i < kCounts[c]; ++i) assert_true(at(in, kDtypes[d], i) == value_of(self->index, i));
        expect_ok(mv_allreduce(group, NULL, in, kCounts[c], kDtypes[d], reduction, NULL));
        expect_reduced(in, kDtypes[d], kCounts[c], reduction, self->nodes);
        free(in);
        free(out);
      }
    }
  }
  expect_ok(mv_group_close(group));
}
static void all_dtypes_reductions_and_sizes(void** state) {
  (void)state;
  for (int nodes = 1; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, reduces_everything);
}

static void makes_the_others(struct member* self) {
  enum { kCount = 70001 };
  const mv_group group = open_all(self);
  float* const values = filled(MV_F32, self->index, kCount * (uint64_t)self->nodes);
  float* const result = malloc(sizeof(float) * kCount * (size_t)self->nodes);
  assert_non_null(result);
  for (int root = 0; root < self->nodes; ++root) {
    const int here = self->index == root;
    expect_ok(mv_reduce(group, values, here ? result : NULL, kCount, MV_F32, MV_REDUCE_SUM, root, NULL));
    if (here) expect_reduced(result, MV_F32, kCount, MV_REDUCE_SUM, self->nodes);
    for (uint64_t i = 0; i < kCount; ++i) result[i] = here ? (float)i : -1;
    expect_ok(mv_broadcast(group, result, kCount, MV_F32, root, NULL));
    for (uint64_t i = 0; i < kCount; ++i) assert_true(result[i] == (float)i);
    expect_ok(mv_group_barrier(group, NULL));
  }
  expect_ok(mv_allgather(group, values, kCount, result, MV_F32, NULL));
  for (int rank = 0; rank < self->nodes; ++rank)
    for (uint64_t i = 0; i < kCount; ++i) assert_true(result[(size_t)rank * kCount + i] == (float)value_of(rank, i));
  expect_ok(mv_reduce_scatter(group, values, result, kCount, MV_F32, MV_REDUCE_MAX, NULL));
  for (uint64_t i = 0; i < kCount; ++i)
    assert_true(result[i] == (float)expected(MV_REDUCE_MAX, self->nodes, (uint64_t)self->index * kCount + i));
  float* const own = values + (size_t)self->index * kCount;
  expect_ok(mv_reduce_scatter(group, values, own, kCount, MV_F32, MV_REDUCE_MAX, NULL));
  assert_memory_equal(own, result, sizeof(float) * kCount);
  free(values);
  free(result);
  mv_group_info info = MV_GROUP_INFO_INIT;
  expect_ok(mv_group_describe(group, &info));
  assert_int_equal(info.rank, self->index);
  assert_int_equal(info.ranks, self->nodes);
  assert_int_equal(info.hosts, 1);
  assert_int_equal(info.operations, 3 * self->nodes + 3);
  assert_int_equal(info.broken, MV_OK);
  if (strcmp(info.transport, "messages") == 0) assert_non_null(strstr(info.tuning, "by costs of messages: inproc="));
  mv_group_info older = MV_GROUP_INFO_INIT; /* of a program that knows no tuning */
  older.size = offsetof(mv_group_info, tuning);
  memset(older.tuning, 'x', sizeof older.tuning);
  expect_ok(mv_group_describe(group, &older));
  assert_true(older.rank == info.rank && older.tuning[0] == 'x');
  expect_ok(mv_group_close(group));
}
static void reduce_broadcast_allgather_and_reduce_scatter(void** state) {
  (void)state;
  for (int nodes = 2; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, makes_the_others);
}

/** The value of element i that rank `from` has for rank `to`. */
static int64_t piece(int from, int to, uint64_t i) { return from * 1000000 + to * 10000 + (int64_t)(i % 9973); }

static void gathers_and_scatters(struct member* self) {
  static const uint64_t kCounts[] = {0, 1, 100, 80001};
  const mv_group group = open_all(self);
  for (size_t c = 0; c < COUNT_OF(kCounts); ++c) {
    const uint64_t count = kCounts[c], ranks = (uint64_t)self->nodes;
    int64_t* const mine = malloc(8 * count + 1);
    int64_t* const all = malloc(8 * count * ranks + 1);
    assert_true(mine != NULL && all != NULL);
    for (int root = 0; root < self->nodes; ++root) {
      const int here = self->index == root;
      for (uint64_t i = 0; i < count; ++i) mine[i] = piece(self->index, root, i);
      expect_ok(mv_gather(group, mine, here ? all : NULL, count, MV_I64, root, NULL));
      for (uint64_t i = 0; here && i < count * ranks; ++i) assert_true(all[i] == piece((int)(i / count), root, i % count));
      for (uint64_t i = 0; i < count; ++i) assert_true(mine[i] == piece(self->index, root, i));
      for (uint64_t i = 0; i < count * ranks; ++i) all[i] = here ? piece(root, (int)(i / count), i % count) : -1;
      expect_ok(mv_scatter(group, here ? all : NULL, mine, count, MV_I64, root, NULL));
      for (uint64_t i = 0; i < count; ++i) assert_true(mine[i] == piece(root, self->index, i));
      /* on the root, in its own part */
      int64_t* const own = here ? all + (uint64_t)root * count : mine;
      expect_ok(mv_scatter(group, all, own, count, MV_I64, root, NULL));
      for (uint64_t i = 0; i < count; ++i) assert_true(own[i] == piece(root, self->index, i));
      expect_ok(mv_gather(group, own, all, count, MV_I64, root, NULL));
      for (uint64_t i = 0; here && i < count * ranks; ++i) assert_true(all[i] == piece(root, (int)(i / count), i % count));
    }
    free(mine);
    free(all);
  }
  uint8_t bytes[kNodes] = {0}, byte = (uint8_t)(10 + self->index);
  expect_ok(mv_gather(group, &byte, bytes, 1, MV_RAW, 0, NULL));
  for (int rank = 0; self->index == 0 && rank < self->nodes; ++rank) assert_int_equal(bytes[rank], 10 + rank);
}
static void a_gather_collects_and_a_scatter_distributes(void** state) {
  (void)state;
  for (int nodes = 1; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, gathers_and_scatters);
}

/** The elements from rank `from` to rank `to`: some pairs exchange nothing, some much. */
static uint64_t pair_count(int from, int to, int turn) { return (uint64_t)((from * 5 + to * 3 + turn) % 4) * (turn % 2 == 0 ? 3 : 30011); }

static void exchanges_with_all(struct member* self) {
  static const uint64_t kCounts[] = {0, 1, 50, 70001};
  const mv_group group = open_all(self);
  const int nodes = self->nodes;
  for (size_t c = 0; c < COUNT_OF(kCounts); ++c) {
    const uint64_t count = kCounts[c];
    int64_t* const send = malloc(8 * count * (uint64_t)nodes + 1);
    int64_t* const receive = malloc(8 * count * (uint64_t)nodes + 1);
    assert_true(send != NULL && receive != NULL);
    for (uint64_t i = 0; i < count * (uint64_t)nodes; ++i) send[i] = piece(self->index, (int)(i / count), i % count);
    expect_ok(mv_alltoall(group, send, receive, count, MV_I64, NULL));
    for (uint64_t i = 0; i < count * (uint64_t)nodes; ++i) {
      assert_true(receive[i] == piece((int)(i / count), self->index, i % count));
      assert_true(send[i] == piece(self->index, (int)(i / count), i % count));
    }
    free(send);
    free(receive);
  }
  for (int turn = 0; turn < 4; ++turn) {
    uint64_t sends[kNodes], receives[kNodes], sent = 0, received = 0;
    for (int rank = 0; rank < nodes; ++rank) {
      sent += sends[rank] = pair_count(self->index, rank, turn);
      received += receives[rank] = pair_count(rank, self->index, turn);
    }
    int64_t* const send = malloc(8 * sent + 1);
    int64_t* const receive = malloc(8 * received + 1);
    assert_true(send != NULL && receive != NULL);
    for (int64_t rank = 0, at = 0; rank < nodes; ++rank)
      for (uint64_t i = 0; i < sends[rank]; ++i) send[at++] = piece(self->index, (int)rank, i);
    expect_ok(mv_alltoall_counts(group, send, sends, receive, receives, MV_I64, NULL));
    for (int64_t rank = 0, at = 0; rank < nodes; ++rank)
      for (uint64_t i = 0; i < receives[rank]; ++i) assert_true(receive[at++] == piece((int)rank, self->index, i));
    free(send);
    free(receive);
  }
}
static void an_alltoall_exchanges_a_part_of_each_pair(void** state) {
  (void)state;
  for (int nodes = 1; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, exchanges_with_all);
}

static void sends_around(struct member* self) {
  static const uint64_t kCounts[] = {0, 1, 5000, 300007};
  const mv_group group = open_all(self);
  const int next = (self->index + 1) % self->nodes, previous = (self->index + self->nodes - 1) % self->nodes;
  for (size_t c = 0; c < COUNT_OF(kCounts); ++c) {
    const uint64_t count = kCounts[c];
    int64_t* const mine = malloc(8 * count + 1);
    int64_t* const theirs = malloc(8 * count + 1);
    assert_true(mine != NULL && theirs != NULL);
    for (uint64_t i = 0; i < count; ++i) mine[i] = piece(self->index, next, i);
    mv_request sent = 0;
    mv_call_options later = MV_CALL_OPTIONS_INIT;
    later.flags = MV_ASYNC;
    later.request = &sent;
    int64_t source = -1;
    expect_ok(mv_send(group, mine, count, MV_I64, next, -7, &later));
    expect_ok(mv_recv(group, theirs, count, MV_I64, c % 2 == 0 ? previous : MV_ANY_RANK, -7, &source, NULL));
    expect_ok(mv_request_wait(sent, 0));
    assert_int_equal(source, previous);
    for (uint64_t i = 0; i < count; ++i) assert_true(theirs[i] == piece(previous, self->index, i));
    free(mine);
    free(theirs);
  }
  /* A short message does not wait for its receiver. */
  enum { kShort = (64 << 10) / 8 };
  int64_t* const mine = malloc(8 * kShort);
  int64_t* const theirs = malloc(8 * kShort);
  assert_true(mine != NULL && theirs != NULL);
  for (uint64_t i = 0; i < kShort; ++i) mine[i] = piece(self->index, next, i);
  expect_ok(mv_send(group, mine, kShort, MV_I64, next, 0, NULL));
  for (uint64_t i = 0; i < kShort; ++i) mine[i] = -1; /* the caller's again */
  expect_ok(mv_recv(group, theirs, kShort, MV_I64, previous, 0, NULL, NULL));
  for (uint64_t i = 0; i < kShort; ++i) assert_true(theirs[i] == piece(previous, self->index, i));
  free(mine);
  free(theirs);
  /* By tag, whatever the order of the calls; with one tag in order. Collectives in between do not matter. */
  enum { kEach = 20 };
  int64_t values[2][kEach], found = 0;
  for (int i = 0; i < kEach; ++i) {
    for (int tag = 0; tag < 2; ++tag) {
      values[tag][i] = piece(self->index, tag, (uint64_t)i);
      expect_ok(mv_send(group, &values[tag][i], 1, MV_I64, next, tag, NULL)); /* small: does not wait */
    }
    if (i % 5 == 0) expect_ok(mv_group_barrier(group, NULL));
  }
  for (int tag = 1; tag >= 0; --tag)
    for (int i = 0; i < kEach; ++i) {
      expect_ok(mv_recv(group, &found, 1, MV_I64, previous, tag, NULL, NULL));
      assert_true(found == piece(previous, tag, (uint64_t)i));
    }
  expect_ok(mv_group_barrier(group, NULL));
  expect_ok(mv_group_close(group));
}
static void sends_are_received_by_tag_and_in_order(void** state) {
  (void)state;
  for (int nodes = 2; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, sends_around);
}

/** Long messages that are received in another order than sent; receives that wait side by side. */
static void sends_many_at_once(struct member* self) {
  enum { kMessages = 6, kCount = 200001 };
  const mv_group group = open_all(self);
  const int other = 1 - self->index;
  int64_t* values[2 * kMessages];
  mv_request requests[2 * kMessages];
  for (int i = 0; i < 2 * kMessages; ++i) {
    const int tag = i < kMessages ? i : 2 * kMessages - 1 - i;
    mv_call_options later = MV_CALL_OPTIONS_INIT;
    later.flags = MV_ASYNC;
    later.request = &requests[i];
    values[i] = malloc(8 * kCount);
    assert_non_null(values[i]);
    for (uint64_t k = 0; k < kCount; ++k) values[i][k] = i < kMessages ? piece(self->index, tag, k) : -1;
    if (i < kMessages)
      expect_ok(mv_send(group, values[i], kCount, MV_I64, other, tag, &later));
    else
      expect_ok(mv_recv(group, values[i], kCount, MV_I64, other, tag, NULL, &later));
  }
  for (int i = 2 * kMessages - 1; i >= 0; --i) {
    expect_ok(mv_request_wait(requests[i], 0));
    for (uint64_t k = 0; i >= kMessages && k < kCount; ++k) assert_true(values[i][k] == piece(other, 2 * kMessages - 1 - i, k));
    free(values[i]);
  }
  expect_ok(mv_group_barrier(group, NULL));
}
static void many_transfers_run_side_by_side(void** state) {
  (void)state;
  run_nodes(2, transport, sends_many_at_once);
}

static void runs_all_kinds_at_once(struct member* self) {
  enum { kCount = 5000, kKinds = 5 };
  const mv_group group = open_all(self);
  const uint64_t ranks = (uint64_t)self->nodes;
  int64_t *in[kKinds], *out[kKinds];
  uint64_t counts[kNodes];
  mv_request requests[kKinds];
  for (int rank = 0; rank < self->nodes; ++rank) counts[rank] = kCount;
  for (int kind = 0; kind < kKinds; ++kind) {
    mv_call_options later = MV_CALL_OPTIONS_INIT;
    later.flags = MV_ASYNC;
    later.request = &requests[kind];
    in[kind] = malloc(8 * kCount * ranks);
    out[kind] = malloc(8 * kCount * ranks);
    assert_true(in[kind] != NULL && out[kind] != NULL);
    for (uint64_t i = 0; i < kCount * ranks; ++i) in[kind][i] = piece(self->index, (int)(i / kCount), i % kCount);
    expect_ok(kind == 0   ? mv_alltoall(group, in[kind], out[kind], kCount, MV_I64, &later)
              : kind == 1 ? mv_allreduce(group, in[kind], out[kind], kCount, MV_I64, MV_REDUCE_MAX, &later)
              : kind == 2 ? mv_gather(group, in[kind], out[kind], kCount, MV_I64, 1, &later)
              : kind == 3 ? mv_scatter(group, in[kind], out[kind], kCount, MV_I64, 1, &later)
                          : mv_alltoall_counts(group, in[kind], counts, out[kind], counts, MV_I64, &later));
  }
  int64_t first = 1;
  expect_ok(mv_allreduce(group, NULL, &first, 1, MV_I64, MV_REDUCE_SUM, NULL)); /* behind the others */
  assert_true(first == (int64_t)ranks);
  for (int kind = 0; kind < kKinds; ++kind) {
    expect_ok(mv_request_wait(requests[kind], 0));
    const uint64_t made = kind == 1 || kind == 3 ? kCount : kind == 2 && self->index != 1 ? 0 : kCount * ranks;
    for (uint64_t i = 0; i < made; ++i) {
      const int part = (int)(i / kCount);
      const int64_t wanted = kind == 1   ? piece(self->nodes - 1, 0, i)
                             : kind == 2 ? piece(part, 0, i % kCount)
                             : kind == 3 ? piece(1, self->index, i)
                                         : piece(part, self->index, i % kCount);
      assert_true(out[kind][i] == wanted);
    }
    free(in[kind]);
    free(out[kind]);
  }
}
static void asynchronous_ones_of_all_kinds_keep_their_order(void** state) {
  (void)state;
  for (int nodes = 2; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, runs_all_kinds_at_once);
}

static void fuses_many(struct member* self) {
  enum { kArrays = 100 };
  const mv_group group = open_all(self);
  mv_array arrays[kArrays];
  for (size_t i = 0; i < kArrays; ++i) {
    const mv_dtype dtype = i % 10 == 3 ? MV_I64 : i % 10 == 7 ? MV_F64 : MV_F32;
    const uint64_t count = i == 50 ? 200000 : i % 9 == 0 ? 0 : i * 13;
    arrays[i] = (mv_array){filled(dtype, self->index, count), count, dtype, 0};
  }
  uint64_t contributors = 0;
  expect_ok(mv_allreduce_many(group, NULL, arrays, kArrays, MV_REDUCE_SUM, 0, &contributors, NULL));
  assert_int_equal(contributors, self->nodes);
  for (size_t i = 0; i < kArrays; ++i) {
    expect_reduced(arrays[i].data, arrays[i].dtype, arrays[i].count, MV_REDUCE_SUM, self->nodes);
    free(arrays[i].data);
  }
}
static void many_arrays_are_one_operation(void** state) {
  (void)state;
  run_nodes(3, transport, fuses_many);
}

static void rounds_halves(struct member* self) {
  const mv_group group = open_all(self);
  uint16_t ones[5], bits[5];
  for (size_t i = 0; i < 5; ++i) ones[i] = 0x3c00, bits[i] = 0x3f80; /* 1 in binary16 and in bfloat16 */
  expect_ok(mv_allreduce(group, NULL, ones, 5, MV_F16, MV_REDUCE_SUM, NULL));
  expect_ok(mv_allreduce(group, NULL, bits, 5, MV_BF16, MV_REDUCE_AVG, NULL));
  for (size_t i = 0; i < 5; ++i) {
    assert_int_equal(ones[i], 0x4400); /* 4 */
    assert_int_equal(bits[i], 0x3f80);
  }
}
static void halves_are_summed_as_floats(void** state) {
  (void)state;
  run_nodes(4, transport, rounds_halves);
}

static void runs_several_at_once(struct member* self) {
  enum { kAtOnce = 20, kCount = 5000 };
  const mv_group group = open_all(self);
  float* values[kAtOnce];
  mv_request requests[kAtOnce];
  for (int i = 0; i < kAtOnce; ++i) {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.flags = MV_ASYNC;
    options.request = &requests[i];
    values[i] = filled(MV_F32, self->index, kCount);
    expect_ok(mv_allreduce(group, NULL, values[i], kCount, MV_F32, 1 + i % 4, &options));
  }
  for (int i = kAtOnce - 1; i >= 0; --i) {
    expect_ok(mv_request_wait(requests[i], 0));
    expect_reduced(values[i], MV_F32, kCount, 1 + i % 4, self->nodes);
    free(values[i]);
  }
}
static void asynchronous_ones_run_side_by_side(void** state) {
  (void)state;
  run_nodes(3, transport, runs_several_at_once);
}

static void halves_the_world(struct member* self) {
  const int64_t mine[2] = {self->index % 2 + 2, self->index % 2}; /* in any order */
  int64_t members[4];
  uint64_t count = 0;
  mv_group half = 0, all = 0, host = 0;
  expect_ok(mv_group_open(self->node, mine, 2, &half));
  expect_ok(mv_group_open(self->node, NULL, 0, &all));
  expect_ok(mv_group_open_host(self->node, &host));
  expect_ok(mv_group_members(half, members, 4, &count));
  assert_int_equal(count, 2);
  assert_int_equal(members[0], self->index % 2);
  float value = (float)(1 << self->index);
  expect_ok(mv_allreduce(half, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(value == (float)(self->index % 2 == 0 ? 5 : 10));
  expect_ok(mv_allreduce(all, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(value == 30);
  expect_ok(mv_allreduce(host, NULL, &value, 1, MV_F32, MV_REDUCE_MAX, NULL));
  assert_true(value == 30);
  const int64_t others[1] = {(self->index + 1) % 4}, twice[2] = {self->index, self->index}, nobody[2] = {self->index, 99};
  expect_error(mv_group_open(self->node, others, 1, &half), MV_EINVAL, "is not in the list");
  expect_error(mv_group_open(self->node, twice, 2, &half), MV_EINVAL, "twice");
  expect_error(mv_group_open(self->node, nobody, 2, &half), MV_EINVAL, "99 is not a worker");
  expect_error(mv_group_members(all, members, 1, &count), MV_EINVAL, "4 ranks");
}
static void groups_of_some_workers(void** state) {
  (void)state;
  run_nodes(4, transport, halves_the_world);
}

/* ------------------------------------------------------------ arguments */

static void bad_arguments(void** state) {
  (void)state;
  mv_group group = 0;
  float value = 1;
  int32_t number = 1;
  expect_ok(mv_group_open(0, NULL, 0, &group));
  expect_error(mv_allreduce(group, NULL, &value, 1, MV_F32, 6, NULL), MV_EINVAL, "6 is not an mv_reduction");
  expect_error(mv_allreduce(group, NULL, NULL, 1, MV_F32, 1, NULL), MV_EINVAL, "data is NULL");
  expect_error(mv_allreduce(group, NULL, &value, 1, 77, 1, NULL), MV_EINVAL, "77 is not an mv_dtype");
  expect_error(mv_allreduce(group, NULL, &value, 4, MV_RAW, 1, NULL), MV_EDTYPE, "MV_RAW");
  expect_error(mv_allreduce(group, NULL, &number, 1, MV_I32, MV_REDUCE_AVG, NULL), MV_EDTYPE, "i32 values can't be averaged");
  expect_error(mv_reduce(group, &value, &value, 1, MV_F32, 1, 1, NULL), MV_EINVAL, "root 1");
  expect_error(mv_broadcast(group, &value, 1, MV_F32, -1, NULL), MV_EINVAL, "root -1");
  expect_error(mv_allreduce_many(group, NULL, NULL, 1, 1, 0, NULL, NULL), MV_EINVAL, "arrays is NULL");
  expect_error(mv_allreduce_many(group, NULL, NULL, 0, 1, 2, NULL, NULL), MV_EINVAL, "mv_group_flag");
  expect_error(mv_allreduce(1234, NULL, &value, 1, MV_F32, 1, NULL), MV_EHANDLE, "1234");
  float row[6] = {1, 2, 3, 4, 5, 6};
  expect_error(mv_allreduce(group, row, row + 1, 4, MV_F32, 1, NULL), MV_EINVAL, "overlap");
  const mv_array thrice[] = {{row, 3, MV_F32, 0}, {row + 4, 1, MV_F32, 0}, {row + 2, 2, MV_F32, 0}, {NULL, 0, MV_F32, 0}};
  expect_error(mv_allreduce_many(group, NULL, thrice, 4, 1, 0, NULL, NULL), MV_EINVAL, "arrays 0 and 2 overlap");
  const mv_array same[] = {thrice[0], thrice[0]}, apart[] = {{row + 3, 3, MV_F32, 0}, {row, 3, MV_F32, 0}};
  expect_error(mv_allreduce_many(group, NULL, same, 2, 1, 0, NULL, NULL), MV_EINVAL, "arrays 0 and 1 overlap");
  expect_error(mv_allreduce_many(group, same, apart, 2, 1, 0, NULL, NULL), MV_EINVAL, "arrays 0 and 1 overlap");
  expect_ok(mv_allreduce_many(group, NULL, apart, 2, 1, 0, NULL, NULL));
  float sums[6];
  const mv_array out[] = {{sums, 3, MV_F32, 0}, {sums + 3, 3, MV_F32, 0}};
  expect_ok(mv_allreduce_many(group, same, out, 2, 1, 0, NULL, NULL)); /* inputs may be the same */
  assert_true(sums[0] == row[0] && sums[3] == row[0]);
  expect_ok(mv_broadcast_many(group, same, 2, 0, NULL));
  expect_error(mv_allreduce(group, row + 3, row, 4, MV_F32, 1, NULL), MV_EINVAL, "overlap");
  expect_error(mv_allgather(group, row + 1, 4, row, MV_F32, NULL), MV_EINVAL, "overlap");
  uint64_t one[1] = {1}, two[1] = {2};
  expect_error(mv_gather(group, row + 1, row, 4, MV_F32, 0, NULL), MV_EINVAL, "overlap");
  expect_error(mv_gather(group, row, NULL, 4, MV_F32, 0, NULL), MV_EINVAL, "data is NULL");
  expect_error(mv_gather(group, row, row, 4, MV_F32, 1, NULL), MV_EINVAL, "root 1");
  expect_error(mv_scatter(group, NULL, row, 4, MV_F32, 0, NULL), MV_EINVAL, "data is NULL");
  expect_error(mv_scatter(group, row, row, 4, MV_F32, -1, NULL), MV_EINVAL, "root -1");
  expect_error(mv_scatter(group, row, row + 3, UINT64_MAX, MV_F32, 0, NULL), MV_EINVAL, "count is");
  expect_error(mv_alltoall(group, row, row, 1, MV_F32, NULL), MV_EINVAL, "overlap");
  expect_error(mv_alltoall(group, row, NULL, 1, MV_F32, NULL), MV_EINVAL, "data is NULL");
  expect_error(mv_alltoall(group, row, row + 1, 1, 77, NULL), MV_EINVAL, "77 is not an mv_dtype");
  expect_error(mv_alltoall_counts(group, row, NULL, row + 3, one, MV_F32, NULL), MV_EINVAL, "send_counts is NULL");
  expect_error(mv_alltoall_counts(group, row, one, row + 3, two, MV_F32, NULL), MV_EDISAGREE, "rank 0 sends 1 elements to rank 0, which receives 2");
  expect_ok(mv_alltoall_counts(group, row, two, row + 3, two, MV_F32, NULL));
  assert_true(row[3] == row[0] && row[4] == row[1]);
  expect_error(mv_send(group, row, 1, MV_F32, 0, 0, NULL), MV_EINVAL, "this rank itself");
  expect_error(mv_send(group, row, 1, MV_F32, 1, 0, NULL), MV_EINVAL, "1 is not a rank of a group of 1");
  expect_error(mv_send(group, row, 1, MV_F32, -1, 0, NULL), MV_EINVAL, "-1 is not a rank");
  expect_error(mv_recv(group, row, 1, MV_F32, MV_ANY_RANK, 0, NULL, NULL), MV_EINVAL, "the only one");
  expect_error(mv_recv(group, row, 1, MV_F32, -2, 0, NULL, NULL), MV_EINVAL, "-2 is not a rank");
  expect_error(mv_recv(group, NULL, 1, MV_F32, 1, 0, NULL, NULL), MV_EINVAL, "1 is not a rank");
  expect_ok(mv_allreduce(group, row, row + 3, 3, MV_F32, 1, NULL));
  expect_ok(mv_allreduce(group, row, row, 6, MV_F32, 1, NULL));
  expect_ok(mv_broadcast(group, &value, 4, MV_RAW, 0, NULL));
  expect_ok(mv_group_close(group));
  expect_error(mv_group_barrier(group, NULL), MV_EHANDLE, "closed group");
}

/* ------------------------------------------------------------ ranks that disagree */

static void disagrees(struct member* self) {
  const mv_group group = open_all(self);
  float values[100] = {0};
  const int odd = self->index == 1;
  expect_error(mv_allreduce(group, NULL, values, odd ? 50 : 100, MV_F32, MV_REDUCE_SUM, NULL), MV_EDISAGREE, "50 f32");
  expect_error(odd ? mv_group_barrier(group, NULL) : mv_allreduce(group, NULL, values, 10, MV_F32, MV_REDUCE_SUM, NULL), MV_EDISAGREE, "barrier");
  expect_error(mv_reduce(group, values, values, 10, MV_F32, MV_REDUCE_SUM, self->index, NULL), MV_EDISAGREE, "reduce");
  values[0] = 1;
  expect_ok(mv_allreduce(group, NULL, values, 100, MV_F32, MV_REDUCE_SUM, NULL)); /* they are in step nevertheless */
  assert_true(values[0] == (float)self->nodes);
  /* Both are roots, which may finish before they learn of each other. */
  const mv_status first = mv_broadcast(group, values, 10, MV_F32, odd ? 1 : 0, NULL);
  if (first == MV_OK) expect_error(mv_group_barrier(group, NULL), MV_EDISAGREE, "broadcast of 10 f32 from rank 1");
  else assert_int_equal(first, MV_EDISAGREE);
}
static void ranks_that_disagree_are_named(void** state) {
  (void)state;
  run_nodes(2, transport, disagrees);
}

static void disagrees_on_the_others(struct member* self) {
  const mv_group group = open_all(self);
  int64_t values[8] = {0}, results[8];
  const int odd = self->index == 1;
  expect_error(mv_alltoall(group, values, results, odd ? 1 : 2, MV_I64, NULL), MV_EDISAGREE, "operation 1 of the group: ");
  assert_non_null(strstr(mv_last_error(), "alltoall of 2 i64"));
  const mv_status other = odd ? mv_alltoall(group, values, results, 1, MV_I64, NULL) : mv_allgather(group, values, 1, results, MV_I64, NULL);
  expect_error(other, MV_EDISAGREE, "alltoall");
  const uint64_t sends[2] = {1, 2}, receives[2] = {1, odd ? 3 : 2};
  expect_error(mv_alltoall_counts(group, values, sends, results, odd ? sends : receives, MV_I64, NULL), MV_EDISAGREE,
               "rank 0 sends 2 elements to rank 1, which receives 1");
  values[0] = 1;
  expect_ok(mv_allreduce(group, NULL, values, 1, MV_I64, MV_REDUCE_SUM, NULL)); /* they are in step nevertheless */
  assert_true(values[0] == 2);
}
static void ranks_that_disagree_on_exchanges_are_named(void** state) {
  (void)state;
  run_nodes(2, transport, disagrees_on_the_others);
}

/** A message that does not fit is lost, and nothing else. */
static void sends_what_does_not_fit(struct member* self) {
  enum { kCount = 300000 };
  static int64_t long_one[kCount];
  const mv_group group = open_all(self);
  int64_t value = 7;
  float real = 1;
  if (self->index == 0) {
    mv_call_options labelled = MV_CALL_OPTIONS_INIT;
    labelled.label = 5;
    expect_ok(mv_send(group, long_one, kCount, MV_I64, 1, 0, NULL));
    expect_ok(mv_send(group, &real, 1, MV_F32, 1, 0, NULL));
    expect_ok(mv_send(group, &value, 1, MV_I64, 1, 0, &labelled));
    expect_ok(mv_send(group, &value, 0, MV_I64, 1, 0, NULL));
    expect_ok(mv_send(group, &value, 1, MV_I64, 1, 0, NULL));
  } else {
    mv_call_options soon = MV_CALL_OPTIONS_INIT, labelled = MV_CALL_OPTIONS_INIT;
    soon.timeout_ms = 20;
    labelled.label = 6;
    expect_error(mv_recv(group, &value, 1, MV_I64, 0, 99, NULL, &soon), MV_ETIMEOUT, "tag 99 from rank 0 of the group, worker 0");
    expect_error(mv_recv(group, &value, 1, MV_I64, 0, 0, NULL, NULL), MV_ESHAPE, "send of 300000 i64");
    expect_error(mv_recv(group, &value, 1, MV_I64, 0, 0, NULL, NULL), MV_EDTYPE, "send of 1 f32");
    expect_error(mv_recv(group, &value, 1, MV_I64, 0, 0, NULL, &labelled), MV_ESHAPE, "other names or shapes");
    expect_error(mv_recv(group, &value, 1, MV_I64, 0, 0, NULL, NULL), MV_ESHAPE, "send of 0 i64");
    value = 0;
    expect_ok(mv_recv(group, &value, 1, MV_I64, 0, 0, NULL, NULL));
    assert_true(value == 7);
  }
  mv_request request = 0;
  mv_call_options later = MV_CALL_OPTIONS_INIT;
  later.flags = MV_ASYNC;
  later.request = &request;
  expect_ok(mv_recv(group, &value, 1, MV_I64, 1 - self->index, 3, NULL, &later));
  expect_ok(mv_request_cancel(request));
  expect_ok(mv_group_barrier(group, NULL)); /* the group works */
}
static void a_message_that_does_not_fit_is_dropped(void** state) {
  (void)state;
  run_nodes(2, transport, sends_what_does_not_fit);
}

/** What a rank has sent before it leaves is received; a receive that waits for it fails. */
static void leaves_after_a_send(struct member* self) {
  const mv_group group = open_all(self);
  int64_t value = 5, source = -1;
  if (self->index == 2) {
    expect_ok(mv_send(group, &value, 1, MV_I64, 0, 0, NULL));
    expect_ok(mv_group_close(group));
    return;
  }
  if (self->index == 0) {
    expect_ok(mv_recv(group, &value, 1, MV_I64, 2, 0, &source, NULL));
    assert_true(value == 5 && source == 2);
  }
  expect_error(mv_recv(group, &value, 1, MV_I64, self->index == 0 ? 2 : 0, 1, NULL, NULL), MV_EPEERLOST, "worker 2");
  expect_error(mv_send(group, &value, 1, MV_I64, 1 - self->index, 1, NULL), MV_EPEERLOST, "broken");
  mv_group survivors = 0;
  expect_ok(mv_group_shrink(group, NULL, &survivors));
  mv_request sent = 0;
  mv_call_options later = MV_CALL_OPTIONS_INIT;
  later.flags = MV_ASYNC;
  later.request = &sent;
  value = self->index;
  expect_ok(mv_send(survivors, &value, 1, MV_I64, 1 - self->index, 0, &later));
  expect_ok(mv_request_wait(sent, 0));
  expect_ok(mv_recv(survivors, &value, 1, MV_I64, MV_ANY_RANK, 0, NULL, NULL));
  assert_true(value == 1 - self->index);
  expect_ok(mv_group_barrier(survivors, NULL));
}
static void a_receive_from_a_rank_that_leaves_fails(void** state) {
  (void)state;
  run_nodes(3, transport, leaves_after_a_send);
}

/** A long send that is never received ends at its deadline, and the group with it. */
static void sends_in_vain(struct member* self) {
  enum { kCount = 300000 };
  static int64_t values[kCount];
  const mv_group group = open_all(self);
  if (self->index == 0) {
    mv_call_options soon = MV_CALL_OPTIONS_INIT;
    soon.timeout_ms = 50;
    expect_error(mv_send(group, values, kCount, MV_I64, 1, 4, &soon), MV_ETIMEOUT, "send of 300000 i64 with tag 4 to rank 1");
  } else {
    expect_error(mv_recv(group, values, 1, MV_I64, 0, 5, NULL, NULL), MV_ETIMEOUT, "worker 0");
  }
  expect_error(mv_group_barrier(group, NULL), MV_ETIMEOUT, "broken");
}
static void a_send_that_is_not_received_breaks_the_group(void** state) {
  (void)state;
  run_nodes(2, transport, sends_in_vain);
}

/** The first rank that enters the next operation breaks the group there, and also the operation that a slower rank is still in. */
static pthread_barrier_t all_through;

static void leaves_early(struct member* self) {
  const mv_group group = open_all(self);
  float value = 1;
  expect_ok(mv_allreduce(group, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(value == 3);
  pthread_barrier_wait(&all_through);
  if (self->index == 2) {
    expect_ok(mv_group_close(group));
    return;
  }
  expect_error(mv_allreduce(group, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL), MV_EPEERLOST, "worker 2");
  mv_group survivors = 0;
  expect_ok(mv_group_shrink(group, NULL, &survivors));
  value = 1;
  expect_ok(mv_allreduce(survivors, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(value == 2);
}
static void a_leaving_rank_is_named_and_the_others_continue(void** state) {
  (void)state;
  pthread_barrier_init(&all_through, NULL, 3);
  run_nodes(3, transport, leaves_early);
  pthread_barrier_destroy(&all_through);
}

/** The operation in which the others wait when a rank ends without closing the group, like a script whose last line raises an exception. */
static int leaver, waits_in;

static void ends_without_a_word(struct member* self) {
  enum { kCount = 20000 };
  static float values[kMostNodes][kCount], parts[kMostNodes][3 * kCount];
  static const uint64_t counts[3] = {100, 100, 100};
  const mv_group group = open_all(self);
  float *const value = values[self->index], *const all = parts[self->index];
  expect_ok(mv_allreduce(group, NULL, value, kCount, MV_F32, MV_REDUCE_SUM, NULL));
  pthread_barrier_wait(&all_through);
  if (self->index == leaver) return;
  for (int again = 0; again < 2; ++again) {
    mv_drained next = MV_DRAINED_INIT;
    mv_status status = MV_OK;
    while (status == MV_OK) /* a rank that only sends to a root may finish before it learns of the end */
      status = waits_in == 3   ? mv_gather(group, value, all, kCount, MV_F32, 1, NULL)
               : waits_in == 4 ? mv_scatter(group, all, value, kCount, MV_F32, 1, NULL)
               : waits_in == 5 ? mv_alltoall(group, all, value, kCount / 4, MV_F32, NULL)
               : waits_in == 6 ? mv_alltoall_counts(group, all, counts, value, counts, MV_F32, NULL)
               : waits_in == 7 ? mv_recv(group, value, kCount, MV_F32, leaver, 0, NULL, NULL)
               : waits_in == 0 ? mv_allreduce(group, NULL, value, kCount, MV_F32, MV_REDUCE_SUM, NULL)
               : waits_in == 1 ? mv_reduce(group, value, value, 1, MV_F32, MV_REDUCE_SUM, 1, NULL)
                               : mv_allreduce_drain(group, NULL, 0, &next, NULL);
    char name[16];
    snprintf(name, sizeof(name), "worker %d", leaver);
    expect_error(status, MV_EPEERLOST, name);
  }
  mv_group survivors = 0;
  expect_ok(mv_group_shrink(group, NULL, &survivors));
  expect_ok(mv_group_barrier(survivors, NULL));
}
static void a_rank_that_ends_without_closing_is_named_too(void** state) {
  (void)state;
  pthread_barrier_init(&all_through, NULL, 3);
  for (leaver = 0; leaver < 3; leaver += 2)
    for (waits_in = 0; waits_in < 8; ++waits_in) run_nodes(3, transport, ends_without_a_word);
  pthread_barrier_destroy(&all_through);
}

/** The survivors have, or had, a group already: another attempt waits for no rank. */
static void shrinks_again(struct member* self) {
  mv_group group = open_all(self), survivors = 0, again = 0;
  expect_ok(mv_group_barrier(group, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_group_shrink(group, NULL, &survivors));
  expect_error(mv_group_shrink(group, NULL, &again), MV_ESTATE, "has been shrunk already");
  expect_ok(mv_group_barrier(survivors, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_group_close(survivors));
  expect_error(mv_group_shrink(group, NULL, &again), MV_ESTATE, "has closed");
  expect_ok(mv_group_close(group));
}
static void a_group_is_shrunk_once(void** state) {
  (void)state;
  run_nodes(2, transport, shrinks_again);
}

/** The group of the survivors breaks, too. Shrinking either of the two groups gives the same new group. */
static void shrinks_what_broke(struct member* self) {
  mv_group group = open_all(self), second = 0, third = 0;
  float value = 1;
  expect_ok(mv_group_shrink(group, NULL, &second));
  if (self->index == 0) {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.timeout_ms = 50;
    expect_error(mv_allreduce(second, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, &options), MV_ETIMEOUT, "worker 1");
  }
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_group_shrink(self->index == 0 ? group : second, NULL, &third));
  value = 1;
  expect_ok(mv_allreduce(third, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(value == 2);
}
static void a_broken_group_of_survivors_is_shrunk_by_either_handle(void** state) {
  (void)state;
  run_nodes(2, transport, shrinks_what_broke);
}

static void expect_group(mv_group group, int64_t rank, int64_t elder, uint64_t generation) {
  mv_group_info info = MV_GROUP_INFO_INIT;
  expect_ok(mv_group_describe(group, &info));
  assert_true(info.rank == rank && info.ranks == 3 && info.elder == elder && info.generation == generation && info.operations == 0);
  float value = 1;
  expect_ok(mv_allreduce(group, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(value == 3);
}

/** Worker 2 joins the group of the others. Then worker 0 leaves it, and joins again: now worker 1 is the elder. */
static void grows(struct member* self) {
  const int64_t first[2] = {0, 1};
  mv_group group = 0, grown = 0;
  mv_call_options soon = MV_CALL_OPTIONS_INIT;
  soon.timeout_ms = 50;
  if (self->index == 2) {
    expect_error(mv_group_join(self->node, "nobody's", &soon, &group), MV_ETIMEOUT, "no group has grown by the name \"nobody's\"");
    expect_ok(mv_barrier(self->node, NULL));
    expect_ok(mv_group_join(self->node, "team", NULL, &group));
  } else {
    mv_group before = 0;
    expect_ok(mv_group_open(self->node, first, 2, &before));
    grown = 1;
    expect_ok(mv_group_grow(before, "team", 2, NULL, &grown));
    assert_true(grown == 0); /* nobody asks: it goes on */
    soon.timeout_ms = 1000; /* the ranks have to meet before */
    expect_error(mv_group_grow(before, "team", 3, &soon, &grown), MV_ETIMEOUT, "0 workers have asked to join it by the name \"team\"");
    expect_ok(mv_barrier(self->node, NULL));
    expect_ok(mv_group_grow(before, "team", 3, NULL, &group));
    expect_error(mv_group_barrier(before, NULL), MV_EPEERLOST, "the group is broken");
    expect_ok(mv_group_close(before));
  }
  expect_group(group, self->index, 0, 1);
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index == 0) {
    expect_ok(mv_group_close(group));
    expect_ok(mv_group_join(self->node, "team", NULL, &grown));
  } else {
    expect_ok(mv_group_grow(group, "team", 3, NULL, &grown));
    expect_ok(mv_group_close(group));
  }
  expect_group(grown, self->index, 1, 2);
  expect_ok(mv_group_close(grown));
}
static void a_group_grows_by_workers_that_join(void** state) {
  (void)state;
  run_nodes(3, transport, grows);
}

static void grows_wrongly(struct member* self) {
  char long_name[300] = "";
  memset(long_name, 'x', sizeof(long_name) - 1);
  mv_group group = open_all(self), grown = 0;
  mv_request request = 0;
  mv_call_options later = MV_CALL_OPTIONS_INIT;
  later.flags = MV_ASYNC;
  later.request = &request;
  float value = 1;
  expect_error(mv_group_grow(group, "team", 0, NULL, NULL), MV_EINVAL, "NULL");
  expect_error(mv_group_grow(group, "team", 0, &later, &grown), MV_EINVAL, "blocks");
  expect_error(mv_group_grow(group, "team", 3, NULL, &grown), MV_EINVAL, "the cluster has 2 workers");
  expect_error(mv_group_grow(group, long_name, 0, NULL, &grown), MV_EINVAL, "at most 255");
  expect_error(mv_group_grow(12345, "team", 0, NULL, &grown), MV_EHANDLE, "");
  expect_error(mv_group_join(self->node, "team", NULL, NULL), MV_EINVAL, "NULL");
  expect_error(mv_group_join(self->node, "team", &later, &grown), MV_EINVAL, "blocks");
  expect_error(mv_group_join(self->node, long_name, NULL, &grown), MV_EINVAL, "at most 255");
  const mv_status differs = self->index == 0 ? mv_group_grow(group, NULL, 0, NULL, &grown) : mv_allreduce(group, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL);
  expect_error(differs, MV_EDISAGREE, "calls grow");
  expect_error(mv_group_grow(group, self->index == 0 ? "a" : "b", 0, NULL, &grown), MV_EDISAGREE, "different names");
  expect_ok(mv_group_barrier(group, NULL));
  expect_ok(mv_group_close(group));
}
static void ranks_that_grow_differently_are_told(void** state) {
  (void)state;
  run_nodes(2, transport, grows_wrongly);
}

static void shuts_down_with_handles(struct member* self) {
  static mv_group groups[kMostNodes];
  groups[self->index] = open_all(self);
  expect_ok(mv_group_barrier(groups[self->index], NULL));
}
static void handles_of_an_ended_node_are_stale(void** state) {
  (void)state;
  mv_node node = 0;
  mv_group group = 0;
  mv_allreduce_sgd sgd = 0;
  expect_ok(mv_node_open(NULL, &node));
  expect_ok(mv_group_open(node, NULL, 0, &group));
  expect_ok(mv_sgd_open(group, &sgd));
  expect_ok(mv_shutdown(node));
  run_nodes(2, transport, shuts_down_with_handles);
  expect_ok(mv_init(NULL));
  expect_error(mv_group_barrier(group, NULL), MV_EHANDLE, "closed");
  expect_error(mv_sgd_close(sgd), MV_EHANDLE, "closed");
  expect_ok(mv_shutdown(0));
}

static void waits_in_vain(struct member* self) {
  mv_group group = open_all(self);
  float value = 1;
  if (self->index == 1) {
    expect_ok(mv_barrier(self->node, NULL));
    expect_error(mv_group_barrier(group, NULL), MV_ETIMEOUT, "broken");
  } else {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.timeout_ms = 50;
    expect_error(mv_allreduce(group, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, &options), MV_ETIMEOUT, "worker 1");
    expect_ok(mv_barrier(self->node, NULL));
  }
  mv_group again = 0;
  expect_ok(mv_group_shrink(group, NULL, &again));
  expect_ok(mv_group_close(group));
  expect_ok(mv_group_barrier(again, NULL));
}
static void a_time_out_names_the_missing_and_breaks_the_group(void** state) {
  (void)state;
  run_nodes(2, transport, waits_in_vain);
}

/* ------------------------------------------------------------ ranks with different numbers of steps */

/** Each rank has as many steps as its number, and now and then a value of another shape. */
static void ends_unevenly(struct member* self) {
  const mv_group group = open_all(self);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < 2 * self->index; ++step) {
      float values[10];
      double other = 1;
      for (int i = 0; i < 10; ++i) values[i] = 1;
      const mv_array arrays[2] = {{values, (uint64_t)(step % 3 + 1), MV_F32, 0}, {&other, 1, MV_F64, 0}};
      uint64_t contributors = 0;
      expect_ok(mv_allreduce_many(group, NULL, arrays, step % 2 == 0 ? 2 : 1, MV_REDUCE_AVG, 0, &contributors, NULL));
      int there = 0;
      for (int rank = 0; rank < self->nodes; ++rank) there += step < 2 * rank;
      assert_int_equal(contributors, there);
      assert_true(values[0] == 1 && other == 1);
    }
    expect_ok(mv_allreduce_zeros(group, NULL));
    float value = 1;
    expect_ok(mv_allreduce(group, NULL, &value, 1, MV_F32, MV_REDUCE_SUM, NULL)); /* all ranks again */
    assert_true(value == (float)self->nodes);
  }
}
static void ranks_without_data_take_part_until_all_are_through(void** state) {
  (void)state;
  for (int nodes = 1; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, ends_unevenly);
}

static void drains_manually(struct member* self) {
  const mv_group group = open_all(self);
  mv_drained next = MV_DRAINED_INIT;
  mv_array arrays[2];
  if (self->index == 0) {
    float values[3] = {1, 2, 3};
    expect_ok(mv_allreduce(group, NULL, values, 3, MV_F32, MV_REDUCE_SUM, NULL));
    assert_true(values[0] == 11 && values[1] == 12 && values[2] == 13);
    expect_ok(mv_allreduce_drain(group, arrays, 2, &next, NULL));
    assert_int_equal(next.finished, 1);
    expect_error(mv_group_barrier(group, NULL), MV_EDISAGREE, "drain");
    return;
  }
  expect_error(mv_allreduce_drain(group, NULL, 0, &next, NULL), MV_EINVAL, "1 arrays");
  expect_ok(mv_allreduce_drain(group, arrays, 2, &next, NULL));
  assert_int_equal(next.finished, 0);
  assert_int_equal(next.reduction, MV_REDUCE_SUM);
  assert_int_equal(next.arrays, 1);
  assert_int_equal(arrays[0].count, 3);
  float values[3] = {10, 10, 10};
  expect_error(mv_allreduce(group, NULL, values, 3, MV_F32, MV_REDUCE_SUM, NULL), MV_ESTATE, "MV_DRAINING");
  arrays[0].data = values;
  uint64_t contributors = 0;
  expect_ok(mv_allreduce_many(group, NULL, arrays, 1, next.reduction, MV_DRAINING, &contributors, NULL));
  assert_int_equal(contributors, 1);
  expect_ok(mv_allreduce_drain(group, arrays, 2, &next, NULL));
  assert_int_equal(next.finished, 1);
  expect_error(mv_allreduce_drain(group, arrays, 2, &next, NULL), MV_EDISAGREE, "barrier");
}
static void a_draining_rank_learns_the_next_operation(void** state) {
  (void)state;
  run_nodes(2, transport, drains_manually);
}

/* ------------------------------------------------------------ custom reductions */

/** Keeps the greater of two numbers and its origin, in two arrays that belong together. */
static mv_status keep_greater(void* user, const mv_array* mine, const mv_array* theirs, uint64_t arrays) {
  ++*(int*)user;
  assert_int_equal(arrays, 2);
  float* const best = mine[0].data;
  int64_t* const whose = mine[1].data;
  if (((const float*)theirs[0].data)[0] > best[0]) best[0] = ((const float*)theirs[0].data)[0], whose[0] = ((const int64_t*)theirs[1].data)[0];
  return MV_OK;
}
static mv_status refuse(void* user, const mv_array* mine, const mv_array* theirs, uint64_t arrays) {
  (void)user, (void)mine, (void)theirs, (void)arrays;
  expect_ok(mv_callback_error("a gradient\nis NaN \337"));
  return MV_ENONFINITE;
}

static void reduces_by_itself(struct member* self) {
  const mv_group group = open_all(self);
  float best[1] = {(float)((self->index * 7 + 3) % 5)};
  int64_t whose[1] = {self->index};
  const mv_array values[2] = {{best, 1, MV_F32, 0}, {whose, 1, MV_I64, 0}};
  uint64_t contributors = 0;
  int calls = 0;
  expect_ok(mv_allreduce_custom(group, values, 2, keep_greater, &calls, 0, &contributors, NULL));
  assert_int_equal(contributors, self->nodes);
  assert_true(best[0] == 3.0F + (self->nodes > 3 ? 1.0F : 0.0F) || self->nodes < 4);
  int64_t first = whose[0];
  expect_ok(mv_broadcast(group, &first, 1, MV_I64, 0, NULL));
  assert_int_equal(first, whose[0]);
  if (self->nodes > 1) {
    expect_error(mv_allreduce_custom(group, values, 2, refuse, NULL, 0, NULL, NULL), MV_ENONFINITE, "the reducer failed: a gradient is NaN \xef\xbf\xbd");
  }
  /* manually, with a rank that drains */
  mv_custom custom = 0;
  mv_array theirs[2];
  int32_t more = 0;
  if (self->index == self->nodes - 1 && self->nodes > 1) {
    mv_drained next = MV_DRAINED_INIT;
    expect_ok(mv_allreduce_drain(group, theirs, 2, &next, NULL));
    assert_int_equal(next.reduction, 0);
    assert_int_equal(next.arrays, 2);
    best[0] = -1;
  } else {
    best[0] = (float)self->index;
  }
  expect_ok(mv_custom_begin(group, values, 2, best[0] < 0 ? MV_DRAINING : 0, NULL, &custom));
  for (;;) {
    expect_ok(mv_custom_next(custom, theirs, &more));
    if (!more) break;
    expect_ok(keep_greater(&calls, values, theirs, 2));
    expect_ok(mv_custom_done(custom, MV_OK));
  }
  expect_error(mv_custom_done(custom, MV_OK), MV_ESTATE, "no values");
  expect_ok(mv_custom_end(custom, &contributors));
  assert_int_equal(contributors, self->nodes > 1 ? self->nodes - 1 : 1);
  assert_true(best[0] == (float)(self->nodes > 1 ? self->nodes - 2 : 0));
  expect_error(mv_custom_end(custom, NULL), MV_EHANDLE, "closed");
}
static void a_function_of_ones_own_reduces(void** state) {
  (void)state;
  for (int nodes = 1; nodes <= kNodes; ++nodes) run_nodes(nodes, transport, reduces_by_itself);
}

/** An operation that has to wait for an earlier one of this rank gives up at its own deadline, before it has begun. */
static void waits_for_its_turn(struct member* self) {
  const mv_group group = open_all(self);
  float mine = 1, other = 1;
  mv_request request = 0;
  mv_custom custom = 0;
  mv_drained next = MV_DRAINED_INIT;
  mv_call_options later = MV_CALL_OPTIONS_INIT, soon = MV_CALL_OPTIONS_INIT;
  const mv_array value = {&other, 1, MV_F32, 0};
  later.flags = MV_ASYNC;
  later.request = &request;
  soon.timeout_ms = 50;
  if (self->index == 0) {
    expect_ok(mv_allreduce(group, NULL, &mine, 1, MV_F32, MV_REDUCE_SUM, &later)); /* the other rank comes later */
    expect_error(mv_custom_begin(group, &value, 1, 0, &soon, &custom), MV_ETIMEOUT, "was not started");
    expect_error(mv_allreduce_drain(group, NULL, 0, &next, &soon), MV_ETIMEOUT, "was not started");
  }
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index == 0)
    expect_ok(mv_request_wait(request, 0));
  else
    expect_ok(mv_allreduce(group, NULL, &mine, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(mine == 2);
  expect_ok(mv_allreduce(group, NULL, &mine, 1, MV_F32, MV_REDUCE_SUM, NULL));
  assert_true(mine == 4);
}
static void a_turn_that_does_not_come_ends_at_the_deadline(void** state) {
  (void)state;
  if (transport != NULL) skip(); /* with messages, operations overlap */
  run_nodes(2, transport, waits_for_its_turn);
}

int main(int count, char** arguments) {
  if (count > 1 && strcmp(arguments[1], "messages") == 0) transport = "faults=seed=1";
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_dtypes_reductions_and_sizes),
      cmocka_unit_test(reduce_broadcast_allgather_and_reduce_scatter),
      cmocka_unit_test(a_gather_collects_and_a_scatter_distributes),
      cmocka_unit_test(an_alltoall_exchanges_a_part_of_each_pair),
      cmocka_unit_test(sends_are_received_by_tag_and_in_order),
      cmocka_unit_test(many_transfers_run_side_by_side),
      cmocka_unit_test(asynchronous_ones_of_all_kinds_keep_their_order),
      cmocka_unit_test(ranks_that_disagree_on_exchanges_are_named),
      cmocka_unit_test(a_message_that_does_not_fit_is_dropped),
      cmocka_unit_test(a_receive_from_a_rank_that_leaves_fails),
      cmocka_unit_test(a_send_that_is_not_received_breaks_the_group),
      cmocka_unit_test(many_arrays_are_one_operation),
      cmocka_unit_test(halves_are_summed_as_floats),
      cmocka_unit_test(asynchronous_ones_run_side_by_side),
      cmocka_unit_test(groups_of_some_workers),
      TEST_ALONE(bad_arguments),
      cmocka_unit_test(ranks_that_disagree_are_named),
      cmocka_unit_test(a_leaving_rank_is_named_and_the_others_continue),
      cmocka_unit_test(a_group_is_shrunk_once),
      cmocka_unit_test(a_broken_group_of_survivors_is_shrunk_by_either_handle),
      cmocka_unit_test(a_group_grows_by_workers_that_join),
      cmocka_unit_test(ranks_that_grow_differently_are_told),
      cmocka_unit_test(a_rank_that_ends_without_closing_is_named_too),
      cmocka_unit_test(handles_of_an_ended_node_are_stale),
      cmocka_unit_test(a_time_out_names_the_missing_and_breaks_the_group),
      cmocka_unit_test(ranks_without_data_take_part_until_all_are_through),
      cmocka_unit_test(a_draining_rank_learns_the_next_operation),
      cmocka_unit_test(a_function_of_ones_own_reduces),
      cmocka_unit_test(a_turn_that_does_not_come_ends_at_the_deadline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
