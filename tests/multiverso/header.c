/* Strict C99, first and alone, and beside the header of the library below. */
#include <multiverso/c_api.h>

#include <polyverso/polyverso.h>

void (*const barrier)(void) = MV_Barrier;
