#include <multiverso/c_api.h>

#include <polyverso/polyverso.h>

void (*const cpp_barrier)() = MV_Barrier;
