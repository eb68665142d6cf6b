#include "engine/collective/note.hpp"

namespace mv::collective {

void write_newcomers(Note& note, const Agreement::Newcomers& newcomers) {
  for (const auto& [peer, place] : newcomers) {
    note.peers.push_back(peer);
    note.places.push_back(place);
  }
}

base::Frame frame_of(wire::FrameBuilder& builder, const Note& note) {
  auto& fbb = builder.fbb();
  const auto vector = [&fbb]<typename T>(const std::vector<T>& values) {
    return values.empty() ? flatbuffers::Offset<flatbuffers::Vector<T>>() : fbb.CreateVector(values);
  };
  const auto dtypes = vector(note.dtypes);
  const auto counts = vector(note.counts);
  const auto text = note.text.empty() ? flatbuffers::Offset<flatbuffers::String>() : fbb.CreateString(note.text);
  const auto ranks = vector(note.ranks);
  const auto decided = vector(note.decided);
  const auto costs = vector(note.costs);
  const auto peers = vector(note.peers);
  const auto places = vector(note.places);
  const auto since = vector(note.since);
  return builder.finish(wire::Body::GroupNote,
                        wire::CreateGroupNote(fbb, note.group, note.word, note.from, note.op, note.signature ? &*note.signature : nullptr, dtypes,
                                              counts, note.status, text, ranks, decided, note.asks, costs, note.beside, peers, places, since, note.generation,
                                              note.grows, note.size, note.epoch));
}

}  // namespace mv::collective
