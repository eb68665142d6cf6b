#pragma once
// The registry's entry for each codec; private to this folder.

#include <memory>
#include <vector>

#include "codec/codec.hpp"

namespace mv::codec {

struct Parameter {
  const char* name;
  double fallback;
  double least, most;  ///< both included
  bool is_whole;
  const char* help;
};

struct Kind {
  const char* name;
  std::vector<Parameter> parameters;
  std::unique_ptr<Codec> (*make)(const Spec& spec);
};

/// The limits of positive parameters: normal floats.
inline constexpr double kLeastStep = 0x1p-126, kLargest = 0x1p127;

// One file each, except that the two halves share one.
extern const Kind kTwoBit, kOneBit, kHalf, kBrainHalf, kInt8, kTopK;

}  // namespace mv::codec
