#pragma once
// A JSON parser for untrusted input.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mv::base {

class JsonDocument;

/// A view of one value of a document. The document must outlive it. Two words, cheap to copy.
class JsonValue {
 public:
  bool is_object() const;
  bool is_array() const;
  std::optional<std::string_view> text() const;
  std::optional<uint64_t> count() const;
  std::optional<int64_t> integer() const;
  /// Any number. null is read as NaN, because JSON cannot express NaN.
  std::optional<double> real() const;

  /// Iterates over the elements of an array or the members of an object.
  class Iterator;
  Iterator begin() const;
  Iterator end() const;
  size_t size() const;
  /// The name of a member of an object.
  std::string_view key() const;
  /// The first member of an object with this name; empty if there is none, or if this is not an object.
  std::optional<JsonValue> find(std::string_view key) const;

  // The value of an object's member, if it exists and has this type.
  std::optional<std::string_view> find_text(std::string_view key) const;
  std::optional<uint64_t> find_count(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_real(std::string_view key) const;
  std::optional<JsonValue> find_array(std::string_view key) const;
  std::optional<JsonValue> find_object(std::string_view key) const;

  /// The elements of an array, if all of them are such numbers.
  std::optional<std::vector<uint64_t>> counts() const;
  std::optional<std::vector<double>> reals() const;

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument& document, uint32_t at) : document_(&document), at_(at) {}
  const JsonDocument* document_;
  uint32_t at_;
};

/// A parsed text. All values are in one array, each before its members. They are therefore freed together, and no
/// destructor allocates or recurses.
class JsonDocument {
 public:
  static constexpr size_t kDeepest = 64;  ///< nesting of objects and arrays
  /// Empty if the text is not JSON, or is nested deeper than kDeepest. The caller limits its length.
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
    uint32_t end = 0;  ///< the index after its last member
    TextSpan key = {};
    union {
      uint64_t number = 0;  ///< negative ones in two's complement
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
