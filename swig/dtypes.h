/* The size of an element, for languages that compute with it. */
#ifndef POLYVERSO_SWIG_DTYPES_H
#define POLYVERSO_SWIG_DTYPES_H

#include <polyverso/polyverso.h>
#include <stddef.h>

/* 0 for MV_RAW, whose element type is unknown, and for an invalid dtype. */
static inline size_t pv_dtype_bytes(mv_dtype dtype) {
  switch (dtype) {
    case MV_F64:
    case MV_I64: return 8;
    case MV_F32:
    case MV_I32: return 4;
    case MV_F16:
    case MV_BF16: return 2;
    case MV_U8:
    case MV_I8: return 1;
    default: return 0;
  }
}

#endif
