#include "transport/fabric/fabric.hpp"

#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/module_file.hpp"

namespace mv::transport {

base::Result<FabricPlugin> load_fabric_plugin(const std::string& path) {
  const auto entry = base::load_from_plugin(path, kUcxPluginFile, MV_FABRIC_ENTRY, "a fabric");
  if (!entry.ok())
    return base::error(MV_ENOSYS,
                       "there is no UCX in this process: install the package libpolyverso-ucx, which brings libucx0, or build with "
                       "libucx-dev installed; or set transport=auto (POLYVERSO_TRANSPORT) ({})",
                       entry.status().text());
  return base::check_plugin(reinterpret_cast<mv_fabric_entry>(entry.value())(MV_FABRIC_INTERFACE), MV_FABRIC_INTERFACE, path.empty() ? kUcxPluginFile : path);
}

base::Result<FabricPlugin> ucx_plugin() {
  static const base::Result<FabricPlugin> kPlugin = [] {
    const char* const given = std::getenv(kUcxPluginVariable);
    return load_fabric_plugin(given != nullptr ? given : "");
  }();
  return kPlugin;
}

bool has_rdma_device() {
  DIR* const devices = opendir("/sys/class/infiniband");
  if (devices == nullptr) return false;
  bool any = false;
  while (const dirent* entry = readdir(devices)) any |= entry->d_name[0] != '.';
  closedir(devices);
  return any;
}

base::Result<bool> wants_ucx_gets() {
  const char* const said = std::getenv(kUcxGetsVariable);
  const std::string_view text = said != nullptr ? said : "";
  if (text == "yes") return true;
  if (text.empty() || text == "no") return false;
  return base::error(MV_EINVAL, "{}={}: set it to yes or no", kUcxGetsVariable, text);
}

namespace {

/// A communication library's threads, locks and connections don't survive a fork.
base::Status check_fork(const char* library) {
  static std::atomic<pid_t> opener{0};
  pid_t first = 0;
  const pid_t self = getpid();
  if (opener.compare_exchange_strong(first, self) || first == self) return {};
  return base::error(MV_ENOSYS,
                     "{} can't be used in process {}, a fork of {}, which has used it: start such processes afresh (Python: multiprocessing's "
                     "\"spawn\"), or set transport=tcp (POLYVERSO_TRANSPORT) in them",
                     library, self, first);
}

}  // namespace

base::Result<std::unique_ptr<Fabric>> Fabric::open(FabricPlugin plugin, bool loopback_only, base::Nanos timeout, bool gets) {
  if (base::Status status = check_fork(std::string_view(plugin->name) == "ucx" ? "UCX" : "MPI"); !status.ok()) return status;
  std::unique_ptr<Fabric> fabric(new Fabric(plugin));
  const auto check = [&](mv_status status) { return status == MV_OK ? base::Status() : base::error(status, "{}: {}", plugin->name, plugin->error()); };
  const int64_t limit = timeout == base::kNever ? -1 : std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  const mv_fabric_options options{sizeof(mv_fabric_options), loopback_only ? 1 : 0, limit, gets ? 1 : 0};
  fabric->gets_ = gets && plugin->get != nullptr;
  if (auto status = check(plugin->open(&options, &fabric->handle_)); !status.ok()) return status;
  if (auto status = check(plugin->describe(fabric->handle_, &fabric->about_)); !status.ok()) return status;
  const void* address = nullptr;
  uint64_t bytes = 0;
  if (auto status = check(plugin->address(fabric->handle_, &address, &bytes)); !status.ok()) return status;
  const auto* version = reinterpret_cast<const std::byte*>(fabric->about_.version);
  fabric->address_.assign(version, version + sizeof fabric->about_.version);
  const auto* first = static_cast<const std::byte*>(address);
  fabric->address_.insert(fabric->address_.end(), first, first + bytes);
  return fabric;
}

Fabric::~Fabric() {
  if (handle_ == nullptr) return;
  for (const auto& kind : idle_)
    for (const Idle& idle : kind) plugin_->memory_free(handle_, idle.memory);
  plugin_->close(handle_);
}

std::span<const mv_fabric_event> Fabric::progress() {
  const mv_fabric_event* events = nullptr;
  uint64_t count = 0;
  if (plugin_->progress(handle_, &events, &count) != MV_OK) throw std::bad_alloc();
  return {events, count};
}

base::Result<mv_fabric_line> Fabric::connect(std::span<const std::byte> address, void* user) {
  constexpr size_t kVersion = sizeof about_.version;
  if (address.size() <= kVersion || std::memcmp(address.data(), about_.version, kVersion) != 0) {
    const std::string other(reinterpret_cast<const char*>(address.data()), std::min(address.size(), kVersion));
    return base::error(MV_EVERSION, "this process has {}, and the other one {}: install the same in both", about_.version, other.c_str());
  }
  mv_fabric_line line = nullptr;
  const mv_status status = plugin_->connect(handle_, address.data() + kVersion, address.size() - kVersion, user, &line);
  if (status != MV_OK) return base::error(status, "{}: {}", plugin_->name, plugin_->error());
  return line;
}

base::Result<mv_fabric_line> Fabric::connect(const mv_fabric_place& place, void* user) {
  mv_fabric_line line = nullptr;
  const mv_status status = plugin_->connect(handle_, &place, sizeof place, user, &line);
  if (status != MV_OK) return base::error(status, "{}", plugin_->error());
  return line;
}

base::Status Fabric::listen(uint32_t port) {
  const mv_status status = plugin_->listen != nullptr ? plugin_->listen(handle_, port) : MV_ENOSYS;
  return status == MV_OK ? base::Status() : base::error(status, "{}", plugin_->error());
}

base::Result<bool> Fabric::send(mv_fabric_line line, std::span<const std::byte> header, std::span<const std::byte> body, void* user) {
  int32_t ended = 0;
  const mv_status status = plugin_->send(handle_, line, header.data(), header.size(), body.data(), body.size(), user, &ended);
  if (status != MV_OK) return base::error(status, "{}: {}", plugin_->name, plugin_->error());
  return ended != 0;
}

base::Result<Fabric::Exposed> Fabric::expose(std::span<std::byte> memory) {
  Exposed exposed;
  const void* key = nullptr;
  uint64_t bytes = 0;
  const mv_status status = plugin_->expose(handle_, memory.data(), memory.size(), &exposed.handle, &key, &bytes);
  if (status != MV_OK) return base::error(status, "{}: {}", plugin_->name, plugin_->error());
  const auto* const first = static_cast<const std::byte*>(key);
  exposed.key.assign(first, first + bytes);
  return exposed;
}

base::Result<mv_fabric_key> Fabric::open_key(mv_fabric_line line, std::span<const std::byte> key) {
  mv_fabric_key opened = nullptr;
  const mv_status status = plugin_->open_key(handle_, line, key.data(), key.size(), &opened);
  if (status != MV_OK) return base::error(status, "{}: {}", plugin_->name, plugin_->error());
  return opened;
}

base::Status Fabric::get(mv_fabric_line line, mv_fabric_key key, uint64_t address, std::span<std::byte> to, void* user) {
  const mv_status status = plugin_->get(handle_, line, key, address, to.data(), to.size(), user);
  return status == MV_OK ? base::Status() : base::error(status, "{}: {}", plugin_->name, plugin_->error());
}

base::Status Fabric::receive(mv_fabric_message message, std::span<std::byte> to, void* user) {
  const mv_status status = plugin_->receive(handle_, message, to.data(), to.size(), user);
  return status == MV_OK ? base::Status() : base::error(status, "{}: {}", plugin_->name, plugin_->error());
}

base::Result<mv_fabric_team> Fabric::team(std::span<const int32_t> ranks, uint64_t key, void* user) {
  if (plugin_->team == nullptr) return base::error(MV_ENOSYS, "{} has no all-reduces", about_.version);
  mv_fabric_team team = nullptr;
  const mv_status status = plugin_->team(handle_, ranks.data(), ranks.size(), key, user, &team);
  if (status != MV_OK) return base::error(status, "{}", plugin_->error());
  return team;
}

base::Status Fabric::reduce(mv_fabric_team team, void* values, uint64_t count, mv_dtype dtype, int32_t reduction, void* user) {
  const mv_status status = plugin_->reduce(handle_, team, values, count, dtype, reduction, user);
  return status == MV_OK ? base::Status() : base::error(status, "{}", plugin_->error());
}

base::Result<std::unique_ptr<Fabric::Block>> Fabric::block(size_t bytes) {
  const size_t room = std::bit_ceil(std::max(bytes, kLeastBlock));
  const auto kind = static_cast<size_t>(std::countr_zero(room / kLeastBlock));
  if (kind >= kKinds) return base::error(MV_ENOMEM, "no block of registered memory has {} bytes", bytes);
  if (!idle_[kind].empty()) {
    const Idle idle = idle_[kind].back();
    idle_[kind].pop_back();
    idle_bytes_ -= room;
    return std::make_unique<Block>(*this, idle.data, idle.memory, kind);
  }
  void* data = nullptr;
  mv_fabric_memory memory = nullptr;
  if (plugin_->memory_make(handle_, room, &data, &memory) != MV_OK) return base::error(MV_ENOMEM, "{}: {}", plugin_->name, plugin_->error());
  return std::make_unique<Block>(*this, static_cast<std::byte*>(data), memory, kind);
}

void Fabric::put_back(const Block& block) noexcept {
  const size_t room = kLeastBlock << block.kind_;
  auto& idle = idle_[block.kind_];
  if (!block.abandoned_ && idle_bytes_ + room <= kMostIdle) {
    try {
      idle.push_back({block.data_, block.memory_});
      idle_bytes_ += room;
      return;
    } catch (const std::bad_alloc&) {  // freed instead
    }
  }
  plugin_->memory_free(handle_, block.memory_);
}

}  // namespace mv::transport
