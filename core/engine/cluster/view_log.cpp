#include "engine/cluster/view_log.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

namespace {

/// More members than this are a message's payload: headers have a limit, and connections share a payload's memory.
constexpr size_t kMostInHeader = 16;

bool has_same_places(const View& a, const View& b) {
  return std::ranges::equal(a.members, b.members, {}, &Member::rank, &Member::rank);
}

}  // namespace

base::Result<Update> read_update(const wire::View& header, std::span<const std::byte> payload) {
  if (payload.empty()) return Update{header.base(), header.workers_gone(), read_view(header)};
  Update update{header.base(), header.workers_gone()};
  auto view = from_bytes(payload);
  if (!view.ok()) return view.status();
  update.view = std::move(view).value();
  return update;
}

bool apply(const Update& update, View& view) {
  if (update.base == 0) {
    view = update.view;
    return true;
  }
  if (view.epoch < update.base || view.epoch > update.view.epoch) return false;
  if (std::ranges::any_of(update.view.members, [&](const Member& member) { return view.at(member.rank) == nullptr; })) return false;
  View next = update.view;
  next.members = std::move(view.members);
  for (const Member& member : update.view.members) *next.at(member.rank) = member;
  next.losses = view.losses;
  next.loss_texts = std::move(view.loss_texts);
  next.take_losses(update.view);
  view = std::move(next);
  return true;
}

void ViewLog::begin(const View& view) {
  first_ = last_ = view.epoch;
  changed_.assign(view.members.size(), view.epoch);
  losses_.assign(view.loss_texts.size(), view.epoch);
}

void ViewLog::follow(const View& before, const View& next) {
  if (!has_same_places(before, next) || changed_.size() != next.members.size()) return begin(next);
  // Receivers of the last view don't have what has changed since, even if the number is the same.
  last_ = std::max(last_ + (next.epoch == last_ && before.members != next.members ? 1 : 0), next.epoch);
  for (size_t i = 0; i < changed_.size(); ++i)
    if (before.members[i] != next.members[i]) changed_[i] = last_;
  for (uint64_t loss = before.losses; loss < next.losses; ++loss) losses_.push_back(last_);
  while (losses_.size() > next.loss_texts.size()) losses_.pop_front();
}

base::Frame ViewLog::write(wire::FrameBuilder& builder, const View& view, uint64_t has) const {
  const bool is_whole = has == 0 || has < first_ || changed_.size() != view.members.size();
  std::vector<const Member*> members;
  for (size_t i = 0; i < view.members.size(); ++i)
    if (is_whole || changed_[i] > has) members.push_back(&view.members[i]);
  const auto old = std::ranges::count_if(losses_, [&](uint64_t since) { return !is_whole && since <= has; });
  const std::span texts = std::span(view.loss_texts).subspan(std::min<size_t>(static_cast<size_t>(old), view.loss_texts.size()));
  const uint64_t base = is_whole ? 0 : has;
  if (members.size() <= kMostInHeader) {
    const auto written = write_changes(builder.fbb(), view, members, texts, base);
    return builder.finish(wire::Body::View, written);
  }
  flatbuffers::FlatBufferBuilder fbb;
  fbb.Finish(write_changes(fbb, view, members, texts, base));
  const auto payload = base::Payload::copy(std::as_bytes(std::span(fbb.GetBufferPointer(), fbb.GetSize())));
  const auto header = write_changes(builder.fbb(), view, {}, {}, base);
  return builder.finish(wire::Body::View, header, payload);
}

}  // namespace mv::cluster
