#include "rounds/states_trip.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace mv::sim {

void StatesTrip::go() {
  const auto self = shared_from_this();
  read(found_, [this, self] {
    other_ = found_;
    for (table::StatesChunk& chunk : other_) {
      std::ranges::transform(chunk.values, chunk.values.begin(), [](std::byte byte) { return byte ^ std::byte{0x55}; });
      chunk.mark.updates += 7;
    }
    write(other_, 0, [this, self] {
      write(found_, 0, [this, self] { read(again_, [this, self] { next_server(); }); });
    });
  });
}

void StatesTrip::next_server() {
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first && a.count == b.count && a.values == b.values && a.mark == b.mark; };
  if (!std::ranges::equal(found_, again_, same))
    return done_(
        fmt::format("server {}: its states differ from those written back: {} and {} chunks, {} and {} updates",
                    server_, found_.size(), again_.size(), found_.back().mark.updates, again_.back().mark.updates));
  if (++server_ == table_->servers.size()) return done_("");
  found_.clear();
  again_.clear();
  go();
}

void StatesTrip::read(Chunks& into, std::function<void()> then) {
  client_.inquiries().states(table_, server_, into.size(), base::kNever, [this, self = shared_from_this(), &into, then = std::move(then)](const auto& told) {
    if (!told.ok()) return done_(fmt::format("states of server {}: {}", server_, told.status().text()));
    into.push_back(told.value());
    into.back().states == 0 ? then() : read(into, then);
  });
  touched_();
}

void StatesTrip::write(const Chunks& chunks, size_t next, std::function<void()> then) {
  if (next == chunks.size()) return then();
  client_.inquiries().set_states(table_, server_, chunks[next], base::kNever,
                     [this, self = shared_from_this(), &chunks, next, then = std::move(then)](const auto& told) {
                       if (!told.ok())
                         return done_(fmt::format("states for server {}: {}", server_, told.status().text()));
                       write(chunks, next + 1, then);
                     });
  touched_();
}

}  // namespace mv::sim
