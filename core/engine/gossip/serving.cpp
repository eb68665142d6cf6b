#include "engine/gossip/serving.hpp"

#include <algorithm>

#include "codec/wire.hpp"

namespace mv::gossip {

// ------------------------------------------------------------ the held version

void Serving::hold(std::shared_ptr<SnapshotReader> reader, uint64_t version) {
  if (reader == own_.reader() && !own_.hold(version)) return let_go();
  held_ = {std::move(reader), version, clock_.now(), {}};
}

void Serving::let_go() {
  held_ = {};
  own_.hold(0);
}

void Serving::hold_for_exchange(std::shared_ptr<SnapshotReader> reader, uint64_t version) {
  if (reader == nullptr) return;
  hold(std::move(reader), version);
  if (held_.version == version) held_.until[base::kNobody] = base::after(clock_.now(), timeout_);
}

base::Nanos Serving::next_deadline() const {
  const auto is_due = [](const auto& of) { return !of.second.waiting.empty() && of.second.has_room(); };
  if (std::ranges::any_of(chunks_, is_due)) return clock_.now();
  base::Nanos next = base::kNever;
  for (const auto& [reader, until] : held_.until) next = std::min(next, until);
  return next;
}

void Serving::tick() {
  for (auto& [peer, chunks] : chunks_)
    while (!chunks.waiting.empty() && chunks.has_room()) {
      const std::vector<std::byte> header = std::move(chunks.waiting.front());
      chunks.waiting.pop_front();
      answer(peer, *flatbuffers::GetRoot<wire::Message>(header.data())->body_as_Fetch());
    }
  expire_readers();
}

void Serving::expire_readers() {
  if (held_.version == 0) return;
  std::erase_if(held_.until, [now = clock_.now()](const auto& reader) { return reader.second <= now; });
  if (held_.until.empty()) let_go();
}

void Serving::on_lost(base::Peer peer) {
  chunks_.erase(peer);
  forget_reader(peer);
}

void Serving::forget_reader(base::Peer peer) {
  if (held_.until.erase(peer) > 0 && held_.until.empty()) let_go();
}

/// The version that a request refers to, and its memory.
Serving::Held Serving::choose(const wire::Fetch& fetch) {
  const bool held = held_.version != 0;
  if (fetch.version() != 0) return {held && fetch.version() == held_.version ? held_.reader : own_.reader(), fetch.version(), {}, {}};
  if (held && clock_.now() < base::after(held_.since, timeout_)) return {held_.reader, held_.version, {}, {}};
  auto reader = own_.reader();
  const uint64_t newest = reader != nullptr ? reader->newest() : 0;
  return {std::move(reader), newest, {}, {}};
}

/// Notes that `from` has requested a chunk of this version that is not the last one.
void Serving::note_reader(base::Peer from, const Held& chosen) {
  expire_readers();
  const bool too_old = held_.version < chosen.version && clock_.now() >= base::after(held_.since, timeout_);
  if (!is_held(chosen) && (held_.version == 0 || too_old)) hold(chosen.reader, chosen.version);
  if (held_.version == chosen.version) held_.until[from] = base::after(clock_.now(), timeout_);
}

// ------------------------------------------------------------ answers

void Serving::answer_absent(base::Peer to, uint64_t number, wire::Absence absence) {
  wire::FetchedBuilder body(builder_.fbb());
  body.add_number(number);
  body.add_absence(absence);
  link_.send(to, builder_.finish(wire::Body::Fetched, body.Finish()));
}

/// A payload that counts as in flight to this peer while a transport keeps it.
base::PayloadRef Serving::counted(base::Peer to, std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  const auto count = chunks_[to].under_way;
  ++*count;
  // Transports release payloads on the loop, once they are sent or given up.
  const void* const held = keep.get();
  return base::Payload::kept(bytes, std::shared_ptr<const void>(held, [count, keep = std::move(keep)](const void*) { --*count; }));
}

/// Null if the version has been overwritten meanwhile.
base::PayloadRef Serving::chunk(base::Peer to, const SnapshotReader& reader, const Description& known, uint64_t first, uint64_t count,
                                codec::CodecRef codec) {
  const std::shared_ptr<std::byte[]> raw = std::make_unique_for_overwrite<std::byte[]>(count);
  const std::span<std::byte> bytes(raw.get(), count);
  if (!reader.read(known.version, first, bytes)) return nullptr;
  if (codec == nullptr) return counted(to, bytes, raw);
  const auto encoded = std::make_shared<const std::vector<std::byte>>(Coding(std::move(codec)).encode(known.parts, first, bytes));
  return counted(to, *encoded, encoded);
}

/// The transport may still have chunks that this peer has given up, or has received already.
void Serving::on_fetch(base::Peer from, const wire::Message& request) {
  const wire::Fetch& fetch = *request.body_as_Fetch();
  Chunks& chunks = chunks_[from];
  if (fetch.number() < chunks.begun) return;
  if (fetch.first() == 0) {
    chunks.begun = fetch.number();
    chunks.waiting.clear();
  }
  if (chunks.waiting.empty() && chunks.has_room()) return answer(from, fetch);
  if (chunks.waiting.size() < kWindow) chunks.waiting.push_back(wire::copy_header(request));
}

void Serving::answer(base::Peer from, const wire::Fetch& fetch) {
  if (fetch.version() == 0) forget_reader(from);  // it has given up the version that it began before
  const Held chosen = choose(fetch);
  const auto& [reader, version, since, until] = chosen;
  if (reader == nullptr) return answer_absent(from, fetch.number(), wire::Absence::Unpublished);
  const auto known = reader->describe(version);
  if (!known) return answer_absent(from, fetch.number(), wire::Absence::Superseded);
  if (fetch.first() > known->bytes) return;
  const uint64_t count = std::min({fetch.count(), kChunkBytes, known->bytes - fetch.first()});
  const bool more = fetch.first() + count < known->bytes;
  if (more) note_reader(from, chosen);  // before it is read: a held version stays
  auto codec = codec::from_wire(fetch.codec());
  if (!codec.ok()) codec = codec::CodecRef();  // unencoded: the length shows the reader that the codec is unknown here
  const auto payload = chunk(from, *reader, *known, fetch.first(), count, std::move(codec).value());
  if (!more && is_held(chosen)) forget_reader(from);  // after it was read
  if (payload == nullptr) return answer_absent(from, fetch.number(), wire::Absence::Superseded);

  auto& fbb = builder_.fbb();
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::SnapshotPart>>> parts;
  if (fetch.first() == 0) {
    std::vector<flatbuffers::Offset<wire::SnapshotPart>> list;
    for (const ArraySpec& part : known->parts) list.push_back(wire::CreateSnapshotPart(fbb, static_cast<wire::DType>(part.dtype), part.count, part.shape));
    parts = fbb.CreateVector(list);
  }
  wire::FetchedBuilder body(fbb);
  body.add_number(fetch.number());
  body.add_version(version);
  body.add_first(fetch.first());
  body.add_bytes(known->bytes);
  body.add_clock(known->clock);
  body.add_loss(known->loss);
  if (!parts.IsNull()) body.add_parts(parts);
  served_bytes_ += payload->size();
  served_versions_ += fetch.first() == 0 ? 1 : 0;
  link_.send(from, builder_.finish(wire::Body::Fetched, body.Finish(), payload));
}

}  // namespace mv::gossip
