#pragma once
// The wall that every exported function stands behind: errors become a status and a sentence, and nothing unwinds into
// the caller's language.

#include <polyverso/polyverso.h>

#include <cxxabi.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/result.hpp"
#include "state.hpp"

namespace mv::capi {

/// Keeps the sentence for mv_last_error() and gives the status back. Without memory a shorter sentence stands in.
mv_status fail(mv_status code, const char* function, const char* text) noexcept;
mv_status finish_failed(const base::Status& status) noexcept;
/// Sets mv_last_error() beside a success: only mv_request_cancel() does.
void note(std::string text) noexcept;

/// With the function's name at the head of its sentence, once.
inline base::Status named(const char* function, base::Status status) {
  if (status.ok() || status.text().starts_with(function)) return status;
  return base::error(status.code(), "{}: {}", function, status.text());
}

inline mv_status finish(const base::Status& status) noexcept { return status.ok() ? MV_OK : finish_failed(status); }

/// Runs body() -> base::Status behind the wall.
template <typename Body>
mv_status guarded(const char* function, Body&& body) {
  try {
    return finish(body());
  } catch (const std::bad_alloc&) {
    return fail(MV_ENOMEM, function, "out of memory");
  } catch (const std::system_error& refused) {
    return fail(MV_ESYSTEM, function, refused.what());
  } catch (const std::exception& defect) {
    return fail(MV_EINTERNAL, function, defect.what());
  } catch (abi::__forced_unwind&) {
    throw;  // pthread_cancel() of the calling thread: glibc ends the process if this is held up
  } catch (...) {
    return fail(MV_EINTERNAL, function, "an unknown exception");
  }
}

/// The same for body(State&), which a forked child does not reach before its own mv_init().
template <typename Body>
mv_status boundary(const char* function, Body&& body) {
  State* state = current_state();
  if (state == nullptr) {
    return fail(MV_EFORK, function,
                "this process was forked from one that had called mv_init(): call mv_init() in it first");
  }
  return guarded(function, [&] { return body(*state); });
}

/// The same for functions of tensors alone, which a forked child may call at once.
template <typename Body>
mv_status tensor_fence(const char* function, Body&& body) {
  return guarded(function, [&] { return body(current_state_for_tensors()); });
}

}  // namespace mv::capi
