/* The option structs of polyverso.h as tables of keys: the keys of a Python mapping, a Perl hash or a Lua table.
 * Each language iterates over its own container and passes every key and value to pv_field_number() or
 * pv_field_text(). */
#ifndef POLYVERSO_SWIG_FIELDS_H
#define POLYVERSO_SWIG_FIELDS_H

#include <inttypes.h>
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <string.h>

typedef enum {
  PV_FIELD_I32,
  PV_FIELD_U32,
  PV_FIELD_I64,
  PV_FIELD_U64,
  PV_FIELD_REAL,
  PV_FIELD_TEXT,
  PV_FIELD_BIT
} pv_field_kind;

/* An enum value with its name as a word. */
typedef struct {
  const char *word;
  int64_t value;
} pv_word;

typedef struct {
  const char *key;
  pv_field_kind kind;
  size_t offset;
  const pv_word *words; /* NULL: none */
  uint32_t bit;         /* PV_FIELD_BIT: the bit of the uint32_t at offset */
  int from_zero;        /* refuses negative numbers: C's MV_UNSET, -1, would silently mean "not given" */
} pv_field;

#define PV_MESSAGE_SIZE 512

static const pv_word pv_role_words[] = {
    {"worker", MV_ROLE_WORKER}, {"server", MV_ROLE_SERVER}, {"all", MV_ROLE_ALL}, {NULL, 0}};
static const pv_word pv_kind_words[] = {
    {"array", MV_ARRAY}, {"matrix", MV_MATRIX}, {"sparse", MV_SPARSE}, {"keyvalue", MV_KEYVALUE}, {NULL, 0}};
static const pv_word pv_dtype_words[] = {
    {"f32", MV_F32},       {"f64", MV_F64},     {"i64", MV_I64},     {"i32", MV_I32},     {"u8", MV_U8},
    {"i8", MV_I8},         {"f16", MV_F16},     {"bf16", MV_BF16},   {"float32", MV_F32}, {"float64", MV_F64},
    {"int64", MV_I64},     {"int32", MV_I32},   {"uint8", MV_U8},    {"int8", MV_I8},     {"float16", MV_F16},
    {"bfloat16", MV_BF16}, {NULL, 0}};

#define PV_FIELD(type, member, kind, words) {#member, kind, offsetof(type, member), words, 0, 0}
#define PV_FIELD_FROM_0(type, member, kind) {#member, kind, offsetof(type, member), NULL, 0, 1}

static const pv_field pv_init_fields[] = {
    PV_FIELD(mv_init_options, text, PV_FIELD_TEXT, NULL),
    PV_FIELD_FROM_0(mv_init_options, sync, PV_FIELD_I32),
    PV_FIELD(mv_init_options, role, PV_FIELD_I32, pv_role_words),
    PV_FIELD(mv_init_options, rank, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, nodes, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, master, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, bind, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, secret, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, transport, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, faults, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, timeout_ms, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, gate_timeout_ms, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, init_timeout_ms, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, heartbeat_timeout_ms, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, inflight_bytes, PV_FIELD_U64, NULL),
    PV_FIELD_FROM_0(mv_init_options, spin_us, PV_FIELD_I64),
    PV_FIELD(mv_init_options, checkpoint, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, checkpoint_every_ms, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, checkpoint_keep, PV_FIELD_I64, NULL),
    PV_FIELD(mv_init_options, advertise, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_init_options, metrics, PV_FIELD_TEXT, NULL),
    PV_FIELD_FROM_0(mv_init_options, replicas, PV_FIELD_I64),
    {NULL, PV_FIELD_I32, 0, NULL, 0, 0}};

static const pv_field pv_spec_fields[] = {
    PV_FIELD(mv_table_spec, name, PV_FIELD_TEXT, NULL),
    PV_FIELD(mv_table_spec, kind, PV_FIELD_I32, pv_kind_words),
    PV_FIELD(mv_table_spec, dtype, PV_FIELD_I32, pv_dtype_words),
    PV_FIELD(mv_table_spec, rows, PV_FIELD_U64, NULL),
    PV_FIELD(mv_table_spec, cols, PV_FIELD_U64, NULL),
    PV_FIELD(mv_table_spec, flags, PV_FIELD_U32, NULL),
    PV_FIELD(mv_table_spec, updater, PV_FIELD_TEXT, NULL),
    PV_FIELD_FROM_0(mv_table_spec, staleness, PV_FIELD_I64),
    PV_FIELD(mv_table_spec, initial, PV_FIELD_REAL, NULL),
    PV_FIELD(mv_table_spec, initial_range, PV_FIELD_REAL, NULL),
    PV_FIELD(mv_table_spec, seed, PV_FIELD_I64, NULL), /* the 64 bits; no language has wider integers */
    PV_FIELD(mv_table_spec, capacity, PV_FIELD_U64, NULL),
    PV_FIELD(mv_table_spec, device, PV_FIELD_I64, NULL),
    {"size", PV_FIELD_U64, offsetof(mv_table_spec, rows), NULL, 0, 0}, /* an array's, as in mv_table_create_text() */
    {"reject_nonfinite", PV_FIELD_BIT, offsetof(mv_table_spec, flags), NULL, MV_REJECT_NONFINITE, 0},
    {"merge", PV_FIELD_BIT, offsetof(mv_table_spec, flags), NULL, MV_MERGE, 0},
    {"no_backups", PV_FIELD_BIT, offsetof(mv_table_spec, flags), NULL, MV_NO_BACKUPS, 0},
    {NULL, PV_FIELD_I32, 0, NULL, 0, 0}};

static const pv_field pv_call_fields[] = {
    PV_FIELD(mv_call_options, flags, PV_FIELD_U32, NULL),
    PV_FIELD(mv_call_options, timeout_ms, PV_FIELD_I64, NULL),
    PV_FIELD(mv_call_options, label, PV_FIELD_U64, NULL),
    {NULL, PV_FIELD_I32, 0, NULL, 0, 0}};

/* The field of that name; NULL, with a message that lists the known ones, if there is none. */
static inline const pv_field *pv_field_find(const pv_field *fields, const char *key, char message[PV_MESSAGE_SIZE]) {
  const pv_field *field;
  for (field = fields; field->key; ++field)
    if (strcmp(field->key, key) == 0) return field;
  size_t used = (size_t)snprintf(message, PV_MESSAGE_SIZE, "unknown option \"%.100s\"; known:", key);
  for (field = fields; field->key && used < PV_MESSAGE_SIZE; ++field)
    used += (size_t)snprintf(message + used, PV_MESSAGE_SIZE - used, " %s", field->key);
  return NULL;
}

/* Stores a number. Returns 0, with a message, if the field takes text or the number does not fit. */
static inline int pv_field_number(void *options, const pv_field *field, int64_t value, char message[PV_MESSAGE_SIZE]) {
  void *at = (char *)options + field->offset;
  const char *needed = NULL; /* what the field takes instead */
  switch (field->kind) {
    case PV_FIELD_I32: needed = value < INT32_MIN || value > INT32_MAX ? "a 32-bit integer" : NULL; break;
    case PV_FIELD_U32: needed = value < 0 || value > UINT32_MAX ? "a number of 0 .. 4294967295" : NULL; break;
    case PV_FIELD_U64: needed = value < 0 ? "0 or more" : NULL; break;
    case PV_FIELD_BIT: needed = value != 0 && value != 1 ? "0 or 1" : NULL; break;
    case PV_FIELD_TEXT: snprintf(message, PV_MESSAGE_SIZE, "option %s takes text", field->key); return 0;
    case PV_FIELD_I64:
    case PV_FIELD_REAL: break;
  }
  if (field->from_zero && value < 0) needed = "0 or more";
  if (needed) {
    snprintf(message, PV_MESSAGE_SIZE, "option %s = %" PRId64 " is out of range: %s is needed", field->key, value, needed);
    return 0;
  }
  switch (field->kind) {
    case PV_FIELD_I32: *(int32_t *)at = (int32_t)value; break;
    case PV_FIELD_U32: *(uint32_t *)at = (uint32_t)value; break;
    case PV_FIELD_I64: *(int64_t *)at = value; break;
    case PV_FIELD_U64: *(uint64_t *)at = (uint64_t)value; break;
    case PV_FIELD_REAL: *(double *)at = (double)value; break;
    case PV_FIELD_BIT: *(uint32_t *)at = (*(uint32_t *)at & ~field->bit) | (value ? field->bit : 0); break;
    case PV_FIELD_TEXT: break;
  }
  return 1;
}

/* Stores a number that is not an integer, or too large for one. */
static inline int pv_field_real(void *options, const pv_field *field, double value, char message[PV_MESSAGE_SIZE]) {
  if (field->kind == PV_FIELD_REAL) {
    *(double *)((char *)options + field->offset) = value;
    return 1;
  }
  snprintf(message, PV_MESSAGE_SIZE, "option %s = %.17g: %s is needed", field->key, value,
           field->kind == PV_FIELD_TEXT ? "text" : "a 64-bit integer");
  return 0;
}

/* C's text ends at its first zero byte, so text that contains one is refused instead of being cut. */
static inline int pv_is_c_text(const char *text, size_t length) { return memchr(text, 0, length) == NULL; }

/* Stores text, which must live as long as the options are used, or the number that a word names. */
static inline int pv_field_text(void *options, const pv_field *field, const char *text, size_t length,
                                char message[PV_MESSAGE_SIZE]) {
  if (!pv_is_c_text(text, length)) {
    snprintf(message, PV_MESSAGE_SIZE, "option %s = \"%.100s\" contains a zero byte", field->key, text);
    return 0;
  }
  if (field->kind == PV_FIELD_TEXT) {
    *(const char **)((char *)options + field->offset) = text;
    return 1;
  }
  for (const pv_word *word = field->words; word && word->word; ++word)
    if (strcmp(word->word, text) == 0) return pv_field_number(options, field, word->value, message);
  size_t used = (size_t)snprintf(message, PV_MESSAGE_SIZE, "option %s = \"%.100s\": a number%s", field->key, text,
                                 field->words ? " or one of" : "");
  for (const pv_word *word = field->words; word && word->word && used < PV_MESSAGE_SIZE; ++word)
    used += (size_t)snprintf(message + used, PV_MESSAGE_SIZE - used, " %s", word->word);
  if (used < PV_MESSAGE_SIZE) snprintf(message + used, PV_MESSAGE_SIZE - used, " is needed");
  return 0;
}

#endif
