#pragma once
// One reader for each launcher. Each returns nothing if the launcher's variables are not set.

#include <charconv>
#include <initializer_list>

#include "launcher.hpp"

namespace mv::capi {

/// Looks variables up; empty ones count as unset.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<Found> find(const char* name) const {
    const char* value = environment_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return Found{value, fmt::format("{}={}", name, value)};
  }
  /// The first one that is set.
  std::optional<Found> find(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (auto found = find(name)) return found;
    return std::nullopt;
  }

 private:
  const Environment& environment_;
};

/// A whole number, or nothing: an invalid one is reported when it becomes a setting.
inline std::optional<int64_t> number_of(const std::optional<Found>& found) {
  if (!found) return std::nullopt;
  int64_t number = 0;
  const char* end = found->value.data() + found->value.size();
  const auto [stopped, failure] = std::from_chars(found->value.data(), end, number);
  if (failure != std::errc() || stopped != end) return std::nullopt;
  return number;
}

/// "host:port", with brackets around an IPv6 address.
inline std::string join_address(std::string_view host, int64_t port) {
  const bool v6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

/// By its spelling alone: a name that resolves to loopback on this machine may not elsewhere.
inline bool is_loopback_host(std::string_view host) {
  const bool dotted = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host == "::1" || (dotted && host.starts_with("127."));
}

/// The address to listen on for peers of other machines, in the family of the master's.
inline Found any_interface(std::string_view master_host, const std::string& why) {
  return {master_host.find(':') != std::string_view::npos ? "::" : "0.0.0.0", why};
}

using Reading = base::Result<std::optional<Assignment>>;
Reading read_openmpi(const Variables& variables);
Reading read_torchrun(const Variables& variables);
Reading read_pmi(const Variables& variables, const MakerOfSocket& maker);
Reading read_slurm(const Variables& variables, std::vector<std::string>& notes);
Reading read_dmlc(const Variables& variables);

}  // namespace mv::capi
