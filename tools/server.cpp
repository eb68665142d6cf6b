#include "server.hpp"

#include <polyverso/polyverso.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "secret.hpp"
#include "server_signals.hpp"

namespace mv::tools {
namespace {

int fail(const char* doing) {
  fmt::print(stderr, "polyverso server: {}: {}\n", doing, mv_last_error());
  return 1;
}

/// Whether the log level, as the library reads it, is info or lower; its default is higher.
bool wants_info(const ServerOptions& options) {
  const char* told = std::getenv("POLYVERSO_LOG_LEVEL");
  std::string level = told != nullptr ? told : "";
  constexpr std::string_view kKey = "log_level=";
  for (const std::string& setting : options.settings) {
    if (setting.starts_with(kKey)) level = setting.substr(kKey.size());
  }
  constexpr std::array<std::string_view, 6> kTalkative = {"trace", "debug", "info", "0", "1", "2"};
  return std::ranges::find(kTalkative, level) != kTalkative.end();
}

/// A DMLC tracker's scheduler is neither server nor worker.
bool is_scheduler() {
  const char* role = std::getenv("DMLC_ROLE");
  return role != nullptr && std::string_view(role) == "scheduler";
}

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

int run_server(const ServerOptions& options) {
  std::string secret;
  if (!options.secret_file.empty() && !read_secret(options.secret_file, secret)) {
    fmt::print(stderr, "polyverso server: --secret-file {}: the file is empty or can't be read\n",
               options.secret_file);
    return 1;
  }
  const std::string text = fmt::format("{}", fmt::join(options.settings, "; "));
  mv_init_options init = MV_INIT_OPTIONS_INIT;
  if (!is_scheduler()) init.role = MV_ROLE_SERVER;
  init.text = or_null(text);
  init.master = or_null(options.master);
  init.bind = or_null(options.bind);
  init.secret = or_null(secret);
  init.metrics = or_null(options.metrics);
  init.nodes = options.nodes;
  init.rank = options.rank;
  ServerSignals signals(std::chrono::milliseconds(static_cast<int64_t>(options.grace * 1000)));
  if (mv_init(&init) != MV_OK) return fail("can't join");
  signals.serves();

  int64_t server_id = 0, servers = 0, rank = 0, size = 0;
  mv_server_id(0, &server_id);
  mv_num_servers(0, &servers);
  mv_rank(0, &rank);
  mv_size(0, &size);
  if (wants_info(options)) {
    fmt::print(stderr, "polyverso server: serving as server {} of {} (rank {} of {}, pid {})\n", server_id, servers,
               rank, size, getpid());
  }
  // Serves until every worker has finished or is lost, or this server has handed its tables over.
  if (mv_shutdown(0) != MV_OK) return fail("while serving");
  return 0;
}

}  // namespace mv::tools
