#pragma once
// Unpredictable random numbers, from the kernel.

#include <string>

#include "base/link.hpp"

namespace mv::runtime {

/// For a new incarnation of a node.
base::Peer random_peer();
/// 32 bytes in hexadecimal.
std::string random_secret();

}  // namespace mv::runtime
