#pragma once
// A node behind the interface of core/node that follows a test's script, where the real node cannot be made to: it throws, is interrupted,
// or finishes a call at a chosen moment.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/node/node.hpp"

namespace mv::fake {

/// The behaviour of the next nodes. An empty function succeeds at once.
struct Script {
  std::function<base::Status(const runtime::Settings&)> start;  ///< join()
  std::function<base::Status()> shutdown;
  std::function<api::Started(const api::CallOptions&)>
      call;  ///< add, set, erase, get, peek, set_updater, barrier, checkpoints
  std::function<base::Status()> close, destroy;
  std::function<base::Status()> info;  ///< and clock
  std::function<std::vector<api::TableSpec>()> list;
  std::vector<api::PeerReport> peers;
};
extern Script script;

/// Events since reset().
struct Seen {
  runtime::Settings settings;                                           ///< of the last start
  api::CallOptions options;                                         ///< of the last call
  std::string updater;                                               ///< of the last set_updater
  std::vector<std::string> aborts;  ///< their reasons
  std::atomic<int> starts{0}, shutdowns{0}, abandoned{0}, alive{0};  ///< of nodes
  std::atomic<int> released{0};                                      ///< calls
  std::atomic<int> tables{0};                                        ///< objects alive
};
extern Seen seen;

void reset();

/// A call that runs until finish().
api::CallRef begin_call(int64_t tag);
/// Ends it, and lets poll() return its tag.
void finish(const api::CallRef& call, base::Status status);

}  // namespace mv::fake
