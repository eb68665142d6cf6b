#pragma once
// What the two ends of a connection of the shared-memory transport say to each other beside the rings, with descriptors.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/fd.hpp"

namespace mv::transport {

/// Of fixed size.
struct Note {
  static constexpr uint32_t kMagic = 0x4d56'4e01;
  enum class Type : uint32_t {
    kOffer = 1,    ///< this side's segment and its bell
    kSegment = 2,  ///< memory in which payloads of this side lie, numbered `number`
    kAsk = 3,      ///< for the memory of table `number`
    kAnswer = 4,   ///< to the oldest kAsk, with a descriptor if there is such memory
  };
  uint32_t magic = kMagic;
  Type kind{};
  uint64_t number = 0;
  uint64_t bytes = 0;
};
inline constexpr size_t kNoteFds = 2;

/// False if it can't be sent now, wholly: the descriptors stay the caller's in any case.
bool send_note(int fd, const Note& note, std::span<const int> descriptors);

/// Notes as they come. Never blocks.
class NoteReader {
 public:
  enum class Read { kNote, kNothingYet, kEnd };
  /// kNote: the note and its descriptors, owned from now on. kEnd: the other side has closed, or broken, the socket.
  Read read(int fd, Note* note, std::array<Fd, kNoteFds>* descriptors);

 private:
  std::array<std::byte, sizeof(Note)> bytes_;
  size_t got_ = 0;
  std::array<Fd, kNoteFds> fds_;
};

}  // namespace mv::transport
