// mv_init() in its forms, and mv_node_open().

#include <polyverso/polyverso.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "boundary.hpp"
#include "leaving.hpp"
#include "settings.hpp"
#include "state.hpp"

namespace mv::capi {
namespace {

/// Opens a node for mv_init() or mv_node_open(): from now on errors do not advise to "call mv_init() first".
base::Result<int64_t> init_node(State& state, const runtime::Settings& settings, SettingsReport sources, bool is_default) {
  auto handle = open_node(state, settings, std::move(sources), is_default);
  if (!handle.ok()) return handle;
  state.was_initialised.store(true, std::memory_order_release);
  watch_exit();
  return handle;
}

/// The common part of all forms of mv_init().
base::Status init_default(State& state, const InitRequest& request) {
  std::lock_guard lock(state.init);
  if (state.init_count > 0) {
    auto running = find_node(state, "mv_init", 0);
    if (!running.ok()) return running.status();
    if (auto status = request.agree_with((*running.value())->settings); !status.ok()) return status;
    ++state.init_count;
    return {};
  }
  SettingsReport sources;
  auto settings = request.resolve(sources);
  if (!settings.ok()) return settings.status();
  auto handle = init_node(state, settings.value(), std::move(sources), true);
  if (!handle.ok()) return handle.status();
  state.default_node.store(handle.value(), std::memory_order_release);
  state.init_count = 1;
  return {};
}

base::Status init_from_arguments(State& state, int* argc, char** argv) {
  InitRequest request("mv_init_args");
  if ((argc == nullptr) != (argv == nullptr)) {
    return base::error(MV_EINVAL, "mv_init_args: give both argc and argv, or neither");
  }
  if (argc == nullptr) return init_default(state, request);
  if (*argc < 0) return base::error(MV_EINVAL, "mv_init_args: *argc is {}", *argc);
  const std::span<char*> arguments(argv, static_cast<size_t>(*argc));
  if (arguments.size() <= 1) return init_default(state, request);
  auto used = request.add_arguments(arguments.subspan(1));
  if (!used.ok()) return used.status();
  if (auto status = init_default(state, request); !status.ok()) return status;

  size_t kept = 1;
  auto next_used = used.value().begin();
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (next_used != used.value().end() && static_cast<size_t>(*next_used) == i - 1) {
      ++next_used;
    } else {
      argv[kept++] = argv[i];
    }
  }
  if (kept < arguments.size()) argv[kept] = nullptr;  // argv need not end with NULL: nothing may be written beyond the
                                                      // original arguments
  *argc = static_cast<int>(kept);
  return {};
}

}  // namespace
}  // namespace mv::capi

using namespace mv::capi;

mv_status mv_init(const mv_init_options* options) {
  return guarded("mv_init", [&] {
    InitRequest request("mv_init");
    auto status = request.add_options(options);
    return status.ok() ? init_default(current_state_for_init(), request) : status;
  });
}

mv_status mv_init_text(const char* text) {
  return guarded("mv_init_text", [&] {
    InitRequest request("mv_init_text");
    auto status = request.add_text(text != nullptr ? text : "", "the text");
    return status.ok() ? init_default(current_state_for_init(), request) : status;
  });
}

mv_status mv_init_args(int* argc, char** argv) {
  return guarded("mv_init_args", [&] { return init_from_arguments(current_state_for_init(), argc, argv); });
}

mv_status mv_node_open(const mv_init_options* options, mv_node* node) {
  return guarded("mv_node_open", [&]() -> mv::base::Status {
    if (node == nullptr) return mv::base::error(MV_EINVAL, "mv_node_open: node is NULL");
    InitRequest request("mv_node_open");
    if (auto status = request.add_options(options); !status.ok()) return status;
    SettingsReport sources;
    auto settings = request.resolve(sources);
    if (!settings.ok()) return settings.status();
    auto handle = init_node(current_state_for_init(), settings.value(), std::move(sources), false);
    if (!handle.ok()) return handle.status();
    *node = handle.value();
    return {};
  });
}
