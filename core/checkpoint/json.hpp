#pragma once
// Tables and files as JSON, in manifests and headers; private to checkpoint/*.cpp.

#include <string>
#include <string_view>

#include "base/json_reader.hpp"
#include "base/json_writer.hpp"
#include "checkpoint/manifest.hpp"

namespace mv::checkpoint {

using base::JsonDocument;
using base::JsonValue;
using base::JsonWriter;

/// Writes the fields of a table's object.
void write_table(JsonWriter& json, const TableEntry& table);
void write_file(JsonWriter& json, const FileEntry& file);
/// Reads a table's object. MV_EINVAL with the reason if it is malformed.
base::Result<TableEntry> read_table(const JsonValue& json);

}  // namespace mv::checkpoint
