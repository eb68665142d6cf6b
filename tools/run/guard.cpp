#include "run/guard.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace mv::tools {

int run_armed(int argc, char** argv) {
  if (argc < 4) return 2;
  const pid_t launcher = static_cast<pid_t>(std::atol(argv[2]));
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    std::fprintf(stderr, "polyverso run: prctl(PR_SET_PDEATHSIG): %s\n", std::strerror(errno));
    return 126;
  }
  if (getppid() != launcher) return 126;  // it died before the line above
  setpgid(0, 0);                                                        // signals come from the launcher alone
  for (const int number : {SIGTTIN, SIGTTOU}) signal(number, SIG_IGN);  // reading /dev/tty fails, and does not stop the process
  execvp(argv[3], argv + 3);
  const int reason = errno;
  std::fprintf(stderr, "polyverso run: can't run \"%s\": %s\n", argv[3], std::strerror(reason));
  return reason == ENOENT ? 127 : 126;
}

int run_guard() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP}) signal(number, SIG_IGN);
  std::set<pid_t> groups;
  char sign;
  long group;
  while (std::scanf(" %c%ld", &sign, &group) == 2) {
    if (sign == '+') {
      groups.insert(static_cast<pid_t>(group));
    } else {
      groups.erase(static_cast<pid_t>(group));
    }
  }
  for (const pid_t id : groups) kill(-id, SIGKILL);
  return 0;
}

}  // namespace mv::tools
