#pragma once
// Calls of several operations, which a signal may interrupt.

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>

#include "base/result.hpp"

namespace mv::distlearn {

/// Of one object, whose calls are made one after the other. A call that ends with MV_EINTR is to be made again, with the same arguments: it
/// goes on with the stage that it left.
class Stages {
 public:
  using Stage = std::function<base::Status()>;
  base::Status carry_out(const char* name, std::initializer_list<Stage> stages);
  void forget();

 private:
  std::string interrupted_;  ///< the name of the call that a signal has left; empty: none
  size_t at_ = 0;
};

}  // namespace mv::distlearn
