#pragma once
// exp and log of doubles that are bit-equal on every machine. C libraries are not: some use fused multiply-add.

namespace mv::tensor {

/// Within one unit in the last place.
double exp(double x);
double log(double x);

}  // namespace mv::tensor
