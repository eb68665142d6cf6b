#pragma once
// What a process of ours tells over HTTP.

#include <string>

namespace mv::tools {

/// GET of `path` from "host:port", "port" or "http://host:port". Throws std::runtime_error with a sentence if it can't be had.
std::string fetch(const std::string& where, const std::string& path);

}  // namespace mv::tools
