#pragma once
// Nothing that a run started survives the launcher, however the launcher ends, kill -9 included:
//  - each process asks the kernel for SIGKILL when its parent dies, between fork and exec (run_armed);
//  - the guard, a process of its own, waits for the end of a pipe from the launcher, and then kills the process groups that
//    are still registered, and so the grandchildren, too.

#include <sys/types.h>

namespace mv::tools {

/// `polyverso __exec LAUNCHER COMMAND...`: becomes the command, armed. Returns only an exit status, after an error.
int run_armed(int argc, char** argv);

/// `polyverso __guard`: reads "+GROUP" and "-GROUP" lines from standard input until its end.
int run_guard();

inline constexpr char kExecWord[] = "__exec";
inline constexpr char kGuardWord[] = "__guard";

}  // namespace mv::tools
