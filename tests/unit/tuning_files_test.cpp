// runtime/tuning_files: a cache that may be missing, damaged, old, unwritable, or written by several processes; and api/group/kept_tuning, which
// uses it.

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "api/group/kept_tuning.hpp"
#include "runtime/tuning_files.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::runtime::TuningEntries;
using mv::runtime::TuningFile;

/// A folder of its own, which is the user's cache meanwhile.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/polyverso-tuning-XXXXXX";
    assert_non_null(mkdtemp(name));
    path = name;
    setenv("XDG_CACHE_HOME", name, 1);
  }
  ~Folder() {
    nftw(path.c_str(), [](const char* each, const struct stat*, int, struct FTW*) { return remove(each); }, 8, FTW_DEPTH | FTW_PHYS);
  }
  std::string path;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

void entries_are_kept_by_subject(void**) {
  const Folder folder;
  const TuningFile two("shm-2"), four("shm-4");
  assert_true(two.read().empty());
  two.add({{"1M private", "shares"}, {"4K", "inline"}});
  two.add({{"4K", "shares"}});
  assert_true((TuningFile("shm-2").read() == TuningEntries{{"1M private", "shares"}, {"4K", "shares"}}));
  assert_true(four.read().empty());
  assert_true(two.path().starts_with(folder.path + "/polyverso/tuning-shm-2-"));
}

void without_a_folder_nothing_is_kept(void**) {
  unsetenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::string before = home != nullptr ? home : "";
  unsetenv("HOME");
  const TuningFile file("shm-2");
  assert_true(file.path().empty());
  file.add({{"4K", "inline"}});
  assert_true(file.read().empty());
  setenv("XDG_CACHE_HOME", "relative", 1);
  assert_true(TuningFile("shm-2").path().empty());
  setenv("HOME", "/proc/nowhere", 1);
  TuningFile("shm-2").add({{"4K", "inline"}});
  assert_true(TuningFile("shm-2").path().starts_with("/proc/nowhere/.cache/polyverso/"));
  setenv("HOME", before.c_str(), 1);
}

/// Each beginning of a valid file, and each of its bytes changed.
void a_damaged_file_counts_as_none_or_as_what_it_says(void**) {
  const Folder folder;
  const TuningFile file("shm-2");
  const TuningEntries whole{{"1M private", "shares"}, {"4K", "inline"}};
  file.add(whole);
  const std::string text = text_of(file.path());
  for (size_t size = 0; size < text.size(); ++size) {
    put(file.path(), text.substr(0, size));
    assert_true(file.read().empty());
  }
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = '\n';
    put(file.path(), changed);
    assert_true(file.read().size() <= 2);
  }
  std::mt19937 dice(1);
  std::string noise(1 << 20, ' ');
  for (char& each : noise) each = static_cast<char>(dice());
  put(file.path(), noise);
  assert_true(file.read().empty());
  file.add(whole);
  assert_true(file.read() == whole);
}

void what_is_no_file_does_not_block(void**) {
  const Folder folder;
  const TuningFile file("shm-2");
  file.add({{"4K", "inline"}});
  assert_int_equal(unlink(file.path().c_str()), 0);
  assert_int_equal(mkfifo(file.path().c_str(), 0600), 0);
  assert_true(file.read().empty());
  file.add({{"4K", "inline"}});
  assert_int_equal(file.read().size(), 1);
  assert_int_equal(unlink(file.path().c_str()), 0);
  assert_int_equal(mkdir(file.path().c_str(), 0700), 0);
  file.add({{"4K", "inline"}});
  assert_true(file.read().empty());
}

void old_files_and_those_of_other_machines_are_not_used(void**) {
  const Folder folder;
  const TuningFile file("shm-2");
  file.add({{"4K", "inline"}});
  const std::string text = text_of(file.path());
  const size_t made = text.find("made ") + 5, end = text.find('\n', made);
  const auto at_age = [&](int64_t seconds) { return text.substr(0, made) + std::to_string(std::time(nullptr) - seconds) + text.substr(end); };
  put(file.path(), at_age(29 * 24 * 3600));
  assert_int_equal(file.read().size(), 1);
  for (const int64_t age : {int64_t{31 * 24 * 3600}, int64_t{-3600}}) {
    put(file.path(), at_age(age));
    assert_true(file.read().empty());
  }
  file.add({{"8K", "shares"}});  // begins anew
  assert_true((file.read() == TuningEntries{{"8K", "shares"}}));
  std::string other = text;
  other.replace(other.find("; host "), 7, "; host other-");
  put(file.path(), other);
  assert_true(file.read().empty());
}

/// Readers see whole files only, while processes and threads replace them.
void writers_do_not_disturb_each_other(void**) {
  const Folder folder;
  constexpr int kProcesses = 4, kTimes = 50;
  std::vector<pid_t> children;
  for (int each = 0; each < kProcesses; ++each) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0; i < kTimes; ++i) TuningFile("shm-2").add({{"of " + std::to_string(each), std::to_string(i)}, {"both", "same"}});
      _exit(0);
    }
    children.push_back(child);
  }
  const TuningFile file("shm-2");
  bool was_there = false;
  for (size_t done = 0; done < children.size();) {
    const TuningEntries seen = file.read();
    if (was_there) assert_true(seen.contains("both"));
    was_there = was_there || !seen.empty();
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) > 0) {
      assert_int_equal(status, 0);
      ++done;
    }
  }
  assert_true(file.read().contains("both"));
}

// ------------------------------------------------------------ the setting `tuning`

using mv::intranode::Algorithm;
using mv::intranode::Decision;
using mv::intranode::SizeClass;
using mv::intranode::Tuning;

void a_group_keeps_what_it_has_tried(void**) {
  const Folder folder;
  const SizeClass tried(1 << 20, true, false), kept(5000, false, false), open(100'000, false, true);
  mv::api::keep_tuning("auto", 2, {{tried, Algorithm::kShares16K, Decision::Why::kTried, {}}, {kept, Algorithm::kInline, Decision::Why::kKept, {}},
                                   {open, Algorithm::kShares, Decision::Why::kTrying, {}}});
  const Tuning found = mv::api::tuning_for("auto", 2);
  for (size_t index = 0; index < SizeClass::kCount; ++index)
    assert_int_equal(found.kept[index], index == tried.index() ? static_cast<uint8_t>(Algorithm::kShares16K) : Tuning::kNone);
  assert_true(found.mode == Tuning::kTrial && found.named == Tuning::kNone);
  assert_int_equal(mv::api::tuning_for("auto", 3).kept[tried.index()], Tuning::kNone);
  assert_int_equal(mv::api::tuning_for("trial", 2).kept[tried.index()], Tuning::kNone);
}

void only_trials_are_kept(void**) {
  const Folder folder;
  const std::vector<Decision> tried{{SizeClass(1 << 20, true, false), Algorithm::kShares, Decision::Why::kTried, {}}};
  for (const char* setting : {"fixed", "shares"}) mv::api::keep_tuning(setting, 2, tried);
  assert_true(TuningFile("shm-2").read().empty());
  mv::api::keep_tuning("trial", 2, tried);
  assert_true((TuningFile("shm-2").read() == TuningEntries{{"1M tensors", "shares"}}));
  TuningFile("shm-2").add({{"1M tensors", "unheard-of"}, {"no class", "shares"}});
  const Tuning found = mv::api::tuning_for("auto", 2);
  for (const uint8_t algorithm : found.kept) assert_int_equal(algorithm, Tuning::kNone);
}

void settings_are_checked_and_understood(void**) {
  assert_int_equal(mv::api::tuning_for("fixed", 2).mode, Tuning::kFixed);
  assert_int_equal(mv::api::tuning_for("whole-direct", 2).named, static_cast<uint8_t>(Algorithm::kWholeDirect));
  for (const char* valid : {"auto", "trial", "fixed", "inline", "shares-16k"}) assert_true(mv::api::check_tuning(valid).ok());
  for (const char* wrong : {"", "fast", "Auto", "shares "}) assert_int_equal(mv::api::check_tuning(wrong).code(), MV_EINVAL);
}

void costs_are_kept_by_transport(void**) {
  const Folder folder;
  assert_true(mv::runtime::kept_costs().empty());
  mv::runtime::keep_costs({{"shm", "shm=1e-06,2e-10"}, {"reduce", "reduce=1e-10"}});
  mv::runtime::keep_costs({{"shm", "shm=3e-06,2e-10"}});
  assert_string_equal(mv::runtime::kept_costs().c_str(), "reduce=1e-10 shm=3e-06,2e-10");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(entries_are_kept_by_subject),
      cmocka_unit_test(without_a_folder_nothing_is_kept),
      cmocka_unit_test(a_damaged_file_counts_as_none_or_as_what_it_says),
      cmocka_unit_test(what_is_no_file_does_not_block),
      cmocka_unit_test(old_files_and_those_of_other_machines_are_not_used),
      cmocka_unit_test(writers_do_not_disturb_each_other),
      cmocka_unit_test(a_group_keeps_what_it_has_tried),
      cmocka_unit_test(only_trials_are_kept),
      cmocka_unit_test(settings_are_checked_and_understood),
      cmocka_unit_test(costs_are_kept_by_transport),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
