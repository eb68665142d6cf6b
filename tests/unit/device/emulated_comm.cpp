#include "emulated_comm.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <type_traits>

#include "device/bodies.hpp"

namespace mv::device::emulation {

/// At the beginning of the file. The values of each rank follow, of two all-reduces in turn: no rank begins the one after the
/// next before all have begun the next one, and have therefore read this one's.
struct Comm::Header {
  std::atomic<int32_t> joined;
  std::atomic<uint64_t> posted[kMostRanks];  ///< all-reduces whose values lie there
};

namespace {

constexpr uint64_t kRoom = uint64_t{64} << 20, kValuesAt = 4096;

std::string path_of(const mv_device_comm_id& id) {
  std::string path = "/dev/shm/polyverso-emulated-comm-";
  for (size_t i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", id.bytes[i]);
    path += digits;
  }
  return path;
}

template <typename V>
V combine(int32_t reduction, V a, V b) {
  if (reduction == MV_REDUCE_MIN) return b < a ? b : a;
  if (reduction == MV_REDUCE_MAX) return a < b ? b : a;
  if constexpr (std::is_integral_v<V>) {
    const auto wide = [](V value) { return static_cast<uint64_t>(value); };  // they wrap around
    return static_cast<V>(reduction == MV_REDUCE_PROD ? wide(a) * wide(b) : wide(a) + wide(b));
  } else {
    return reduction == MV_REDUCE_PROD ? a * b : a + b;
  }
}

/// From the last rank to the first one, unlike the library: no test may rely on the order.
template <typename T, typename V>
void reduce_values(const mv_device_part& part, const std::vector<std::vector<std::byte>>& values, int32_t reduction) {
  for (uint64_t i = 0; i < part.count; ++i) {
    const auto at = [&](size_t rank) { return static_cast<V>(get(reinterpret_cast<const T*>(values[rank].data()), i)); };
    V value = at(values.size() - 1);
    for (size_t rank = values.size() - 1; rank-- > 0;) value = combine<V>(reduction, value, at(rank));
    if (reduction == MV_REDUCE_AVG) value = value / static_cast<V>(values.size());
    put(static_cast<T*>(part.out), i, static_cast<Computed<T>>(value));
  }
}

void reduce_part(const mv_device_part& part, const std::vector<std::vector<std::byte>>& values, int32_t reduction) {
  switch (part.dtype) {
    case MV_F32: return reduce_values<float, float>(part, values, reduction);
    case MV_F64: return reduce_values<double, double>(part, values, reduction);
    case MV_F16: return reduce_values<math::Half<MV_F16>, float>(part, values, reduction);
    case MV_BF16: return reduce_values<math::Half<MV_BF16>, float>(part, values, reduction);
    case MV_I32: return reduce_values<int32_t, int32_t>(part, values, reduction);
    case MV_I64: return reduce_values<int64_t, int64_t>(part, values, reduction);
    case MV_U8: return reduce_values<uint8_t, uint8_t>(part, values, reduction);
    default: return reduce_values<int8_t, int8_t>(part, values, reduction);
  }
}

uint64_t bytes_of(const mv_device_part& part) {
  const uint64_t size = part.dtype == MV_F64 || part.dtype == MV_I64 ? 8 : part.dtype == MV_F32 || part.dtype == MV_I32 ? 4 : part.dtype == MV_U8 || part.dtype == MV_I8 ? 1 : 2;
  return part.count * size;
}

}  // namespace

Comm::Comm(const mv_device_comm_id& id, int32_t ranks, int32_t rank) : path_(path_of(id)), ranks_(ranks), rank_(rank) {
  if (ranks > kMostRanks || rank >= ranks) return;
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(place(ranks, 0))) != 0) return;
  void* const mapped = mmap(nullptr, sizeof(Header), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) return;
  header_ = static_cast<Header*>(mapped);
  if (++header_->joined == ranks) unlink(path_.c_str());  // all have it open
}

Comm::~Comm() {
  if (header_ != nullptr && header_->joined < ranks_) unlink(path_.c_str());
  if (header_ != nullptr) munmap(header_, sizeof(Header));
  if (file_ >= 0) close(file_);
}

uint64_t Comm::place(int32_t rank, uint64_t number) const { return kValuesAt + (static_cast<uint64_t>(rank) * 2 + number % 2) * kRoom; }

bool Comm::begin(std::vector<mv_device_part> parts, int32_t reduction, bool stalls) {
  parts_ = std::move(parts);
  reduction_ = reduction;
  ++number_;
  uint64_t at = place(rank_, number_), left = kRoom;
  for (const mv_device_part& part : parts_) {
    const uint64_t bytes = bytes_of(part);
    if (bytes > left || pwrite(file_, part.in, bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes)) return false;
    at += bytes;
    left -= bytes;
  }
  state_ = State::kReducing;
  if (!stalls) header_->posted[rank_] = number_;
  return true;
}

bool Comm::poll() {
  if (state_ == State::kMaking && header_->joined >= ranks_) state_ = State::kIdle;
  if (state_ == State::kReducing && std::all_of(header_->posted, header_->posted + ranks_, [this](const auto& posted) { return posted >= number_; })) {
    reduce();
    state_ = State::kIdle;
  }
  return is_idle();
}

void Comm::reduce() {
  uint64_t at = 0;
  for (const mv_device_part& part : parts_) {
    const uint64_t bytes = bytes_of(part);
    std::vector<std::vector<std::byte>> values(static_cast<size_t>(ranks_), std::vector<std::byte>(bytes));
    for (int32_t rank = 0; rank < ranks_; ++rank)
      if (pread(file_, values[static_cast<size_t>(rank)].data(), bytes, static_cast<off_t>(place(rank, number_) + at)) != static_cast<ssize_t>(bytes)) std::perror("pread");
    reduce_part(part, values, reduction_);
    at += bytes;
  }
}

}  // namespace mv::device::emulation
