#pragma once
// The notes that ranks of a group send each other besides values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/link.hpp"
#include "engine/collective/agreement.hpp"
#include "engine/collective/operation.hpp"
#include "wire/frame.hpp"

namespace mv::collective {

/// The fields of a wire::GroupNote. Those that are empty, 0 or false are left out of the message.
struct Note {
  uint64_t group = 0;
  wire::GroupWord word{};
  uint32_t from = 0;  ///< the sender's rank
  uint64_t op = 0;
  std::optional<wire::Signature> signature;
  std::vector<uint8_t> dtypes;  ///< the upper half has the array's note
  std::vector<uint64_t> counts;
  int32_t status = 0;
  std::string text;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> decided;
  bool asks = false;
  std::vector<double> costs;
  uint8_t beside = 0;
  std::vector<uint64_t> peers;
  std::vector<uint32_t> places;
  std::vector<uint32_t> since;
  uint32_t generation = 0;
  bool grows = false;
  uint32_t size = 0;
  uint64_t epoch = 0;
};

/// On the wire, the note of an array is in the bits above its dtype.
inline constexpr int kNoteShift = 4;
inline constexpr uint8_t kDtypeMask = (1 << kNoteShift) - 1;
static_assert(kMostNote << kNoteShift <= UINT8_MAX);

/// A signal interrupts one rank only; for the others the operation is cancelled.
inline mv_status code_for_others(mv_status code) { return code == MV_EINTR ? MV_ECANCELED : code; }

void write_newcomers(Note& note, const Agreement::Newcomers& newcomers);

base::Frame frame_of(wire::FrameBuilder& builder, const Note& note);

}  // namespace mv::collective
