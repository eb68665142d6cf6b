#pragma once
// Reading JSON that anybody may have written; private to checkpoint/*.cpp, because the library behind it is slow to
// compile.

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "table/checkpoint/manifest.hpp"

namespace mv::table::checkpoint {

using Json = nlohmann::ordered_json;

/// None if the text is not one JSON object.
inline std::optional<Json> parse_object(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

/// The member `key` of an object, or null.
inline const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() ? &*found : nullptr;
}
inline std::optional<uint64_t> find_count(const Json& object, const char* key) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}
inline std::optional<int64_t> find_integer(const Json& object, const char* key) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value->get<int64_t>();
}
inline std::optional<double> find_real(const Json& object, const char* key) {
  const Json* value = find(object, key);
  if (value != nullptr && value->is_null())
    return std::numeric_limits<double>::quiet_NaN();  // JSON has no other way to say it
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}
inline std::optional<std::string> find_text(const Json& object, const char* key) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

/// As text; what is not UTF-8 in a name is replaced.
inline std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json write_table(const TableEntry& table);
/// MV_EINVAL with what is wrong with it.
base::Result<TableEntry> read_table(const Json& json);

}  // namespace mv::table::checkpoint
