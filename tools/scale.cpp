#include "scale.hpp"

#include <polyverso/polyverso.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "library_text.hpp"

namespace mv::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookAgain = 200ms;
/// One of the servers that were there may have died: under `polyverso run`, each request starts the missing ones.
constexpr auto kRequestAgain = 1s;

/// The servers of a cluster, as its status reports them.
struct Servers {
  int64_t here = 0, draining = 0, moving = 0;
  bool operator==(const Servers&) const = default;
  std::string text() const {
    std::string text = fmt::format("{} server{}", here, here == 1 ? "" : "s");
    if (draining > 0) text += fmt::format(", {} draining", draining);
    if (moving > 0) text += fmt::format(", the tables of {} being copied", moving);
    return text;
  }
};

std::optional<Servers> look(const Target& target) {
  std::string text;
  const auto ask = [&](char* out, uint64_t capacity, uint64_t* length) {
    return mv_cluster_status_text(target.settings.c_str(), uint32_t{MV_JSON} | uint32_t{MV_LIVE}, out, capacity, length);
  };
  if (whole_text(ask, text) != MV_OK) return std::nullopt;
  const auto status = nlohmann::json::parse(text);
  Servers servers;
  for (const auto& member : status.at("members")) {
    const auto state = member.at("state").get<std::string>();
    if (member.at("server").is_null() || state == "lost" || state == "left") continue;
    ++(state == "draining" ? servers.draining : servers.here);
  }
  if (status.contains("parts"))
    for (const auto& part : status.at("parts")) servers.moving += part.at("next_backup").is_null() ? 0 : 1;
  return servers;
}

}  // namespace

int scale(const ScaleOptions& options) {
  const Target target = targets_of("scale", options.cluster, true).front();
  const auto fail = [](const std::string& why) {
    fmt::print(stderr, "polyverso scale: {}\n", why);
    return 1;
  };
  if (const mv_status asked = mv_cluster_resize_at(target.settings.c_str(), static_cast<uint64_t>(options.servers)); asked != MV_OK)
    return fail(mv_last_error() + what_to_do(asked, target));
  auto asked_at = std::chrono::steady_clock::now();
  const auto until = asked_at + std::chrono::duration<double>(options.timeout);
  std::optional<Servers> shown;
  while (options.timeout > 0) {
    const std::optional<Servers> now = look(target);
    if (now && now->here < options.servers && std::chrono::steady_clock::now() - asked_at >= kRequestAgain) {
      mv_cluster_resize_at(target.settings.c_str(), static_cast<uint64_t>(options.servers));
      asked_at = std::chrono::steady_clock::now();
    }
    if (now && now != shown) fmt::print("{}\n", now->text()), std::fflush(stdout);
    if (now) shown = now;
    if (now && now->here == options.servers && now->draining == 0 && now->moving == 0) return 0;
    if (std::chrono::steady_clock::now() >= until) {
      const std::string there = shown ? shown->text() : "the cluster does not answer";
      const bool lacks = shown && shown->here < options.servers;
      return fail(fmt::format("not within {:.3g} s: {}{}", options.timeout, there,
                              lacks ? "; outside of `polyverso run`, start the missing ones with `polyverso server`" : ""));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return 0;
}

}  // namespace mv::tools
