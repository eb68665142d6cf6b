#pragma once
// A node behind the interface of core/node that does what a test says, where the real one can't be made to on demand:
// throw, be interrupted, finish a call at a chosen moment.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "api/node/node.hpp"

namespace mv::fake {

/// What the next nodes do. Empty functions: success at once.
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

/// What happened since reset().
struct Seen {
  runtime::Settings settings;                                           ///< of the last start
  api::CallOptions options;                                         ///< of the last call
  std::string updater;                                               ///< of the last set_updater
  std::atomic<int> starts{0}, shutdowns{0}, abandoned{0}, alive{0};  ///< of nodes
  std::atomic<int> released{0};                                      ///< calls
  std::atomic<int> tables{0};                                        ///< objects alive
};
extern Seen seen;

void reset();

/// A call that runs until finish().
api::CallRef begin_call(int64_t tag);
/// Ends it, and lets poll() hand out its tag.
void finish(const api::CallRef& call, base::Status status);

}  // namespace mv::fake
