#pragma once
// Small questions to the kernel.

#include <cstdint>
#include <optional>
#include <string>

namespace mv::doctor {

/// A small file's text, without the newline at its end; nothing if it can't be read.
std::optional<std::string> read_text(const std::string& path);
/// The number that a text begins with.
std::optional<uint64_t> leading_number(const std::string& text);
/// A file of this process's control group, in either version's tree, or of the nearest group above that has it.
/// `controller`: "cpu", "memory", for version 1.
std::optional<std::string> read_control_group(const std::string& controller, const std::string& file);
/// "512 MiB", "3.4 GiB".
std::string as_bytes(uint64_t bytes);

}  // namespace mv::doctor
