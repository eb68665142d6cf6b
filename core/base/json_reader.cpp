#include "base/json_reader.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace mv::base {

/// Receives the SAX events of nlohmann's parser. Its own value type is not used, because its destructor allocates.
class JsonDocument::Builder {
 public:
  explicit Builder(JsonDocument& document) : document_(document) {}

  bool null() { return add(NodeKind::kNull, 0); }
  bool boolean(bool) { return add(NodeKind::kBoolean, 0); }
  bool number_integer(int64_t number) { return add(NodeKind::kNegative, static_cast<uint64_t>(number)); }
  bool number_unsigned(uint64_t number) { return add(NodeKind::kCount, number); }
  bool number_float(double number, const std::string&) {
    add(NodeKind::kReal, 0);
    document_.nodes_.back().real = number;
    return true;
  }
  bool string(const std::string& text) {
    add(NodeKind::kText, 0);
    document_.nodes_.back().text = keep(text);
    return true;
  }
  bool binary(const std::vector<uint8_t>&) { return false; }
  bool start_object(size_t) { return open(NodeKind::kObject); }
  bool start_array(size_t) { return open(NodeKind::kArray); }
  bool key(const std::string& name) {
    key_ = keep(name);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  TextSpan keep(std::string_view text) {
    const TextSpan piece{static_cast<uint32_t>(document_.texts_.size()), static_cast<uint32_t>(text.size())};
    document_.texts_ += text;
    return piece;
  }
  bool add(NodeKind kind, uint64_t number) {
    Node& node = document_.nodes_.emplace_back();
    node.kind = kind;
    node.end = static_cast<uint32_t>(document_.nodes_.size());
    node.key = key_;
    node.number = number;
    key_ = {};
    return true;
  }
  bool open(NodeKind kind) {
    if (open_.size() == kDeepest) return false;
    open_.push_back(static_cast<uint32_t>(document_.nodes_.size()));
    return add(kind, 0);
  }
  bool close() {
    document_.nodes_[open_.back()].end = static_cast<uint32_t>(document_.nodes_.size());
    open_.pop_back();
    return true;
  }

  JsonDocument& document_;
  std::vector<uint32_t> open_;
  TextSpan key_ = {};
};

std::optional<JsonDocument> JsonDocument::parse(std::string_view text) {
  if (text.size() >= std::numeric_limits<uint32_t>::max()) return std::nullopt;  // indices are 32 bits; no text has more values than bytes
  if (text.find('\0') != std::string_view::npos) return std::nullopt;  // the parser would take it for the end of the text
  JsonDocument document;
  document.texts_.reserve(text.size());
  Builder builder(document);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return document;
}

// ---- values

bool JsonValue::is_object() const { return document_->nodes_[at_].kind == JsonDocument::NodeKind::kObject; }
bool JsonValue::is_array() const { return document_->nodes_[at_].kind == JsonDocument::NodeKind::kArray; }

std::optional<std::string_view> JsonValue::text() const {
  const auto& node = document_->nodes_[at_];
  if (node.kind != JsonDocument::NodeKind::kText) return std::nullopt;
  return document_->text_of(node.text);
}

std::optional<uint64_t> JsonValue::count() const {
  const auto& node = document_->nodes_[at_];
  if (node.kind != JsonDocument::NodeKind::kCount) return std::nullopt;
  return node.number;
}

std::optional<int64_t> JsonValue::integer() const {
  const auto& node = document_->nodes_[at_];
  const bool fits = node.kind == JsonDocument::NodeKind::kNegative || (node.kind == JsonDocument::NodeKind::kCount && node.number <= INT64_MAX);
  if (!fits) return std::nullopt;
  return static_cast<int64_t>(node.number);
}

std::optional<double> JsonValue::real() const {
  const auto& node = document_->nodes_[at_];
  switch (node.kind) {
    case JsonDocument::NodeKind::kNull:
      return std::numeric_limits<double>::quiet_NaN();
    case JsonDocument::NodeKind::kCount:
      return static_cast<double>(node.number);
    case JsonDocument::NodeKind::kNegative:
      return static_cast<double>(static_cast<int64_t>(node.number));
    case JsonDocument::NodeKind::kReal:
      return node.real;
    default:
      return std::nullopt;
  }
}

JsonValue::Iterator JsonValue::begin() const { return {*document_, is_object() || is_array() ? at_ + 1 : document_->nodes_[at_].end}; }
JsonValue::Iterator JsonValue::end() const { return {*document_, document_->nodes_[at_].end}; }

size_t JsonValue::size() const {
  size_t count = 0;
  for (auto member = begin(); member != end(); ++member) ++count;
  return count;
}

std::string_view JsonValue::key() const { return document_->text_of(document_->nodes_[at_].key); }

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (is_object())
    for (const JsonValue member : *this)
      if (member.key() == key) return member;
  return std::nullopt;
}

namespace {
template <typename Wanted>
auto read_member(const JsonValue& object, std::string_view key, Wanted wanted) -> decltype((object.*wanted)()) {
  const auto member = object.find(key);
  return member ? ((*member).*wanted)() : std::nullopt;
}
}  // namespace

std::optional<std::string_view> JsonValue::find_text(std::string_view key) const { return read_member(*this, key, &JsonValue::text); }
std::optional<uint64_t> JsonValue::find_count(std::string_view key) const { return read_member(*this, key, &JsonValue::count); }
std::optional<int64_t> JsonValue::find_integer(std::string_view key) const { return read_member(*this, key, &JsonValue::integer); }
std::optional<double> JsonValue::find_real(std::string_view key) const { return read_member(*this, key, &JsonValue::real); }

std::optional<JsonValue> JsonValue::find_array(std::string_view key) const {
  const auto member = find(key);
  return member && member->is_array() ? member : std::nullopt;
}

std::optional<JsonValue> JsonValue::find_object(std::string_view key) const {
  const auto member = find(key);
  return member && member->is_object() ? member : std::nullopt;
}

namespace {
template <typename Number>
std::optional<std::vector<Number>> read_all(const JsonValue& list, std::optional<Number> (JsonValue::*read)() const) {
  if (!list.is_array()) return std::nullopt;
  std::vector<Number> numbers;
  for (const JsonValue one : list) {
    const auto number = (one.*read)();
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}
}  // namespace

std::optional<std::vector<uint64_t>> JsonValue::counts() const { return read_all(*this, &JsonValue::count); }
std::optional<std::vector<double>> JsonValue::reals() const { return read_all(*this, &JsonValue::real); }

}  // namespace mv::base
