#include "api/kvstore/type.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ranges>

#include "base/similar.hpp"

namespace mv::kvstore {

namespace {

struct Known {
  std::string_view name;
  bool dist, sync, on_devices = false;
};

constexpr std::string_view kSlicing = "p3";

// MXNet's names. dist types that differ only in how MXNet uses devices mean the same here.
constexpr std::array kKnown{
    Known{"local", false, false},
    Known{"local_update_cpu", false, false},
    Known{"local_allreduce_cpu", false, false},
    Known{"local_allreduce_device", false, false, true},
    Known{"device", false, false, true},
    Known{"nccl", false, false, true},
    Known{"row_sparse", false, false},
    Known{"dist", true, true},
    Known{"dist_sync", true, true},
    Known{"dist_sync_device", true, true},
    Known{"dist_device_sync", true, true},
    Known{"p3", true, true},
    Known{"dist_async", true, false},
    Known{"dist_async_device", true, false},
};

char small(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

}  // namespace

base::Result<uint64_t> parse_spread_from(std::string_view text) {
  if (text.empty()) return uint64_t{0};
  uint64_t elements = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), elements);
  if (problem == std::errc() && end == text.data() + text.size() && elements > 0) return elements;
  return base::error(MV_EINVAL, "MXNET_KVSTORE_BIGARRAY_BOUND={} is not a number of elements of at least 1", text);
}

base::Result<Type> parse_type(std::string_view text, std::string_view van) {
  std::string name(text);
  std::ranges::transform(name, name.begin(), small);
  const auto* known = std::ranges::find(kKnown, name, &Known::name);
  if (known != kKnown.end()) {
    const bool sliced = known->sync && (name == kSlicing || van == kSlicing);
    return Type{std::move(name), known->dist, known->sync, known->on_devices, sliced, 0};
  }
  std::string all;
  for (const Known& one : kKnown) all += fmt::format("{}{}", all.empty() ? "" : ", ", one.name);
  const std::string hint = base::did_you_mean(text, kKnown | std::views::transform(&Known::name));
  return base::error(MV_EINVAL, "there is no store of type \"{}\"; known: {}{}", text, all, hint);
}

}  // namespace mv::kvstore
