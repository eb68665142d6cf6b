#pragma once
// What a result has to be, for the tests of device/. Included after cmocka.

#include <utility>

#include "base/result.hpp"

namespace mv {

/// The value of a Result; fails the test if there is none.
template <typename T>
T must(base::Result<T> result) {
  if (!result.ok()) fail_msg("%s", result.status().text().c_str());
  return std::move(result).value();
}
inline void must(const base::Status& status) {
  if (!status.ok()) fail_msg("%s", status.text().c_str());
}
inline void must_fail(const base::Status& status, mv_status code, const char* words) {
  assert_int_equal(status.code(), code);
  if (status.text().find(words) == std::string::npos) fail_msg("\"%s\" lacks \"%s\"", status.text().c_str(), words);
}

}  // namespace mv
