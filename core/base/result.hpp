#pragma once
// Errors as values. Nothing in core/ throws on purpose. The exception boundary of the ABI, boundary(), catches allocation
// failures.

#include <polyverso/polyverso.h>

#include <fmt/core.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace mv::base {

/// MV_OK, or an error code with a sentence about this very call. It is a code and a pointer because a call that takes 100 ns returns a dozen of them.
class [[nodiscard]] Status {
 public:
  Status() = default;
  [[gnu::noinline]] Status(mv_status code, std::string text) : code_(code), text_(text.empty() ? nullptr : new std::string(std::move(text))) {}
  Status(const Status& other) : code_(other.code_), text_(other.text_ ? copy(*other.text_) : nullptr) {}
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return code_ == MV_OK; }
  mv_status code() const { return code_; }
  const std::string& text() const { return text_ ? *text_ : kNoText; }
  /// Copies only the code if memory for the text runs out.
  void assign(const Status& other) noexcept {
    try {
      *this = other;
    } catch (const std::bad_alloc&) {
      code_ = other.code_;
      text_.reset();
    }
  }
  /// Replaces the text by `head` and `tail`, cut to its capacity. For errors that are allocated in advance. Never
  /// allocates.
  void assign_in_place(std::string_view head, std::string_view tail) noexcept {
    if (!text_) return;
    text_->assign(head.substr(0, text_->capacity()));
    text_->append(tail.substr(0, text_->capacity() - text_->size()));
  }

 private:
  // Errors are rare: what handles their text is not inlined into the thousands of functions that return a Status.
  struct Delete {
    [[gnu::noinline]] void operator()(std::string* text) const noexcept { delete text; }
  };
  using Text = std::unique_ptr<std::string, Delete>;
  [[gnu::noinline]] static Text copy(const std::string& text) { return Text(new std::string(text)); }

  inline static constinit const std::string kNoText{};
  mv_status code_ = MV_OK;
  Text text_;  ///< null: none
};

namespace detail {
[[gnu::noinline]] inline Status format_error(mv_status code, fmt::string_view format, fmt::format_args args) { return Status(code, fmt::vformat(format, args)); }
}  // namespace detail

/// error(MV_ESHAPE, "table \"{}\": {} values given", name, n)
template <typename... Args>
Status error(mv_status code, fmt::format_string<Args...> format, Args&&... args) {
  return detail::format_error(code, format, fmt::make_format_args(args...));
}

/// A value or an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  /// Only if ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  /// MV_OK if there is a value.
  const Status& status() const { return status_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace mv::base
