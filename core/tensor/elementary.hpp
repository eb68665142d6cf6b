#pragma once
// exp and log of doubles with the same bits on every machine: a C library may use a fused multiply-add here and not
// there.

namespace mv::tensor {

/// Within one unit in the last place.
double exp(double x);
double log(double x);

}  // namespace mv::tensor
