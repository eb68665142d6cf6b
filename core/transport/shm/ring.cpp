#include "transport/shm/ring.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace mv::transport {

void PagesAhead::bring(size_t end) {
#ifdef MADV_POPULATE_WRITE  // since Linux 5.14
  constexpr size_t kFirstBytes = 4096;
  const size_t until = std::min(bytes_, std::max({kFirstBytes, 2 * ready_, std::bit_ceil(end)}));
  madvise(const_cast<std::byte*>(ring_) + ready_, until - ready_, access_ == Access::kWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  ready_ = until;
#else
  ready_ = bytes_;
#endif
}

std::byte* RingWriter::reserve(size_t bytes) {
  const size_t at = position_ & (bytes_ - 1), to_end = bytes_ - at, free = bytes_ - (position_ - read_);
  const bool is_quiet = at >= kQuietBytes && all_read() && bytes <= at;
  if (bytes <= to_end && !is_quiet) {
    if (bytes > free) return nullptr;
    pages_.reach(at + bytes);
    return ring_ + at;
  }
  if (to_end + bytes > free) return nullptr;
  pages_.reach(std::max(at + sizeof(Mark), bytes));
  return go_to_beginning(at);
}

std::byte* RingWriter::go_to_beginning(size_t at) {
  const Mark skip{static_cast<uint32_t>(RecordKind::kSkip), 0, 0};
  std::memcpy(ring_ + at, &skip, sizeof skip);
  position_ += bytes_ - at;
  return ring_;
}

bool RingWriter::set_read(uint64_t read) {
  if (read < read_ || read > position_ || read % kRecordUnit != 0) return false;
  read_ = read;
  return true;
}

bool RingReader::set_written(uint64_t written) {
  if (written < written_ || written - position_ > bytes_ || written % kRecordUnit != 0) return false;
  written_ = written;
  return true;
}

std::optional<RingReader::Record> RingReader::next() {
  while (!empty()) {
    const size_t at = position_ & (bytes_ - 1), to_end = bytes_ - at;
    Record record{{}, {ring_ + at, std::min<size_t>(to_end, written_ - position_)}};
    std::memcpy(&record.mark, ring_ + at, sizeof record.mark);
    if (record.mark.magic != static_cast<uint32_t>(RecordKind::kSkip)) {
      pages_.reach(at + record.bytes.size());
      return record;
    }
    if (to_end > written_ - position_) {
      wrong_ = true;
      break;
    }
    position_ += to_end;
  }
  return std::nullopt;
}

}  // namespace mv::transport
