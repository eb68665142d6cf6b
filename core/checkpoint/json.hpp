#pragma once
// Tables as JSON, in manifests and headers; private to checkpoint/*.cpp.

#include <string>
#include <string_view>

#include "base/json_reader.hpp"
#include "base/json_writer.hpp"
#include "checkpoint/manifest.hpp"

namespace mv::checkpoint {

using base::JsonDocument;
using base::JsonValue;
using base::JsonWriter;

/// The members of a table's object.
void write_table(JsonWriter& json, const TableEntry& table);
void write_file(JsonWriter& json, const FileEntry& file);
/// MV_EINVAL with what is wrong with it.
base::Result<TableEntry> read_table(const JsonValue& json);

}  // namespace mv::checkpoint
