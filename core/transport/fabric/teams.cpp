#include "transport/fabric/teams.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.hpp"

namespace mv::transport {

namespace {

/// The copies of one segment keep the loop from other work for about 0.1 ms.
constexpr size_t kSegment = 1 << 20;
/// Segments of one team that the library has at once.
constexpr size_t kWindow = 4;

size_t bytes_of(mv_dtype dtype) {
  switch (dtype) {
    case MV_F64:
    case MV_I64: return 8;
    case MV_F32:
    case MV_I32: return 4;
    default: return 1;
  }
}

void* tag_of(uint64_t number) { return reinterpret_cast<void*>(number); }

/// A process that has its result may still have to pass something on, which the library does inside of its calls.
constexpr base::Nanos kLinger = std::chrono::milliseconds(100);

/// The processor's sum of two NaNs has the bits of the first one, and which one that is differs between ranks.
template <typename Float>
void copy_floats(std::byte* to, const std::byte* from, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    Float value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    if (value != value) value = std::numeric_limits<Float>::quiet_NaN();
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

// ------------------------------------------------------------ teams

base::Result<std::unique_ptr<Teams>> Teams::make(Loop& loop, std::unique_ptr<Fabric> fabric) {
  std::unique_ptr<Teams> teams(new Teams(loop, std::move(fabric)));
  teams->poll_ = Poll::make(loop, teams->fabric_->descriptor(), [made = teams.get()](int) { made->poll(); });
  if (teams->poll_ == nullptr) return base::error(MV_ESYSTEM, "can't watch the timer that polls MPI");
  loop.add_flusher(*teams);
  loop.add_watched(*teams);
  return teams;
}

Teams::~Teams() {
  loop_.remove_watched(*this);
  loop_.remove_flusher(*this);
  for (const auto& [number, making] : makings_)
    if (making.handle != nullptr) fabric_->disband(making.handle);
  for (auto& [number, segment] : segments_)
    if (segment.block != nullptr) segment.block->abandon();
  segments_.clear();
}

/// The descriptor is a timer that stays readable until it is set again.
void Teams::watch() {
  if (poll_ != nullptr) poll_->watch(is_idle() ? 0 : UV_READABLE);
}

void Teams::linger() { linger_until_ = loop_.now() + kLinger; }

uint64_t Teams::make_team(const std::vector<int32_t>& ranks, uint64_t key, Made made) {
  const uint64_t number = next_++;
  auto begun = fabric_->team(ranks, key, tag_of(number));
  makings_[number] = {begun.ok() ? begun.value() : nullptr, begun.ok() ? base::Status() : begun.status(), std::move(made)};
  if (!begun.ok()) {
    refused_.push_back(number);
    loop_.post([] {});  // one more turn, in which flush() reports it
  }
  watch();
  return number;
}

void Teams::give_up(uint64_t number) {
  const auto found = makings_.extract(number);
  if (!found.empty() && found.mapped().handle != nullptr) fabric_->disband(found.mapped().handle);
  watch();
}

bool Teams::poll() {
  if (looking_ || is_idle()) return false;
  looking_ = true;
  struct Looked {
    Teams& teams;
    ~Looked() {
      teams.looking_ = false;
      teams.watch();
    }
  } looked{*this};
  const auto events = fabric_->progress();
  for (const mv_fabric_event& event : events) take_event(event);
  return !events.empty();
}

void Teams::take_event(const mv_fabric_event& event) {
  const auto number = reinterpret_cast<uint64_t>(event.user);
  const base::Status status = event.status == MV_OK ? base::Status() : base::Status(event.status, event.why);
  if (event.kind == MV_FABRIC_TEAMED) return end_making(number, status);
  if (event.kind == MV_FABRIC_REDUCED) return end_segment(number, status);
  if (event.kind == MV_FABRIC_ARRIVED) fabric_->release(event.message);  // nobody knows its address
}

void Teams::flush() {
  for (const uint64_t number : std::exchange(refused_, {})) {
    if (const auto making = makings_.find(number); making != makings_.end())
      end_making(number, base::Status(making->second.failure));
    else
      end_segment(number, refusal_);
  }
  watch();
}

void Teams::end_making(uint64_t number, const base::Status& status) {
  auto found = makings_.extract(number);
  if (found.empty()) return;
  const Making making = std::move(found.mapped());
  linger();
  if (status.ok()) return making.made(std::make_unique<Team>(*this, making.handle));
  if (making.handle != nullptr) fabric_->disband(making.handle);
  making.made(status);
}

void Teams::end_segment(uint64_t number, const base::Status& status) {
  auto found = segments_.extract(number);
  if (found.empty() || found.mapped().team == nullptr) return;
  const Segment segment = std::move(found.mapped());
  linger();
  if (const Team::Done done = segment.team->ended(number, segment.block != nullptr ? segment.block->data() : nullptr, status)) done(status);  // the team may end by that
}

// ------------------------------------------------------------ one team

Team::~Team() {
  for (const auto& [number, cut] : cuts_)
    if (const auto found = teams_.segments_.find(number); found != teams_.segments_.end()) {
      if (found->second.block != nullptr) found->second.block->abandon();
      teams_.segments_.erase(found);
    }
  teams_.fabric_->disband(handle_);
  teams_.watch();
}

void Team::reduce(std::vector<Values> values, int32_t reduction, Done done) {
  const auto task = std::make_shared<Task>(Task{std::move(values), reduction, std::move(done)});
  std::erase_if(task->values, [](const Values& each) { return each.count == 0; });
  tasks_.push_back(task);
  pump();
}

void Team::pump() {
  while (!tasks_.empty() && cuts_.size() < kWindow) {
    const std::shared_ptr<Task> task = tasks_.front();
    cut_segment(task);
    if (task->at == task->values.size()) tasks_.pop_front();
  }
  teams_.watch();
}

/// Copies the next values of one dtype to a segment, and gives it to the library. A task without values is one segment
/// with one element, so that `done` waits for all processes here, too.
void Team::cut_segment(const std::shared_ptr<Task>& task) {
  const uint64_t number = teams_.next_++;
  Cut cut{task, task->at < task->values.size() ? task->values[task->at].dtype : MV_U8, {}};
  const size_t element = bytes_of(cut.dtype);
  auto block = teams_.fabric_->block(kSegment);
  uint64_t filled = 0;
  for (; task->at < task->values.size() && task->values[task->at].dtype == cut.dtype && block.ok();) {
    const Values& values = task->values[task->at];
    const uint64_t count = std::min<uint64_t>(values.count - task->first, kSegment / element - filled);
    std::memcpy(block.value()->data() + filled * element, values.from + task->first * element, count * element);
    cut.pieces.push_back({values.to + task->first * element, count});
    filled += count;
    task->first += count;
    if (task->first < values.count) break;  // the segment is full
    task->first = 0;
    ++task->at;
  }
  base::Status begun = block.ok() ? base::Status() : block.status();
  if (begun.ok()) {
    if (filled == 0) *block.value()->data() = std::byte{0};
    begun = teams_.fabric_->reduce(handle_, block.value()->data(), std::max<uint64_t>(filled, 1), cut.dtype, task->reduction, tag_of(number));
  }
  ++task->under_way;
  cuts_.emplace(number, std::move(cut));
  teams_.segments_[number] = {this, block.ok() ? std::move(block).value() : nullptr};
  if (begun.ok()) return;
  task->at = task->values.size();
  teams_.refused_.push_back(number);
  teams_.refusal_ = begun;
  teams_.loop_.post([] {});  // one more turn, in which flush() reports it
}

void Team::copy_out(const Cut& cut, const std::byte* from) {
  const size_t element = bytes_of(cut.dtype);
  for (const Piece& piece : cut.pieces) {
    if (cut.dtype == MV_F32)
      copy_floats<float>(piece.to, from, piece.count);
    else if (cut.dtype == MV_F64)
      copy_floats<double>(piece.to, from, piece.count);
    else
      std::memcpy(piece.to, from, piece.count * element);
    from += piece.count * element;
  }
}

Team::Done Team::ended(uint64_t number, const std::byte* values, const base::Status& status) {
  const auto found = cuts_.extract(number);
  if (found.empty()) return {};
  const Cut& cut = found.mapped();
  if (status.ok()) copy_out(cut, values);
  pump();
  const bool is_last = --cut.task->under_way == 0 && cut.task->at == cut.task->values.size();
  if (!status.ok() || is_last) return std::exchange(cut.task->done, {});
  return {};
}

}  // namespace mv::transport
