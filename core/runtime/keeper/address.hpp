#pragma once
// The setting `keeper`: the store in which a cluster has a name.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "transport/tcp/socket.hpp"

namespace mv::runtime::keeper {

/// etcd://HOST:PORT[,HOST:PORT...]/NAME, the same with etcds:// for https, or file:///FOLDER/NAME. etcds:// may end with ?ca=FILE&cert=FILE&key=FILE.
struct Address {
  enum class Kind { kEtcd, kFile };
  Kind kind = Kind::kEtcd;
  std::vector<transport::HostPort> endpoints{};  ///< of etcd
  bool tls = false;
  std::string ca{}, cert{}, key{};  ///< files, for https
  std::string folder{};             ///< of kFile
  std::string name{};               ///< the cluster's
  /// "etcd at 10.0.0.1:2379, 10.0.0.2:2379", "the folder /shared/jobs".
  std::string where() const;
};

/// The keys in etcd: of rank 0's entry, of the members' view, and of the mark of its writer.
std::string rank_0_key(const Address& address);
std::string view_key(const Address& address);
std::string mark_key(const Address& address);

/// MV_EINVAL: the message names the expected form.
base::Result<Address> parse_address(std::string_view text);

}  // namespace mv::runtime::keeper
