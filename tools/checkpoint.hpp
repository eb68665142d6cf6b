#pragma once
// `polyverso checkpoint`: what checkpoints hold.

#include <string>

namespace mv::tools {

struct InspectOptions {
  std::string path;
  bool json = false;
};

/// 0 if it is sound, 1 if it is damaged or not there.
int inspect_checkpoint(const InspectOptions& options);

}  // namespace mv::tools
