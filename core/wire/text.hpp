#pragma once
// Access to optional strings of messages.

#include <flatbuffers/flatbuffers.h>

#include <string>

namespace mv::wire {

inline std::string text_of(const flatbuffers::String* text) { return text != nullptr ? text->str() : std::string(); }

}  // namespace mv::wire
