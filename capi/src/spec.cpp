#include "spec.hpp"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/setting_text.hpp"
#include "base/utf8.hpp"
#include "options.hpp"
#include "shard/updater/updater.hpp"
#include "tensor/dtype.hpp"

namespace mv::capi {
namespace {

using base::SettingChoice;
using base::SettingInfo;
using base::SettingType;

constexpr size_t kLongestName = sizeof(mv_table_info::name) - 1;

constexpr SettingChoice kKinds[] = {
    {"array", MV_ARRAY}, {"matrix", MV_MATRIX}, {"sparse", MV_SPARSE}, {"keyvalue", MV_KEYVALUE}};
constexpr SettingChoice kDtypes[] = {{"f32", MV_F32},     {"f64", MV_F64},     {"i64", MV_I64},     {"i32", MV_I32},
                                     {"u8", MV_U8},       {"i8", MV_I8},       {"f16", MV_F16},     {"bf16", MV_BF16},
                                     {"float32", MV_F32}, {"float64", MV_F64}, {"int64", MV_I64},   {"int32", MV_I32},
                                     {"uint8", MV_U8},    {"int8", MV_I8},     {"float16", MV_F16}, {"bfloat16", MV_BF16}};
constexpr SettingInfo kName{.key = "name", .type = SettingType::kText, .help = "the table's identity"};
constexpr SettingInfo kKind{.key = "kind", .type = SettingType::kChoice, .help = "what kind of table", .choices = kKinds};
constexpr SettingInfo kDtype{
    .key = "dtype", .type = SettingType::kChoice, .help = "type of the elements", .choices = kDtypes};
constexpr SettingInfo kRows{
    .key = "rows", .type = SettingType::kInteger, .help = "rows, or an array's elements", .least = 1};
constexpr SettingInfo kCols{.key = "cols", .type = SettingType::kInteger, .help = "columns", .least = 1};
constexpr SettingInfo kSize{.key = "size", .type = SettingType::kInteger, .help = "elements of an array", .least = 1};
constexpr SettingInfo kFinite{.key = "reject_nonfinite", .type = SettingType::kBool, .help = "reject NaN and infinity"};
constexpr SettingInfo kMerge{
    .key = "merge", .type = SettingType::kBool, .help = "sum all workers' adds of a round and apply them once"};
constexpr SettingInfo kNoBackups{.key = "no_backups", .type = SettingType::kBool, .help = "other servers keep no copy, whatever the cluster's replicas are"};
constexpr SettingInfo kUpdater{.key = "updater", .type = SettingType::kText, .help = "how servers apply adds"};
constexpr SettingInfo kStaleness{.key = "staleness",
                                 .type = SettingType::kInteger,
                                 .help = "0: sync; more: stale-synchronous; -1: the node's mode",
                                 .least = MV_UNSET};
constexpr SettingInfo kInitial{.key = "initial", .type = SettingType::kReal, .help = "value of elements that are not stored"};
constexpr SettingInfo kRange{.key = "initial_range", .type = SettingType::kReal, .help = "largest random distance from initial"};
constexpr SettingInfo kSeed{.key = "seed", .type = SettingType::kInteger, .help = "seed for initial_range", .least = INT64_MIN};
constexpr SettingInfo kCapacity{
    .key = "capacity", .type = SettingType::kInteger, .help = "number of keys to keep; 0 = all", .least = 0};
constexpr SettingInfo kDevice{.key = "device", .type = SettingType::kText, .help = "the device of each server that keeps the values, by name or number"};

enum Field : size_t {
  kNameField,
  kKindField,
  kDtypeField,
  kRowsField,
  kColsField,
  kSizeField,
  kFiniteField,
  kUpdaterField,
  kStalenessField,
  kInitialField,
  kRangeField,
  kSeedField,
  kCapacityField,
  kMergeField,
  kNoBackupsField,
  kDeviceField
};
constexpr const SettingInfo* kFields[] = {&kName,    &kKind,      &kDtype,   &kRows,  &kCols, &kSize,    &kFinite,
                                          &kUpdater, &kStaleness, &kInitial, &kRange, &kSeed, &kCapacity, &kMerge, &kNoBackups, &kDevice};

constexpr const char* kKindNames[] = {"", "array", "matrix", "sparse", "keyvalue"};

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

base::Status check_name(const char* function, std::string_view name, std::string_view what) {
  if (name.empty()) return base::error(MV_EINVAL, "{}: {} is empty", function, what);
  if (name.size() > kLongestName) return base::error(MV_EINVAL, "{}: {} has {} bytes; the limit is {}", function, what, name.size(), kLongestName);
  const size_t valid = base::utf8_end(name);
  return valid == name.size() ? base::Status() : base::error(MV_EINVAL, "{}: {} is not UTF-8 at byte {}", function, what, valid);
}

namespace {

base::Status check_shape(const char* function, const shard::Spec& spec) {
  const bool keyvalue = spec.kind == MV_KEYVALUE;
  if (keyvalue && spec.rows != 0)
    return base::error(MV_EINVAL, "{}: a key-value table has no fixed rows; {} given", function, spec.rows);
  if ((spec.rows == 0 && !keyvalue) || spec.cols == 0) {
    return base::error(MV_EINVAL, "{}: a table of {} x {} has no elements: rows and cols must be at least 1", function,
                       spec.rows, spec.cols);
  }
  if (spec.kind == MV_ARRAY && spec.cols != 1) {
    return base::error(MV_EINVAL, "{}: an array has one column, not {}: use kind=matrix", function, spec.cols);
  }
  constexpr uint64_t kMostBytes = std::numeric_limits<int64_t>::max();
  if (spec.cols > kMostBytes / 8 || spec.rows > kMostBytes / 8 / spec.cols) {  // 8: no storage takes more bytes for an
                                                                               // element
    return base::error(MV_EINVAL, "{}: a table of {} x {} {}: its size in bytes exceeds 64 bits", function,
                       spec.rows, spec.cols, tensor::dtype_name(spec.dtype));
  }
  if (spec.is_keyed() && spec.row_bytes() > shard::kStripeBytes) {
    return base::error(MV_EINVAL, "{}: {} columns of {} are {} bytes: a row of a sparse or key-value table has at most {}",
                       function, spec.cols, tensor::dtype_name(spec.dtype), spec.row_bytes(), shard::kStripeBytes);
  }
  return {};
}

base::Status check_keyed(const char* function, const shard::Spec& spec) {
  if (spec.capacity != 0 && spec.kind != MV_KEYVALUE)
    return base::error(MV_EINVAL, "{}: capacity is for key-value tables", function);
  if (spec.capacity != 0 && spec.is_on_device())
    return base::error(MV_EINVAL, "{}: capacity is for tables in the host's memory: leave out capacity, or device", function);
  if ((spec.initial != 0 || spec.initial_range != 0 || spec.seed != 0) && !spec.is_keyed())
    return base::error(MV_EINVAL, "{}: initial, initial_range and seed are for sparse and key-value tables; give the table's data", function);
  if (!std::isfinite(spec.initial) || !std::isfinite(spec.initial_range) || spec.initial_range < 0)
    return base::error(MV_EINVAL, "{}: initial={} initial_range={}: expected finite numbers and a range of at least 0", function,
                       spec.initial, spec.initial_range);
  const bool whole = spec.initial == std::trunc(spec.initial) && spec.initial_range == 0;
  if (!whole && !tensor::is_floating(spec.dtype))
    return base::error(MV_EINVAL, "{}: {} can't represent initial={} initial_range={}", function, tensor::dtype_name(spec.dtype), spec.initial,
                       spec.initial_range);
  return {};
}

}  // namespace

base::Status check_spec(const char* function, const shard::Spec& spec) {
  if (spec.kind < MV_ARRAY || spec.kind > MV_KEYVALUE)
    return base::error(MV_EINVAL, "{}: kind is {}, which is not an mv_table_kind", function, spec.kind);
  if (!tensor::is_table_dtype(spec.dtype)) {
    return base::error(MV_EDTYPE, "{}: {} ({}) is not a dtype of tables: expected MV_F32, F64, I64, I32, U8, I8, F16 or BF16", function,
                       spec.dtype, tensor::dtype_name(spec.dtype));
  }
  if (auto status = check_shape(function, spec); !status.ok()) return status;
  if (auto status = check_keyed(function, spec); !status.ok()) return status;
  if (spec.staleness < MV_UNSET)
    return base::error(MV_EINVAL, "{}: staleness={}: expected 0 or more, or MV_UNSET for the node's mode", function, spec.staleness);
  if ((spec.flags & ~uint32_t{MV_REJECT_NONFINITE | MV_MERGE | MV_NO_BACKUPS}) != 0) {
    return base::error(MV_EINVAL, "{}: flags {:#x}: some bits are not in mv_table_flag", function, spec.flags);
  }
  if (spec.merges() && spec.staleness != MV_UNSET)
    return base::error(MV_EINVAL, "{}: merge and staleness={} exclude each other", function, spec.staleness);
  if (auto status = shard::check_updater(spec.updater, spec.dtype); !status.ok())
    return base::error(status.code(), "{}: {}", function, status.text());
  return {};
}

base::Result<shard::UpdaterSpec> read_updater(const char* function, const char* text) {
  auto updater = shard::parse_updater(text != nullptr ? text : "");
  if (!updater.ok()) return base::error(updater.status().code(), "{}: {}", function, updater.status().text());
  return updater;
}

namespace {

base::Status set_device(const char* function, int64_t device, shard::Spec& spec) {
  if (device < MV_HOST || device > std::numeric_limits<int32_t>::max())
    return base::error(MV_EINVAL, "{}: device is {}: expected the number of a device, or MV_HOST", function, device);
  spec.device = static_cast<int32_t>(device);
  return {};
}

/// "cuda:0", or a number.
base::Status set_device(const char* function, const std::string& text, shard::Spec& spec) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem == std::errc() && end == text.data() + text.size()) return set_device(function, number, spec);
  const auto named = find_device(text);
  if (!named.ok()) return base::error(named.status().code(), "{}: {}", function, named.status().text());
  spec.device = named.value();
  return {};
}

}  // namespace

base::Result<shard::Spec> read_spec(const char* function, const mv_table_spec* given) {
  if (given == nullptr) return base::error(MV_EINVAL, "{}: spec is NULL", function);
  auto read = read_struct(function, "mv_table_spec", given, mv_table_spec MV_TABLE_SPEC_INIT, kFirstTableSpec);
  if (!read.ok()) return read.status();
  const mv_table_spec& from = read.value();
  if (from.reserved != 0)
    return base::error(MV_EINVAL, "{}: mv_table_spec.reserved is {}; it must be 0", function, from.reserved);
  auto updater = read_updater(function, from.updater);
  if (!updater.ok()) return updater.status();
  shard::Spec spec{"", from.kind, from.dtype, from.rows, from.cols, from.flags, std::move(updater).value(), from.staleness,
                   from.initial, from.initial_range, from.seed, from.capacity};
  if (auto status = set_device(function, from.device, spec); !status.ok()) return status;
  if (from.name != nullptr) {
    if (auto status = check_name(function, from.name); !status.ok()) return status;
    spec.name = from.name;
  }
  if (auto status = check_spec(function, spec); !status.ok()) return status;
  return spec;
}

base::Result<shard::Spec> parse_spec(const char* function, std::string_view text) {
  base::SaidSettings said(kFields);
  const auto number = [&](Field field, int64_t otherwise) {
    return said.find(field) ? said.find(field)->value.number : otherwise;
  };
  auto status = said.say_text(text, "the specification");
  // size=100 sets two other fields. They may be given as well, but must then agree.
  if (const auto* size = said.find(kSizeField); status.ok() && size != nullptr) {
    const std::string where = size->where;
    const int64_t elements = size->value.number;
    status = said.say(kKindField, {MV_ARRAY, {}}, where);
    if (status.ok()) status = said.say(kRowsField, {elements, {}}, where);
  }
  if (!status.ok()) return base::error(status.code(), "{}: {}", function, status.text());

  shard::Spec spec;
  spec.kind = static_cast<int32_t>(number(kKindField, MV_ARRAY));
  spec.dtype = static_cast<mv_dtype>(number(kDtypeField, MV_F32));
  spec.rows = static_cast<uint64_t>(number(kRowsField, 0));
  spec.cols = static_cast<uint64_t>(number(kColsField, 1));
  spec.flags = (number(kFiniteField, 0) != 0 ? MV_REJECT_NONFINITE : 0) | (number(kMergeField, 0) != 0 ? MV_MERGE : 0) |
               (number(kNoBackupsField, 0) != 0 ? MV_NO_BACKUPS : 0);
  spec.staleness = number(kStalenessField, MV_UNSET);
  spec.initial = base::real_of(number(kInitialField, 0));
  spec.initial_range = base::real_of(number(kRangeField, 0));
  spec.seed = static_cast<uint64_t>(number(kSeedField, 0));
  spec.capacity = static_cast<uint64_t>(number(kCapacityField, 0));
  if (const auto* device = said.find(kDeviceField))
    if (status = set_device(function, device->value.text, spec); !status.ok()) return status;
  const auto* how = said.find(kUpdaterField);
  auto updater = read_updater(function, how != nullptr ? how->value.text.c_str() : nullptr);
  if (!updater.ok()) return updater.status();
  spec.updater = std::move(updater).value();
  if (const auto* name = said.find(kNameField)) {
    if (status = check_name(function, name->value.text); !status.ok()) return status;
    spec.name = name->value.text;
  }
  if (status = check_spec(function, spec); !status.ok()) return status;
  return spec;
}

std::string specs_as_json(const std::vector<shard::Spec>& specs) {
  std::string json = "[";
  for (const shard::Spec& spec : specs) {
    json += json.size() > 1 ? ", {\"name\": " : "{\"name\": ";
    append_json_string(json, spec.name);
    json += fmt::format(R"(, "kind": "{}", "dtype": "{}", "rows": {}, "cols": {})", kKindNames[spec.kind],
                        tensor::dtype_name(spec.dtype), spec.rows, spec.cols);
    json += fmt::format(R"(, "updater": "{}", "staleness": {}, "merge": {}}})", shard::to_text(spec.updater),
                        spec.staleness, spec.merges());
  }
  return json + "]";
}

}  // namespace mv::capi
