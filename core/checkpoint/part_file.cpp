#include "checkpoint/part_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "checkpoint/checksum.hpp"

namespace mv::checkpoint {

namespace {

constexpr size_t kReadBytes = 4 << 20;

/// Writes one tensor sequentially, and computes its checksum.
class TensorWriter {
 public:
  TensorWriter(OutputFile& file, Tensor& tensor, uint64_t data_begin)
      : file_(file), tensor_(tensor), at_(data_begin + tensor.begin), end_(data_begin + tensor.end) {}

  base::Status write(std::span<const std::byte> bytes) {
    if (bytes.size() > end_ - at_)
      return base::error(MV_EINTERNAL, "tensor \"{}\": more rows than expected", tensor_.name);
    checksum_.add(bytes);
    const uint64_t at = std::exchange(at_, at_ + bytes.size());
    return file_.write(at, bytes);
  }
  base::Status finish() {
    tensor_.checksum = checksum_.text();
    return at_ == end_ ? base::Status()
                       : base::error(MV_EINTERNAL, "tensor \"{}\": fewer rows than expected", tensor_.name);
  }

 private:
  OutputFile& file_;
  Tensor& tensor_;
  uint64_t at_;
  const uint64_t end_;
  Checksum checksum_;
};

base::Status write_rows(std::vector<TensorWriter>& writers, const shard::Rows& rows) {
  size_t next = 0;
  if (auto failed = writers[next++].write(rows.values); !failed.ok()) return failed;
  for (const auto& state : rows.states)
    if (auto failed = writers[next++].write(state); !failed.ok()) return failed;
  return rows.ids.empty() ? base::Status() : writers[next].write(std::as_bytes(std::span(rows.ids)));
}

base::Status write_table(OutputFile& file, const PartLayout& part, PartTable& table, shard::Snapshot& snapshot,
                         const std::atomic<bool>& given_up) {
  std::vector<TensorWriter> writers;
  writers.emplace_back(file, table.values, part.data_begin);
  for (Tensor& state : table.states) writers.emplace_back(file, state, part.data_begin);
  if (table.entry.spec.is_keyed()) writers.emplace_back(file, table.ids, part.data_begin);
  for (;;) {
    if (given_up.load(std::memory_order_relaxed)) return base::Status(MV_ECANCELED, "the checkpoint was cancelled");
    const shard::Rows rows = snapshot.next();
    if (rows.count == 0 && rows.ids.empty()) break;
    if (rows.states.size() != table.states.size())
      return base::error(MV_EINTERNAL, "table \"{}\": {} states instead of {}", table.entry.spec.name,
                         rows.states.size(), table.states.size());
    if (auto failed = write_rows(writers, rows); !failed.ok()) return failed;
  }
  for (TensorWriter& writer : writers)
    if (auto failed = writer.finish(); !failed.ok()) return failed;
  return {};
}

}  // namespace

base::Result<FileEntry> write_part(const std::string& path, uint64_t number, uint64_t server, uint64_t servers, bool again,
                                   std::span<SavedTable> tables, const std::atomic<bool>& given_up) {
  PartLayout part;
  part.number = number;
  part.server = server;
  part.servers = servers;
  for (const SavedTable& table : tables) {
    const bool keyed = table.entry.spec.is_keyed();
    add_table(part, table.entry, keyed ? shard::Range{0, table.snapshot->rows()} : table.rows, table.snapshot->states());
  }
  lay_out(part);
  if (part.data_begin > kMostHeaderBytes)
    return base::error(MV_EINVAL, "{} tables need a header of {} bytes, the limit is {}: save from more servers", tables.size(),
                       part.data_begin, kMostHeaderBytes);
  FileEntry entry{file_name(server), part.file_bytes(), ""};
  auto file = (again ? OutputFile::create_instead : OutputFile::create)(path + "/" + entry.name, entry.bytes);
  if (!file.ok()) return file.status();
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto failed = write_table(file.value(), part, part.tables[i], *tables[i].snapshot, given_up);
    if (!failed.ok()) return failed;
    tables[i].snapshot.reset();  // ends copy-on-write for this table
  }
  const std::string header = write_header(part);
  entry.checksum = checksum_of(std::as_bytes(std::span(header)));
  if (auto failed = file.value().write(0, std::as_bytes(std::span(header))); !failed.ok()) return failed;
  if (access((path + "/" + kManifestName).c_str(), F_OK) == 0)  // this process was declared lost, and is late
    return base::error(MV_ECANCELED, "checkpoint {}: another process has written the file of server {}", path, server);
  if (auto failed = file.value().finish(); !failed.ok()) return failed;
  if (auto failed = sync_directory(path); !failed.ok()) return failed;
  return entry;
}

// ---- reading

PartFile::PartFile(InputFile file, PartLayout part, std::string checksum)
    : file_(std::move(file)), part_(std::move(part)), by_name_(part_.tables.size()), checksum_(std::move(checksum)) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, [&](size_t at) { return std::pair(std::string_view(part_.tables[at].entry.spec.name), at); });
}

const PartTable* PartFile::find(std::string_view table) const {
  const auto name_of = [&](size_t at) { return std::string_view(part_.tables[at].entry.spec.name); };
  const auto found = std::ranges::lower_bound(by_name_, table, {}, name_of);
  return found != by_name_.end() && name_of(*found) == table ? &part_.tables[*found] : nullptr;
}

base::Result<PartFile> PartFile::open(const std::string& path) {
  auto file = InputFile::open(path);
  if (!file.ok()) return file.status();
  auto read = read_header(file.value());
  if (!read.ok()) return read.status();
  const std::string& header = read.value();
  auto part = parse_header(std::string_view(header).substr(kLengthBytes), file.value().bytes());
  if (!part.ok()) return base::error(MV_EINVAL, "{}: {}", path, part.status().text());
  return PartFile(std::move(file).value(), std::move(part).value(), checksum_of(std::as_bytes(std::span(header))));
}

base::Status PartFile::verify(const Tensor& tensor, const shard::Spec* ids_of, std::vector<std::byte>& buffer,
                              const std::atomic<bool>& given_up) const {
  Checksum checksum;
  std::optional<int64_t> stranger;
  file_.expect(part_.data_begin + tensor.begin, tensor.bytes());
  for (uint64_t at = tensor.begin; at < tensor.end;) {
    if (given_up.load(std::memory_order_relaxed)) return base::Status(MV_ECANCELED, "reading was cancelled");
    const std::span chunk(buffer.data(), std::min<uint64_t>(buffer.size(), tensor.end - at));
    if (auto failed = file_.read(part_.data_begin + at, chunk); !failed.ok()) return failed;
    checksum.add(chunk);
    for (size_t i = 0; ids_of != nullptr && i < chunk.size(); i += sizeof(int64_t)) {
      int64_t id;
      std::memcpy(&id, chunk.data() + i, sizeof id);
      if (!ids_of->has_row(id)) stranger = id;
    }
    at += chunk.size();
  }
  if (checksum.text() == tensor.checksum && !stranger) return {};
  if (checksum.text() == tensor.checksum)
    return base::error(MV_EINVAL, "{}: table \"{}\" has no row {}", file_.path(), ids_of->name, *stranger);
  return base::error(MV_EINVAL, "{}: the data of tensor \"{}\" is damaged: its checksum is {}, not {}", file_.path(),
                     tensor.name, checksum.text(), tensor.checksum);
}

base::Status PartFile::verify(const std::atomic<bool>& given_up) const {
  std::vector<std::byte> buffer(kReadBytes);
  for (const PartTable& table : part_.tables) {
    if (auto wrong = verify(table.values, nullptr, buffer, given_up); !wrong.ok()) return wrong;
    for (const Tensor& state : table.states)
      if (auto wrong = verify(state, nullptr, buffer, given_up); !wrong.ok()) return wrong;
    if (!table.entry.spec.is_keyed()) continue;
    if (auto wrong = verify(table.ids, &table.entry.spec, buffer, given_up); !wrong.ok()) return wrong;
  }
  return {};
}

base::Status PartFile::read(const PartTable& table, const shard::Range& wanted,
                            const std::function<base::Status(const shard::Rows&)>& take) const {
  const shard::Spec& spec = table.entry.spec;
  const bool keyed = spec.is_keyed();
  const uint64_t row_bytes = spec.cols * tensor::dtype_bytes(tensor::storage_dtype(spec.dtype));
  const uint64_t begin = keyed ? 0 : std::max(wanted.first, table.rows.first);
  const uint64_t end = keyed ? table.rows.count : std::min(wanted.end(), table.rows.end());
  const uint64_t at_once = std::max<uint64_t>(1, kReadBytes / row_bytes);
  std::vector<std::vector<std::byte>> buffers(1 + table.states.size());
  const auto fill = [&](std::vector<std::byte>& buffer, const Tensor& tensor, uint64_t row, uint64_t count) {
    buffer.resize(count * row_bytes);
    return file_.read(part_.data_begin + tensor.begin + (row - (keyed ? 0 : table.rows.first)) * row_bytes, buffer);
  };
  for (uint64_t row = begin; row < end;) {
    shard::Rows rows;
    rows.first = keyed ? 0 : row;
    rows.count = std::min(at_once, end - row);
    if (auto failed = fill(buffers[0], table.values, row, rows.count); !failed.ok()) return failed;
    rows.values = buffers[0];
    for (size_t i = 0; i < table.states.size(); ++i) {
      if (auto failed = fill(buffers[i + 1], table.states[i], row, rows.count); !failed.ok()) return failed;
      rows.states.emplace_back(buffers[i + 1]);
    }
    if (keyed) {
      rows.ids.resize(rows.count);
      const uint64_t ids_at = part_.data_begin + table.ids.begin + row * sizeof(int64_t);
      if (auto failed = file_.read(ids_at, std::as_writable_bytes(std::span(rows.ids))); !failed.ok()) return failed;
      if (!std::ranges::all_of(rows.ids, [&](int64_t id) { return spec.has_row(id); }))
        return base::error(MV_EINVAL, "{}: table \"{}\" has rows that changed during the load", file_.path(), spec.name);
    }
    if (auto failed = take(rows); !failed.ok()) return failed;
    row += rows.count;
  }
  return {};
}

}  // namespace mv::checkpoint
