#include "engine/table/client/open_changes.hpp"

#include <utility>

namespace mv::table {

void OpenChanges::over(TableView& table, uint64_t change) {
  table.open_changes.fetch_sub(1, std::memory_order_release);
  over(change);
}

void OpenChanges::over(uint64_t change) {
  over_[change - first_] = true;
  while (!over_.empty() && over_.front()) {
    over_.pop_front();
    ++first_;
  }
  pass_flushes();
}

void OpenChanges::flush(std::function<void(const base::Status&)> passed) {
  flushes_.push_back({next_, std::move(passed)});
  pass_flushes();
}

void OpenChanges::pass_flushes() {
  while (!flushes_.empty() && first_ >= flushes_.front().before) {
    const auto passed = std::move(flushes_.front().passed);
    flushes_.pop_front();
    const base::Status untold = std::exchange(untold_, {});
    if (std::exchange(any_untold_, false))
      for (const auto& [name, table] : tables_) {
        table->untold = {};
        table->has_untold = false;
      }
    passed(untold);
  }
}

void OpenChanges::note(TableView& table, const base::Status& status) {
  if (status.ok()) return;
  any_untold_ = true;
  if (table.untold.ok()) table.untold = status;
  if (untold_.ok()) untold_ = status;
  table.has_untold = true;
}

void OpenChanges::tell_later(TableView* table, const base::Status& error) {
  if (table != nullptr) return note(*table, error);
  if (untold_.ok()) untold_ = error;
}

base::Status OpenChanges::take_untold(TableView& table) {
  if (!table.untold.ok()) untold_ = {};
  table.has_untold = false;
  return std::exchange(table.untold, {});
}

}  // namespace mv::table
