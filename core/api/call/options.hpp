#pragma once
// Options and results of calls: types that all folders of api/ share.

#include <polyverso/polyverso.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::tensor {
class Device;
}

namespace mv::api {

/// An unfinished call of a user, blocking or not. Shared by the caller's thread and the loop.
class Call;
using CallRef = std::shared_ptr<Call>;

enum class Mode { kBlocking, kAsync, kOneWay };

/// How a call waits; mirrors mv_call_options.
struct CallOptions {
  Mode mode = Mode::kBlocking;
  base::Nanos timeout{0};  ///< 0: the node's default for this kind of call; base::kNever: none
  bool keep_on_interrupt = false;  ///< kBlocking: a signal leaves the call running, in Started::call, with MV_EINTR
  /// kBlocking: once this is true, the call returns MV_OK although it is running, in Started::call. Must not lock.
  const std::function<bool()>* or_until = nullptr;
  int64_t priority = 0;    ///< waiting calls on different tables: the higher one is sent first
  uint32_t label = 0;      ///< groups: see collective::Operation::label
  int64_t tag = 0;         ///< kAsync: what Node::poll() returns for it (capi/: the request handle); 0: nothing
  CallRef group;           ///< kAsync: the group that the call is part of, see Node::group()
};

/// A call's data as the user gave it. With MV_RAW, count is in bytes.
struct ConstData {
  const void* values = nullptr;
  uint64_t count = 0;
  mv_dtype dtype = MV_F32;
  tensor::Device* device = nullptr;  ///< in whose memory the values are; null: the host's
};
struct MutableData {
  void* values = nullptr;
  uint64_t count = 0;
  mv_dtype dtype = MV_F32;
  tensor::Device* device = nullptr;
};
/// Row ids, or all rows.
struct Rows {
  const int64_t* ids = nullptr;
  uint64_t count = 0;
  bool all = true;
};

/// Finds the device in whose memory an address is; null: it is in the host's.
using FindDevice = std::function<base::Result<tensor::Device*>(const void* memory)>;

/// The devices of this process.
struct Devices {
  FindDevice find;
  std::function<bool()> may_exist;  ///< without using any; null: there are none
};

/// The result of starting a call. kBlocking and kOneWay: `status` is final and `call` null (but see keep_on_interrupt and
/// or_until).
/// kAsync: `call` is set if `status` is ok.
struct Started {
  base::Status status;
  CallRef call;
};

}  // namespace mv::api
