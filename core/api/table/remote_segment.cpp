#include "api/table/remote_segment.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "math/kernels.hpp"

namespace mv::api {

using transport::RemoteRange;

namespace {

/// What one step reads at most: bytes of values, and ranges.
constexpr size_t kMostBytes = 4 << 20, kMostPieces = 256;
/// The network is that of a cluster: an answer that takes longer will not come.
constexpr base::Nanos kPatience = std::chrono::seconds(1);

RemoteRange head_range() { return {0, sizeof(shard::SegmentHead)}; }

}  // namespace

/// Of one fetch. The loop may complete it when nobody waits any more.
struct RemoteSegment::Outcome {
  std::vector<std::byte> bytes;
  std::atomic<bool> is_over{false};
  bool is_complete = false;
};

void RemoteSegment::open(transport::Loop& loop, std::shared_ptr<transport::RemoteMemory> memory, const shard::Spec& spec, uint64_t elements,
                         std::function<void(std::shared_ptr<RemoteSegment>)> opened) {
  const shard::SegmentLayout layout(spec, elements);
  if (memory->bytes() < layout.bytes) return opened(nullptr);
  transport::RemoteMemory& from = *memory;
  const std::shared_ptr<RemoteSegment> segment(new RemoteSegment(loop, std::move(memory), spec, layout));
  const RemoteRange head = head_range();
  from.get({&head, 1}, [segment, opened = std::move(opened)](const base::Result<std::span<const std::byte>>& got) {
    const bool fits = got.ok() && segment->layout_.fits(shard::HeadWords::of(got.value().data()));
    if (!got.ok()) base::log_debug("can't read a server's memory: {}", got.status().text());
    opened(fits ? segment : nullptr);
  });
}

// ------------------------------------------------------------ steps

/// Whether gets may still read here.
bool RemoteSegment::note(const shard::HeadWords& head) const {
  if (!layout_.fits(head) || head.destroyed != 0 || head.counts_gets != 0) closed_ = true;
  return !closed_;
}

/// Waits for the bytes of all ranges.
bool RemoteSegment::fetch(std::vector<RemoteRange> ranges, std::vector<std::byte>& into) const {
  const auto outcome = std::make_shared<Outcome>();
  size_t bytes = 0;
  for (const RemoteRange& range : ranges) bytes += range.bytes;
  outcome->bytes.resize(bytes);
  transport::Task begin = [memory = memory_, ranges = std::move(ranges), outcome] {
    memory->get(ranges, [outcome](const base::Result<std::span<const std::byte>>& got) {
      outcome->is_complete = got.ok();
      if (got.ok()) std::memcpy(outcome->bytes.data(), got.value().data(), outcome->bytes.size());
      outcome->is_over.store(true, std::memory_order_release);
    });
  };
  const auto is_over = [&outcome] { return outcome->is_over.load(std::memory_order_acquire); };
  const base::Nanos deadline = loop_.now() + kPatience;
  // A signal is handled when the get returns, which is soon.
  transport::Driven how = loop_.drive_until(is_over, deadline, std::move(begin));
  while (how == transport::Driven::kInterrupted) how = loop_.drive_until(is_over, deadline);
  if (how != transport::Driven::kDone || !outcome->is_complete) {
    closed_ = true;
    return false;
  }
  into.swap(outcome->bytes);
  return true;
}

/// The sequence numbers of these stripes.
bool RemoteSegment::fetch_guards(uint64_t first, uint64_t last, std::vector<uint64_t>& sequences) const {
  const size_t stripes = last - first + 1;
  std::vector<std::byte> bytes;
  if (!fetch({head_range(), {layout_.guards_at + first * sizeof(shard::StripeGuard), stripes * sizeof(shard::StripeGuard)}}, bytes)) return false;
  if (!note(shard::HeadWords::of(bytes.data()))) return false;
  sequences.resize(stripes);
  for (size_t i = 0; i < stripes; ++i)
    std::memcpy(&sequences[i], bytes.data() + sizeof(shard::SegmentHead) + i * sizeof(shard::StripeGuard), sizeof(uint64_t));
  return true;
}

bool RemoteSegment::read(std::span<const Piece> pieces) const {
  if (pieces.empty()) return true;
  const auto first_stripe = [this](const Piece& piece) { return piece.first / layout_.stripe_elements; };
  const auto last_stripe = [this](const Piece& piece) { return (piece.first + piece.count - 1) / layout_.stripe_elements; };
  uint64_t first = UINT64_MAX, last = 0;
  std::vector<RemoteRange> ranges;
  for (const Piece& piece : pieces) {
    first = std::min(first, first_stripe(piece));
    last = std::max(last, last_stripe(piece));
    ranges.push_back({layout_.values_at + piece.first * layout_.element_bytes, piece.count * layout_.element_bytes});
  }
  std::vector<uint64_t> before, after;
  std::vector<std::byte> values;
  const auto is_whole = [&](const Piece& piece) {
    for (uint64_t stripe = first_stripe(piece); stripe <= last_stripe(piece); ++stripe)
      if (before[stripe - first] % 2 != 0 || before[stripe - first] != after[stripe - first]) return false;
    return true;
  };
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (!fetch_guards(first, last, before) || !fetch(ranges, values) || !fetch_guards(first, last, after)) return false;
    if (!std::ranges::all_of(pieces, is_whole)) continue;
    const std::byte* from = values.data();
    for (const Piece& piece : pieces) {
      math::load_bytes(dtype_, from, piece.out, piece.count);
      from += piece.count * layout_.element_bytes;
    }
    return true;
  }
  return false;
}

// ------------------------------------------------------------ calls

base::Nanos RemoteSegment::longest_wait() const { return kPatience; }

bool RemoteSegment::has_reached(uint64_t clock) const {
  if (clock == 0) return true;
  std::vector<std::byte> bytes;
  if (!fetch({head_range()}, bytes)) return false;
  const auto head = shard::HeadWords::of(bytes.data());
  return note(head) && head.clock >= clock;
}

bool RemoteSegment::read(uint64_t first, uint64_t count, std::byte* out) const {
  const uint64_t most = std::max<uint64_t>(1, kMostBytes / layout_.element_bytes);
  for (uint64_t done = 0; done < count;) {
    const Piece piece{first + done, std::min(most, count - done), out + done * out_bytes_};
    if (!read({&piece, 1})) return false;
    done += piece.count;
  }
  return true;
}

bool RemoteSegment::read_rows(std::span<const int64_t> ids, int64_t first_row, std::byte* out) const {
  std::vector<Piece> pieces;
  size_t bytes = 0;
  const uint64_t row_bytes = cols_ * layout_.element_bytes;
  if (row_bytes > kMostBytes) {
    for (size_t i = 0; i < ids.size(); ++i)
      if (!read(static_cast<uint64_t>(ids[i] - first_row) * cols_, cols_, out + i * cols_ * out_bytes_)) return false;
    return true;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t element = static_cast<uint64_t>(ids[i] - first_row) * cols_;
    if (!pieces.empty() && pieces.back().first + pieces.back().count == element)
      pieces.back().count += cols_;
    else
      pieces.push_back({element, cols_, out + i * cols_ * out_bytes_});
    bytes += row_bytes;
    if (pieces.size() < kMostPieces && bytes + row_bytes <= kMostBytes) continue;
    if (!read(pieces)) return false;
    pieces.clear();
    bytes = 0;
  }
  return read(pieces);
}

}  // namespace mv::api
