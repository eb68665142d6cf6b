// The text of mv_init_text(): any input gives settings or an error, and accepted settings can be written as text again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/setting_text.hpp"
#include "settings.hpp"

namespace {

std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) text += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return text + "\"";
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);

  const auto pairs = mv::base::split_pairs(text);
  if (pairs.ok()) {
    std::string again;
    for (const auto& pair : pairs.value()) again += pair.key + (pair.value ? "=" + quoted(*pair.value) : "") + " ";
    const auto same = mv::base::split_pairs(again);
    check(same.ok() && same.value().size() == pairs.value().size());
    for (size_t i = 0; i < pairs.value().size(); ++i) {
      check(same.value()[i].key == pairs.value()[i].key && same.value()[i].value == pairs.value()[i].value);
    }
  }

  mv::capi::InitRequest request("fuzz");
  const auto status = request.add_text(text, "the text");
  check(status.ok() == status.text().empty());
  mv::capi::SettingsReport sources;
  if (status.ok()) static_cast<void>(request.resolve(sources));
  return 0;
}
