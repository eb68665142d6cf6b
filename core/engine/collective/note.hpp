#pragma once
// The notes that ranks of a group send each other besides values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/link.hpp"
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

base::Frame frame_of(wire::FrameBuilder& builder, const Note& note);

}  // namespace mv::collective
