#pragma once
// Which languages' modules are found from here.

#include <string>
#include <vector>

namespace mv::tools {

/// One language: in the form of a finding of mv_doctor_text().
struct LanguageFinding {
  std::string subject, verdict, text, todo;
};

/// Runs every interpreter there is, and lets it load its module.
std::vector<LanguageFinding> examine_languages();

}  // namespace mv::tools
