#include "outcome.hpp"

#include <cstring>
#include <utility>

#include "base/per_thread.hpp"
#include "base/utf8.hpp"
#include "boundary.hpp"

namespace mv::capi {
namespace {

constexpr size_t kLongest = 1000;  // bytes

/// The text of mv_callback_error() that no failure has used yet.
struct CallbackText {
  std::string text;
};
std::string& callback_text() { return base::per_thread<CallbackText>().text; }

}  // namespace

std::string one_line(const char* text) {
  std::string line = base::as_utf8(std::string_view(text, strnlen(text, kLongest + 1)));
  if (line.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
    line.resize(end);
  }
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return line;
}

std::string reason_line(const char* reason) { return one_line(reason != nullptr && *reason != '\0' ? reason : "it gave no reason"); }

base::Status check_outcome(const char* callback, mv_status outcome) {
  const std::string text = std::exchange(callback_text(), {});
  if (outcome == MV_OK) return {};
  if (outcome > 0) return base::error(MV_EINVAL, "the {} returned {}, which is not an mv_status", callback, outcome);
  if (!text.empty()) return base::error(outcome, "the {} failed: {}", callback, text);
  return base::error(outcome, "the {} returned {}", callback, mv_status_name(outcome));
}

}  // namespace mv::capi

mv_status mv_callback_error(const char* text) {
  return mv::capi::guarded("mv_callback_error", [&] {
    mv::capi::callback_text() = mv::capi::one_line(text != nullptr ? text : "");
    return mv::base::Status();
  });
}
