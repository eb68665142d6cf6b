#pragma once
// A fabric: this process in a network that a communication library reaches, such as UCX or MPI. The library is in a plug-in
// (plugin.h), which is loaded when it is needed.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "transport/fabric/plugin.h"

namespace mv::transport {

inline constexpr const char* kUcxPluginFile = "libpolyverso-ucx.so";
/// An environment variable with the path of a plug-in, instead of the file beside the library.
inline constexpr const char* kUcxPluginVariable = "POLYVERSO_UCX_PLUGIN";
/// An environment variable, "yes" or "no" (the default): whether clients read dense tables in their servers' memory. Without RDMA, UCX then lets every
/// process that can connect to it read all memory of this one, so the library never chooses it.
inline constexpr const char* kUcxGetsVariable = "POLYVERSO_UCX_GETS";

using FabricPlugin = const mv_fabric_plugin*;

/// Loads the plug-in at `path`, or beside the library if `path` is empty. MV_ENOSYS if it is missing or does not work,
/// MV_EVERSION.
base::Result<FabricPlugin> load_fabric_plugin(const std::string& path);
/// UCX's, loaded by the first call. Any thread.
base::Result<FabricPlugin> ucx_plugin();
/// The value of kUcxGetsVariable. MV_EINVAL
base::Result<bool> wants_ucx_gets();
/// Whether the kernel has a device for RDMA. Unlike opening a fabric, this costs nothing.
bool has_rdma_device();

/// Loop thread only. Lines, sends and blocks that it made must end before it does.
class Fabric {
 public:
  /// MV_ENOSYS in a fork of a process that has opened one; or the plug-in's error.
  /// `timeout`: for the other processes of a job, which all have to open one. `gets`: see can_get().
  static base::Result<std::unique_ptr<Fabric>> open(FabricPlugin plugin, bool loopback_only, base::Nanos timeout = base::kNever, bool gets = false);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  const mv_fabric_about& about() const { return about_; }
  /// For connect() of a peer. Begins with the version of the communication library: two versions don't understand each
  /// other's addresses.
  std::span<const std::byte> address() const { return address_; }
  int descriptor() const { return plugin_->descriptor(handle_); }
  bool arm() { return plugin_->arm(handle_) != 0; }
  /// Throws std::bad_alloc if events are lost. They stay until the next call.
  std::span<const mv_fabric_event> progress();

  /// MV_EVERSION, MV_EUNREACHABLE.
  base::Result<mv_fabric_line> connect(std::span<const std::byte> address, void* user);
  /// The same to another process of the job.
  base::Result<mv_fabric_line> connect(const mv_fabric_place& place, void* user);
  /// See mv_fabric_plugin::listen.
  base::Status listen(uint32_t port);
  void disconnect(mv_fabric_line line) { plugin_->disconnect(handle_, line); }
  /// See mv_fabric_plugin::send. True if it has ended.
  base::Result<bool> send(mv_fabric_line line, std::span<const std::byte> header, std::span<const std::byte> body, void* user);
  base::Status receive(mv_fabric_message message, std::span<std::byte> to, void* user);
  void release(mv_fabric_message message) { plugin_->release(handle_, message); }

  /// See mv_fabric_plugin::team, disband and reduce. MV_ENOSYS if the communication library has no all-reduces.
  base::Result<mv_fabric_team> team(std::span<const int32_t> ranks, uint64_t key, void* user);
  void disband(mv_fabric_team team) { plugin_->disband(handle_, team); }
  base::Status reduce(mv_fabric_team team, void* values, uint64_t count, mv_dtype dtype, int32_t reduction, void* user);

  /// Whether expose() and get() may be called.
  bool can_get() const { return gets_; }
  /// Memory that peers may read until conceal().
  struct Exposed {
    mv_fabric_memory handle = nullptr;
    std::vector<std::byte> key;
  };
  /// See mv_fabric_plugin::expose, open_key, close_key and get.
  base::Result<Exposed> expose(std::span<std::byte> memory);
  void conceal(const Exposed& exposed) { plugin_->memory_free(handle_, exposed.handle); }
  base::Result<mv_fabric_key> open_key(mv_fabric_line line, std::span<const std::byte> key);
  void close_key(mv_fabric_key key) { plugin_->close_key(handle_, key); }
  base::Status get(mv_fabric_line line, mv_fabric_key key, uint64_t address, std::span<std::byte> to, void* user);

  /// A block of registered memory, which returns to this fabric's stock at its end.
  class Block {
   public:
    Block(Fabric& fabric, std::byte* data, mv_fabric_memory memory, size_t kind) : fabric_(fabric), data_(data), memory_(memory), kind_(kind) {}
    ~Block() { fabric_.put_back(*this); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    std::byte* data() const { return data_; }
    /// The communication library may still write here. At its end, the block is freed once that is over, and not reused.
    void abandon() { abandoned_ = true; }

   private:
    friend class Fabric;
    Fabric& fabric_;
    std::byte* const data_;
    const mv_fabric_memory memory_;
    const size_t kind_;
    bool abandoned_ = false;
  };
  /// At least `bytes`, aligned to 64. MV_ENOMEM.
  base::Result<std::unique_ptr<Block>> block(size_t bytes);

 private:
  /// Blocks have powers of two from kLeastBlock on. Idle ones of up to kMostIdle bytes in all stay registered.
  static constexpr size_t kLeastBlock = 64 << 10, kKinds = 12, kMostIdle = 64 << 20;
  struct Idle {
    std::byte* data;
    mv_fabric_memory memory;
  };

  explicit Fabric(FabricPlugin plugin) : plugin_(plugin) {}
  void put_back(const Block& block) noexcept;

  const FabricPlugin plugin_;
  mv_fabric handle_ = nullptr;
  bool gets_ = false;
  mv_fabric_about about_{};
  std::vector<std::byte> address_;
  std::array<std::vector<Idle>, kKinds> idle_;
  size_t idle_bytes_ = 0;
};

}  // namespace mv::transport
