// Requests, the unfinished calls: waiting, testing, cancelling, releasing, polling.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "boundary.hpp"
#include "callbacks.hpp"
#include "calls.hpp"
#include "options.hpp"
#include "state.hpp"

namespace mv::capi {
namespace {

/// The error of a caller whose request another thread released first.
base::Status lost_race(const char* function, mv_request handle) {
  return base::error(MV_EHANDLE, "{}: {} is a request that another thread has waited for, tested or cancelled",
                     function, handle);
}

base::Status wait_request(State& state, mv_request handle, int64_t timeout_ms) {
  if (auto status = check_timeout("mv_request_wait", timeout_ms); !status.ok()) return status;
  auto pin = find_request(state, "mv_request_wait", handle);
  if (!pin.ok()) return pin.status();
  bool alive = false;
  // 0: as long as the request's own deadline allows.
  const base::Nanos span = timeout_ms == 0 ? base::kNever : span_of_ms(timeout_ms);
  auto status = pin.value()->node->node->wait(pin.value()->call, span, &alive);
  if (!alive) {
    const bool mine = state.requests.close(pin.value());
    return mine || status.code() == MV_ECANCELED ? status : lost_race("mv_request_wait", handle);
  }
  if (status.code() == MV_EINTR)
    return base::error(MV_EINTR, "mv_request_wait: a signal interrupted the wait; the request continues");
  if (status.code() != MV_ETIMEOUT) return status;
  return base::error(MV_ETIMEOUT, "mv_request_wait: {} ms have passed; the request continues", timeout_ms);
}

base::Status test_request(State& state, mv_request handle, int32_t* done) {
  if (done == nullptr) return base::error(MV_EINVAL, "mv_request_test: done is NULL");
  auto pin = find_request(state, "mv_request_test", handle);
  if (!pin.ok()) return pin.status();
  const RequestEntry& request = *pin.value();
  if (!request.node->node->done(request.call)) {
    *done = 0;
    return {};
  }
  if (!state.requests.close(pin.value())) return lost_race("mv_request_test", handle);
  *done = 1;
  return request.node->node->result(request.call);
}

base::Status cancel_request(State& state, mv_request handle) {
  auto pin = find_request(state, "mv_request_cancel", handle);
  if (!pin.ok()) return pin.status();
  // Close it first: a wait in another thread then sees the cancellation, and not a request of its own.
  if (!state.requests.close(pin.value())) return not_a(state, "mv_request_cancel", HandleKind::kRequest, handle);
  auto outcome = pin.value()->node->node->cancel(pin.value()->call);
  if (!outcome.text().empty()) note(outcome.text());
  return {};
}

base::Status release_request(State& state, mv_request handle) {
  auto pin = find_request(state, "mv_request_release", handle);
  if (!pin.ok()) return pin.status();
  const RequestEntry& request = *pin.value();
  if (request.lends && !request.node->node->done(request.call))
    return base::error(MV_EPENDING, "mv_request_release: the request is not finished yet and still uses its buffers");
  if (!state.requests.close(pin.value())) return lost_race("mv_request_release", handle);
  if (!request.lends) request.node->node->release(request.call);
  return {};
}

base::Status request_error(State& state, mv_request handle) {
  auto pin = find_request(state, "mv_request_error", handle);
  if (!pin.ok()) return pin.status();
  const RequestEntry& request = *pin.value();
  if (request.node->node->done(request.call)) return request.node->node->result(request.call);
  return base::error(MV_EPENDING, "mv_request_error: the request is not finished yet");
}

/// Whether the caller still has this request: not waited for, tested or cancelled since it finished.
bool is_open(State& state, int64_t request) {
  // A call may finish before its thread has published the handle, which takes only a few instructions.
  while (state.requests.fate(request) == Fate::kReserved) std::this_thread::yield();
  return state.requests.fate(request) == Fate::kOpen;
}

base::Nanos steady_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

/// Collects finished requests that are still open; waits for the first, or until `or_until` returns true.
base::Status take_finished(State& state, api::Node& node, mv_request* finished, uint64_t capacity, uint64_t* found, base::Nanos deadline,
                           const std::function<bool()>& or_until) {
  do {
    constexpr uint64_t kBatch = 1024;  // a small allocation, whatever the capacity
    const base::Nanos left = deadline == base::kNever ? deadline : std::max(base::Nanos{0}, deadline - steady_now());
    auto tags = node.poll(static_cast<size_t>(std::min(capacity - *found, kBatch)), *found > 0 ? base::Nanos{0} : left, or_until);
    if (!tags.ok()) return *found == 0 ? tags.status() : base::Status();
    for (const int64_t tag : tags.value()) {
      if (is_open(state, tag)) finished[(*found)++] = tag;
    }
    // If none of them is open any more, wait for the rest of the time.
    if (tags.value().empty() && (*found > 0 || or_until() || steady_now() >= deadline)) break;
  } while (*found < capacity);
  return {};
}

base::Status poll_requests(State& state, mv_node node, mv_request* finished, uint64_t capacity, uint64_t* count,
                           int64_t timeout_ms) {
  if (count == nullptr) return base::error(MV_EINVAL, "mv_poll: count is NULL");
  if (finished == nullptr && capacity != 0)
    return base::error(MV_EINVAL, "mv_poll: finished is NULL, but capacity is {}", capacity);
  if (auto status = check_timeout("mv_poll", timeout_ms); !status.ok()) return status;
  auto pin = find_node(state, "mv_poll", node);
  if (!pin.ok()) return pin.status();
  const auto callbacks = Callbacks::of_this_thread(state);
  if (callbacks->is_inside()) return base::error(MV_EREENTRANT, "mv_poll: this thread is inside a callback");
  const api::Node& polled = *(*pin.value())->node;
  const auto is_due = [&] { return callbacks->any_due() || polled.membership_event_due(); };
  uint64_t found = 0;
  const bool may_wait = !callbacks->run() && !polled.membership_event_due() && (capacity > 0 || callbacks->has_any());
  const base::Nanos span = may_wait ? span_of_ms(timeout_ms) : base::Nanos{0};
  const auto status =
      take_finished(state, *(*pin.value())->node, finished, capacity, &found, base::after(steady_now(), span), is_due);
  if (!status.ok()) return status;
  callbacks->run();  // they ended the wait
  *count = found;
  return {};
}

}  // namespace

int64_t keep_interrupted(State& state, const NodeRef& node, api::CallRef call) {
  try {
    return state.requests.insert({node, call, true});
  } catch (...) {
    static_cast<void>(node->node->cancel(call));
    throw;
  }
}

}  // namespace mv::capi

using namespace mv::capi;

mv_status mv_request_wait(mv_request request, int64_t timeout_ms) {
  return boundary("mv_request_wait", [&](State& state) { return wait_request(state, request, timeout_ms); });
}

mv_status mv_request_test(mv_request request, int32_t* done) {
  return boundary("mv_request_test", [&](State& state) { return test_request(state, request, done); });
}

mv_status mv_request_cancel(mv_request request) {
  return boundary("mv_request_cancel", [&](State& state) { return cancel_request(state, request); });
}

mv_status mv_request_release(mv_request request) {
  return boundary("mv_request_release", [&](State& state) { return release_request(state, request); });
}

mv_status mv_request_error(mv_request request) {
  return boundary("mv_request_error", [&](State& state) { return request_error(state, request); });
}

mv_status mv_poll(mv_node node, mv_request* finished, uint64_t capacity, uint64_t* count, int64_t timeout_ms) {
  return boundary("mv_poll",
               [&](State& state) { return poll_requests(state, node, finished, capacity, count, timeout_ms); });
}

mv_status mv_event_fd(mv_node node, int32_t* fd) {
  return boundary("mv_event_fd", [&](State& state) -> mv::base::Status {
    if (fd == nullptr) return mv::base::error(MV_EINVAL, "mv_event_fd: fd is NULL");
    auto pin = find_node(state, "mv_event_fd", node);
    if (!pin.ok()) return pin.status();
    *fd = (*pin.value())->node->event_fd();
    mv::capi::show_due_callbacks(state);  // callbacks that were due before this node existed
    return {};
  });
}
