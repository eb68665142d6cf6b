#include "device/graphs.hpp"

#include <algorithm>
#include <functional>
#include <new>

#include "base/undo.hpp"
#include "tensor/dtype.hpp"

namespace mv::device {

// ------------------------------------------------------------ lists of work

void WorkList::append(uint32_t kind, const void* work, size_t bytes) {
  const Head head{kind, static_cast<uint32_t>(bytes)};
  const size_t at = words_.size();
  words_.resize(at + (sizeof(head) + bytes) / sizeof(uint64_t));
  std::memcpy(&words_[at], &head, sizeof(head));
  std::memcpy(&words_[at + 1], work, bytes);
  ++size_;
}

void WorkList::copy(void* to, const void* from, size_t bytes, int32_t source) {
  const Copy copy{to, from, bytes, source};
  if (bytes > 0) append(kCopy, &copy, sizeof(copy));
}

void WorkList::cast(mv_dtype to, void* out, mv_dtype from, const void* in, uint64_t count, int32_t number) {
  if (to == from) return copy(out, in, count * tensor::dtype_bytes(to), number);
  if (count > 0) launch(MV_DEVICE_CAST, mv_device_cast{out, in, count, to, from});
}

base::Status WorkList::run(const Stream& stream) const {
  for (size_t at = 0; at < words_.size();) {
    Head head;
    std::memcpy(&head, &words_[at], sizeof(head));
    const uint64_t* const work = &words_[at + 1];
    at += (sizeof(head) + head.bytes) / sizeof(uint64_t);
    base::Status status;
    if (head.kind == kCopy) {
      Copy copy;
      std::memcpy(&copy, work, sizeof(copy));
      status = stream.copy(copy.to, copy.from, copy.bytes);
    } else {
      status = stream.launch(static_cast<mv_device_kernel>(head.kind), work, head.bytes);
    }
    if (!status.ok()) return status;
  }
  return {};
}

// ------------------------------------------------------------ graphs

Graphs::~Graphs() { std::ranges::for_each(known_, [this](Known& known) { drop(known); }); }

void Graphs::drop(Known& known) {
  if (known.graph != nullptr) device_.plugin().graph_free(device_.number(), known.graph);
  known.graph = nullptr;
}

base::Status Graphs::run(const Stream& stream, const WorkList& work) {
  try {
    if (work.size() >= kShortest && launch(stream, work)) return {};
  } catch (const std::bad_alloc&) {  // the work itself needs no memory of the host, and callers rely on that
  }
  return work.run(stream);
}

/// False: nothing was carried out.
bool Graphs::launch(const Stream& stream, const WorkList& work) {
  // If another thread records or launches, waiting for it would take longer than launching the work one by one. In a forked
  // child the mutex may even be held for ever.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !has_graphs_) return false;
  Known* const known = find(work);
  if (known == nullptr || known->is_refused) return false;
  if (known->graph == nullptr) known->graph = record(work);
  const mv_device_plugin& plugin = device_.plugin();
  if (known->graph != nullptr && plugin.graph_launch(device_.number(), stream.handle(), known->graph) == MV_OK) return true;
  known->is_refused = true;
  drop(*known);
  return false;
}

/// Null: it was not given before, or too long ago.
Graphs::Known* Graphs::find(const WorkList& work) {
  const std::string_view bytes = work.bytes();
  const size_t hash = std::hash<std::string_view>{}(bytes);
  const auto found = std::ranges::find_if(known_, [&](const Known& one) { return one.hash == hash && std::ranges::equal(one.bytes, bytes); });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    return &known_.front();
  }
  known_.push_front({hash, {bytes.begin(), bytes.end()}});
  if (known_.size() > kKept) {
    drop(known_.back());
    known_.pop_back();
  }
  return nullptr;
}

/// Null: it can't be recorded.
mv_device_graph Graphs::record(const WorkList& work) {
  if (!recording_) {
    auto made = Stream::make(device_);
    if (!made.ok()) return nullptr;
    recording_.emplace(std::move(made).value());
  }
  const mv_device_plugin& plugin = device_.plugin();
  const mv_status begun = plugin.graph_begin(device_.number(), recording_->handle());
  has_graphs_ = begun != MV_ENOSYS;
  if (begun != MV_OK) return nullptr;
  mv_device_graph graph = nullptr;
  base::Undo give_up([&] {
    plugin.graph_end(device_.number(), recording_->handle(), &graph);
    if (graph != nullptr) plugin.graph_free(device_.number(), graph);
  });
  if (!work.run(*recording_).ok()) return nullptr;
  give_up.keep();
  return plugin.graph_end(device_.number(), recording_->handle(), &graph) == MV_OK ? graph : nullptr;
}

}  // namespace mv::device
