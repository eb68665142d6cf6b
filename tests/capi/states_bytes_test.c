/* kv_encode_states() and kv_decode_states(): the states of an updater as a file in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

static const char kFormat[] = "f";
enum { kMostBytes = 2048 };

struct file {
  unsigned char bytes[kMostBytes];
  uint64_t length;
};

static mv_status decode(const struct file* file, const char** about, const mv_tensor** tensors, uint64_t* count) {
  return kv_decode_states(kFormat, file->bytes, file->length, MV_RAW, about, tensors, count);
}

static void expect_refused(const struct file* file, const char* part) {
  const char* about = "untouched";
  const mv_tensor* tensors = NULL;
  uint64_t count = 7;
  expect_error(decode(file, &about, &tensors, &count), MV_EINVAL, part);
  assert_string_equal(about, "untouched");
  assert_true(tensors == NULL && count == 7);
}

/** A file with this header, in JSON, and this data. */
static struct file file_of(const char* header, const char* data, size_t data_bytes) {
  struct file file = {{0}, 8 + strlen(header) + data_bytes};
  const uint64_t length = strlen(header);
  assert_true(file.length <= kMostBytes);
  memcpy(file.bytes, &length, sizeof length);
  memcpy(file.bytes + 8, header, (size_t)length);
  memcpy(file.bytes + 8 + length, data, data_bytes);
  return file;
}

/** A file of a tensor of each dtype, each with another shape. */
static struct file encoded(const char* about, mv_tensor* tensors, uint64_t count) {
  struct file file = {{0}, 0};
  kv_values states = KV_VALUES_INIT;
  mv_tensor bytes = 0;
  void* data = NULL;
  mv_dtype dtype = MV_RAW;
  states.count = count;
  states.tensors = tensors;
  expect_ok(kv_encode_states(kFormat, about, &states, &bytes));
  expect_ok(mv_tensor_data(bytes, &data, &file.length, &dtype));
  assert_true(dtype == MV_U8 && file.length <= kMostBytes);
  memcpy(file.bytes, data, (size_t)file.length);
  expect_ok(mv_tensor_free(bytes));
  return file;
}

static const mv_dtype kDtypes[] = {MV_I8, MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_F16, MV_BF16, MV_F32, MV_F32, MV_F32};

static void make_tensors(mv_tensor* tensors) {
  for (size_t i = 0; i < COUNT_OF(kDtypes); ++i) {
    const int64_t shape[] = {3, (int64_t)i % 3};
    expect_ok(mv_tensor_create(kDtypes[i], shape, i < 2 ? (uint64_t)i : 2, &tensors[i]));
    expect_ok(mv_tensor_range(tensors[i], 1 + (double)i, 0.5));
  }
}

static void free_all(const mv_tensor* tensors, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) expect_ok(mv_tensor_free(tensors[i]));
}

static void what_was_encoded_is_decoded(void** state) {
  (void)state;
  mv_tensor tensors[COUNT_OF(kDtypes)];
  const char *about = NULL, *text = "{\"a\": [1, \"\xc3\xa9\\\n\x01\"]}";
  const mv_tensor* found = NULL;
  uint64_t count = 0;
  make_tensors(tensors);
  const struct file file = encoded(text, tensors, COUNT_OF(tensors));
  expect_ok(decode(&file, &about, &found, &count));
  assert_string_equal(about, text);
  assert_int_equal(count, COUNT_OF(tensors));
  for (size_t i = 0; i < count; ++i) {
    mv_tensor_info wanted = MV_TENSOR_INFO_INIT, got = MV_TENSOR_INFO_INIT;
    int32_t equal = 0;
    expect_ok(mv_tensor_describe(tensors[i], &wanted));
    expect_ok(mv_tensor_describe(found[i], &got));
    assert_true(got.dtype == wanted.dtype && got.dims == wanted.dims && memcmp(got.shape, wanted.shape, sizeof got.shape) == 0);
    expect_ok(mv_tensor_close(found[i], tensors[i], 0, 0, &equal));
    assert_true(equal);
  }
  free_all(found, count);
  free_all(tensors, COUNT_OF(tensors));

  mv_tensor bytes = 0;
  expect_ok(kv_encode_states(kFormat, "", NULL, &bytes));
  void* data = NULL;
  expect_ok(mv_tensor_data(bytes, &data, &count, NULL));
  expect_ok(kv_decode_states(kFormat, data, count, MV_U8, &about, &found, &count));
  assert_string_equal(about, "");
  assert_int_equal(count, 0);
  expect_ok(mv_tensor_free(bytes));
}

static void damage_is_noticed(void** state) {
  (void)state;
  mv_tensor tensors[COUNT_OF(kDtypes)];
  make_tensors(tensors);
  const struct file file = encoded("about", tensors, 3);
  free_all(tensors, COUNT_OF(tensors));
  for (uint64_t length = 0; length < file.length; ++length) {
    struct file shorter = file;
    shorter.length = length;
    expect_refused(&shorter, "damaged");
  }
  for (uint64_t at = 0; at < file.length; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      struct file flipped = file;
      flipped.bytes[at] ^= (unsigned char)(1 << bit);
      expect_refused(&flipped, "kv_decode_states: ");
    }
  struct file longer = file;
  ++longer.length;
  expect_refused(&longer, "cover only");
}

/** Headers with a valid checksum, over data of four bytes. */
static void invalid_files_are_refused(void** state) {
  (void)state;
  static const struct {
    const char *name, *reason, *tensors, *sum;
  } kCases[] = {
      {"of Python's writer", NULL,
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
       " \"state.1\": {\"dtype\": \"I8\", \"shape\": [0, 3], \"data_offsets\": [4, 4]}",
       "196dd45a0763398b499d6c4eb5eb2d2e381dcb479ed2c70f912e8fd82897375a"},
      {"the last tensor is missing", "state.1",
       "\"state.0\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [0, 2]},"
       " \"state.2\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [2, 4]}",
       "9cc5152d807f694eb027e5f6279e63a0688b5c6a0c6a96724dd6545609876e5e"},
      {"another name", "state.1",
       "\"state.0\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [0, 2]},"
       " \"moment\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [2, 4]}",
       "c6160c53add0853a1a075d5a8fc7c0ce81b95d6775d6bc0c33cbd3cf292396df"},
      {"no tensor has it", "U16",
       "\"state.0\": {\"dtype\": \"U16\", \"shape\": [2], \"data_offsets\": [0, 4]}",
       "56a5e1c33c93a39bba83a859f4f691117e1765457a545f66cf9ea2824de18bee"},
      {"9 dimensions", "9",
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [1, 1, 1, 1, 1, 1, 1, 1, 1], \"data_offsets\": [0, 4]}",
       "e00fa3f41334948297fa53fabc3826ed471a0204a98526f772c408a4adb99e67"},
      {"overlap", "inside another",
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
       " \"state.1\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [2, 4]}",
       "4bd8b13effd5e9fc988ce8468038de0d4ff657a0bf8a75087f56eb42ca7da667"},
      {"a gap", "gap",
       "\"state.0\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [2, 4]}",
       "d4c16598069291969e1167e954ed36b80ff2e2fd900d50a86a0e3bb869951fbf"},
      {"data that no tensor has", "cover only 2",
       "\"state.0\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [0, 2]}",
       "3175bfd0c5b77513228db0d537ec7d3d8059ee504807098760ea8ee70cf865a9"},
      {"beyond the end", "out of range",
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}",
       "6ac47f8350bfad71bdfb7a35ef5db590c2f25b403e80d6a0c73b0128e3b4750d"},
      {"overflow", "shape",
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4611686018427387904], \"data_offsets\": [0, 4]}",
       "2bd05cc1aae821c52bb53fef2471667d6dd9188c21d116c6d65f43e925dc395d"},
      {"huge zero", "dimension",
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [0, 9223372036854775808], \"data_offsets\": [0, 0]},"
       " \"state.1\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}",
       "f3e92b09c9769669ae96735b27ca582f723581eeda45f6957f1263ab1ccaa4e7"},
      {"a zero byte", "zero byte",
       "\"state.0\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}",
       "7685e3b4187f42a9013b5d91193b294fcbdfd060aa667c26be9a2582123c0672"},
  };
  for (size_t i = 0; i < COUNT_OF(kCases); ++i) {
    char header[1024];
    const int written = snprintf(header, sizeof header, "{%s, \"__metadata__\": {\"format\": \"f\", \"about\": \"%s\", \"sha256\": \"%s\"}}",
                                 kCases[i].tensors, strcmp(kCases[i].name, "a zero byte") == 0 ? "a\\u0000b" : "x", kCases[i].sum);
    assert_true(written > 0 && written < (int)sizeof header);
    const struct file file = file_of(header, "\0\0\x80?", 4);
    if (kCases[i].reason != NULL) {
      print_message("%s\n", kCases[i].name);
      expect_refused(&file, kCases[i].reason);
      continue;
    }
    const char* about = NULL;
    const mv_tensor* found = NULL;
    uint64_t count = 0;
    double value = 0;
    int64_t whole = 0;
    const int64_t first = 0;
    expect_ok(decode(&file, &about, &found, &count));
    assert_int_equal(count, 2);
    expect_ok(mv_tensor_get(found[0], &first, 1, &value, &whole));
    assert_true(value == 1);
    free_all(found, count);
  }
  static const char* const kNone[] = {"", "[]", "{", "{}", "{\"__metadata__\": {}}", "{\"__metadata__\": {\"format\": 3}}"};
  for (size_t i = 0; i < COUNT_OF(kNone); ++i) {
    const struct file file = file_of(kNone[i], "", 0);
    expect_refused(&file, "these are not the states");
  }
  static const char* const kForeign[][2] = {{"\x80\x04\x95xyz", "pickled"}, {"(dp0\nS'w'\np1\nI1\ns.", "pickled"},
                                            {"ccopy_reg\n_reconstructor\n.", "pickled"},
                                            {"pst0\x04\x0b\x08", "Storable"},
                                            {"\x05\x0b\x03", "not the states"},
                                            {"\x05\x0b\x03\x02z", "Storable"}};
  for (size_t i = 0; i < COUNT_OF(kForeign); ++i) {
    struct file file = {{0}, strlen(kForeign[i][0])};
    memcpy(file.bytes, kForeign[i][0], (size_t)file.length);
    expect_refused(&file, kForeign[i][1]);
  }
}

static void wrong_arguments_are_refused(void** state) {
  (void)state;
  const int64_t rows[] = {0}, shape[] = {1, 1};
  mv_tensor dense = 0, sparse = 0, bytes = 0;
  const char* about = NULL;
  const mv_tensor* found = NULL;
  uint64_t count = 0;
  kv_values states = KV_VALUES_INIT;
  expect_ok(mv_tensor_create(MV_F32, shape, 2, &dense));
  expect_ok(mv_tensor_sparse(rows, 1, dense, 5, &sparse));
  const struct file file = encoded("", &dense, 1);
  expect_error(kv_encode_states(NULL, "", NULL, &bytes), MV_EINVAL, "NULL");
  expect_error(kv_encode_states(kFormat, NULL, NULL, &bytes), MV_EINVAL, "NULL");
  expect_error(kv_encode_states(kFormat, "", NULL, NULL), MV_EINVAL, "NULL");
  expect_error(kv_encode_states(kFormat, "\xff", NULL, &bytes), MV_EINVAL, "UTF-8");
  expect_error(kv_encode_states("\xff", "", NULL, &bytes), MV_EINVAL, "UTF-8");
  states.count = 1;
  expect_error(kv_encode_states(kFormat, "", &states, &bytes), MV_EINVAL, "NULL");
  states.tensors = &sparse;
  expect_error(kv_encode_states(kFormat, "", &states, &bytes), MV_EINVAL, "row-sparse");
  const mv_tensor none = 0;
  states.tensors = &none;
  expect_error(kv_encode_states(kFormat, "", &states, &bytes), MV_EHANDLE, "");
  assert_int_equal(bytes, 0);
  char* const longest = malloc((64 << 20) + 1);
  assert_non_null(longest);
  memset(longest, 'x', 64 << 20);
  longest[64 << 20] = '\0';
  expect_error(kv_encode_states(kFormat, longest, NULL, &bytes), MV_EINVAL, "67108864");
  free(longest);
  expect_error(kv_decode_states(NULL, file.bytes, file.length, MV_RAW, &about, &found, &count), MV_EINVAL, "NULL");
  expect_error(kv_decode_states(kFormat, NULL, file.length, MV_RAW, &about, &found, &count), MV_EINVAL, "NULL");
  expect_error(kv_decode_states(kFormat, file.bytes, file.length, MV_RAW, NULL, &found, &count), MV_EINVAL, "NULL");
  expect_error(kv_decode_states(kFormat, file.bytes, file.length, MV_RAW, &about, NULL, &count), MV_EINVAL, "NULL");
  expect_error(kv_decode_states(kFormat, file.bytes, file.length, MV_RAW, &about, &found, NULL), MV_EINVAL, "NULL");
  expect_error(kv_decode_states(kFormat, file.bytes, file.length / 4, MV_F32, &about, &found, &count), MV_EDTYPE, "f32");
  expect_error(kv_decode_states("g", file.bytes, file.length, MV_RAW, &about, &found, &count), MV_EINVAL, "the format is \"f\", not \"g\"");
  assert_true(about == NULL && found == NULL && count == 0);
  expect_ok(mv_tensor_free(dense));
  expect_ok(mv_tensor_free(sparse));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_encoded_is_decoded),
      cmocka_unit_test(damage_is_noticed),
      cmocka_unit_test(invalid_files_are_refused),
      cmocka_unit_test(wrong_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
