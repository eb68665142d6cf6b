#pragma once
// The results of the examinations: one finding for each thing examined.

#include <fmt/core.h>

#include <chrono>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace mv::doctor {

enum class Verdict {
  kOk,
  kNote,     ///< works, but may not be intended, or not as fast as it could be
  kProblem,  ///< does not work; the user has to act
};

struct Finding {
  const char* area;     ///< "settings", "processors", "memory", "network", "devices", "keeper", "master", "peers", "build"
  std::string subject;  ///< what was examined: "loopback, IPv6"
  Verdict verdict;
  std::string text;  ///< the result
  std::string todo;  ///< the remedy; empty only with kOk
};

/// The findings of one area.
class Findings {
 public:
  explicit Findings(const char* area) : area_(area) {}

  void ok(std::string subject, std::string text) { add(std::move(subject), Verdict::kOk, std::move(text), {}); }
  void note(std::string subject, std::string text, std::string todo) {
    add(std::move(subject), Verdict::kNote, std::move(text), std::move(todo));
  }
  void problem(std::string subject, std::string text, std::string todo) {
    add(std::move(subject), Verdict::kProblem, std::move(text), std::move(todo));
  }

  std::vector<Finding>& all() { return all_; }

 private:
  void add(std::string subject, Verdict verdict, std::string text, std::string todo) {
    all_.push_back({area_, std::move(subject), verdict, std::move(text), std::move(todo)});
  }

  const char* area_;
  std::vector<Finding> all_;
};

/// Formats a round-trip time: "12 us".
inline std::string micros(base::Nanos span) {
  return fmt::format("{:.0f} us", std::chrono::duration<double, std::micro>(span).count());
}

}  // namespace mv::doctor
