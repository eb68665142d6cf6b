#pragma once
// The attempts of a server to get memory that failed, so that its copies refuse the same requests.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace mv::table {

/// A change that a server refuses for lack of memory must not happen in its copies either, although they may have the memory.
/// The primary therefore notes the numbers of such attempts within an input, and passes them on with it. A copy that lacks
/// memory for an attempt that the primary has made must end, and so must a primary whose copies have the input already.
/// Only attempts for tables of which there are copies count. Loop thread only.
class Refusals {
 public:
  /// There are no copies at the moment.
  void set_alone(bool alone) {
    is_alone_ = alone;
    refused_.clear();
  }
  /// As the primary, before an input that the copies do not have yet.
  void begin() {
    attempts_ = 0;
    may_refuse_ = true;
    refused_.clear();
  }
  /// The attempts of this input that were refused.
  std::vector<uint32_t> end() {
    may_refuse_ = false;
    return std::exchange(refused_, {});
  }
  /// As a copy, before an input: the primary has refused these attempts.
  void expect(std::vector<uint32_t> refused) {
    attempts_ = 0;
    refused_ = std::move(refused);
  }

  /// An attempt begins. Whether the primary has refused it.
  bool is_refused() {
    ++attempts_;
    return !may_refuse_ && std::ranges::find(refused_, attempts_) != refused_.end();
  }
  /// There is no memory for the attempt. False: this process must end.
  bool refuse() {
    if (may_refuse_) refused_.push_back(attempts_);
    return may_refuse_ || is_alone_;
  }

 private:
  uint32_t attempts_ = 0;  ///< of this input
  bool may_refuse_ = false, is_alone_ = false;
  std::vector<uint32_t> refused_;
};

}  // namespace mv::table
