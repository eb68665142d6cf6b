#pragma once
// The exception boundary of every exported function: an error becomes a status and a message, and no exception unwinds
// into the caller's language.

#include <polyverso/polyverso.h>

#include <cxxabi.h>

#include <string>

#include "base/result.hpp"
#include "state.hpp"

namespace mv::capi {

/// Stores the message for mv_last_error() and returns the status. If there is no memory for it, stores a shorter one.
mv_status fail(mv_status code, const char* function, const char* text) noexcept;
mv_status finish_failed(const base::Status& status) noexcept;
/// The status of the exception that is being handled.
mv_status fail_with_exception(const char* function) noexcept;
/// Sets mv_last_error() on success: only mv_request_cancel() does.
void note(std::string text) noexcept;

/// Puts the function's name before the message, once.
inline base::Status named(const char* function, base::Status status) {
  if (status.ok() || status.text().starts_with(function)) return status;
  return base::error(status.code(), "{}: {}", function, status.text());
}

inline mv_status finish(const base::Status& status) noexcept { return status.ok() ? MV_OK : finish_failed(status); }

/// Runs body() -> base::Status inside the boundary.
template <typename Body>
mv_status guarded(const char* function, Body&& body) {
  try {
    return finish(body());
  } catch (abi::__forced_unwind&) {
    throw;  // pthread_cancel() of the calling thread: glibc aborts the process if it is not rethrown
  } catch (...) {
    return fail_with_exception(function);
  }
}

/// guarded() for body(State&). MV_EFORK in a forked child before its own mv_init(), or another call that begins its life.
template <typename Body>
mv_status boundary(const char* function, Body&& body) {
  State* state = current_state();
  if (state == nullptr) {
    return fail(MV_EFORK, function,
                "this process was forked after its parent had used the library: what its parent opened can't be used here; open it anew, after "
                "mv_init() in this process if it is part of a cluster");
  }
  return guarded(function, [&] { return body(*state); });
}

/// boundary() for functions of tensors alone, which a forked child may call at once.
template <typename Body>
mv_status tensor_boundary(const char* function, Body&& body) {
  return guarded(function, [&] { return body(current_state_for_tensors()); });
}

}  // namespace mv::capi
