// Untrusted checkpoints: a manifest, or the header of a server's file. Any input is an error, or parses to something that round-trips.
//
//   byte 0   'm': a manifest follows; else u64 size of the file, and its header

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "checkpoint/part.hpp"

namespace {

using namespace mv::checkpoint;

void check(bool holds) {
  if (!holds) std::abort();
}

void try_manifest(const std::string& text) {
  const auto manifest = parse_manifest(text);
  if (!manifest.ok()) return check(!manifest.status().text().empty());
  const std::string written = to_json(manifest.value());
  const auto again = parse_manifest(written);
  check(again.ok() && to_json(again.value()) == written);
}

void try_header(const std::string& text, uint64_t file_bytes) {
  const auto part = parse_header(text, file_bytes);
  if (!part.ok()) return check(!part.status().text().empty());
  uint64_t reached = 0;
  for (const Tensor* tensor : part.value().tensors()) {
    check(tensor->begin == reached && tensor->end >= reached);
    reached = tensor->end;
  }
  check(part.value().data_begin + reached == file_bytes);
  for (const PartTable& table : part.value().tables) {
    const auto& spec = table.entry.spec;
    check(spec.cols > 0 && spec.row_bytes() / spec.element_bytes() == spec.cols);
    check(spec.is_keyed() || table.rows.end() <= spec.rows);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  uint64_t bytes = 0;
  if (size > 0 && data[0] == 'm') {
    try_manifest(text.substr(1));
  } else if (size > sizeof bytes) {
    std::memcpy(&bytes, data + 1, sizeof bytes);
    try_header(text.substr(1 + sizeof bytes), bytes);
  }
  return 0;
}
