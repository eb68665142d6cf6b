#pragma once
// What a process of ours tells over HTTP.

#include <string>

namespace mv::tools {

/// GET of `path` from "host:port", "port", "http://host:port" or "https://host:port", for which POLYVERSO_TLS_CERT, _KEY and _CA name the files.
/// Throws std::runtime_error with a sentence if it can't be had.
std::string fetch(const std::string& where, const std::string& path);
/// What an httplib::Error means.
std::string what_failed(int error);

}  // namespace mv::tools
