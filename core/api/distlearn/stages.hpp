#pragma once
// Stages: runs calls that consist of several operations and that a signal may interrupt.

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>

#include "base/result.hpp"

namespace mv::distlearn {

/// Belongs to one object, whose calls are made one after another. A call that ends with MV_EINTR must be repeated with
/// the same arguments: it continues with the interrupted stage.
class Stages {
 public:
  using Stage = std::function<base::Status()>;
  base::Status carry_out(const char* name, std::initializer_list<Stage> stages);
  void forget();
  bool is_interrupted() const { return !interrupted_.empty(); }

 private:
  std::string interrupted_;  ///< name of the interrupted call; empty: none
  size_t at_ = 0;
};

}  // namespace mv::distlearn
