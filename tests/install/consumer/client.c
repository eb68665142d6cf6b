/* A user's program: a cluster of one process, a table of three numbers, an add, a get. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>

static void check(mv_status status) {
  if (status == MV_OK) return;
  fprintf(stderr, "%s: %s\n", mv_status_name(status), mv_last_error());
  exit(1);
}

int main(void) {
  const float ones[3] = {1, 1, 1};
  float values[3] = {0};
  mv_table table = 0;
  check(mv_init(NULL));
  check(mv_table_create_text(0, "size=3 name=weights", NULL, 0, MV_F32, &table));
  check(mv_table_add(table, ones, 3, MV_F32, NULL));
  check(mv_table_add(table, ones, 3, MV_F32, NULL));
  check(mv_table_get(table, values, 3, MV_F32, NULL));
  check(mv_table_close(table));
  check(mv_shutdown(0));
  printf("%s: %g %g %g\n", mv_version_text(), values[0], values[1], values[2]);
  return values[0] == 2 && values[1] == 2 && values[2] == 2 ? 0 : 1;
}
