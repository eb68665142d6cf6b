#include "scale.hpp"

#include <polyverso/polyverso.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "library_text.hpp"

namespace mv::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookAgain = 200ms;
/// One of the servers that were there may have died: under `polyverso run`, each request starts the missing ones. Or another one has come.
constexpr auto kRequestAgain = 1s;
/// Until then, the cluster's status may be older than the request.
constexpr auto kRequestSeen = 2s;
/// A cluster that has not answered for this time has ended, or has another master now.
constexpr auto kSilent = 10s;

using Clock = std::chrono::steady_clock;

/// The servers of a cluster, as its status reports them.
struct Servers {
  int64_t wanted = 0, here = 0, draining = 0, moving = 0;
  std::string text() const {
    std::string text = fmt::format("{} server{}", here, here == 1 ? "" : "s");
    if (draining > 0) text += fmt::format(", {} draining", draining);
    if (moving > 0) text += fmt::format(", the tables of {} being copied", moving);
    return text;
  }
};

/// MV_OK, or why the cluster has not answered.
mv_status look(const Target& target, Servers& servers) {
  std::string text;
  const auto ask = [&](char* out, uint64_t capacity, uint64_t* length) {
    return mv_cluster_status_text(target.settings.c_str(), uint32_t{MV_JSON} | uint32_t{MV_LIVE}, out, capacity, length);
  };
  if (const mv_status asked = whole_text(ask, text); asked != MV_OK) return asked;
  const auto status = nlohmann::json::parse(text);
  servers = {status.value("wanted_servers", int64_t{0})};
  for (const auto& member : status.at("members")) {
    const auto state = member.at("state").get<std::string>();
    if (member.at("server").is_null() || state == "lost" || state == "left") continue;
    ++(state == "draining" ? servers.draining : servers.here);
  }
  if (status.contains("parts"))
    for (const auto& part : status.at("parts")) servers.moving += part.at("next_backup").is_null() && part.value("moves_to", nlohmann::json()).is_null() ? 0 : 1;
  return MV_OK;
}

}  // namespace

int scale(const ScaleOptions& options) {
  const Target target = targets_of("scale", options.cluster, true).front();
  const auto fail = [](const std::string& why) {
    fmt::print(stderr, "polyverso scale: {}\n", why);
    return 1;
  };
  const auto request = [&] { return mv_cluster_resize_at(target.settings.c_str(), static_cast<uint64_t>(options.servers)); };
  if (const mv_status asked = request(); asked != MV_OK) return fail(mv_last_error() + what_to_do(asked, target));
  const auto begun = Clock::now();
  const auto until = begun + std::chrono::duration<double>(options.timeout);
  auto asked_at = begun, heard_at = begun;
  std::string shown;
  while (options.timeout > 0) {
    Servers now;
    const mv_status answer = look(target, now);
    if (answer == MV_OK) {
      heard_at = Clock::now();
      if (now.wanted != options.servers && heard_at - begun >= kRequestSeen)
        return fail(fmt::format("another request came later, for {} server{}", now.wanted, now.wanted == 1 ? "" : "s"));
      if (now.wanted == options.servers && now.here != options.servers && heard_at - asked_at >= kRequestAgain) {
        request();
        asked_at = heard_at;
      }
      if (std::exchange(shown, now.text()) != now.text()) fmt::print("{}\n", shown), std::fflush(stdout);
      if (now.wanted == options.servers && now.here == options.servers && now.draining == 0 && now.moving == 0) return 0;
    } else if (Clock::now() - heard_at >= kSilent) {
      return fail(fmt::format("the cluster does not answer any more: {}{}", mv_last_error(), what_to_do(answer, target)));
    }
    if (Clock::now() >= until) {
      const bool lacks = answer == MV_OK && now.here < options.servers;
      return fail(fmt::format("not within {:.3g} s: {}{}", options.timeout, answer == MV_OK ? shown : std::string("the cluster does not answer: ") + mv_last_error(),
                              lacks ? "; outside of `polyverso run`, start the missing ones with `polyverso server`" : ""));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return 0;
}

}  // namespace mv::tools
