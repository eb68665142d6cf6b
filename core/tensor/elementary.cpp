#include "tensor/elementary.hpp"

#include "tensor/elementary-inl.hpp"

namespace mv::tensor {

double exp(double x) { return both::exp(x); }
double log(double x) { return both::log(x); }

}  // namespace mv::tensor
