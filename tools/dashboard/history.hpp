#pragma once
// The numbers of the last hour, for the dashboard's charts, in bounded memory.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace mv::tools {

/// Each series has kSlots means over kSlotSeconds each; a new mean replaces the oldest. A series without values for a whole hour is
/// removed. Not thread-safe.
class History {
 public:
  static constexpr double kSlotSeconds = 5;
  static constexpr int64_t kSlots = 720;
  static constexpr size_t kMostSeries = 4096;  ///< 12 MiB; further series are counted, but not kept
  static constexpr size_t kLongestName = 200;

  /// Adds the numbers of one status, the parsed JSON of a cluster or of gossiping nodes. `seconds`: since any fixed moment, never falling.
  void add(double seconds, const nlohmann::json& status);

  /// The slots from number `since` on; the last value is the mean so far of the unfinished one:
  /// {"slot_seconds", "first" (number of the first slot in `values`), "left_out", "series": [{"kind", "chart", "line", "values": [x | null]}]}.
  std::string to_json(int64_t since) const;

  size_t series() const { return series_.size(); }

 private:
  struct Series {
    std::array<float, kSlots> means;
    int64_t last = 0;  ///< the number of the newest slot with a value
    double sum = 0;
    uint32_t count = 0;  ///< of the unfinished slot

    float mean() const;  ///< of the unfinished slot; NaN without values
  };
  struct Name {
    std::string kind, chart, line;
    auto operator<=>(const Name&) const = default;
  };

  void add(std::string_view kind, std::string_view chart, std::string_view line, const nlohmann::json& value);
  void add_member(const nlohmann::json& member);
  void begin_slot(int64_t slot);

  std::map<Name, Series> series_;
  int64_t slot_ = -1;  ///< the unfinished slot
  uint64_t left_out_ = 0;
};

}  // namespace mv::tools
