#include "runtime/keeper/registry.hpp"

#include <charconv>

#include "runtime/keeper/etcd_registry.hpp"
#include "runtime/keeper/folder_registry.hpp"

namespace mv::runtime::keeper {

namespace {
constexpr std::string_view kGreeting = "polyverso 1\n";
}  // namespace

std::string write_entry(const Entry& entry) { return fmt::format("{}{}\n{}\n{}\n{}\n", kGreeting, entry.address, entry.host, entry.pid, entry.id); }

std::optional<Entry> parse_entry(std::string_view text) {
  if (!text.starts_with(kGreeting)) return std::nullopt;
  text.remove_prefix(kGreeting.size());
  std::string_view lines[4];
  for (std::string_view& line : lines) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  Entry entry{std::string(lines[0]), std::string(lines[1]), 0, std::string(lines[3])};
  const auto [end, failure] = std::from_chars(lines[2].data(), lines[2].data() + lines[2].size(), entry.pid);
  if (failure != std::errc() || end != lines[2].data() + lines[2].size() || text.find_first_not_of('\n') != text.npos) return std::nullopt;
  return entry;
}

std::unique_ptr<Registry> make_registry(const Address& address, const std::string& auth, base::Nanos heartbeat) {
  if (address.kind == Address::Kind::kFile) return std::make_unique<FolderRegistry>(address);
  return std::make_unique<EtcdRegistry>(address, auth, heartbeat);
}

}  // namespace mv::runtime::keeper
