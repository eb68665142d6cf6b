// Untrusted whole files: a server's part of a checkpoint, or an optimizer's states. Any input gives rows within their tables, or an error
// that names the file.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/part_file.hpp"
#include "checkpoint/states_file.hpp"

namespace {

using namespace mv::checkpoint;

void check(bool holds) {
  if (!holds) std::abort();
}

void try_part(const std::string& path) {
  const auto file = PartFile::open(path);
  if (!file.ok()) return check(file.status().text().starts_with(path));
  const std::atomic<bool> given_up{false};
  const auto sound = file.value().verify(given_up);
  check(sound.ok() || sound.text().starts_with(path));
  for (const PartTable& table : file.value().part().tables) {
    const auto& spec = table.entry.spec;
    const auto read = file.value().read(table, table.rows, [&](const mv::shard::Rows& rows) {
      check(rows.values.size() == rows.count * spec.cols * mv::tensor::dtype_bytes(mv::tensor::storage_dtype(spec.dtype)));
      for (const int64_t id : rows.ids) check(spec.has_row(id));
      return mv::base::Status();
    });
    check(read.ok() || read.text().starts_with(path));
  }
}

void try_states(const std::string& path) {
  const auto file = read_states(path);
  if (!file.ok()) return check(file.status().text().starts_with(path));
  for (const KeyStates& key : file.value().keys) check(!key.updater || file.value().dumped);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (ftruncate(fd, 0) != 0 || (size > 0 && pwrite(fd, data, size, 0) != static_cast<ssize_t>(size))) return 0;
  try_part(path);
  try_states(path);
  return 0;
}
