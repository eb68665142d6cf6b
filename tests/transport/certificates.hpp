#pragma once
// Certificates for tests, made when they run.

#include <string>

#include "transport/tls/tls.hpp"

namespace mv::test {

/// An authority, and files in a folder of its own, which ends with it.
class Authority {
 public:
  Authority();
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  struct Validity {
    long from = -3600, until = 3600;  ///< seconds from now
  };
  /// Issues a certificate for `names`, as in "DNS:node1,IP:127.0.0.1", and replaces the files called `name`.
  transport::TlsFiles issue(const std::string& name, const std::string& names, Validity validity) const;
  transport::TlsFiles issue(const std::string& name, const std::string& names) const {
    return issue(name, names, Validity());
  }
  const std::string& file() const { return file_; }

 private:
  std::string folder_, file_;
  void *key_, *certificate_;
};

}  // namespace mv::test
