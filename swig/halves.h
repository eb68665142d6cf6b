/* Two-byte floats for languages without them: conversion from a number and back. Rounds to nearest, ties to even. */
#ifndef POLYVERSO_SWIG_HALVES_H
#define POLYVERSO_SWIG_HALVES_H

#include <polyverso/polyverso.h>
#include <stdint.h>
#include <string.h>

/* The bits of `value` as MV_F16 or MV_BF16. */
static inline uint16_t pv_half_of(mv_dtype dtype, double value) {
  uint16_t half;
  if (dtype == MV_F16) {
    const _Float16 rounded = (_Float16)value;
    memcpy(&half, &rounded, sizeof half);
    return half;
  }
  /* Round to odd in the intermediate float, so that the second rounding sees a tie only if the number was one. */
  float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  if (value != value) return (uint16_t)(bits >> 16 | 0x40);
  if ((double)single != value && (bits & 1) == 0) {
    const double magnitude = value < 0 ? -value : value, reached = single < 0 ? -(double)single : (double)single;
    bits += reached < magnitude ? 1 : (uint32_t)-1;
  }
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline double pv_number_of_half(mv_dtype dtype, uint16_t half) {
  if (dtype == MV_F16) {
    _Float16 value;
    memcpy(&value, &half, sizeof value);
    return (double)value;
  }
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#endif
