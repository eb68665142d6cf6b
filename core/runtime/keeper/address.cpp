#include "runtime/keeper/address.hpp"

#include <algorithm>
#include <optional>

namespace mv::runtime::keeper {

namespace {

constexpr size_t kLongestName = 100;

base::Status malformed(std::string_view text, std::string_view what) {
  return base::error(MV_EINVAL, "keeper={} {}: expected etcd://HOST:2379[,HOST:2379]/NAME, etcds://... for https, or file:///FOLDER/NAME", text,
                     what);
}

bool is_name(std::string_view name) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && std::all_of(name.begin(), name.end(), allowed);
}

/// "ca=FILE&cert=FILE&key=FILE". False for anything else.
bool take_files(std::string_view query, Address& address) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    const size_t equals = one.find('=');
    const std::string_view key = one.substr(0, equals);
    std::string* const to = key == "ca" ? &address.ca : key == "cert" ? &address.cert : key == "key" ? &address.key : nullptr;
    if (to == nullptr || equals == std::string_view::npos || equals + 1 == one.size()) return false;
    *to = one.substr(equals + 1);
  }
  return address.cert.empty() == address.key.empty();
}

/// Takes the last part of a path. False if that is not a name.
bool take_name(std::string_view path, Address& address) {
  const size_t slash = path.rfind('/');
  address.name = path.substr(slash + 1);
  address.folder = path.substr(0, std::max<size_t>(slash, 1));
  return is_name(address.name);
}

base::Result<Address> parse_etcd(std::string_view text, std::string_view rest, bool tls) {
  Address address;
  address.tls = tls;
  if (const size_t at = rest.substr(0, rest.find('?')).find('@'); at != std::string_view::npos)  // the text may contain a password, so it is not repeated
    return base::error(MV_EINVAL, "keeper={}...@{} names a user: give USER:PASSWORD in keeper_auth (POLYVERSO_KEEPER_AUTH) instead",
                       tls ? "etcds://" : "etcd://", rest.substr(at + 1));
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return malformed(text, "has no name of a cluster");
  std::string_view hosts = rest.substr(0, slash), name = rest.substr(slash + 1);
  if (const size_t query = name.find('?'); query != std::string_view::npos) {
    if (!tls) return malformed(text, "has files, which only etcds:// uses");
    if (!take_files(name.substr(query + 1), address)) return malformed(text, "has something else after the name than ?ca=FILE&cert=FILE&key=FILE");
    name = name.substr(0, query);
  }
  if (!is_name(name)) return malformed(text, fmt::format("has no name of up to {} letters, digits, -, _ and .", kLongestName));
  address.name = name;
  while (true) {
    const std::string_view host = hosts.substr(0, hosts.find(','));
    auto endpoint = transport::parse_address(std::string(host));
    if (!endpoint.ok() || endpoint.value().port == "0") return malformed(text, fmt::format("has \"{}\", which is not HOST:PORT", host));
    address.endpoints.push_back(std::move(endpoint).value());
    if (host.size() == hosts.size()) return address;
    hosts.remove_prefix(host.size() + 1);
  }
}

}  // namespace

std::string Address::where() const {
  if (kind == Kind::kFile) return "the folder " + folder;
  std::string text;
  for (const transport::HostPort& endpoint : endpoints) text += (text.empty() ? "etcd at " : ", ") + transport::to_text(endpoint);
  return text;
}

std::string rank_0_key(const Address& address) { return fmt::format("/polyverso/{}/rank0", address.name); }
std::string view_key(const Address& address) { return fmt::format("/polyverso/{}/view", address.name); }
std::string mark_key(const Address& address) { return fmt::format("/polyverso/{}/mark", address.name); }

base::Result<Address> parse_address(std::string_view text) {
  constexpr std::string_view kPlain = "etcd://", kTls = "etcds://", kFile = "file://";
  if (text.starts_with(kPlain)) return parse_etcd(text, text.substr(kPlain.size()), false);
  if (text.starts_with(kTls)) return parse_etcd(text, text.substr(kTls.size()), true);
  if (!text.starts_with(kFile)) return malformed(text, "is of no known kind");
  Address address;
  address.kind = Address::Kind::kFile;
  const std::string_view path = text.substr(kFile.size());
  if (!path.starts_with('/')) return malformed(text, "has no absolute path");
  if (!take_name(path, address)) return malformed(text, fmt::format("has no name of up to {} letters, digits, -, _ and .", kLongestName));
  return address;
}

}  // namespace mv::runtime::keeper
