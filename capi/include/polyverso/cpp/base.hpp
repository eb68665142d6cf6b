/// Errors, values, options and requests. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_BASE_HPP
#define POLYVERSO_CPP_BASE_HPP

#include <polyverso/polyverso.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <new>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace polyverso {

// ------------------------------------------------------------------ errors

/// A failed call. what() is mv_last_error(): a sentence about this very call.
class Error : public std::runtime_error {
 public:
  Error(mv_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  mv_status status() const noexcept { return status_; }                      // MV_ESHAPE
  const char* name() const noexcept { return mv_status_name(status_); }      // "MV_ESHAPE"
  const char* family() const noexcept { return mv_status_family(status_); }  // "argument"

 private:
  mv_status status_;
};
/// One class for each family of MV_STATUS_MAP.
class ArgumentError : public Error { using Error::Error; };
class HandleError : public Error { using Error::Error; };
class StateError : public Error { using Error::Error; };
class TimeoutError : public Error { using Error::Error; };
class PeerError : public Error { using Error::Error; };
class OutOfStepError : public Error { using Error::Error; };
class Interrupted : public Error { using Error::Error; };
class SystemFailure : public Error { using Error::Error; };

/// Throws the error of a failed call. For programs that call the C functions themselves, too.
[[noreturn]] inline void raise(mv_status status, const std::string& text) {
  const std::string_view family = mv_status_family(status);
  if (family == "argument") throw ArgumentError(status, text);
  if (family == "handle") throw HandleError(status, text);
  if (family == "state") throw StateError(status, text);
  if (family == "timeout") throw TimeoutError(status, text);
  if (family == "peer") throw PeerError(status, text);
  if (family == "step") throw OutOfStepError(status, text);
  if (family == "interrupt") throw Interrupted(status, text);
  if (family == "system") throw SystemFailure(status, text);
  throw Error(status, text);
}
/// The sentence about this thread's last failed call; mv_status_message() if there is none.
inline std::string reason(mv_status status) {
  const char* text = mv_last_error();
  return *text != '\0' ? text : mv_status_message(status);
}
/// Throws unless `status` is MV_OK.
inline void check(mv_status status) {
  if (status != MV_OK) raise(status, reason(status));
}

// ------------------------------------------------------------------ values

/// The dtype of an element type. Specialize it for a type of your own with the same bytes, such as a 16-bit float:
///   template <> struct polyverso::Dtype<MyHalf> { static constexpr mv_dtype value = MV_F16; };
template <class T>
struct Dtype {};
template <> struct Dtype<float> { static constexpr mv_dtype value = MV_F32; };
template <> struct Dtype<double> { static constexpr mv_dtype value = MV_F64; };
template <> struct Dtype<std::int64_t> { static constexpr mv_dtype value = MV_I64; };
template <> struct Dtype<std::int32_t> { static constexpr mv_dtype value = MV_I32; };
template <> struct Dtype<std::uint8_t> { static constexpr mv_dtype value = MV_U8; };
template <> struct Dtype<std::int8_t> { static constexpr mv_dtype value = MV_I8; };
template <> struct Dtype<std::byte> { static constexpr mv_dtype value = MV_RAW; };

template <class T>
concept Element = requires { Dtype<std::remove_cv_t<T>>::value; };
template <Element T>
inline constexpr mv_dtype dtype_of = Dtype<std::remove_cv_t<T>>::value;

/// Elements in memory without gaps: a vector, an array, a span of a type with a dtype.
template <class R>
concept Values = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;
/// The same, to be written: it must outlive the expression, as a variable or a span does.
template <class R>
concept WritableValues = Values<R> && std::ranges::borrowed_range<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

class Tensor;

/// Values that a call reads. They are lent until it returns.
struct In {
  const void* data = nullptr;
  std::uint64_t count = 0;
  mv_dtype dtype = MV_F32;

  In() = default;  // none
  In(const void* values, std::uint64_t elements, mv_dtype type) : data(values), count(elements), dtype(type) {}
  template <Values R>
  In(R&& range) : data(std::ranges::data(range)), count(std::ranges::size(range)), dtype(dtype_of<std::ranges::range_value_t<R>>) {}
  In(const Tensor& tensor);  // a dense one
};

/// Values that a call writes, or changes in place. They are lent until it returns, and of an asynchronous call until its request has ended.
struct Out {
  void* data = nullptr;
  std::uint64_t count = 0;
  mv_dtype dtype = MV_F32;

  Out() = default;  // none, for ranks that receive nothing
  Out(void* values, std::uint64_t elements, mv_dtype type) : data(values), count(elements), dtype(type) {}
  template <WritableValues R>
  Out(R&& range) : data(std::ranges::data(range)), count(std::ranges::size(range)), dtype(dtype_of<std::ranges::range_value_t<R>>) {}
  Out(const Tensor& tensor);  // a dense one
};

/// Row ids, worker ids, shapes.
using Ids = std::span<const std::int64_t>;

/// Several arrays of one call, such as the layers of a model: Arrays{weights, bias}.
class Arrays {
 public:
  Arrays() = default;
  Arrays(std::initializer_list<Out> arrays) {
    for (const Out& array : arrays) add(array);
  }
  /// @param note 0 .. 15, see mv_array
  void add(const Out& array, std::uint32_t note = 0) { arrays_.push_back({array.data, array.count, array.dtype, note}); }
  const mv_array* data() const noexcept { return arrays_.data(); }
  std::uint64_t size() const noexcept { return arrays_.size(); }

 private:
  std::vector<mv_array> arrays_;
};

// ------------------------------------------------------------------ options, requests

using Milliseconds = std::chrono::milliseconds;
inline constexpr Milliseconds forever{MV_FOREVER};

/// How a call waits: Call{.timeout = 5s}. All functions have the default: blocking, with the node's deadline.
struct Call {
  Milliseconds timeout{0};  ///< 0: the node's default
  std::uint64_t label = 0;  ///< of operations of groups: see mv_call_options
  std::uint32_t flags = 0;  ///< MV_FORGET: adds return at once, and the next call has their error. KV_SPARSE_TOO
};

/// An unfinished call. Its destructor never waits for the result: a running add continues, and a call that uses the caller's buffers is
/// cancelled.
class Request {
 public:
  Request() = default;
  explicit Request(mv_request id) noexcept : id_(id) {}
  Request(Request&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      end();
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  ~Request() { end(); }

  mv_request id() const noexcept { return id_; }                   // as Node::poll() reports it; 0: none
  bool valid() const noexcept { return id_ != 0; }
  /// Waits for the result; throws the call's error. After a TimeoutError of this wait, or Interrupted, valid() is still true: wait again.
  void wait(Milliseconds timeout = Milliseconds{0}) { finish(mv_request_wait(id_, timeout.count())); }
  /// Whether the call has finished; throws its error. Never waits.
  bool test() {
    std::int32_t done = 0;
    const mv_status status = mv_request_test(id_, &done);
    if (status != MV_OK) finish(status);
    if (done != 0) id_ = 0;
    return done != 0;
  }
  /// The status of the finished call without ending the request; MV_EPENDING while it runs.
  mv_status error() const noexcept { return mv_request_error(id_); }
  /// Withdraws the call. Its buffers are the caller's again.
  void cancel() {
    check(mv_request_cancel(id_));
    id_ = 0;
  }

 private:
  void finish(mv_status status) {
    if (status == MV_OK) {
      id_ = 0;
      return;
    }
    const std::string text = reason(status);
    if (mv_request_error(id_) == MV_EHANDLE) id_ = 0;  // the error was the call's own
    raise(status, text);
  }
  void end() noexcept {
    if (id_ != 0 && mv_request_release(id_) == MV_EPENDING) mv_request_cancel(id_);
    id_ = 0;
  }

  mv_request id_ = 0;
};

// ------------------------------------------------------------------ for the other headers

namespace detail {

/// The handle of something that Close ends. Errors of the destructor's close are ignored; close() reports them.
template <mv_status (*Close)(std::int64_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::int64_t id) noexcept : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  ~Handle() { reset(); }
  std::int64_t id() const noexcept { return id_; }
  std::int64_t release() noexcept { return std::exchange(id_, 0); }
  void close() {
    if (id_ != 0) check(Close(release()));
  }

 private:
  void reset() noexcept {
    if (id_ != 0) Close(release());
  }
  std::int64_t id_ = 0;
};

inline mv_call_options options(const Call& call, mv_request* request = nullptr) {
  mv_call_options result = MV_CALL_OPTIONS_INIT;
  result.flags = call.flags | (request != nullptr ? static_cast<std::uint32_t>(MV_ASYNC) : 0U);
  result.timeout_ms = call.timeout.count();
  result.request = request;
  result.label = call.label;
  return result;
}

/// Calls f(options), blocking.
template <class F>
void block(const Call& call, F&& f) {
  const mv_call_options blocking = options(call);
  check(f(&blocking));
}

/// Starts f(options) as a request.
template <class F>
Request start(const Call& call, F&& f) {
  mv_request id = 0;
  const mv_call_options asynchronous = options(call, &id);
  check(f(&asynchronous));
  return Request(id);
}

/// The text that f(buffer, capacity, length) writes.
template <class F>
std::string text(F&& f) {
  std::string result(512, '\0');
  for (;;) {
    std::uint64_t length = 0;
    check(f(result.data(), std::uint64_t{result.size()}, &length));
    const bool fits = length < result.size();
    result.resize(fits ? length : length + 256);  // a text may grow between two calls
    if (fits) return result;
  }
}

/// One result of a call that writes it through its last parameter: value<int64_t>(mv_rank, node).
template <class T, class F, class... Arguments>
T value(F&& f, Arguments&&... arguments) {
  T result{};
  check(f(std::forward<Arguments>(arguments)..., &result));
  return result;
}

/// Runs a callback. No exception passes it: it becomes a status, and its text is part of the error that this causes.
template <class F>
mv_status callback(F&& f) noexcept {
  try {
    f();
    return MV_OK;
  } catch (const Error& error) {
    mv_callback_error(error.what());
    return error.status();
  } catch (const std::bad_alloc&) {
    mv_callback_error("out of memory");
    return MV_ENOMEM;
  } catch (const std::exception& error) {
    mv_callback_error(error.what());
    return MV_EINVAL;
  } catch (...) {
    mv_callback_error("an exception that is no std::exception");
    return MV_EINVAL;
  }
}

}  // namespace detail
}  // namespace polyverso

#endif
