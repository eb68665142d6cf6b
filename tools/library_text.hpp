#pragma once
// Texts that the library hands out piece by piece.

#include <polyverso/polyverso.h>

#include <cstdint>
#include <string>

namespace mv::tools {

/// `call(text, capacity, &length)` until the whole text fits.
template <typename Call>
mv_status whole_text(Call call, std::string& text) {
  uint64_t length = 1 << 20;  // making some of them takes long, so that most should fit at once
  do {
    text.resize(length + 1);
    const mv_status status = call(text.data(), text.size(), &length);
    if (status != MV_OK) return status;
  } while (length >= text.size());
  text.resize(length);
  return MV_OK;
}

}  // namespace mv::tools
