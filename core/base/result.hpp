#pragma once
// Errors as values. Nothing in core/ throws on purpose. The exception boundary of the ABI, boundary(), catches allocation
// failures.

#include <polyverso/polyverso.h>

#include <fmt/core.h>

#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace mv::base {

/// MV_OK, or an error code with a sentence about this very call. It is a code and a pointer because a call that takes 100 ns returns a dozen of them.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(mv_status code, std::string text) : code_(code), text_(text.empty() ? nullptr : std::make_unique<std::string>(std::move(text))) {}
  Status(const Status& other) : code_(other.code_), text_(other.text_ ? std::make_unique<std::string>(*other.text_) : nullptr) {}
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
  inline static constinit const std::string kNoText{};
  mv_status code_ = MV_OK;
  std::unique_ptr<std::string> text_;  ///< null: none
};

/// error(MV_ESHAPE, "table \"{}\": {} values given", name, n)
template <typename... Args>
Status error(mv_status code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

/// MV_OK, for a Result without an error.
inline const Status kOk;

/// A value or an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  /// MV_OK if there is a value.
  const Status& status() const { return ok() ? kOk : std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace mv::base
