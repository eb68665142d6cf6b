// Checkpoints on a failing disk: the system calls of a save, in their order, and with each of them failing. This program's own functions
// replace the C library's, for the files of the test's directory only.

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <polyverso/polyverso.h>

#include "checkpoint/directory.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

namespace fs = std::filesystem;
using namespace mv::checkpoint;

/// The outcome of a system call.
struct Fault {
  uint64_t call = 0;      ///< the first call that fails, from 1; 0: none
  bool lasts = false;     ///< all later calls fail, too
  int error = 0;          ///< 0: a write takes only one byte
};

/// The disk as the test sees it.
struct Disk {
  std::mutex mutex;
  std::string directory;             ///< the test sees only files in it
  std::vector<std::string> calls;    ///< "fsync checkpoint-000001"
  std::map<int, std::string> files;  ///< open ones
  Fault fault;
  std::string failed;  ///< the first call that failed
  bool short_write = false;

  /// The name of a path within the directory; nothing for other paths.
  std::string place(const char* path) const {
    if (directory.empty() || std::strncmp(path, directory.c_str(), directory.size()) != 0) return {};
    return path[directory.size()] == '\0' ? "." : path + directory.size() + 1;
  }
  /// Records a call; returns its error, or 0.
  int note(const std::string& name, const std::string& where) {
    calls.push_back(name + " " + where);
    short_write = false;
    if (fault.call == 0 || (fault.lasts ? calls.size() < fault.call : calls.size() != fault.call)) return 0;
    if (failed.empty()) failed = calls.back();
    short_write = fault.error == 0;
    return fault.error;
  }
  int on_path(const char* name, const char* path) {
    std::lock_guard lock(mutex);
    const std::string where = place(path);
    return where.empty() ? 0 : note(name, where);
  }
  int on_file(const char* name, int fd) {
    std::lock_guard lock(mutex);
    const auto file = files.find(fd);
    return file == files.end() ? 0 : note(name, file->second);
  }
};

Disk& disk() {
  static auto* const whole = new Disk;  // calls come until the process ends
  return *whole;
}

std::atomic<bool> refuse_threads{false};

int failed_with(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (const int error = disk().on_path("open", path)) return failed_with(error);
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  std::lock_guard lock(disk().mutex);
  if (const std::string where = disk().place(path); fd >= 0 && !where.empty()) disk().files[fd] = where;
  return fd;
}
int close(int fd) {
  int error = 0;
  {
    std::lock_guard lock(disk().mutex);
    if (const auto file = disk().files.find(fd); file != disk().files.end()) {
      error = disk().note("close", file->second);
      disk().files.erase(file);
    }
  }
  const int result = static_cast<int>(syscall(SYS_close, fd));
  return error != 0 ? failed_with(error) : result;
}
int mkdir(const char* path, mode_t mode) {
  if (const int error = disk().on_path("mkdir", path)) return failed_with(error);
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) noexcept {
  if (const int error = disk().on_path("rename", to)) return failed_with(error);
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
  if (const int error = disk().on_path("unlink", path)) return failed_with(error);
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int rmdir(const char* path) noexcept {
  if (const int error = disk().on_path("rmdir", path)) return failed_with(error);
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}
int fsync(int fd) {
  if (const int error = disk().on_file("fsync", fd)) return failed_with(error);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  if (const int error = disk().on_file("fdatasync", fd)) return failed_with(error);
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (const int error = disk().on_file("fallocate", fd)) return failed_with(error);
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}
int flock(int fd, int operation) noexcept {
  if (const int error = disk().on_file("flock", fd)) return failed_with(error);
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  if (const int error = disk().on_file("pwrite", fd)) return failed_with(error);
  bool is_short = false;
  {
    std::lock_guard lock(disk().mutex);
    is_short = disk().short_write && disk().files.contains(fd);
  }
  return syscall(SYS_pwrite64, fd, data, is_short ? std::min<size_t>(bytes, 1) : bytes, offset);
}
/// Visible, because the C++ library starts threads.
__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                          void* (*run)(void*), void* argument) noexcept {
  if (refuse_threads) return EAGAIN;
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, run, argument);
}

}  // extern "C"

namespace {

constexpr int kValues = 1000;

void expect_ok(mv_status status) {
  if (status != MV_OK) print_error("%s: %s\n", mv_status_name(status), mv_last_error());
  assert_int_equal(status, MV_OK);
}

/// A separate node with a table, and a directory for its checkpoints.
class Job {
 public:
  Job() {
    std::string pattern = (fs::temp_directory_path() / "polyverso-faults-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    expect_ok(mv_init(nullptr));
    expect_ok(mv_table_create_text(0, "size=1000 name=t", nullptr, 0, MV_F32, &table_));
    set_disk({});
  }
  ~Job() {
    {
      std::lock_guard lock(disk().mutex);
      disk().directory.clear();
      disk().fault = {};
    }
    expect_ok(mv_shutdown(0));
    fs::remove_all(directory_);
  }
  const std::string& directory() const { return directory_; }

  void set_disk(const Fault& fault) {
    std::lock_guard lock(disk().mutex);
    disk().directory = directory_;
    disk().calls.clear();
    disk().failed.clear();
    disk().fault = fault;
  }
  std::vector<std::string> calls() const {
    std::lock_guard lock(disk().mutex);
    return disk().calls;
  }
  std::string failed() const {
    std::lock_guard lock(disk().mutex);
    return disk().failed;
  }

  /// Sets all values of the table to this one.
  void set(float value) {
    const std::vector<float> values(kValues, value);
    expect_ok(mv_table_set(table_, values.data(), kValues, MV_F32, nullptr));
  }
  float get() {
    std::vector<float> values(kValues);
    expect_ok(mv_table_get(table_, values.data(), kValues, MV_F32, nullptr));
    for (const float value : values) assert_true(value == values.front());
    return values.front();
  }
  mv_status save(uint64_t keep = 2, const std::string& below = "") { return mv_checkpoint_save(0, (directory_ + below).c_str(), keep, nullptr); }
  float load() {
    set(-1);
    expect_ok(mv_checkpoint_load(0, directory_.c_str(), nullptr));
    return get();
  }

 private:
  std::string directory_;
  mv_table table_ = 0;
};

size_t place_of(const std::vector<std::string>& calls, const std::string& call, size_t from = 0) {
  for (size_t i = from; i < calls.size(); ++i)
    if (calls[i] == call) return i;
  print_error("no \"%s\"; there are:\n", call.c_str());
  for (const std::string& each : calls) print_error("  %s\n", each.c_str());
  fail();
  return 0;
}

/// Every name that a save creates is on the disk before the manifest validates it, and the manifest's own name before the save returns.
void every_name_is_on_the_disk_in_time(void**) {
  Job job;
  job.set(1);
  expect_ok(job.save(2, "/made/on/the/way"));
  const auto calls = job.calls();
  const size_t counts = place_of(calls, "rename made/on/the/way/checkpoint-000001/manifest.json");
  const std::vector<std::pair<std::string, std::string>> made = {{"made", "."},
                                                                 {"made/on", "made"},
                                                                 {"made/on/the", "made/on"},
                                                                 {"made/on/the/way", "made/on/the"},
                                                                 {"made/on/the/way/checkpoint-000001", "made/on/the/way"}};
  for (const auto& [name, parent] : made) {
    const size_t synced = place_of(calls, "fsync " + parent, place_of(calls, "mkdir " + name));
    assert_true(synced < counts);
  }
  const std::string checkpoint = "made/on/the/way/checkpoint-000001";
  const size_t part = place_of(calls, "rename " + checkpoint + "/server-0.safetensors");
  assert_true(place_of(calls, "fdatasync " + checkpoint + "/server-0.safetensors.part") < part);
  assert_true(place_of(calls, "fsync " + checkpoint, part) < counts);
  assert_true(place_of(calls, "fdatasync " + checkpoint + "/manifest.json.part") < counts);
  place_of(calls, "fsync " + checkpoint, counts);
}

/// As if unchanged for two hours.
void make_old(const std::string& path) {
  const timespec then{std::time(nullptr) - 2 * 3600, 0}, times[] = {then, then};
  for (const auto& entry : fs::directory_iterator(path)) utimensat(AT_FDCWD, entry.path().c_str(), times, 0);
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

/// Saves with the N-th system call failing, for each N until a save makes fewer.
void with_each_call_failing(bool lasts, int error) {
  Job job;
  float saved = 1;
  job.set(saved);
  expect_ok(job.save());
  for (uint64_t n = 1;; ++n) {
    const float value = saved + 1;
    job.set(value);
    job.set_disk({n, lasts, error});
    const mv_status status = job.save();
    const std::string text = mv_last_error(), failed = job.failed();
    job.set_disk({});
    if (status == MV_OK) {
      saved = value;
    } else {
      // The error names the file and the reason.
      const bool named = text.find(job.directory()) != std::string::npos && text.find(std::strerror(error)) != std::string::npos;
      if (!named || status != MV_ESYSTEM)
        print_error("call %d, %s: %s: %s\n", static_cast<int>(n), failed.c_str(), mv_status_name(status), text.c_str());
      assert_true(named);
      assert_int_equal(status, MV_ESYSTEM);
    }
    // A load gives either the last successful save or the failed one, as a whole.
    const float loaded = job.load();
    if (loaded != saved && loaded != value) print_error("call %d, %s: %g was loaded, after %g\n", static_cast<int>(n), failed.c_str(), loaded, saved);
    assert_true(loaded == saved || loaded == value);
    if (status != MV_OK && !lasts) assert_true(loaded == saved);
    saved = loaded;
    if (failed.empty()) break;
    assert_true(n < 200);
  }
  // A later save removes the remains of a failed save or removal, at the latest when they are old.
  job.set(99);
  const auto before = list_checkpoints(job.directory());
  for (const CheckpointPath& place : before.value())
    if (!place.whole) make_old(place.path);
  expect_ok(job.save());
  assert_true(job.load() == 99);
  const auto left = list_checkpoints(job.directory());
  for (const CheckpointPath& place : left.value()) assert_true(place.whole);
  assert_int_equal(left.value().size(), 2);
}

void a_full_disk_once(void**) { with_each_call_failing(false, ENOSPC); }
void a_full_disk_from_there_on(void**) { with_each_call_failing(true, ENOSPC); }
void an_input_output_error_once(void**) { with_each_call_failing(false, EIO); }
void a_dead_disk_from_there_on(void**) { with_each_call_failing(true, EIO); }

/// Signals and short writes are not failures.
void interrupted_calls_are_made_again(void**) {
  for (const int error : {EINTR, 0}) {
    Job job;
    uint64_t met = 0;
    for (uint64_t n = 1;; ++n) {
      job.set(static_cast<float>(n));
      job.set_disk({n, false, error});
      const mv_status status = job.save();
      const std::string failed = job.failed();
      if (status != MV_OK) print_error("call %d, %s: %s\n", static_cast<int>(n), failed.c_str(), mv_last_error());
      assert_int_equal(status, MV_OK);
      job.set_disk({});
      assert_true(job.load() == static_cast<float>(n));
      if (failed.empty()) break;
      ++met;
    }
    assert_true(met > 10);
  }
}

void a_save_without_a_thread_fails_by_itself(void**) {
  Job job;
  job.set(1);
  refuse_threads = true;
  assert_int_equal(job.save(), MV_ESYSTEM);
  assert_non_null(strstr(mv_last_error(), "no thread could be started"));
  assert_int_equal(mv_checkpoint_load(0, job.directory().c_str(), nullptr), MV_ESYSTEM);
  assert_int_equal(job.save(), MV_ESYSTEM);
  assert_true(job.get() == 1);  // later calls work
  assert_true(fs::is_empty(job.directory()));
  refuse_threads = false;
  expect_ok(job.save());
  assert_true(job.load() == 1);
}

}  // namespace

int main() {
  setenv("POLYVERSO_LOG_LEVEL", "error", 1);  // warnings are expected
  alarm(300);  // a safeguard against calls that hang
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_name_is_on_the_disk_in_time),
      cmocka_unit_test(a_full_disk_once),
      cmocka_unit_test(a_full_disk_from_there_on),
      cmocka_unit_test(an_input_output_error_once),
      cmocka_unit_test(a_dead_disk_from_there_on),
      cmocka_unit_test(interrupted_calls_are_made_again),
      cmocka_unit_test(a_save_without_a_thread_fails_by_itself),
  };
  return cmocka_run_group_tests_name("checkpoint faults", tests, nullptr, nullptr);
}
