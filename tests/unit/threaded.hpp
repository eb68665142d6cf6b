#pragma once
// Which tests of a file run under ThreadSanitizer. Comes after cmocka.h.

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace mv::test {

/// Runs the tests; under ThreadSanitizer, which finds nothing where one thread is alone, only the named ones.
template <size_t kCount>
int run_those_with_threads(const char* group, const CMUnitTest (&tests)[kCount], [[maybe_unused]] std::initializer_list<const char*> threaded) {
  std::vector<CMUnitTest> run(tests, tests + kCount);
#ifdef __SANITIZE_THREAD__
  run.clear();
  for (const char* name : threaded) {
    const auto test = std::find_if(tests, tests + kCount, [&](const CMUnitTest& each) { return std::strcmp(name, each.name) == 0; });
    if (test == tests + kCount) return print_error("there is no test %s\n", name), 1;
    run.push_back(*test);
  }
#endif
  return _cmocka_run_group_tests(group, run.data(), run.size(), nullptr, nullptr);
}

}  // namespace mv::test
