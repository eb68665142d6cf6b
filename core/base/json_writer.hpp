#pragma once
// A streaming JSON writer. It appends each value to a string at once: it builds no tree, and only the string allocates.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

namespace mv::base {

/// Texts may contain any bytes: invalid UTF-8 becomes U+FFFD. NaN and infinity become null.
///
///     JsonWriter json;
///     json.object([&] {
///       json.field("name", name);
///       json.array("ranks", [&] { for (const auto& one : ranks) json.value(one); });
///     });
class JsonWriter {
 public:
  enum class Layout { kOneLine, kIndented };
  explicit JsonWriter(Layout layout = Layout::kOneLine) : indented_(layout == Layout::kIndented) {}

  /// work() writes the members, or the elements.
  template <typename Work>
  void object(const Work& work) { nest('{', '}', work); }
  template <typename Work>
  void array(const Work& work) { nest('[', ']', work); }
  template <typename Work>
  void object(std::string_view name, const Work& work) { key(name), nest('{', '}', work); }
  template <typename Work>
  void array(std::string_view name, const Work& work) { key(name), nest('[', ']', work); }
  template <typename Value>
  void field(std::string_view name, const Value& one) { key(name), value(one); }

  void value(std::nullptr_t) { raw("null"); }
  void value(double number);
  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  template <std::integral Number>
  void value(Number number) {
    if constexpr (std::same_as<Number, bool>)
      raw(number ? "true" : "false");
    else
      raw(std::to_string(number));
  }
  /// An empty optional is null.
  template <typename Value>
  void value(const std::optional<Value>& one) { one ? value(*one) : value(nullptr); }
  template <std::ranges::input_range List>
    requires(!std::convertible_to<const List&, std::string_view>)
  void value(const List& list) {
    array([&] {
      for (const auto& one : list) value(one);
    });
  }

  std::string take() { return std::move(text_); }

 private:
  void key(std::string_view name);
  void raw(std::string_view written);
  void begin_value();
  void new_line();
  void quote(std::string_view text);

  template <typename Work>
  void nest(char begin, char end, const Work& work) {
    begin_value();
    text_ += begin;
    ++depth_;
    empty_ = true;
    work();
    --depth_;
    if (!empty_ && indented_) new_line();
    text_ += end;
    empty_ = false;
  }

  const bool indented_;
  std::string text_;
  size_t depth_ = 0;
  bool empty_ = true;      ///< the innermost object or array has no member yet
  bool has_key_ = false;   ///< a key is written, its value follows
};

/// A text as a JSON string, with its quotation marks.
std::string json_quoted(std::string_view text);

}  // namespace mv::base
