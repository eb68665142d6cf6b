#pragma once
// Notes: the control messages of a shared-memory connection, which pass descriptors over its unix socket.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/fd.hpp"

namespace mv::transport {

/// A control message of fixed size.
struct Note {
  static constexpr uint32_t kMagic = 0x4d56'4e01;
  enum class Type : uint32_t {
    kOffer = 1,    ///< passes this side's segment and its bell
    kSegment = 2,  ///< passes memory that holds payloads of this side, as segment `number`
    kAsk = 3,      ///< requests the memory of table `number`
    kAnswer = 4,   ///< answers the oldest kAsk, with a descriptor if there is such memory
  };
  uint32_t magic = kMagic;
  Type kind{};
  uint64_t number = 0;
  uint64_t bytes = 0;
};
inline constexpr size_t kNoteFds = 2;

/// False if the whole note can't be sent now. The caller keeps the descriptors in any case.
bool send_note(int fd, const Note& note, std::span<const int> descriptors);

/// Reads notes from the socket. Never blocks.
class NoteReader {
 public:
  enum class Read { kNote, kNothingYet, kEnd };
  /// kNote: returns a note and its descriptors, which the caller then owns. kEnd: the other side has closed the socket,
  /// or it is broken.
  Read read(int fd, Note* note, std::array<Fd, kNoteFds>* descriptors);

 private:
  std::array<std::byte, sizeof(Note)> bytes_;
  size_t got_ = 0;
  std::array<Fd, kNoteFds> fds_;
};

}  // namespace mv::transport
