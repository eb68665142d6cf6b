#include "engine/gossip/yaml.hpp"

#include <yaml.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace mv::gossip {

namespace {

using YamlEvent = std::unique_ptr<yaml_event_t, decltype([](yaml_event_t* event) {
                                    yaml_event_delete(event);
                                    delete event;
                                  })>;

std::string_view text_of(const yaml_char_t* text) { return text != nullptr ? reinterpret_cast<const char*>(text) : std::string_view(); }

bool is_null_word(std::string_view text) {
  constexpr std::array<std::string_view, 5> kWords{"", "~", "null", "Null", "NULL"};
  return std::ranges::find(kWords, text) != kWords.end();
}

/// libyaml compares each %TAG directive with all earlier ones before it emits an event, which takes quadratic time.
bool has_many_tag_directives(std::string_view text) {
  constexpr std::string_view kDirective = "%TAG";
  constexpr size_t kMost = 16;
  size_t found = 0;
  for (size_t at = text.find(kDirective); at != std::string_view::npos && found <= kMost; at = text.find(kDirective, at + 1)) ++found;
  return found > kMost;
}

/// Builds a tree from libyaml's events.
class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& file, const YamlLimits& limits) : text_(text), file_(file), limits_(limits) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;
  ~YamlReader() { yaml_parser_delete(&parser_); }

  base::Result<Yaml> read() {
    Yaml document;
    if (auto status = next(YAML_STREAM_START_EVENT); !status.ok()) return status;
    if (auto status = next(); !status.ok()) return status;
    if (event_->type == YAML_STREAM_END_EVENT) return document;
    if (auto status = next(); !status.ok()) return status;
    if (auto status = take_value(document, 0); !status.ok()) return status;
    if (auto status = next(YAML_DOCUMENT_END_EVENT); !status.ok()) return status;
    if (auto status = next(); !status.ok()) return status;
    if (event_->type == YAML_STREAM_END_EVENT) return document;
    if (auto status = next(); !status.ok()) return status;
    return wrong(line(), "a second document begins here; only one is allowed");
  }
  const YamlWork& work() const { return work_; }

 private:
  base::Status wrong(int line, std::string_view what) const { return base::error(MV_EINVAL, "{}:{}: {}", file_, line, what); }
  int line() const { return static_cast<int>(event_->start_mark.line) + 1; }

  base::Status next(yaml_event_type_t expected) {
    if (auto status = next(); !status.ok()) return status;
    return event_->type == expected ? base::Status() : wrong(line(), "not YAML");  // libyaml's grammar guarantees the order
  }

  base::Status next() {
    // A value is one event, or two around its items. Four more events enclose all values.
    if (++work_.events > 2 * limits_.values + 8) return too_many_values(line());
    event_.reset();
    auto event = std::make_unique<yaml_event_t>();
    if (yaml_parser_parse(&parser_, event.get()) == 0) return refused();
    event_.reset(event.release());
    return {};
  }

  base::Status refused() const {
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    const std::string_view problem = parser_.problem != nullptr ? parser_.problem : "not YAML";
    if (parser_.error == YAML_READER_ERROR) {
      const size_t at = std::min(parser_.problem_offset, text_.size());
      const auto line = 1 + std::ranges::count(text_.substr(0, at), '\n');
      return base::error(MV_EINVAL, "{}:{}: {}; write the file in UTF-8, without control characters", file_, line, problem);
    }
    const size_t line = parser_.problem_mark.line + 1, begun = parser_.context_mark.line + 1;
    if (parser_.context == nullptr) return base::error(MV_EINVAL, "{}:{}: {}", file_, line, problem);
    return base::error(MV_EINVAL, "{}:{}: {}, {} (from line {} on)", file_, line, problem, parser_.context, begun);
  }

  base::Status too_many_values(int line) const {
    return base::error(MV_EINVAL, "{}:{}: more than {} values: split the configuration, or use fewer aliases", file_, line, limits_.values);
  }
  base::Status too_deep(int line) const {
    return base::error(MV_EINVAL, "{}:{}: lists and maps are nested more than {} deep", file_, line, limits_.depth);
  }

  /// Counts a value against the limits, before it is kept.
  base::Status charge(size_t values, size_t bytes, int line) {
    work_.values += values;
    work_.bytes += bytes;
    if (work_.values > limits_.values) return too_many_values(line);
    if (work_.bytes > limits_.bytes) return base::error(MV_EINVAL, "{}:{}: the texts have more than {} bytes in total", file_, line, limits_.bytes);
    return {};
  }

  /// Reads the value that the current event begins. `depth` is the number of lists and maps around it.
  base::Status take_value(Yaml& out, size_t depth) {
    out.line = line();
    switch (event_->type) {
      case YAML_ALIAS_EVENT:
        return take_alias(out, depth);
      case YAML_SCALAR_EVENT: {
        const auto& scalar = event_->data.scalar;
        if (auto status = charge(1, scalar.length, out.line); !status.ok()) return status;
        const std::string_view text(text_of(scalar.value).data(), scalar.length);
        const bool is_null = scalar.style == YAML_PLAIN_SCALAR_STYLE && is_null_word(text);
        out.kind = is_null ? Yaml::NodeKind::kNull : Yaml::NodeKind::kScalar;
        if (!is_null) out.text = text;
        return anchor(std::string(text_of(scalar.anchor)), out, depth);
      }
      case YAML_SEQUENCE_START_EVENT:
        out.kind = Yaml::NodeKind::kList;
        return take_items(out, std::string(text_of(event_->data.sequence_start.anchor)), YAML_SEQUENCE_END_EVENT, depth);
      case YAML_MAPPING_START_EVENT:
        out.kind = Yaml::NodeKind::kMap;
        return take_items(out, std::string(text_of(event_->data.mapping_start.anchor)), YAML_MAPPING_END_EVENT, depth);
      default:
        return wrong(out.line, "not YAML");
    }
  }

  base::Status take_items(Yaml& out, const std::string& name, yaml_event_type_t end, size_t depth) {
    if (depth >= limits_.depth) return too_deep(out.line);
    if (auto status = charge(1, 0, out.line); !status.ok()) return status;
    if (!name.empty()) anchors_[name].reset();
    for (;;) {
      if (auto status = next(); !status.ok()) return status;
      if (event_->type == end) return anchor(name, out, depth);
      const bool is_key = out.is_map() && out.items.size() % 2 == 0;
      Yaml& item = out.items.emplace_back();
      if (auto status = take_value(item, depth + 1); !status.ok()) return status;
      if (is_key && !item.is_scalar() && !item.is_null()) return wrong(item.line, "a list or a map can't be a key: write `key: value`");
    }
  }

  /// Keeps the target of aliases of `name`.
  base::Status anchor(const std::string& name, const Yaml& value, size_t depth) {
    if (name.empty()) return {};
    if (auto status = charge_copy(value, depth); !status.ok()) return status;
    anchors_[name] = value;
    return {};
  }

  base::Status take_alias(Yaml& out, size_t depth) {
    const std::string name(text_of(event_->data.alias.anchor));
    const auto found = anchors_.find(name);
    if (found == anchors_.end()) return base::error(MV_EINVAL, "{}:{}: *{}: no &{} comes before it", file_, out.line, name, name);
    if (!found->second) return base::error(MV_EINVAL, "{}:{}: *{}: it is inside &{} itself", file_, out.line, name, name);
    if (auto status = charge_copy(*found->second, depth); !status.ok()) return status;
    const int line = std::exchange(out, *found->second).line;
    out.line = line;
    return {};
  }

  base::Status charge_copy(const Yaml& value, size_t depth) {
    if ((value.is_list() || value.is_map()) && depth >= limits_.depth) return too_deep(line());
    if (auto status = charge(1, value.text.size(), line()); !status.ok()) return status;
    for (const Yaml& item : value.items)
      if (auto status = charge_copy(item, depth + 1); !status.ok()) return status;
    return {};
  }

  const std::string_view text_;
  const std::string& file_;
  const YamlLimits& limits_;
  yaml_parser_t parser_{};
  YamlEvent event_;
  std::map<std::string, std::optional<Yaml>> anchors_;  ///< null: it is being read
  YamlWork work_;
};

}  // namespace

const Yaml* Yaml::find(std::string_view key) const {
  for (size_t i = 0; is_map() && i < items.size(); i += 2)
    if (items[i].text == key) return &items[i + 1];
  return nullptr;
}

base::Result<Yaml> parse_yaml(std::string_view text, const std::string& file, const YamlLimits& limits, YamlWork* work) {
  if (text.size() > limits.bytes) return base::error(MV_EINVAL, "{}:1: {} bytes; a configuration may have at most {}", file, text.size(), limits.bytes);
  if (has_many_tag_directives(text)) return base::error(MV_EINVAL, "{}:1: too many %TAG directives; a configuration needs none", file);
  YamlReader reader(text, file, limits);
  auto document = reader.read();
  if (work != nullptr) *work = reader.work();
  return document;
}

}  // namespace mv::gossip
