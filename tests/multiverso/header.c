/* Strict C99: included first and alone, and together with the library's header below. */
#include <multiverso/c_api.h>

#include <polyverso/polyverso.h>

void (*const barrier)(void) = MV_Barrier;
