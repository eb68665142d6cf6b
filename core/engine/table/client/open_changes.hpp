#pragma once
// A worker's changes that servers have not acknowledged, and the errors of changes for which no caller waits.

#include <cstdint>
#include <deque>
#include <functional>

#include "engine/table/client/operation.hpp"

namespace mv::table {

/// Loop thread only.
class OpenChanges {
 public:
  explicit OpenChanges(const TablesByName& tables) : tables_(tables) {}

  /// Gives a new change its number.
  uint64_t begin() {
    over_.push_back(false);
    return next_++;
  }
  void over(TableView& table, uint64_t change);
  void over(uint64_t change);
  /// Calls `passed` once all changes begun so far are applied or have failed, with the first error that was not
  /// reported.
  void flush(std::function<void(const base::Status&)> passed);

  /// Notes the error of a change for which no caller waits.
  void note(TableView& table, const base::Status& status);
  /// Takes the first unreported error of this table's fire-and-forget adds.
  base::Status take_untold(TableView& table);
  /// Reports an error of a call that its caller has released, like that of a fire-and-forget add. `table` is null if
  /// the call was on none.
  void tell_later(TableView* table, const base::Status& error);

 private:
  struct Flush {
    uint64_t before;
    std::function<void(const base::Status&)> passed;
  };
  void pass_flushes();

  const TablesByName& tables_;
  uint64_t next_ = 0, first_ = 0;  ///< changes are numbered as they begin
  std::deque<bool> over_;          ///< for first_ and the changes after it
  std::deque<Flush> flushes_;
  base::Status untold_;
  bool any_untold_ = false;  ///< since the last flush
};

}  // namespace mv::table
