#pragma once
// How callbacks end, and the texts that programs give for their failures.

#include <polyverso/polyverso.h>

#include <string>

#include "base/result.hpp"

namespace mv::capi {

/// A text from the program, as one line of at most 1000 bytes of UTF-8: other bytes become U+FFFD.
std::string one_line(const char* text);
/// The reason of an abort as one line, also if the caller gave none.
std::string reason_line(const char* reason);

/// The end of a callback, as a status of the call that it was made for, with the text that this thread has given to
/// mv_callback_error().
base::Status check_outcome(const char* callback, mv_status outcome);

}  // namespace mv::capi
