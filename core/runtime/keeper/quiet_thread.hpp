#pragma once
// A thread for blocking calls, which handles no signals.

#include <pthread.h>

#include <csignal>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.hpp"

namespace mv::runtime::keeper {

/// Starts a thread that blocks all signals. MV_ESYSTEM.
inline base::Result<std::thread> start_quiet_thread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
  base::Result<std::thread> started = base::Status();
  try {
    started = std::thread([work = std::move(work)] {
      pthread_setname_np(pthread_self(), "mv-keeper");
      work();
    });
  } catch (const std::system_error& failed) {
    started = base::error(MV_ESYSTEM, "keeper: can't start a thread: {}", failed.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace mv::runtime::keeper
