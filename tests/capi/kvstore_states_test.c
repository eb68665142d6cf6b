/* Optimizer states: saved and loaded, refused where they do not fit; and parameters of single keys. */
#include <stdlib.h>
#include <unistd.h>

#include "stores.h"

enum { kKeys = 3, kSteps = 4, kWorkers = 3 };

static const int64_t kNumbers[kKeys] = {1, 2, 3};
static const int64_t kLarge[] = {1000001}; /* spread over all servers */

static char folder[64];
static const char* in_folder(const char* name) {
  static char path[128];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return path;
}
static int make_folder(void** state) {
  (void)state;
  snprintf(folder, sizeof(folder), "/tmp/polyverso-states-XXXXXX");
  return mkdtemp(folder) == NULL;
}
static int remove_folder(void** state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof(command), "rm -r '%s'", folder);
  return system(command);
}

/** Two keys of different dtypes, and a large one. */
static void make_values(mv_tensor values[kKeys], double value) {
  values[0] = full(kShape, 2, MV_F32, value);
  values[1] = full(kShape, 2, MV_F64, value);
  values[2] = full(kLarge, 1, MV_F32, value);
}

static kv_store store_of(mv_node node, const char* type, const mv_tensor values[kKeys]) {
  kv_store kv = 0;
  const kv_keys keys = number_keys(kNumbers, kKeys);
  const kv_values given = values_of(values, kKeys);
  expect_ok(kv_create(node, type, &kv));
  expect_ok(kv_init(kv, &keys, &given));
  return kv;
}

/** Gradients that differ by step, worker and element. */
static void push_step(kv_store kv, int step, int worker) {
  const kv_keys keys = number_keys(kNumbers, kKeys);
  mv_tensor gradients[kKeys];
  make_values(gradients, 0);
  for (int i = 0; i < kKeys; ++i) expect_ok(mv_tensor_uniform(gradients[i], (int64_t)(step * 100 + worker * 10 + i), -1, 1));
  const kv_values given = values_of(gradients, kKeys);
  expect_ok(kv_push(kv, &keys, &given, NULL));
  for (int i = 0; i < kKeys; ++i) expect_ok(mv_tensor_free(gradients[i]));
}

static void pull_all(kv_store kv, mv_tensor values[kKeys]) {
  const kv_keys keys = number_keys(kNumbers, kKeys);
  const kv_values outs = values_of(values, kKeys);
  expect_ok(kv_pull(kv, &keys, &outs, NULL));
}

static void expect_same(const mv_tensor a[kKeys], const mv_tensor b[kKeys]) {
  for (int i = 0; i < kKeys; ++i) {
    int32_t same = 0;
    expect_ok(mv_tensor_close(a[i], b[i], 0, 0, &same));
    assert_true(same);
  }
}

/** Makes half of the steps, saves a file, and makes the other half; then repeats the second half in another store, from the file. */
static void resume(mv_node node, const char* type, const char* optimizer, const char* codec, int worker, const char* path) {
  mv_tensor values[kKeys], middle[kKeys], again[kKeys];
  make_values(values, 0.5);
  make_values(middle, 0);
  make_values(again, 0);
  kv_store kv = store_of(node, type, values);
  expect_ok(kv_set_gradient_compression(kv, codec));
  if (worker == 0) expect_ok(kv_set_optimizer(kv, optimizer));
  expect_ok(kv_barrier(kv, NULL));
  for (int step = 0; step < kSteps / 2; ++step) push_step(kv, step, worker);
  pull_all(kv, middle);
  expect_ok(kv_barrier(kv, NULL));
  if (worker == 0) expect_ok(kv_save_optimizer_states(kv, path, KV_DUMP_OPTIMIZER));
  expect_ok(kv_barrier(kv, NULL));
  for (int step = kSteps / 2; step < kSteps; ++step) push_step(kv, step, worker);
  pull_all(kv, values);
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));

  kv = store_of(node, type, middle);
  expect_ok(kv_set_gradient_compression(kv, codec));
  if (worker == 0) expect_ok(kv_load_optimizer_states(kv, path));
  expect_ok(kv_barrier(kv, NULL));
  for (int step = kSteps / 2; step < kSteps; ++step) push_step(kv, step, worker);
  pull_all(kv, again);
  expect_same(values, again);
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));
  for (int i = 0; i < kKeys; ++i) {
    expect_ok(mv_tensor_free(values[i]));
    expect_ok(mv_tensor_free(middle[i]));
    expect_ok(mv_tensor_free(again[i]));
  }
}

static const char* const kOptimizers[] = {
    "mx.adam learning_rate=0.01 wd=0.001",
    "mx.sgd learning_rate=0.1 momentum=0.9 lr_scheduler=factor step=2 factor=0.5",
    "mx.nadam learning_rate=0.01",
};

static void a_resumed_run_is_the_uninterrupted_one(void** state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(kOptimizers); ++i) resume(0, "local", kOptimizers[i], "none", 0, in_folder("local"));
  resume(0, "local", kOptimizers[0], "2bit threshold=0.25", 0, in_folder("compressed")); /* the residual is in the file */
}

static void resume_together(struct member* self) {
  for (size_t i = 0; i + 1 < COUNT_OF(kOptimizers); ++i) {
    char path[128];
    snprintf(path, sizeof(path), "%s/together-%d", folder, (int)i);
    resume(self->node, "dist_sync", kOptimizers[i], "none", self->index, path);
  }
  char path[128];
  snprintf(path, sizeof(path), "%s/together-compressed", folder);
  resume(self->node, "dist_sync", kOptimizers[0], "2bit threshold=0.25", self->index, path); /* all workers' residuals are in it */
}
static void all_servers_states_are_in_one_file(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, resume_together);
}

/** One key of ones; its pushes leave everything in the residual. */
static kv_store store_with_codec(struct member* self, const char* codec) {
  kv_store kv = 0;
  const mv_tensor ones = full(kShape, 2, MV_F32, 1);
  const kv_keys keys = number_keys(kNumbers, 1);
  const kv_values values = values_of(&ones, 1);
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_init(kv, &keys, &values));
  expect_ok(kv_set_gradient_compression(kv, codec));
  if (self->index == 0) expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=1"));
  expect_ok(kv_barrier(kv, NULL));
  return kv;
}
static kv_store store_that_leaves_out(struct member* self) { return store_with_codec(self, "2bit threshold=4"); }
static void push_and_pull(kv_store kv, double pushed, double pulled) {
  const mv_tensor gradient = full(kShape, 2, MV_F32, pushed), out = full(kShape, 2, MV_F32, 0);
  const kv_keys keys = number_keys(kNumbers, 1);
  const kv_values values = values_of(&gradient, 1), outs = values_of(&out, 1);
  expect_ok(kv_pushpull(kv, &keys, &values, &outs, NULL));
  expect_all(out, pulled);
}
static void leave_out(struct member* self) {
  kv_store kv = store_that_leaves_out(self);
  push_and_pull(kv, 0.25 * (self->index + 1), 1);
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 0) expect_ok(kv_save_optimizer_states(kv, in_folder("left"), 0));
  expect_ok(kv_barrier(kv, NULL));
  char tables[512];
  uint64_t length = 0;
  expect_ok(mv_table_list(self->node, tables, sizeof(tables), &length));
  assert_null(strchr(tables, '\n')); /* the key's, and no other */
  expect_ok(kv_free(kv));
}
static void bring_back(struct member* self) {
  kv_store kv = store_that_leaves_out(self);
  if (self->index == 0) expect_ok(kv_load_optimizer_states(kv, in_folder("left")));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_set_gradient_compression(kv, "none"));
  push_and_pull(kv, 0, 1 - (0.25 + 0.5 + 0.75));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));
}
/** Workers that compress no more still have what they have left out; and those that never did take what is loaded. */
static void leave_out_and_compress_no_more(struct member* self) {
  kv_store kv = store_that_leaves_out(self);
  push_and_pull(kv, 0.25 * (self->index + 1), 1);
  expect_ok(kv_set_gradient_compression(kv, "none"));
  expect_ok(kv_barrier(kv, NULL));
  if (self->index == 1) expect_ok(kv_save_optimizer_states(kv, in_folder("removed"), 0));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));
}
static void bring_back_uncompressed(struct member* self) {
  kv_store kv = store_with_codec(self, "none");
  if (self->index == 1) expect_ok(kv_load_optimizer_states(kv, in_folder("removed")));
  expect_ok(kv_barrier(kv, NULL));
  push_and_pull(kv, 0, 1 - (0.25 + 0.5 + 0.75));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));
}
/** Two stores, of which each is saved by another worker. */
static void leave_out_of_two(struct member* self) {
  kv_store stores[] = {store_that_leaves_out(self), store_that_leaves_out(self)};
  const char* const names[] = {"first", "second"};
  for (int i = 0; i < 2; ++i) push_and_pull(stores[i], 0.25 * (i + 1), 1);
  for (int i = 0; i < 2; ++i) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    if (self->index == i) expect_ok(kv_save_optimizer_states(stores[i], path, 0));
    expect_ok(kv_barrier(stores[i], NULL));
  }
  for (int i = 0; i < 2; ++i) expect_ok(kv_free(stores[i]));
}
static void bring_back_of_two(struct member* self) {
  kv_store stores[] = {store_that_leaves_out(self), store_that_leaves_out(self)};
  const char* const names[] = {"first", "second"};
  for (int i = 0; i < 2; ++i) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    if (self->index == i) expect_ok(kv_load_optimizer_states(stores[i], path));
  }
  for (int i = 0; i < 2; ++i) {
    expect_ok(kv_barrier(stores[i], NULL));
    expect_ok(kv_set_gradient_compression(stores[i], "none"));
    push_and_pull(stores[i], 0, 1 - kWorkers * 0.25 * (i + 1));
    expect_ok(kv_barrier(stores[i], NULL));
    expect_ok(kv_free(stores[i]));
  }
}
/** Who has finished is not waited for. */
static void leave_early(struct member* self) {
  kv_store kv = store_that_leaves_out(self);
  push_and_pull(kv, 0.25, 1);
  if (self->index == 0) expect_ok(kv_save_optimizer_states(kv, in_folder("alone"), 0));
  expect_ok(kv_free(kv));
}
static void residuals_survive_a_change_of_the_number_of_workers(void** state) {
  (void)state;
  run_nodes(kWorkers, NULL, leave_out);
  run_nodes(kWorkers - 1, NULL, bring_back); /* one worker gets the residuals of two */
  run_nodes(kWorkers + 1, NULL, bring_back); /* one worker gets none */
  run_nodes(2, NULL, leave_early);
  run_nodes(kWorkers, NULL, leave_out_and_compress_no_more);
  run_nodes(kWorkers, NULL, bring_back_uncompressed);
  run_nodes(kWorkers, NULL, leave_out_of_two);
  run_nodes(kWorkers, NULL, bring_back_of_two);
  run_nodes(kWorkers, "sync=1", leave_out); /* where other tables wait for gets */
  run_nodes(kWorkers, "sync=1", bring_back);
}

/* ------------------------------------------------------------------ without the optimizer */

static void states_alone_go_with_the_optimizer_that_is_set(void** state) {
  (void)state;
  mv_tensor values[kKeys];
  make_values(values, 1);
  kv_store kv = store_of(0, "local", values);
  expect_error(kv_save_optimizer_states(kv, in_folder("none"), 0), MV_ESTATE, "kv_set_optimizer");
  expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=1 momentum=0.5"));
  push_step(kv, 0, 0);
  expect_ok(kv_save_optimizer_states(kv, in_folder("alone"), 0));
  pull_all(kv, values);
  mv_tensor expected[kKeys], outs[kKeys];
  make_values(expected, 0);
  make_values(outs, 0);
  push_step(kv, 1, 0);
  pull_all(kv, expected);
  expect_ok(kv_free(kv));

  kv = store_of(0, "local", values);
  expect_error(kv_load_optimizer_states(kv, in_folder("alone")), MV_ESTATE, "kv_set_optimizer");
  expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=1 momentum=0.5"));
  expect_ok(kv_load_optimizer_states(kv, in_folder("alone")));
  push_step(kv, 1, 0);
  pull_all(kv, outs);
  expect_same(expected, outs);
  expect_error(kv_save_optimizer_states(kv, in_folder("alone"), 8), MV_EINVAL, "kv_save_flag");
  expect_error(kv_save_optimizer_states(kv, NULL, 0), MV_EINVAL, "NULL");
  expect_error(kv_save_optimizer_states(kv, in_folder("nowhere/alone"), 0), MV_ESYSTEM, "nowhere");
  expect_ok(kv_free(kv));
}

/* ------------------------------------------------------------------ refusals */

static void write_bytes(const char* name, const char* bytes, size_t count) {
  FILE* file = fopen(in_folder(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

/** A copy of the file with one byte changed. */
static void damage(const char* from, const char* to, long at) {
  FILE* file = fopen(in_folder(from), "rb");
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  const long size = ftell(file);
  char* bytes = malloc((size_t)size);
  rewind(file);
  assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
  fclose(file);
  bytes[at < 0 ? size + at : at] ^= 1;
  write_bytes(to, bytes, (size_t)size);
  free(bytes);
}

static void misfit_states_change_nothing(void** state) {
  (void)state;
  mv_tensor values[kKeys], outs[kKeys], expected[kKeys];
  make_values(values, 1);
  make_values(outs, 0);
  make_values(expected, 0);
  kv_store kv = store_of(0, "local", values), twin = store_of(0, "local", values), other = 0;
  expect_ok(kv_set_optimizer(kv, "mx.adam learning_rate=0.1"));
  expect_ok(kv_set_optimizer(twin, "mx.adam learning_rate=0.1"));
  push_step(kv, 0, 0);
  push_step(twin, 0, 0);
  expect_ok(kv_save_optimizer_states(kv, in_folder("good"), KV_DUMP_OPTIMIZER));

  for (long at = -1; at > -200; at -= 57) {
    damage("good", "bad", at);
    expect_error(kv_load_optimizer_states(kv, in_folder("bad")), MV_EINVAL, "damaged");
  }
  for (long at = 0; at < 1200; at += 61) { /* its header */
    damage("good", "bad", at);
    const mv_status refused = kv_load_optimizer_states(kv, in_folder("bad"));
    if (refused != MV_EINVAL) fail_msg("byte %ld: %s: %s", at, mv_status_name(refused), mv_last_error());
  }
  write_bytes("pickled", "\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94.", 14);
  expect_error(kv_load_optimizer_states(kv, in_folder("pickled")), MV_EINVAL, "pickled");
  write_bytes("storable", "pst0\x04\x0b\x08" "12345678", 15);
  expect_error(kv_load_optimizer_states(kv, in_folder("storable")), MV_EINVAL, "Storable");
  write_bytes("frozen", "\x04\x0b\x08" "12345678\x04\x08\x08\x08\x03", 16);
  expect_error(kv_load_optimizer_states(kv, in_folder("frozen")), MV_EINVAL, "Storable");
  write_bytes("short", "abc", 3);
  expect_error(kv_load_optimizer_states(kv, in_folder("short")), MV_EINVAL, "ends");
  expect_error(kv_load_optimizer_states(kv, in_folder("missing")), MV_ENOTFOUND, "missing");

  expect_ok(kv_create(0, "local", &other)); /* of other keys, shapes, optimizers */
  const kv_keys first = number_keys(kNumbers, 1), rest = number_keys(kNumbers + 1, 2);
  const kv_values one = values_of(values, 1), two = values_of(values + 1, 2);
  expect_ok(kv_init(other, &first, &one));
  expect_ok(kv_set_optimizer(other, "mx.adam"));
  expect_error(kv_load_optimizer_states(other, in_folder("good")), MV_EDISAGREE, "\"2\"");
  expect_ok(kv_init(other, &rest, &two));
  const int64_t four = 4;
  const kv_keys more = number_keys(&four, 1);
  expect_ok(kv_init(other, &more, &one));
  expect_error(kv_load_optimizer_states(other, in_folder("good")), MV_EDISAGREE, "\"4\"");
  expect_ok(kv_free(other));
  const mv_tensor swapped[kKeys] = {values[1], values[0], values[2]};
  other = store_of(0, "local", swapped);
  expect_ok(kv_set_optimizer(other, "mx.adam"));
  expect_error(kv_load_optimizer_states(other, in_folder("good")), MV_EDISAGREE, "f64 (2, 3)");
  expect_ok(kv_free(other));
  other = store_of(0, "local", values);
  expect_ok(kv_set_optimizer(other, "mx.sgd momentum=0.9"));
  expect_error(kv_load_optimizer_states(other, in_folder("good")), MV_EDISAGREE, "mx.adam");
  expect_ok(kv_free(other));

  push_step(kv, 1, 0); /* nothing of it was changed */
  push_step(twin, 1, 0);
  pull_all(kv, outs);
  pull_all(twin, expected);
  expect_same(outs, expected);
  expect_ok(kv_free(twin));
  expect_ok(kv_free(kv));
}

static mv_status remember(void* user, const char* key, mv_tensor merged, mv_tensor stored) {
  (void)user, (void)key, (void)merged, (void)stored;
  return MV_OK;
}
static void a_callback_remembers_by_itself(void** state) {
  (void)state;
  mv_tensor values[kKeys];
  make_values(values, 1);
  kv_store kv = store_of(0, "local", values), empty = 0;
  expect_ok(kv_set_updater(kv, remember, NULL));
  expect_error(kv_save_optimizer_states(kv, in_folder("own"), 0), MV_ESTATE, "yours");
  expect_error(kv_load_optimizer_states(kv, in_folder("own")), MV_ESTATE, "yours");
  expect_ok(kv_free(kv));
  expect_ok(kv_create(0, "local", &empty));
  expect_error(kv_save_optimizer_states(empty, in_folder("own"), 0), MV_ESTATE, "no keys");
  expect_ok(kv_free(empty));
}

/* ------------------------------------------------------------------ per key */

static void expect_pulled(kv_store kv, int64_t key, double value) {
  mv_tensor out = full(kShape, 2, MV_F32, -9);
  const kv_keys keys = number_keys(&key, 1);
  const kv_values outs = values_of(&out, 1);
  expect_ok(kv_pull(kv, &keys, &outs, NULL));
  expect_all(out, value);
  expect_ok(mv_tensor_free(out));
}

static void keys_have_parameters_of_their_own(void** state) {
  (void)state;
  kv_store kv = 0;
  expect_ok(kv_create(0, "local", &kv));
  const mv_tensor ones[] = {full(kShape, 2, MV_F32, 1), full(kShape, 2, MV_F32, 1), full(kShape, 2, MV_F32, 1)};
  const kv_keys one = number_keys(kNumbers, 1), two = number_keys(kNumbers + 1, 1), three = number_keys(kNumbers + 2, 1),
                both = number_keys(kNumbers, 2), all = number_keys(kNumbers, 3);
  const kv_values a = values_of(ones, 1), pair = values_of(ones, 2), triple = values_of(ones, 3);
  expect_ok(kv_init(kv, &both, &pair));
  expect_ok(kv_set_key_parameters(kv, &one, "lr_mult=0.5"));         /* before the optimizer */
  expect_ok(kv_set_key_parameters(kv, &three, "lr_mult=0 wd_mult=0")); /* and before its key */
  expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=1 wd=0.5"));
  expect_ok(kv_init(kv, &three, &a));
  expect_ok(kv_set_key_parameters(kv, &two, "wd_mult=0")); /* after both */
  expect_ok(kv_push(kv, &all, &triple, NULL));
  expect_pulled(kv, 1, 1 - 0.5 * (1 + 0.5));
  expect_pulled(kv, 2, 1 - 1);
  expect_pulled(kv, 3, 1);
  expect_ok(kv_set_optimizer(kv, "mx.sgd learning_rate=2")); /* a later optimizer */
  expect_ok(kv_set_key_parameters(kv, &two, ""));
  expect_ok(kv_push(kv, &all, &triple, NULL));
  expect_pulled(kv, 1, 0.25 - 1);
  expect_pulled(kv, 2, 0 - 2);
  expect_pulled(kv, 3, 1);

  expect_error(kv_set_key_parameters(kv, &one, "momentum=1"), MV_EINVAL, "lr_mult");
  expect_error(kv_set_key_parameters(kv, &one, "lr_mult=x"), MV_EINVAL, "lr_mult=x");
  expect_error(kv_set_key_parameters(kv, &one, "lr_mult=1 lr_mult=2"), MV_EINVAL, "twice");
  expect_error(kv_set_key_parameters(kv, &one, NULL), MV_EINVAL, "NULL");
  expect_error(kv_set_optimizer(kv, "sgd rate=1"), MV_EINVAL, "lr_mult"); /* it has none */
  expect_ok(kv_set_key_parameters(kv, &all, ""));
  expect_ok(kv_set_optimizer(kv, "sgd rate=1"));
  expect_error(kv_set_key_parameters(kv, &one, "lr_mult=2"), MV_EINVAL, "sgd");
  expect_ok(kv_free(kv));
}

/** A value refused for one key is refused before any other key gets it, and later keys do not get it. */
static void a_refused_optimizer_changes_nothing(void** state) {
  (void)state;
  kv_store kv = 0;
  const char* const names[] = {"a", "z", "later"};
  const mv_tensor values[] = {full(kShape, 2, MV_F32, 1), full(kShape, 2, MV_I32, 1), full(kShape, 2, MV_F32, 1)};
  const mv_tensor five = full(kShape, 2, MV_F32, 5), out = full(kShape, 2, MV_F32, 0);
  const kv_keys both = name_keys(names, 2), a = name_keys(names, 1), later = name_keys(names + 2, 1);
  const kv_values given = values_of(values, 2), third = values_of(values + 2, 1), pushed = values_of(&five, 1), pulled = values_of(&out, 1);
  expect_ok(kv_create(0, "local", &kv));
  expect_ok(kv_init(kv, &both, &given));
  expect_error(kv_set_optimizer(kv, "mx.sgd learning_rate=0.5"), MV_EINVAL, "key \"z\"");
  expect_ok(kv_push(kv, &a, &pushed, NULL));
  expect_ok(kv_pull(kv, &a, &pulled, NULL));
  expect_all(out, 5);
  expect_ok(kv_init(kv, &later, &third));
  expect_ok(kv_set_updater(kv, remember, NULL)); /* it leaves the value unchanged */
  expect_error(kv_set_optimizer(kv, "mx.sgd learning_rate=0.5"), MV_EINVAL, "key \"z\"");
  expect_ok(kv_push(kv, &later, &pushed, NULL));
  expect_ok(kv_pull(kv, &later, &pulled, NULL));
  expect_all(out, 1);
  expect_ok(kv_free(kv));
}

/* ------------------------------------------------------------------ norms of large tensors */

static const int64_t kStripes[] = {700001}; /* three stripes, and on one server because it has less than 4 MB */
static const char* const kWholes[] = {"mx.lamb learning_rate=0.1 wd=0.01", "mx.lbsgd learning_rate=0.1 warmup_strategy=lars momentum=0.5"};

static int64_t rank_of(kv_store kv) {
  int64_t rank = -1;
  expect_ok(kv_rank(kv, &rank));
  return rank;
}
static mv_tensor ramp(int64_t seed) {
  const mv_tensor made = full(kStripes, 1, MV_F32, 0);
  expect_ok(mv_tensor_uniform(made, seed, -1, seed == 0 ? 5 : 1));
  return made;
}
/** Three steps from the same values, with the gradients of this many devices; 0: of other workers. */
static void step_whole(kv_store kv, const char* optimizer, int devices, mv_tensor out) {
  const int64_t key = 7;
  const kv_keys keys = number_keys(&key, 1);
  const mv_tensor start = ramp(0);
  const kv_values initial = values_of(&start, 1), outs = values_of(&out, 1);
  expect_ok(kv_init(kv, &keys, &initial));
  if (rank_of(kv) == 0) expect_ok(kv_set_optimizer(kv, optimizer));
  expect_ok(kv_barrier(kv, NULL));
  for (int step = 1; step <= 3 && devices > 0; ++step) {
    const mv_tensor gradient = ramp(step), pair[] = {gradient, gradient};
    const kv_values given = values_of(pair, devices);
    expect_ok(kv_push(kv, &keys, &given, NULL));
    expect_ok(mv_tensor_free(gradient));
  }
  expect_ok(kv_pull(kv, &keys, &outs, NULL));
  expect_ok(mv_tensor_free(start));
}
static void step_whole_together(struct member* self) {
  for (size_t i = 0; i < COUNT_OF(kWholes); ++i) {
    kv_store alone = 0, kv = 0;
    int32_t same = 0;
    const mv_tensor expected = full(kStripes, 1, MV_F32, 0), got = full(kStripes, 1, MV_F32, 0);
    expect_ok(kv_create(0, "local", &alone));
    expect_ok(kv_create(self->node, "dist_sync", &kv));
    step_whole(alone, kWholes[i], 2, expected);
    step_whole(kv, kWholes[i], 1, got);
    expect_ok(mv_tensor_close(expected, got, 0, 0, &same));
    assert_true(same);
    kv_store single = 0, async = 0; /* each push is a separate update */
    expect_ok(kv_create(0, "local", &single));
    expect_ok(kv_create(self->node, "dist_async", &async));
    step_whole(single, kWholes[i], 1, expected);
    step_whole(async, kWholes[i], self->index, got);
    if (self->index == 1) expect_ok(mv_tensor_close(expected, got, 0, 0, &same));
    assert_true(same);
    expect_ok(kv_barrier(async, NULL));
    expect_ok(kv_free(async));
    expect_ok(kv_free(single));
    if (self->nodes > 1) { /* above 4 MB it would be split over both */
      const mv_tensor large = full(kLarge, 1, MV_F32, 1);
      const int64_t key = 8;
      const kv_keys keys = number_keys(&key, 1);
      const kv_values values = values_of(&large, 1);
      kv_store other = 0;
      expect_ok(kv_create(self->node, "dist_sync", &other));
      expect_ok(kv_init(other, &keys, &values));
      expect_error(kv_set_optimizer(other, kWholes[i]), MV_EINVAL, "spread over 2 servers");
      expect_ok(kv_barrier(other, NULL));
      expect_ok(kv_free(other));
    }
    expect_ok(kv_barrier(kv, NULL));
    expect_ok(kv_free(kv));
    expect_ok(kv_free(alone));
  }
}
static kv_store whole_store(struct member* self) {
  const mv_tensor start = ramp(0);
  const int64_t key = 7;
  const kv_keys keys = number_keys(&key, 1);
  const kv_values initial = values_of(&start, 1);
  kv_store kv = 0;
  expect_ok(kv_create(self->node, "dist_sync", &kv));
  expect_ok(kv_init(kv, &keys, &initial));
  return kv;
}
static void refuse_whole(struct member* self) {
  kv_store kv = whole_store(self);
  expect_error(kv_set_optimizer(kv, kWholes[0]), MV_EINVAL, "MXNET_KVSTORE_BIGARRAY_BOUND above 700001");
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));
}
static void take_whole(struct member* self) {
  kv_store kv = whole_store(self);
  expect_ok(kv_set_optimizer(kv, kWholes[0]));
  expect_ok(kv_barrier(kv, NULL));
  expect_ok(kv_free(kv));
}
static void norms_are_of_whole_tensors(void** state) {
  (void)state;
  run_nodes(2, NULL, step_whole_together);
  setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "700001", 1); /* now it is split over both */
  run_nodes(2, NULL, refuse_whole);
  setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "700002", 1);
  run_nodes(2, NULL, take_whole);
  setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "many", 1);
  kv_store kv = 0;
  expect_error(kv_create(0, "local", &kv), MV_EINVAL, "MXNET_KVSTORE_BIGARRAY_BOUND=many");
  unsetenv("MXNET_KVSTORE_BIGARRAY_BOUND");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_resumed_run_is_the_uninterrupted_one), cmocka_unit_test(all_servers_states_are_in_one_file),
      cmocka_unit_test(residuals_survive_a_change_of_the_number_of_workers),
      cmocka_unit_test(states_alone_go_with_the_optimizer_that_is_set), cmocka_unit_test(misfit_states_change_nothing),
      cmocka_unit_test(a_callback_remembers_by_itself), cmocka_unit_test(keys_have_parameters_of_their_own),
      cmocka_unit_test(a_refused_optimizer_changes_nothing), cmocka_unit_test(norms_are_of_whole_tensors),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
