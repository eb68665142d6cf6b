#pragma once
// How `polyverso status` finds the runs of this user on this machine: each has a file that only the user can read, in a folder that only
// the user can enter, $XDG_RUNTIME_DIR/polyverso or else /tmp/polyverso-<user id>. A run holds a lock on its file for as long as it lives;
// a file without a lock was left behind by a run that was killed, and the next process that lists the runs removes it.

#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace mv::tools {

/// The settings of encryption: the mode, and three files.
inline constexpr std::array<const char*, 4> kTlsSettings = {"tls", "tls_cert", "tls_key", "tls_ca"};

struct RunEntry {
  pid_t pid = 0;  ///< of the launcher
  std::string address, secret, command;
  int nodes = 0, replicas = 0;  ///< the number of processes at the start; mv_init_options.replicas
  std::map<std::string, std::string> tls;  ///< what the run says of kTlsSettings
};

/// A run's own file, until it is destroyed.
class Registration {
 public:
  explicit Registration(const RunEntry& entry);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  /// Why there is no file; empty if there is one.
  const std::string& failure() const { return failure_; }

 private:
  std::string path_, failure_;
  int fd_ = -1;
};

/// By process id. Throws std::runtime_error if the folder is not this user's alone.
std::vector<RunEntry> running();

}  // namespace mv::tools
