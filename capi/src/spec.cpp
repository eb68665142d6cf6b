#include "spec.hpp"

#include <limits>

#include "base/config.hpp"
#include "options.hpp"
#include "tensor/dtype.hpp"

namespace mv::capi {
namespace {

using base::SettingChoice;
using base::SettingInfo;
using base::SettingType;

constexpr size_t kLongestName = sizeof(mv_table_info::name) - 1;

constexpr SettingChoice kKinds[] = {{"array", MV_ARRAY}, {"matrix", MV_MATRIX}};
constexpr SettingChoice kDtypes[] = {{"f32", MV_F32}, {"f64", MV_F64}, {"float32", MV_F32}, {"float64", MV_F64}};
constexpr SettingInfo kName{.key = "name", .type = SettingType::kText, .help = "the table's identity"};
constexpr SettingInfo kKind{.key = "kind", .type = SettingType::kChoice, .help = "array or matrix", .choices = kKinds};
constexpr SettingInfo kDtype{
    .key = "dtype", .type = SettingType::kChoice, .help = "type of the elements", .choices = kDtypes};
constexpr SettingInfo kRows{
    .key = "rows", .type = SettingType::kInteger, .help = "rows, or an array's elements", .least = 1};
constexpr SettingInfo kCols{.key = "cols", .type = SettingType::kInteger, .help = "columns", .least = 1};
constexpr SettingInfo kSize{.key = "size", .type = SettingType::kInteger, .help = "elements of an array", .least = 1};
constexpr SettingInfo kFinite{.key = "reject_nonfinite", .type = SettingType::kBool, .help = "refuse NaN and infinity"};

enum Field : size_t { kNameField, kKindField, kDtypeField, kRowsField, kColsField, kSizeField, kFiniteField };
constexpr const SettingInfo* kFields[] = {&kName, &kKind, &kDtype, &kRows, &kCols, &kSize, &kFinite};

/// The bytes of the UTF-8 sequence that `text` begins with; 0 if it begins with none. Overlong forms, surrogates and
/// numbers beyond Unicode are none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool fits = (first != 0xE0 || second >= 0xA0) && (first != 0xED || second < 0xA0);
    return fits && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool fits = (first != 0xF0 || second >= 0x90) && (first != 0xF4 || second < 0x90);
    return fits && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

void append_json_string(std::string& json, std::string_view text) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      json += c;
    }
  }
  json += '"';
}

}  // namespace

base::Status check_name(const char* function, std::string_view name) {
  if (name.empty()) return base::error(MV_EINVAL, "{}: the table's name is empty", function);
  if (name.size() > kLongestName) {
    return base::error(MV_EINVAL, "{}: the table's name has {} bytes, at most {} are possible", function, name.size(),
                       kLongestName);
  }
  for (size_t at = 0; at < name.size();) {
    const size_t length = utf8_length(name.substr(at));
    if (length == 0) return base::error(MV_EINVAL, "{}: the table's name is not UTF-8 at byte {}", function, at);
    at += length;
  }
  return {};
}

base::Status check_spec(const char* function, const table::Spec& spec) {
  if (spec.kind != MV_ARRAY && spec.kind != MV_MATRIX) {
    return base::error(MV_EINVAL, "{}: the table's kind is {}, neither MV_ARRAY nor MV_MATRIX", function, spec.kind);
  }
  if (!tensor::is_table_dtype(spec.dtype)) {
    return base::error(MV_EDTYPE, "{}: a table has the dtype MV_F32 or MV_F64, not {} ({})", function, spec.dtype,
                       tensor::dtype_name(spec.dtype));
  }
  if (spec.rows == 0 || spec.cols == 0) {
    return base::error(MV_EINVAL, "{}: a table of {} x {} has no elements: rows and cols are at least 1", function,
                       spec.rows, spec.cols);
  }
  if (spec.kind == MV_ARRAY && spec.cols != 1) {
    return base::error(MV_EINVAL, "{}: an array has one column, not {}: say kind=matrix", function, spec.cols);
  }
  constexpr uint64_t kMostBytes = std::numeric_limits<int64_t>::max();
  if (spec.rows > kMostBytes / spec.element_bytes() / spec.cols) {
    return base::error(MV_EINVAL, "{}: a table of {} x {} {} has more bytes than 64 bits can count", function,
                       spec.rows, spec.cols, tensor::dtype_name(spec.dtype));
  }
  if ((spec.flags & ~uint32_t{MV_REJECT_NONFINITE}) != 0) {
    return base::error(MV_EINVAL, "{}: the flags {:#x} hold bits that are no mv_table_flag", function, spec.flags);
  }
  return {};
}

base::Result<table::Spec> read_spec(const char* function, const mv_table_spec* given) {
  if (given == nullptr) return base::error(MV_EINVAL, "{}: spec is NULL", function);
  auto read = read_struct(function, "mv_table_spec", given, mv_table_spec MV_TABLE_SPEC_INIT, kFirstTableSpec);
  if (!read.ok()) return read.status();
  const mv_table_spec& from = read.value();
  if (from.reserved != 0)
    return base::error(MV_EINVAL, "{}: mv_table_spec.reserved is {}, it must be 0", function, from.reserved);
  table::Spec spec{"", from.kind, from.dtype, from.rows, from.cols, from.flags};
  if (from.name != nullptr) {
    if (auto status = check_name(function, from.name); !status.ok()) return status;
    spec.name = from.name;
  }
  if (auto status = check_spec(function, spec); !status.ok()) return status;
  return spec;
}

base::Result<table::Spec> parse_spec(const char* function, std::string_view text) {
  base::SaidSettings said(kFields);
  const auto number = [&](Field field, int64_t otherwise) {
    return said.find(field) ? said.find(field)->value.number : otherwise;
  };
  auto status = said.say_text(text, "the specification");
  // size=100 stands for two other fields, which may be written as well but must then say the same.
  if (const auto* size = said.find(kSizeField); status.ok() && size != nullptr) {
    const std::string where = size->where;
    const int64_t elements = size->value.number;
    status = said.say(kKindField, {MV_ARRAY, {}}, where);
    if (status.ok()) status = said.say(kRowsField, {elements, {}}, where);
  }
  if (!status.ok()) return base::error(status.code(), "{}: {}", function, status.text());

  table::Spec spec;
  spec.kind = static_cast<int32_t>(number(kKindField, MV_ARRAY));
  spec.dtype = static_cast<mv_dtype>(number(kDtypeField, MV_F32));
  spec.rows = static_cast<uint64_t>(number(kRowsField, 0));
  spec.cols = static_cast<uint64_t>(number(kColsField, 1));
  spec.flags = number(kFiniteField, 0) != 0 ? MV_REJECT_NONFINITE : 0;
  if (const auto* name = said.find(kNameField)) {
    if (status = check_name(function, name->value.text); !status.ok()) return status;
    spec.name = name->value.text;
  }
  if (status = check_spec(function, spec); !status.ok()) return status;
  return spec;
}

std::string specs_as_json(const std::vector<table::Spec>& specs) {
  std::string json = "[";
  for (const table::Spec& spec : specs) {
    json += json.size() > 1 ? ", {\"name\": " : "{\"name\": ";
    append_json_string(json, spec.name);
    json +=
        fmt::format(R"(, "kind": "{}", "dtype": "{}", "rows": {}, "cols": {}}})",
                    spec.kind == MV_ARRAY ? "array" : "matrix", tensor::dtype_name(spec.dtype), spec.rows, spec.cols);
  }
  return json + "]";
}

}  // namespace mv::capi
