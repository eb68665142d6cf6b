#pragma once
// The scenarios that run under schedules. Each takes its choices from random_below(), and checks its results with EXPECT().

#include <array>

namespace mv::schedules {

void loop_scenario();
void intranode_scenario();
void shm_scenario();
void queue_scenario();

struct Scenario {
  const char* name;
  void (*work)();
};
inline constexpr std::array<Scenario, 4> kScenarios{{
    {"loop", loop_scenario},
    {"intranode", intranode_scenario},
    {"shm", shm_scenario},
    {"queue", queue_scenario},
}};

}  // namespace mv::schedules
