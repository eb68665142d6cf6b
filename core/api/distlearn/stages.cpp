#include "api/distlearn/stages.hpp"

#include <utility>

namespace mv::distlearn {

base::Status Stages::carry_out(const char* name, std::initializer_list<Stage> stages) {
  if (!interrupted_.empty() && interrupted_ != name)
    return base::error(MV_ESTATE, "a signal interrupted {}, which is still unfinished: repeat that call first", interrupted_);
  interrupted_.clear();
  size_t at = std::exchange(at_, 0);
  for (; at < stages.size(); ++at) {
    const base::Status status = stages.begin()[at]();
    if (status.ok()) continue;
    if (status.code() == MV_EINTR) {
      interrupted_ = name;
      at_ = at;
    }
    return status;
  }
  return {};
}

void Stages::forget() {
  interrupted_.clear();
  at_ = 0;
}

}  // namespace mv::distlearn
