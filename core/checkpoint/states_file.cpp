#include "checkpoint/states_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "checkpoint/checksum.hpp"
#include "checkpoint/safetensors_json.hpp"
#include "shard/updater/updater.hpp"

namespace mv::checkpoint {

namespace {

constexpr uint64_t kStatesFormat = 1;
constexpr const char* kFormatKey = "polyverso_optimizer_states";

/// The checksum of the metadata, including the list of the tensors' checksums.
std::string sum_of(std::string_view dumped, std::string_view optimizer, std::string_view keys, std::string_view checksums) {
  Checksum sum;
  for (const std::string_view text : {dumped, optimizer, keys, checksums}) {
    sum.add(std::as_bytes(std::span(text)));
    sum.add(std::as_bytes(std::span("\n", 1)));
  }
  return sum.text();
}

/// Calls visit(kind, index, bytes) for each array of a key. Each array is a tensor of the file.
template <typename KeyT, typename Visit>
void for_arrays(KeyT& key, Visit visit) {
  for (size_t i = 0; i < key.states.size(); ++i) visit("state", i, key.states[i]);
  for (size_t i = 0; i < key.residuals.size(); ++i) visit("residual", i, key.residuals[i]);
}

/// Tensors for all arrays, key after key, with unique names.
std::vector<Tensor> make_tensors(const StatesFile& file) {
  std::vector<Tensor> tensors;
  std::set<std::string> taken{kMetadata};
  for (const KeyStates& key : file.keys)
    for_arrays(key, [&](const char* kind, size_t i, const std::vector<std::byte>& bytes) {
      std::string name = fmt::format("{}.{}{}", key.key, kind, i);
      while (!taken.insert(name).second) name += "~";
      tensors.push_back({std::move(name), std::string(tensor_dtype(key.dtype)), key.shape, 0, 0, checksum_of(bytes)});
    });
  return tensors;
}

void write_key(JsonWriter& json, const KeyStates& key, const Tensor* first) {
  json.field("key", key.key);
  json.field("dtype", tensor::dtype_name(key.dtype));
  json.field("shape", key.shape);
  json.field("optimizer", key.updater ? to_text(*key.updater) : key.optimizer);
  json.array("states", [&] {
    for (size_t i = 0; i < key.states.size(); ++i) json.value(first[i].name);
  });
  json.array("residuals", [&] {
    for (size_t i = 0; i < key.residuals.size(); ++i) json.value(first[key.states.size() + i].name);
  });
  if (!key.updater) return;
  json.array("updates", [&] {
    for (const shard::Mark& mark : key.marks) json.value(mark.updates);
  });
  json.array("shared", [&] {
    for (const shard::Mark& mark : key.marks) json.value(mark.shared);
  });
}

/// foreign_kind() of a file.
std::string_view foreign(const InputFile& file) {
  std::array<std::byte, 11> head{};
  const auto known = std::span(head).first(std::min<uint64_t>(head.size(), file.bytes()));
  return file.read(0, known).ok() ? foreign_kind(known, file.bytes()) : "";
}

/// Reads a list of marks, one for each server.
bool read_marks(const JsonValue& json, std::vector<shard::Mark>& marks) {
  const auto updates = json.find_array("updates"), shared = json.find_array("shared");
  const auto counts = updates ? updates->counts() : std::nullopt;
  if (!counts || !shared || counts->size() != shared->size()) return false;
  size_t next = 0;
  for (const JsonValue list : *shared) {
    auto numbers = list.reals();
    if (!numbers) return false;
    marks.push_back({(*counts)[next++], std::move(*numbers)});
  }
  return true;
}

base::Result<shard::UpdaterSpec> read_optimizer(std::string_view text, mv_dtype dtype) {
  auto spec = shard::parse_updater(text);
  if (!spec.ok()) return spec;
  if (const base::Status wrong = shard::check_updater(spec.value(), dtype); !wrong.ok()) return wrong;
  return spec;
}

base::Result<KeyStates> read_key(const JsonValue& json, bool dumped, Taker& taker, std::vector<Tensor>& tensors) {
  const auto key = json.find_text("key");
  if (!key) return base::Status(MV_EINVAL, "a key without a name");
  const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "key \"{}\": {}", *key, what); };
  KeyStates states;
  states.key = *key;
  const auto dtype = tensor::parse_dtype(json.find_text("dtype").value_or("?"));
  const auto optimizer = json.find_text("optimizer");
  const auto extents = json.find_array("shape"), names = json.find_array("states"), left = json.find_array("residuals");
  auto shape = extents ? extents->counts() : std::nullopt;
  if (!dtype || !tensor::is_table_dtype(*dtype)) return wrong("unknown dtype");
  if (!optimizer || !shape || !names || !left) return wrong("a field is missing or has the wrong type");
  states.dtype = *dtype;
  states.shape = std::move(*shape);
  states.optimizer = optimizer->substr(0, optimizer->find(' '));
  if (dumped) {
    auto spec = read_optimizer(*optimizer, *dtype);
    if (!spec.ok()) return wrong(spec.status().text());
    states.updater = std::move(spec).value();
    if (!read_marks(json, states.marks)) return wrong("its counts of updates are invalid");
  }
  for (const bool are_states : {true, false})
    for (const JsonValue name : are_states ? *names : *left) {
      auto taken = taker.take(name, tensor_dtype(*dtype), states.shape);
      if (!taken.ok()) return wrong(taken.status().text());
      (are_states ? states.states : states.residuals).emplace_back(taken.value().bytes());
      tensors.push_back(std::move(taken).value());
    }
  return states;
}

/// Reads everything but the tensors' data. Appends to `tensors` in the order of the keys' arrays.
base::Result<StatesFile> read_description(const JsonValue& header, uint64_t data_bytes, std::vector<Tensor>& tensors) {
  auto named = read_tensors(header, data_bytes);
  if (!named.ok()) return named.status();
  const auto metadata = header.find_object(kMetadata);
  const auto format = metadata ? metadata->find_text(kFormatKey) : std::nullopt;
  if (!format) return base::Status(MV_EINVAL, "a safetensors file, but it does not contain optimizer states");
  if (parse_count(format) != kStatesFormat) return base::error(MV_EINVAL, "it has format {}; this build reads {}", *format, kStatesFormat);
  const auto described = metadata->find_text("keys"), sums = metadata->find_text("checksums");
  const auto keys = JsonDocument::parse(described.value_or("")), checksums = JsonDocument::parse(sums.value_or(""));
  const auto dumped = metadata->find_text("dumped"), optimizer = metadata->find_text("optimizer"), sum = metadata->find_text("sum");
  if (!keys || !keys->root().is_array() || !checksums || !checksums->root().is_object() || !dumped || !optimizer || !sum)
    return base::Status(MV_EINVAL, "its metadata lacks a field or has one of the wrong type");
  if (*sum != sum_of(*dumped, *optimizer, *described, *sums)) return base::Status(MV_EINVAL, "its metadata is damaged: the checksum differs");
  StatesFile file;
  file.dumped = *dumped == "true";
  if (!optimizer->empty()) {
    auto spec = shard::parse_updater(*optimizer);
    if (!spec.ok()) return spec.status();
    file.optimizer = std::move(spec).value();
  }
  Taker taker(std::move(named).value(), checksums->root());
  std::set<std::string> seen;
  for (const JsonValue json : keys->root()) {
    auto key = read_key(json, file.dumped, taker, tensors);
    if (!key.ok()) return key.status();
    if (!seen.insert(key.value().key).second) return base::error(MV_EINVAL, "key \"{}\" appears twice", key.value().key);
    file.keys.push_back(std::move(key).value());
  }
  if (const base::Status rest = taker.nothing_left(); !rest.ok()) return rest;
  return file;
}

}  // namespace

base::Status write_states(const std::string& path, const StatesFile& file) {
  std::vector<Tensor> tensors = make_tensors(file);
  std::vector<Tensor*> placed;
  for (Tensor& tensor : tensors) placed.push_back(&tensor);
  // Larger elements first, which aligns all tensors.
  std::ranges::stable_sort(placed, std::ranges::greater(), [](const Tensor* tensor) { return dtype_bytes_of(tensor->dtype); });
  const uint64_t data_bytes = place(placed);
  JsonWriter keys;
  size_t next = 0;
  keys.array([&] {
    for (const KeyStates& key : file.keys) {
      keys.object([&] { write_key(keys, key, tensors.data() + next); });
      next += key.states.size() + key.residuals.size();
    }
  });
  const std::vector<const Tensor*> listed(placed.begin(), placed.end());
  const std::string dumped = file.dumped ? "true" : "false", optimizer = file.optimizer ? to_text(*file.optimizer) : "";
  const std::string described = keys.take(), checksums = write_checksums(listed);
  const std::string header = write_header(listed, {{kFormatKey, std::to_string(kStatesFormat)},
                                                   {"dumped", dumped},
                                                   {"optimizer", optimizer},
                                                   {"keys", described},
                                                   {"checksums", checksums},
                                                   {"sum", sum_of(dumped, optimizer, described, checksums)}});
  auto out = OutputFile::create(path, header.size() + data_bytes);
  if (!out.ok()) return out.status();
  if (auto failed = out.value().write(0, std::as_bytes(std::span(header))); !failed.ok()) return failed;
  next = 0;
  base::Status failure;
  for (const KeyStates& key : file.keys)
    for_arrays(key, [&](const char*, size_t, const std::vector<std::byte>& bytes) {
      const Tensor& tensor = tensors[next++];
      if (failure.ok()) failure = out.value().write(header.size() + tensor.begin, bytes);
    });
  if (!failure.ok()) return failure;
  if (auto failed = out.value().finish(); !failed.ok()) return failed;
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return sync_directory(directory.empty() ? "." : directory);
}

base::Result<StatesFile> read_states(const std::string& path) {
  const auto in = InputFile::open(path);
  if (!in.ok()) return in.status();
  if (const auto kind = foreign(in.value()); !kind.empty())
    return base::error(MV_EINVAL, "{}: is {}, which may contain code, so it is not read: use a safetensors file from kv_save_optimizer_states()", path, kind);
  const auto header = read_header(in.value());
  if (!header.ok()) return header.status();
  const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "{}: {}", path, what); };
  const auto json = JsonDocument::parse(std::string_view(header.value()).substr(kLengthBytes));
  if (!json || !json->root().is_object()) return wrong("its header is not a JSON object");
  std::vector<Tensor> tensors;
  auto file = read_description(json->root(), in.value().bytes() - header.value().size(), tensors);
  if (!file.ok()) return wrong(file.status().text());
  size_t next = 0;
  base::Status failure;
  for (KeyStates& key : file.value().keys)
    for_arrays(key, [&](const char*, size_t, std::vector<std::byte>& bytes) {
      const Tensor& tensor = tensors[next++];
      if (!failure.ok()) return;
      failure = in.value().read(header.value().size() + tensor.begin, bytes);
      if (failure.ok() && checksum_of(bytes) != tensor.checksum) failure = wrong(fmt::format("the data of tensor \"{}\" is damaged", tensor.name));
    });
  if (!failure.ok()) return failure;
  return file;
}

}  // namespace mv::checkpoint
