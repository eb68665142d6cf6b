/* Gradient compression: servers merge exactly what workers push through a codec, and nothing is lost. */
#include <math.h>
#include <stdlib.h>

#include "stores.h"

enum { kWorkers = 2, kRounds = 6 };

static const int64_t kSmall[] = {37}, kLarge[] = {1100003};

/** Worker w's gradient of a round: multiples of 1/8, so that all sums are exact in every dtype. */
static double gradient_of(int worker, int round, uint64_t element) {
  return (double)((int)((element * 7 + (uint64_t)(worker * 3 + round * 5)) % 13) - 6) / 8;
}

/** MXNet's 2bit with its default threshold, one value at a time. */
static double two_bit(double* residual, double gradient) {
  *residual += gradient;
  const double sent = *residual >= 0.5 ? 0.5 : *residual <= -0.5 ? -0.5 : 0;
  *residual -= sent;
  return sent;
}

/** Converts between a tensor of any dtype and doubles. */
static void write_doubles(mv_tensor tensor, double* values, uint64_t count) {
  const int64_t shape[] = {(int64_t)count};
  mv_tensor view = 0, ignored = 0;
  expect_ok(mv_tensor_view(values, count, MV_F64, shape, 1, &view));
  expect_ok(mv_tensor_copy(view, tensor, &ignored));
  expect_ok(mv_tensor_free(view));
}
static void read_doubles(mv_tensor tensor, double* values, uint64_t count) {
  const int64_t shape[] = {(int64_t)count};
  mv_tensor view = 0, ignored = 0;
  expect_ok(mv_tensor_view(values, count, MV_F64, shape, 1, &view));
  expect_ok(mv_tensor_copy(tensor, view, &ignored));
  expect_ok(mv_tensor_free(view));
}

static void set_gradient(mv_tensor tensor, uint64_t count, int worker, int round) {
  double* const values = malloc(count * sizeof(double));
  assert_non_null(values);
  for (uint64_t i = 0; i < count; ++i) values[i] = gradient_of(worker, round, i);
  write_doubles(tensor, values, count);
  free(values);
}

/** After each round of pushes, the value is that of the reference codec, summed over all workers. */
static void push_two_bits(const struct member* self, const char* type, mv_dtype dtype, const int64_t* shape) {
  kv_store kv = 0;
  const int64_t key = 3;
  const kv_keys keys = number_keys(&key, 1);
  const uint64_t count = (uint64_t)shape[0];
  mv_tensor value = full(shape, 1, dtype, 7), pulled = full(shape, 1, dtype, 0);
  const kv_values values = values_of(&value, 1), out = values_of(&pulled, 1);
  expect_ok(kv_create(self->node, type, &kv));
  expect_ok(kv_set_gradient_compression(kv, "2bit"));
  expect_ok(kv_init(kv, &keys, &values));
  expect_ok(kv_pull(kv, &keys, &out, NULL));
  expect_all(pulled, 7); /* initial values are not compressed */
  double* const residuals = calloc(count * kWorkers, sizeof(double));
  double* const got = malloc(count * sizeof(double));
  assert_true(residuals != NULL && got != NULL);
  for (int round = 0; round < kRounds; ++round) {
    set_gradient(value, count, self->index, round);
    expect_ok(kv_pushpull(kv, &keys, &values, &out, NULL));
    read_doubles(pulled, got, count);
    for (uint64_t i = 0; i < count; ++i) {
      double expected = 0;
      for (int worker = 0; worker < self->nodes; ++worker)
        expected += two_bit(&residuals[(uint64_t)worker * count + i], gradient_of(worker, round, i));
      if (got[i] != expected) fail_msg("%s, round %d, element %d: %g, not %g", type, round, (int)i, got[i], expected);
    }
  }
  free(residuals);
  free(got);
  expect_ok(mv_tensor_free(value));
  expect_ok(mv_tensor_free(pulled));
  expect_ok(kv_free(kv));
}

static void two_bits_of_all_workers(struct member* self) {
  static const mv_dtype kDtypes[] = {MV_F32, MV_F64, MV_F16, MV_BF16};
  for (size_t i = 0; i < COUNT_OF(kDtypes); ++i) push_two_bits(self, "dist_sync", kDtypes[i], kSmall);
  push_two_bits(self, "dist_sync", MV_F32, kLarge); /* spread over both servers, in many messages */
  push_two_bits(self, "p3", MV_F32, kLarge);
}
static void servers_merge_what_workers_have_sent(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, two_bits_of_all_workers);
}

static void alone_it_is_the_same(struct member* self) { push_two_bits(self, "dist_sync", MV_F32, kLarge); }
static void one_worker_compresses_too(void** state) {
  (void)state;
  run_nodes(1, NULL, alone_it_is_the_same);
}

/** After enough pushes of zeros, everything pushed has arrived: codecs only delay what they leave out. */
static void push_until_nothing_is_left(const struct member* self, const char* type, const char* codec, const int64_t* shape) {
  kv_store kv = 0;
  const char* const name = "w";
  const kv_keys keys = name_keys(&name, 1);
  const uint64_t count = (uint64_t)shape[0];
  mv_tensor value = full(shape, 1, MV_F32, 0);
  const kv_values values = values_of(&value, 1);
  expect_ok(kv_create(self->node, type, &kv));
  expect_ok(kv_init(kv, &keys, &values));
  if (self->index == 0) {
    expect_ok(kv_set_optimizer(kv, "sgd rate=1"));
  }
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_set_gradient_compression(kv, codec));
  for (int round = 0; round < kRounds; ++round) {
    set_gradient(value, count, self->index, round);
    expect_ok(kv_push(kv, &keys, &values, NULL));
  }
  expect_ok(mv_tensor_fill(value, 0));
  expect_ok(kv_set_gradient_compression(kv, "none")); /* the next push carries the residual */
  expect_ok(kv_push(kv, &keys, &values, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(kv_pull(kv, &keys, &values, NULL));
  double* const got = malloc(count * sizeof(double));
  assert_non_null(got);
  read_doubles(value, got, count);
  for (uint64_t i = 0; i < count; ++i) {
    double expected = 0;
    for (int worker = 0; worker < self->nodes; ++worker)
      for (int round = 0; round < kRounds; ++round) expected -= gradient_of(worker, round, i);
    if (fabs(got[i] - expected) > 1e-5) fail_msg("%s, %s, element %d: %g, not %g", type, codec, (int)i, got[i], expected);
  }
  free(got);
  expect_ok(mv_tensor_free(value));
  expect_ok(kv_free(kv));
}
static void each_codec_in_turn(struct member* self) {
  static const char* const kCodecs[] = {"2bit threshold=0.25", "1bit scale=0.5", "fp16", "int8 block=64", "topk ratio=0.1"};
  for (size_t i = 0; i < COUNT_OF(kCodecs); ++i) {
    push_until_nothing_is_left(self, "dist_sync", kCodecs[i], kSmall);
    push_until_nothing_is_left(self, "dist_async", kCodecs[i], kSmall);
  }
  push_until_nothing_is_left(self, "dist_sync", "topk ratio=0.001", kLarge);
  push_until_nothing_is_left(self, "dist_async", "int8", kLarge);
}
static void nothing_is_lost(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, each_codec_in_turn);
}

/** Four devices, each with its own residual. */
static void each_device_keeps_its_own_rest(void** state) {
  (void)state;
  enum { kDevices = 4 };
  static const mv_dtype kDtypes[] = {MV_F32, MV_F64, MV_F16};
  for (size_t which = 0; which < COUNT_OF(kDtypes); ++which) {
    kv_store kv = 0;
    const int64_t key = 1;
    const kv_keys keys = number_keys(&key, 1);
    const uint64_t count = (uint64_t)kSmall[0];
    mv_tensor devices[kDevices], pulled = full(kSmall, 1, kDtypes[which], 0);
    for (int device = 0; device < kDevices; ++device) devices[device] = full(kSmall, 1, kDtypes[which], 0);
    const kv_values values = values_of(devices, kDevices), out = values_of(&pulled, 1);
    double residuals[kDevices][37], got[37];
    memset(residuals, 0, sizeof(residuals));
    expect_ok(kv_create(0, "device", &kv));
    expect_ok(kv_set_gradient_compression(kv, "type=2bit, threshold=0.5"));
    expect_ok(kv_init(kv, &keys, &values));
    for (int round = 0; round < kRounds; ++round) {
      for (int device = 0; device < kDevices; ++device) set_gradient(devices[device], count, device, round);
      expect_ok(kv_pushpull(kv, &keys, &values, &out, NULL));
      read_doubles(pulled, got, count);
      for (uint64_t i = 0; i < count; ++i) {
        double expected = 0;
        for (int device = 0; device < kDevices; ++device) expected += two_bit(&residuals[device][i], gradient_of(device, round, i));
        assert_true(got[i] == expected);
      }
    }
    expect_ok(kv_free(kv));
  }
}

static void what_is_pulled_may_be_rounded(struct member* self) {
  kv_store kv = 0;
  const int64_t numbers[] = {1, 2};
  const kv_keys keys = number_keys(numbers, 2);
  mv_tensor values[] = {full(kSmall, 1, MV_F32, 1.0 / 3), full(kLarge, 1, MV_I32, 1234567)};
  const kv_values given = values_of(values, 2);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_set_gradient_compression(kv, "none pull=fp16"));
  expect_ok(kv_broadcast(kv, &keys, &given, NULL));
  expect_all(values[0], 0.333251953125); /* the nearest half, on every worker, independent of the server */
  expect_all(values[1], 1234567);        /* integers are sent unchanged */
  expect_ok(kv_push(kv, &keys, &given, NULL));
  expect_ok(kv_set_gradient_compression(kv, "none"));
  expect_ok(kv_pull(kv, &keys, &given, NULL));
  expect_all(values[0], 2 * 0.333251953125);
  expect_all(values[1], 2 * 1234567);
  expect_ok(kv_free(kv));
}
static void pulls_are_compressed_on_request(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, what_is_pulled_may_be_rounded);
}

/** Rows of 0.1, which both 2bit and int8 would change. */
static void rows_beside_a_codec(struct member* self) {
  kv_store kv = 0;
  const int64_t key = 1, ids[] = {1, 4}, some[] = {2, 3}, all[] = {18};
  const kv_keys keys = number_keys(&key, 1);
  mv_tensor rows = full(some, 2, MV_F64, 0.1), sparse = 0, dense = full(all, 1, MV_F64, 9), flat = 0;
  const int64_t tall[] = {6, 3};
  expect_ok(mv_tensor_sparse(ids, 2, rows, 6, &sparse));
  expect_ok(mv_tensor_reshape(dense, tall, 2, &flat));
  const kv_values pushed = values_of(&sparse, 1), out = values_of(&flat, 1);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_set_gradient_compression(kv, "2bit pull=int8"));
  expect_ok(kv_init(kv, &keys, &pushed));
  expect_ok(kv_push(kv, &keys, &pushed, NULL));
  expect_ok(kv_pull(kv, &keys, &out, NULL));
  double got[18];
  read_doubles(dense, got, 18);
  for (int i = 0; i < 18; ++i) assert_true(got[i] == (i / 3 == 1 || i / 3 == 4 ? 0.1 + 0.1 : 0));
  expect_ok(kv_free(kv));
}
static void rows_travel_as_they_are(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, rows_beside_a_codec);
}

/** The metrics of a table; -1: none. */
static double compressed_bytes(mv_node node, const char* table, const char* form) {
  char wanted[120];
  uint64_t length = 0;
  expect_ok(mv_metrics_text(node, NULL, 0, &length));
  char* const text = malloc(length + 1 + 4096); /* the text may grow between the two calls */
  assert_non_null(text);
  expect_ok(mv_metrics_text(node, text, length + 1 + 4096, &length));
  snprintf(wanted, sizeof(wanted), "polyverso_table_compressed_bytes_total{table=\"%s\",form=\"%s\"} ", table, form);
  const char* const found = strstr(text, wanted);
  const double value = found != NULL ? strtod(found + strlen(wanted), NULL) : -1;
  free(text);
  return value;
}
static void count_bytes(struct member* self) {
  kv_store kv = 0;
  const char* const names[] = {"small", "large"};
  const kv_keys keys = name_keys(names, 2);
  mv_tensor values[] = {full(kSmall, 1, MV_F32, 0), full(kLarge, 1, MV_F32, 0)};
  const kv_values given = values_of(values, 2);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_set_gradient_compression(kv, "2bit"));
  expect_ok(kv_init(kv, &keys, &given));
  assert_true(compressed_bytes(self->node, "kv-0/small", "sent") == -1);
  for (int i = 0; i < 3; ++i) expect_ok(kv_push(kv, &keys, &given, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  assert_true(compressed_bytes(self->node, "kv-0/small", "sent") == 3 * 4 * 3); /* 37 values take three words */
  assert_true(compressed_bytes(self->node, "kv-0/small", "values") == 3 * 4 * 37);
  /* Each server's half is 550002 and 550001 values; its last word is partly filled. */
  assert_true(compressed_bytes(self->node, "kv-0/large", "sent") == 3 * 4 * (34376 + 34376));
  assert_true(compressed_bytes(self->node, "kv-0/large", "values") == 3 * 4 * 1100003.0);
  expect_ok(kv_free(kv));
}
static void bytes_are_the_formulas(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, count_bytes);
}

static void invalid_codecs_are_refused(void** state) {
  (void)state;
  kv_store kv = 0;
  const int64_t key = 1;
  const kv_keys keys = number_keys(&key, 1);
  mv_tensor value = full(kSmall, 1, MV_F32, 0.75);
  const kv_values values = values_of(&value, 1);
  expect_error(kv_set_gradient_compression(77, "2bit"), MV_EHANDLE, "kv_set_gradient_compression");
  expect_ok(kv_create(0, "local", &kv));
  expect_error(kv_set_gradient_compression(kv, NULL), MV_EINVAL, "NULL");
  expect_error(kv_set_gradient_compression(kv, "3bit"), MV_EINVAL, "none, 2bit, 1bit, fp16, bf16, int8, topk");
  expect_error(kv_set_gradient_compression(kv, "2bit bits=2"), MV_EINVAL, "threshold=0.5");
  expect_error(kv_set_gradient_compression(kv, "2bit threshold=-1"), MV_EINVAL, "above 0");
  expect_error(kv_set_gradient_compression(kv, "2bit pull=2bit"), MV_EINVAL, "fp16");
  expect_ok(kv_set_gradient_compression(kv, "2bit"));
  expect_ok(kv_init(kv, &keys, &values));
  expect_ok(kv_push(kv, &keys, &values, NULL));
  expect_ok(kv_set_gradient_compression(kv, "2bit threshold=0.5")); /* the same again */
  expect_error(kv_set_gradient_compression(kv, "fp16"), MV_ESTATE, "key \"1\" was pushed already");
  expect_ok(kv_pull(kv, &keys, &values, NULL)); /* the store still works */
  expect_all(value, 0.5);
  expect_ok(mv_tensor_fill(value, 0));
  expect_ok(kv_set_gradient_compression(kv, "none"));
  expect_ok(kv_pushpull(kv, &keys, &values, NULL, NULL));
  expect_all(value, 0.25);
  expect_ok(kv_free(kv));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(servers_merge_what_workers_have_sent),
      cmocka_unit_test(one_worker_compresses_too),
      cmocka_unit_test(nothing_is_lost),
      cmocka_unit_test(each_device_keeps_its_own_rest),
      cmocka_unit_test(pulls_are_compressed_on_request),
      cmocka_unit_test(rows_travel_as_they_are),
      cmocka_unit_test(bytes_are_the_formulas),
      cmocka_unit_test(invalid_codecs_are_refused),
  };
  return cmocka_run_group_tests_name("kvstore_compression", tests, NULL, NULL);
}
