#pragma once
// Table specifications of callers, as struct or text, and their JSON.

#include <polyverso/polyverso.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "shard/spec.hpp"

namespace mv::capi {

base::Result<shard::Spec> read_spec(const char* function, const mv_table_spec* given);
base::Result<shard::Spec> parse_spec(const char* function, std::string_view text);
/// Text as mv_table_set_updater() takes it; null is "add".
base::Result<shard::UpdaterSpec> read_updater(const char* function, const char* text);
/// Checks a specification; the message names the invalid field.
base::Status check_spec(const char* function, const shard::Spec& spec);
/// The number of a device by its name, "cuda:0". MV_EINVAL.
base::Result<int32_t> find_device(std::string_view name);
/// Checks a table's name: UTF-8, 1 .. 255 bytes.
base::Status check_name(const char* function, std::string_view name, std::string_view what = "the table's name");

/// The JSON of mv_table_list().
std::string specs_as_json(const std::vector<shard::Spec>& specs);

}  // namespace mv::capi
