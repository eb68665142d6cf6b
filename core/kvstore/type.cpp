#include "kvstore/type.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mv::kvstore {

namespace {

struct Known {
  std::string_view name;
  bool dist, sync;
};

// MXNet's names. Where they tell its devices' ways apart they mean the same here; p3 is dist_sync, whose messages are slices anyway.
constexpr std::array kKnown{
    Known{"local", false, false},
    Known{"local_update_cpu", false, false},
    Known{"local_allreduce_cpu", false, false},
    Known{"local_allreduce_device", false, false},
    Known{"device", false, false},
    Known{"nccl", false, false},
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

base::Result<Type> parse_type(std::string_view text) {
  std::string name(text);
  std::ranges::transform(name, name.begin(), small);
  const auto* known = std::ranges::find(kKnown, name, &Known::name);
  if (known != kKnown.end()) return Type{std::move(name), known->dist, known->sync};
  std::string names;
  for (const Known& one : kKnown) names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  return base::error(MV_EINVAL, "there is no store of type \"{}\"; known: {}", text, names);
}

}  // namespace mv::kvstore
