#pragma once
// Reads JSON that anybody may have written.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mv::base {

class JsonDocument;

/// A value of a document, which has to outlive it. A copy is two words.
class JsonValue {
 public:
  bool is_object() const;
  bool is_array() const;
  std::optional<std::string_view> text() const;
  std::optional<uint64_t> count() const;
  std::optional<int64_t> integer() const;
  /// Any number; null is NaN, which JSON has no other way to say.
  std::optional<double> real() const;

  /// Of an array or an object.
  class Iterator;
  Iterator begin() const;
  Iterator end() const;
  size_t size() const;
  /// The name of a member of an object.
  std::string_view key() const;
  /// The first member of this name of an object; none if it is not there, or this is no object.
  std::optional<JsonValue> find(std::string_view key) const;

  // What a member of an object holds, if it is there and of this kind.
  std::optional<std::string_view> find_text(std::string_view key) const;
  std::optional<uint64_t> find_count(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_real(std::string_view key) const;
  std::optional<JsonValue> find_array(std::string_view key) const;
  std::optional<JsonValue> find_object(std::string_view key) const;

  /// Of an array, if all of its elements are such numbers.
  std::optional<std::vector<uint64_t>> counts() const;
  std::optional<std::vector<double>> reals() const;

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument& document, uint32_t at) : document_(&document), at_(at) {}
  const JsonDocument* document_;
  uint32_t at_;
};

/// All values of a text in one array, each before its members: nothing is freed value by value, and no destructor allocates or recurses.
class JsonDocument {
 public:
  static constexpr size_t kDeepest = 64;  ///< objects and arrays in one another
  /// None if the text is not JSON, or is nested deeper. Limits on its length are the caller's.
  static std::optional<JsonDocument> parse(std::string_view text);
  JsonValue root() const { return {*this, 0}; }

 private:
  friend class JsonValue;
  class Builder;
  enum class NodeKind : uint8_t { kNull, kBoolean, kCount, kNegative, kReal, kText, kArray, kObject };
  struct TextSpan {
    uint32_t at, size;  ///< in texts_
  };
  struct Node {
    NodeKind kind = NodeKind::kNull;
    uint32_t end = 0;  ///< behind the last of its members
    TextSpan key = {};
    union {
      uint64_t number = 0;  ///< the negative ones, too
      double real;
      TextSpan text;
    };
  };
  std::string_view text_of(TextSpan piece) const { return std::string_view(texts_).substr(piece.at, piece.size); }

  std::vector<Node> nodes_;
  std::string texts_;
};

class JsonValue::Iterator {
 public:
  JsonValue operator*() const { return {*document_, at_}; }
  Iterator& operator++() {
    at_ = document_->nodes_[at_].end;
    return *this;
  }
  bool operator==(const Iterator&) const = default;

 private:
  friend class JsonValue;
  Iterator(const JsonDocument& document, uint32_t at) : document_(&document), at_(at) {}
  const JsonDocument* document_;
  uint32_t at_;
};

}  // namespace mv::base
