#include "checkpoint.hpp"

#include <polyverso/polyverso.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "library_text.hpp"

namespace mv::tools {
namespace {

using Json = nlohmann::ordered_json;

/// The library's report.
mv_status ask(const std::string& path, std::string& report) {
  return whole_text([&](char* text, uint64_t capacity, uint64_t* length) { return mv_checkpoint_inspect(path.c_str(), text, capacity, length); }, report);
}

std::string show_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string show_time(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  std::array<char, 64> text{};
  if (localtime_r(&time, &local) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S %z", &local) == 0)
    return "?";
  return text.data();
}

/// Names may hold anything: nothing of it reaches the terminal as a command.
std::string show_name(const std::string& name) {
  std::string shown;
  for (const char c : name) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return shown;
}

std::string show_shape(const Json& table) {
  const auto kind = table.value("kind", "");
  const auto rows = table.value("rows", uint64_t{0}), cols = table.value("cols", uint64_t{0});
  if (kind == "array") return fmt::format("{}", rows);
  if (kind == "keyvalue") return fmt::format("key x {}", cols);
  return fmt::format("{} x {}", rows, cols);
}

using Row = std::vector<std::string>;

Row table_row(const Json& table) {
  const auto bytes = table.value("value_bytes", uint64_t{0}) + table.value("id_bytes", uint64_t{0});
  return {show_name(table.value("name", "")),
          table.value("kind", ""),
          table.value("dtype", ""),
          show_shape(table),
          fmt::format("{}", table.value("stored", uint64_t{0})),
          show_bytes(bytes),
          show_bytes(table.value("state_bytes", uint64_t{0})),
          fmt::format("{}", table.value("clock", uint64_t{0})),
          table.value("updater_now", "")};
}

void print_tables(const Json& report) {
  std::vector<Row> rows{{"table", "kind", "dtype", "shape", "stored", "values", "states", "clock", "updater"}};
  for (const Json& table : report.value("tables", Json::array())) rows.push_back(table_row(table));
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], i + 1 < row.size() ? widths[i] : 0);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("  {}\n", line);
  }
}

void print_checkpoint(const Json& report) {
  fmt::print("{}\n", show_name(report.value("path", "")));
  if (!report.contains("tables")) return;
  if (report.value("what", "") == "file")
    fmt::print("  checkpoint {}: the file of server {} of {}, {}\n\n", report.value("number", uint64_t{0}),
               report.value("server", uint64_t{0}), report.value("servers", uint64_t{0}),
               show_bytes(report.value("bytes", uint64_t{0})));
  else
    fmt::print("  checkpoint {} of {}, {} server{}, {}\n\n", report.value("number", uint64_t{0}),
               show_time(report.value("time", int64_t{0})), report.value("servers", uint64_t{0}),
               report.value("servers", uint64_t{0}) == 1 ? "" : "s", show_bytes(report.value("bytes", uint64_t{0})));
  print_tables(report);
}

void print_directory(const Json& report) {
  fmt::print("{}\n", show_name(report.value("path", "")));
  for (const Json& checkpoint : report.value("checkpoints", Json::array()))
    fmt::print("  checkpoint {}{}\n", checkpoint.value("number", uint64_t{0}),
               checkpoint.value("whole", false) ? "" : ", not completed");
  if (!report.contains("newest")) return;
  fmt::print("\n");
  print_checkpoint(report["newest"]);
}

}  // namespace

int inspect_checkpoint(const InspectOptions& options) {
  std::string text;
  if (ask(options.path, text) != MV_OK) {
    fmt::print(stderr, "polyverso checkpoint: {}\n", mv_last_error());
    return 1;
  }
  const Json report = Json::parse(text);
  const Json damage = report.value("damage", Json::array());
  if (options.json) {
    fmt::print("{}\n", text);
    return damage.empty() ? 0 : 1;
  }
  report.value("what", "") == "directory" ? print_directory(report) : print_checkpoint(report);
  fmt::print("\n{}\n", damage.empty() ? "sound: all checksums agree" : "DAMAGED:");
  for (const Json& sentence : damage) fmt::print("  {}\n", show_name(sentence.get<std::string>()));
  return damage.empty() ? 0 : 1;
}

}  // namespace mv::tools
