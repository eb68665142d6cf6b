#include "transport/loop/handles.hpp"

namespace mv::transport {

namespace {

template <typename Handle>
void close_and_free(Handle* handle) {
  handle->data = nullptr;
  uv_close(reinterpret_cast<uv_handle_t*>(handle),
           [](uv_handle_t* closed) { delete reinterpret_cast<Handle*>(closed); });
}

uint64_t milliseconds(base::Nanos span) {
  return static_cast<uint64_t>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(span).count()));
}

}  // namespace

std::unique_ptr<Poll> Poll::make(Loop& loop, int fd, Fn fn) {
  std::unique_ptr<Poll> poll(new Poll(loop, fd, std::move(fn)));
  auto handle = std::make_unique<uv_poll_t>();
  if (uv_poll_init(&loop.uv(), handle.get(), fd) != 0) return nullptr;
  poll->handle_ = handle.release();
  poll->handle_->data = poll.get();
  loop.descriptors().add(fd);
  return poll;
}

Poll::~Poll() {
  if (handle_ == nullptr) return;
  loop_.descriptors().remove(fd_);
  close_and_free(handle_);
}

void Poll::watch(int events) {
  if (events == watched_) return;
  watched_ = events;
  if (events == 0) {
    uv_poll_stop(handle_);
    return;
  }
  uv_poll_start(handle_, events, [](uv_poll_t* handle, int status, int ready) {
    auto* self = static_cast<Poll*>(handle->data);
    if (self == nullptr) return;
    if (status < 0) {  // libuv has stopped watching; the next read or write returns the error
      self->watched_ = 0;
      ready = UV_READABLE | UV_WRITABLE;
    }
    self->loop_.guard([&] { self->fn_(ready); });
  });
  loop_.watchers_changed();
}

Timer::Timer(Loop& loop, std::function<void()> fn) : loop_(loop), fn_(std::move(fn)), handle_(new uv_timer_t) {
  uv_timer_init(&loop.uv(), handle_);
  handle_->data = this;
}

Timer::~Timer() { close_and_free(handle_); }

void Timer::start(base::Nanos delay, base::Nanos repeat) {
  uv_update_time(handle_->loop);
  uv_timer_start(
      handle_,
      [](uv_timer_t* handle) {
        if (auto* self = static_cast<Timer*>(handle->data)) self->loop_.guard(self->fn_);
      },
      milliseconds(delay), milliseconds(repeat));
}

void Timer::stop() { uv_timer_stop(handle_); }

bool Timer::active() const { return uv_is_active(reinterpret_cast<const uv_handle_t*>(handle_)) != 0; }

}  // namespace mv::transport
