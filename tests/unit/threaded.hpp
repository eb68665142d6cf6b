#pragma once
// Which tests of a file run under ThreadSanitizer. Comes after cmocka.h.

#include <cstring>
#include <initializer_list>
#include <vector>

namespace mv::test {

/// Runs the tests; under ThreadSanitizer, which finds nothing where one thread is alone, only the named ones.
template <size_t kCount>
int run_those_with_threads(const char* group, const CMUnitTest (&tests)[kCount], [[maybe_unused]] std::initializer_list<const char*> threaded) {
  std::vector<CMUnitTest> run;
  for (const CMUnitTest& test : tests) {
#ifdef __SANITIZE_THREAD__
    bool named = false;
    for (const char* name : threaded) named |= std::strcmp(name, test.name) == 0;
    if (!named) continue;
#endif
    run.push_back(test);
  }
  return _cmocka_run_group_tests(group, run.data(), run.size(), nullptr, nullptr);
}

}  // namespace mv::test
