#include "meeting.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace mv::native {

namespace {

class Claim : public Shared {
 public:
  static constexpr const char* kKind = "ipc.claim";
  Claim(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  ~Claim() override { release(); }
  const char* kind() const override { return kKind; }
  bool write(const std::string& text) {
    return ftruncate(file_.get(), 0) == 0 &&
           pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }
  void release() {
    if (!file_) return;
    [[maybe_unused]] const int cut = ftruncate(file_.get(), 0);
    unlink(path_.c_str());  // the file is this process's as long as it holds the lock
    file_ = Descriptor();
  }

 private:
  const std::string path_;
  Descriptor file_;
};

class Reserved : public Shared {
 public:
  static constexpr const char* kKind = "ipc.port";
  explicit Reserved(Descriptor socket) : socket_(std::move(socket)) {}
  const char* kind() const override { return kKind; }
  int port() const { return own_address(socket_.get()).port; }
  void release() { socket_ = Descriptor(); }

 private:
  Descriptor socket_;
};

/// Opens a file of this user: in a folder like /tmp, other users could have created it first.
Descriptor own_file(const std::string& path, int flags, Failure& failure) {
  Descriptor file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600));
  struct stat about {};
  if (!file && errno == ENOENT && flags == 0) return Descriptor();
  if (!file || fstat(file.get(), &about) != 0) {
    failure = path + ": " + std::strerror(errno);
    return Descriptor();
  }
  if (about.st_uid != geteuid() || !S_ISREG(about.st_mode)) {
    failure = path + " belongs to another user, or is not a regular file";
    return Descriptor();
  }
  return file;
}

/// Whether the path still refers to this file: another process that had it open may have removed it since.
bool is_at(const std::string& path, const Descriptor& file) {
  struct stat here {}, there {};
  return fstat(file.get(), &here) == 0 && lstat(path.c_str(), &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int write_method(lua_State* L) {
  auto* made = check_shared<Claim>(L, 1);
  luaL_checkstring(L, 2);
  return guarded(L, [&](Failure& failure) {
    if (!made->write(text_of(L, 2))) failure = std::strerror(errno);
    return 0;
  });
}

template <typename Class>
int release_method(lua_State* L) {
  check_shared<Class>(L, 1)->release();
  return 0;
}

}  // namespace

int claim(lua_State* L) {
  luaL_checkstring(L, 1);
  return guarded(L, [&](Failure& failure) {
    const std::string path = text_of(L, 1);
    Descriptor file = own_file(path, O_CREAT, failure);
    if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !is_at(path, file)) return 0;
    push_shared(L, std::make_shared<Claim>(path, std::move(file)));
    return 1;
  });
}

int read_claimed(lua_State* L) {
  luaL_checkstring(L, 1);
  return guarded(L, [&](Failure& failure) {
    const Descriptor file = own_file(text_of(L, 1), 0, failure);
    if (!file || flock(file.get(), LOCK_SH | LOCK_NB) == 0) return 0;
    char text[256];
    const ssize_t length = pread(file.get(), text, sizeof text, 0);
    if (length <= 0) return 0;
    lua_pushlstring(L, text, static_cast<size_t>(length));
    return 1;
  });
}

int reserve(lua_State* L) {
  luaL_checkstring(L, 1);
  return guarded(L, [&](Failure& failure) {
    Descriptor socket = reserve_port(text_of(L, 1), failure);
    if (!socket) return 0;
    const auto reserved = std::make_shared<Reserved>(std::move(socket));
    const int port = reserved->port();
    push_shared(L, reserved);
    lua_pushinteger(L, port);
    return 2;
  });
}

int make_folder(lua_State* L) {
  luaL_checkstring(L, 1);
  return guarded(L, [&](Failure& failure) {
    std::error_code error;
    std::filesystem::create_directories(text_of(L, 1), error);
    if (error) failure = text_of(L, 1) + ": " + error.message();
    return 0;
  });
}

int host_name(lua_State* L) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  lua_pushstring(L, name);
  return 1;
}

void open_meetings(lua_State* L) {
  static constexpr luaL_Reg kClaimMethods[] = {{"write", write_method}, {"release", release_method<Claim>}, {nullptr, nullptr}};
  static constexpr luaL_Reg kPortMethods[] = {{"release", release_method<Reserved>}, {nullptr, nullptr}};
  open_kind(L, Claim::kKind, kClaimMethods);
  open_kind(L, Reserved::kKind, kPortMethods);
  lua_pop(L, 2);
}

}  // namespace mv::native
