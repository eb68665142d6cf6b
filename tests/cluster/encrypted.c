/* One worker of encrypted_test.py, in C: adds the bytes that the environment names, and prints what a get returns. */
#include <polyverso/polyverso.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kValues = 40000 };
static float values[kValues];

static void must(mv_status status) {
  if (status == MV_OK) return;
  fprintf(stderr, "%s\n", mv_last_error());
  exit(1);
}

int main(void) {
  const float mark = (float)atof(getenv("MARK"));
  mv_table table = 0;
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  must(mv_init(NULL));
  spec.rows = kValues;
  spec.name = "marks";
  must(mv_table_create(0, &spec, NULL, 0, MV_F32, &table));
  for (int i = 0; i < kValues; ++i) values[i] = mark;
  must(mv_table_add(table, values, kValues, MV_F32, NULL));
  must(mv_barrier(0, NULL));
  must(mv_table_get(table, values, kValues, MV_F32, NULL));
  for (int i = 1; i < kValues; ++i)
    if (values[i] != values[0]) return 2;
  printf("sum %.9g\n", values[0]);
  must(mv_barrier(0, NULL));
  must(mv_shutdown(0));
  return 0;
}
