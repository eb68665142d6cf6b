#pragma once
// A client of etcd's version 3, by its gateway for HTTP and JSON.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json_reader.hpp"
#include "runtime/keeper/address.hpp"
#include "transport/http/client.hpp"

namespace mv::runtime::keeper {

/// Calls block until the answer or the deadline, and try one endpoint after another. Make them on a thread that blocks
/// all signals. One thread at a time, except for cancel().
///
/// MV_EUNREACHABLE: no endpoint has answered in time; etcd may have carried out the request. MV_EAUTH: etcd refuses
/// this user. MV_ECANCELED.
class Etcd {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Value {
    std::string bytes;
    uint64_t revision = 0;  ///< at which it was written
  };
  struct Put {
    std::string key, bytes;
    int64_t lease = 0;  ///< 0: none
  };
  /// A condition of a transaction: the key has this revision (0: it does not exist), and this value. Each is optional.
  struct Condition {
    std::string key;
    std::optional<uint64_t> revision{};
    std::optional<std::string> bytes{};
  };
  struct Outcome {
    bool done = false;
    uint64_t revision = 0;                      ///< if done, of what was put
    std::vector<std::optional<Value>> found{};  ///< otherwise, the values of the keys `looks`
    bool sure = true;                           ///< false: the last try did not do it, but an earlier try without an answer may have
  };

  /// @param auth "user:password", or "" without authentication
  Etcd(Address address, const std::string& auth);

  base::Result<std::optional<Value>> get(const std::string& key, Deadline deadline);
  /// Puts all values if all conditions hold, at one revision. Otherwise changes nothing, and reads the keys `looks`.
  base::Result<Outcome> transact(const std::vector<Condition>& conditions, const std::vector<Put>& puts, const std::vector<std::string>& looks,
                                 Deadline deadline);
  /// Deletes the key if it holds this value.
  base::Status remove(const std::string& key, const std::string& bytes, Deadline deadline);
  /// A new lease of at least `ttl` seconds: its number.
  base::Result<int64_t> grant(int64_t ttl, Deadline deadline);
  /// Renews a lease for its full time from now on. MV_ENOTFOUND: it has expired.
  base::Status keep_alive(int64_t lease, Deadline deadline);
  base::Status revoke(int64_t lease, Deadline deadline);
  /// The seconds until the lease of a key expires; nothing if the key has no lease.
  base::Result<std::optional<int64_t>> time_left(const std::string& key, Deadline deadline);
  /// Waits for a change of the key after the last get() or transact(). Returns then, or at the deadline, or a little earlier. The caller
  /// reads the key to see what has changed.
  base::Status watch(const std::string& key, Deadline deadline);

  /// Ends calls soon. Any thread.
  void cancel() noexcept;
  const Address& address() const { return address_; }

 private:
  struct Reply {
    base::JsonDocument json;
    bool sure = true;  ///< etcd can't have carried out an earlier try
  };
  base::Result<Reply> call(const std::string& path, const std::string& body, Deadline deadline);
  base::Result<transport::HttpAnswer> try_once(const std::string& path, const std::string& body, base::Nanos patience);
  base::Result<transport::HttpClient*> client();
  void next_endpoint();
  base::Status authenticate(base::Nanos patience);
  bool pause(base::Nanos span);
  base::Status silent(const std::string& why) const;

  const Address address_;
  std::string user_, password_, token_;
  size_t current_ = 0;  ///< endpoint
  uint64_t seen_ = 0;   ///< the store's revision at the last get() or transact()
  std::mutex mutex_;
  std::condition_variable canceling_;
  bool canceled_ = false;                          // under mutex_
  std::unique_ptr<transport::HttpClient> client_;  // replaced under mutex_
};

}  // namespace mv::runtime::keeper
