// What a rank of a group sends to the others: elements of operations, and notes.

#include <cstring>
#include <utility>

#include "engine/collective/active.hpp"
#include "engine/collective/note.hpp"

namespace mv::collective {

/// Sends elements of an operation, or of a message to one rank.
void Group::send_collect(uint32_t to, uint64_t op, const wire::Signature& signature, const Outgoing& chunk,
                         std::shared_ptr<Sender::Receipt> receipt) {
  // The receiver may write this chunk where it has sent from. The acknowledgement of what it sent goes first, which
  // saves it a copy.
  const base::Peer peer = members_.peers[to];
  chunk.payload != nullptr ? server_.acknowledge(peer) : server_.acknowledge_many(peer);
  base::Frame frame = collect_frame(op, signature, chunk);
  sent_ += chunk.bytes() + chunk.tail.size;
  met_[to] = true;
  sender_.send(members_.peers[to], std::move(frame), std::move(receipt));
}

base::Frame Group::collect_frame(uint64_t op, const wire::Signature& signature, const Outgoing& chunk) const {
  const auto from = static_cast<uint32_t>(setting_.rank);
  const auto* const tail_bytes = reinterpret_cast<const uint8_t*>(chunk.tail.data.data());
  if (const wire::Form<wire::Collect>* const form = sender_.form(chunk.tail.size)) {
    const auto fill = [&](wire::Collect& collect) {
      collect.mutate_group(members_.id);
      collect.mutate_op(op);
      collect.mutate_from(from);
      collect.mutate_first(chunk.range.first);
      collect.mutate_count(chunk.range.count);
      *collect.mutable_signature() = signature;
      collect.mutate_awaited(chunk.awaited);
      if (chunk.tail.size > 0) std::memcpy(collect.mutable_tail()->data(), tail_bytes, chunk.tail.size);
    };
    return chunk.payload != nullptr ? form->finish(fill, chunk.payload) : form->finish_small(fill, chunk.small);
  }
  auto& builder = sender_.builder();
  const auto tail = builder.fbb().CreateVector(tail_bytes, chunk.tail.size);
  const auto body = wire::CreateCollect(builder.fbb(), members_.id, op, from, chunk.range.first, chunk.range.count, &signature, chunk.awaited, tail);
  return chunk.payload != nullptr ? builder.finish(wire::Body::Collect, body, chunk.payload) : builder.finish_small(wire::Body::Collect, body, chunk.small);
}

void Group::tell(uint32_t to, wire::GroupWord word, const Fill& fill) {
  Note note;
  note.group = members_.id;
  note.word = word;
  note.from = static_cast<uint32_t>(setting_.rank);
  fill(note);
  met_[to] = true;
  sender_.send(members_.peers[to], frame_of(sender_.builder(), note));
}

void Group::tell_all(wire::GroupWord word, const Fill& fill) {
  for (uint32_t rank = 0; rank < members_.peers.size(); ++rank)
    if (is_other(rank)) tell(rank, word, fill);
}

/// Another rank that has not left.
bool Group::is_other(uint32_t rank) const { return static_cast<int32_t>(rank) != setting_.rank && !lost_.contains(rank) && !closed_.contains(rank); }

void Group::tell_shape(uint32_t to, uint64_t op, const Active& active) {
  tell(to, wire::GroupWord::Comes, [&](Note& note) {
    note.op = op;
    note.signature = active.running.signature();
    for (const Array& array : active.running.operation().out) {
      note.dtypes.push_back(static_cast<uint8_t>(array.dtype | array.note << kNoteShift));
      note.counts.push_back(array.count);
    }
  });
}

void Group::tell_agreement(uint32_t to, const Agreement::Word& word) {
  tell(to, word.decides ? wire::GroupWord::Decides : wire::GroupWord::Shrinks, [&](Note& note) {
    note.status = code_for_others(broken_.code());  // for ranks that do not know the reason yet
    note.text = broken_.text();
    note.ranks = word.gone;
    note.asks = word.asks;
    note.grows = word.wish.grows;
    note.size = word.wish.size;
    note.decided = word.decided.ranks;
    write_newcomers(note, word.decided.ranks.empty() ? word.wish.newcomers : word.decided.joined);
  });
}

}  // namespace mv::collective
