/* A program written for Multiverso: an array of three numbers, an add, a get. */
#include <multiverso/c_api.h>
#include <stdio.h>

int main(int argc, char *argv[]) {
  float values[3] = {1, 1, 1};
  TableHandler table;
  MV_Init(&argc, argv);
  MV_NewArrayTable(3, &table);
  MV_AddAsyncArrayTable(table, values, 3);
  MV_AddArrayTable(table, values, 3);
  MV_Barrier();
  MV_GetArrayTable(table, values, 3);
  MV_ShutDown();
  printf("%g %g %g\n", values[0], values[1], values[2]);
  return 0;
}
