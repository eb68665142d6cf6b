#pragma once
// How a status is requested and shown.

namespace mv::status {

struct Form {
  bool json = false;
  bool live = false;  ///< for a display: see MV_LIVE
};

}  // namespace mv::status
