#include "engine/gossip/serving.hpp"

#include <algorithm>

namespace mv::gossip {

void Serving::answer_absent(base::Peer to, uint64_t number, wire::Absence absence) {
  wire::FetchedBuilder body(builder_.fbb());
  body.add_number(number);
  body.add_absence(absence);
  link_.send(to, builder_.finish(wire::Body::Fetched, body.Finish()));
}

/// Null if the version went meanwhile.
base::PayloadRef Serving::copy_chunk(base::Peer to, const SnapshotReader& reader, uint64_t version, uint64_t first, uint64_t count) {
  auto& counted = under_way_[to];
  if (counted == nullptr) counted = std::make_shared<size_t>(0);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(count);
  if (!reader.read(version, first, {memory.get(), count})) return nullptr;
  ++*counted;
  const std::span<const std::byte> bytes(memory.get(), count);
  // Roads drop payloads on the loop, once they are sent or given up.
  std::shared_ptr<const void> keep(memory.release(), [counted](std::byte* sent) {
    delete[] sent;
    --*counted;
  });
  return base::Payload::kept(bytes, std::move(keep));
}

void Serving::on_fetch(base::Peer from, const wire::Fetch& fetch) {
  const auto waiting = under_way_.find(from);
  if (waiting != under_way_.end() && *waiting->second >= kWindow) return;
  const auto reader = own_.reader();
  if (reader == nullptr) return answer_absent(from, fetch.number(), wire::Absence::Unpublished);
  const uint64_t version = fetch.version() != 0 ? fetch.version() : reader->newest();
  const auto known = reader->describe(version);
  if (!known) return answer_absent(from, fetch.number(), wire::Absence::Superseded);
  if (fetch.first() > known->bytes) return;
  const uint64_t count = std::min({fetch.count(), kChunkBytes, known->bytes - fetch.first()});
  const auto payload = copy_chunk(from, *reader, version, fetch.first(), count);
  if (payload == nullptr) return answer_absent(from, fetch.number(), wire::Absence::Superseded);

  auto& fbb = builder_.fbb();
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::SnapshotPart>>> parts;
  if (fetch.first() == 0) {
    std::vector<flatbuffers::Offset<wire::SnapshotPart>> list;
    for (const Part& part : known->parts) list.push_back(wire::CreateSnapshotPart(fbb, static_cast<wire::DType>(part.dtype), part.count));
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
  served_bytes_ += count;
  link_.send(from, builder_.finish(wire::Body::Fetched, body.Finish(), payload));
}

}  // namespace mv::gossip
