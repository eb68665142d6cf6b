#pragma once
// The processors that this process may use.

namespace mv::base {

/// The number of processors on which the scheduler may run the calling thread; 0 if the kernel does not tell. Any thread.
int allowed_processors();

}  // namespace mv::base
