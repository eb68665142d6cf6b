#include "transport/shm/ring.hpp"

#include <algorithm>
#include <cstring>

namespace mv::transport {

std::byte* RingWriter::reserve(size_t bytes) {
  const size_t at = position_ & (bytes_ - 1), to_end = bytes_ - at, free = bytes_ - (position_ - read_);
  if (bytes <= to_end) return bytes <= free ? ring_ + at : nullptr;
  if (to_end + bytes > free) return nullptr;
  const Mark skip{static_cast<uint32_t>(RecordKind::kSkip), 0, 0};
  std::memcpy(ring_ + at, &skip, sizeof skip);
  position_ += to_end;
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
    if (record.mark.magic != static_cast<uint32_t>(RecordKind::kSkip)) return record;
    if (to_end > written_ - position_) {
      wrong_ = true;
      break;
    }
    position_ += to_end;
  }
  return std::nullopt;
}

}  // namespace mv::transport
