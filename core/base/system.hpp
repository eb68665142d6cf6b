#pragma once
// Small queries of the kernel, through its files.

#include <cstdint>
#include <optional>
#include <string>

namespace mv::base {

/// The text of a small file without trailing newlines; nullopt if it cannot be read.
std::optional<std::string> read_text(const std::string& path);
/// The number at the beginning of a text.
std::optional<uint64_t> leading_number(const std::string& text);
/// A file of this process's control group, version 1 or 2, or of the nearest group above that has the file.
/// `controller`: "cpu" or "memory", for version 1.
std::optional<std::string> read_control_group(const std::string& controller, const std::string& file);
/// Memory that processes may still take without swapping.
std::optional<uint64_t> available_memory();
/// Memory left within the limit of this process's control group.
std::optional<uint64_t> granted_memory();
/// "512 MiB", "3.4 GiB".
std::string as_bytes(uint64_t bytes);

}  // namespace mv::base
