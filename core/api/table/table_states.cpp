// TableHandle: updater states, gathered from all servers and sent back to the servers that hold the parts now.

#include <algorithm>
#include <cstring>

#include "api/call/wait_for.hpp"
#include "api/table/table_handle.hpp"
#include "shard/updater/apply.hpp"

namespace mv::api {

namespace {
/// Approximate size of one message of a state.
constexpr uint64_t kChunkBytes = 1 << 20;

uint64_t state_row_bytes(const TableSpec& spec) { return spec.cols * tensor::dtype_bytes(tensor::storage_dtype(spec.dtype)); }
}  // namespace

base::Result<TableStates> TableHandle::states() {
  if (const base::Status wrong = usable(); !wrong.ok()) return wrong;
  if (table_->consistency == shard::Consistency::kMerge)
    if (const base::Status failed = wait_for_turn({}); !failed.ok()) return failed;
  TableStates states;
  for (size_t server = 0; server < table_->servers.size(); ++server) {
    if (!shard::has_part(spec_, table_->servers.size(), server)) continue;
    const auto fetched = fetch_states(server, states);
    if (fetched.ok()) continue;
    static_cast<void>(wait_for<table::StatesChunk>(calls_, [=, this, until = calls_.deadline({}, false)](auto told) {
      calls_.member().tables().inquiries().states(table_, server, table::kNoMoreStates, until, told);
    }));
    return fetched.status();
  }
  return states;
}

base::Status TableHandle::wait_to_begin_anew(base::Nanos patience, const base::Status& why) {
  constexpr base::Nanos kLookEvery = std::chrono::milliseconds(5);
  const base::Nanos now = calls_.loop().now();
  if (now >= patience) return base::error(MV_ETIMEOUT, "{}", why.text());
  const transport::Driven driven = calls_.drive_until([] { return false; }, now + kLookEvery);
  if (driven == transport::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait for other saves of the table");
  return driven == transport::Driven::kTimeout ? base::Status() : calls_.ended();
}

base::Result<bool> TableHandle::fetch_states(size_t server, TableStates& into) {
  const uint64_t row_bytes = state_row_bytes(spec_);
  const base::Nanos patience = calls_.deadline({}, false);
  for (uint64_t number = 0;; ++number) {
    const auto got = wait_for<table::StatesChunk>(calls_, [=, this, until = calls_.deadline({}, false)](auto told) {
      calls_.member().tables().inquiries().states(table_, server, number, until, told);
    });
    if (got.status().code() == table::kBeginAnew) {  // while a checkpoint is saved or the part copied, or after its server was replaced
      if (const base::Status waited = wait_to_begin_anew(patience, got.status()); !waited.ok()) return waited;
      number = UINT64_MAX;
      continue;
    }
    if (!got.ok()) return got.status();
    const table::StatesChunk& chunk = got.value();
    if (chunk.states == 0) {
      into.updater = chunk.updater;
      into.marks.push_back(chunk.mark);
      return true;
    }
    const bool fits = chunk.state < chunk.states && chunk.states <= shard::kMostStates && chunk.count <= spec_.rows &&
                      chunk.first <= spec_.rows - chunk.count && chunk.values.size() == chunk.count * row_bytes;
    if (!fits) return base::error(MV_EPROTOCOL, "table \"{}\": states with another layout than the table's", spec_.name);
    into.states.resize(std::max<size_t>(into.states.size(), chunk.states));
    auto& state = into.states[chunk.state];
    state.resize(spec_.rows * row_bytes);
    if (!chunk.values.empty()) std::memcpy(state.data() + chunk.first * row_bytes, chunk.values.data(), chunk.values.size());
  }
}

base::Status TableHandle::set_states(const TableStates& states) {
  if (const base::Status wrong = usable(); !wrong.ok()) return wrong;
  for (const auto& state : states.states)
    if (state.size() != spec_.rows * state_row_bytes(spec_))
      return base::error(MV_ESHAPE, "table \"{}\": the state has {} bytes, not {}", spec_.name, state.size(), spec_.rows * state_row_bytes(spec_));
  const size_t servers = table_->servers.size();
  const auto parts = static_cast<size_t>(std::ranges::count_if(table_->servers, [&, server = size_t{0}](base::Peer) mutable {
    return shard::has_part(spec_, servers, server++);
  }));
  const auto latest = std::ranges::max_element(states.marks, {}, &shard::Mark::updates);
  for (size_t server = 0, part = 0; server < servers; ++server) {
    if (!shard::has_part(spec_, servers, server)) continue;
    const shard::Mark* mark = states.marks.empty() ? nullptr : states.marks.size() == parts ? &states.marks[part] : &*latest;
    if (const base::Status failed = send_states(server, states, mark); !failed.ok()) return failed;
    ++part;
  }
  return {};
}

base::Status TableHandle::send_states(size_t server, const TableStates& states, const shard::Mark* mark) {
  const uint64_t row_bytes = state_row_bytes(spec_), at_once = std::max<uint64_t>(1, kChunkBytes / row_bytes);
  const auto send = [&](const table::StatesChunk& chunk) -> base::Status {
    const auto done = wait_for<bool>(calls_, [=, this, &chunk, until = calls_.deadline({}, false)](auto told) {
      calls_.member().tables().inquiries().set_states(table_, server, chunk, until, told);
    });
    return done.ok() ? base::Status() : done.status();
  };
  const shard::Range part = shard::part_of(spec_, table_->servers.size(), server);
  for (uint64_t row = part.first; row < part.end(); row += at_once) {
    table::StatesChunk chunk;
    chunk.first = row;
    chunk.count = std::min(at_once, part.end() - row);
    chunk.states = static_cast<uint32_t>(states.states.size());
    for (const auto& state : states.states) {
      const auto from = state.begin() + static_cast<ptrdiff_t>(row * row_bytes);
      chunk.values.assign(from, from + static_cast<ptrdiff_t>(chunk.count * row_bytes));
      if (const base::Status failed = send(chunk); !failed.ok()) return failed;
      ++chunk.state;
    }
  }
  if (mark == nullptr) return {};
  table::StatesChunk last;
  last.mark = *mark;
  return send(last);
}

}  // namespace mv::api
