#include "transport/shm/note.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace mv::transport {

bool send_note(int fd, const Note& note, std::span<const int> descriptors) {
  iovec part{const_cast<Note*>(&note), sizeof note};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kNoteFds * sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    return sent == static_cast<ssize_t>(sizeof note);
  }
}

NoteReader::Read NoteReader::read(int fd, Note* note, std::array<Fd, kNoteFds>* descriptors) {
  while (got_ < bytes_.size()) {
    iovec part{bytes_.data() + got_, bytes_.size() - got_};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(kNoteFds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Read::kNothingYet;
    if (got <= 0) return Read::kEnd;
    for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr; rights = CMSG_NXTHDR(&message, rights)) {
      if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int received = -1;
        std::memcpy(&received, CMSG_DATA(rights) + i * sizeof received, sizeof received);
        Fd owned(received);
        for (Fd& free : fds_) {
          if (free) continue;
          free = std::move(owned);
          break;
        }
      }
    }
    got_ += static_cast<size_t>(got);
  }
  got_ = 0;
  std::memcpy(note, bytes_.data(), sizeof *note);
  *descriptors = std::move(fds_);
  return Read::kNote;
}

}  // namespace mv::transport
