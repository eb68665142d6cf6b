// The text of mv_table_create_text(): any input gives a valid table specification, or an error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "spec.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto spec = mv::capi::parse_spec("fuzz", text);
  if (!spec.ok()) {
    check(!spec.status().text().empty());
    return 0;
  }
  const auto& table = spec.value();
  check(mv::capi::check_spec("fuzz", table).ok());
  check(table.elements() / table.cols == table.rows && table.bytes() / table.element_bytes() == table.elements());
  check(table.name.empty() || mv::capi::check_name("fuzz", table.name).ok());
  for (const char c : mv::capi::specs_as_json({table})) check(static_cast<unsigned char>(c) >= 0x20);
  return 0;
}
