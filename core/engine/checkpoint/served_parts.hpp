#pragma once
// The parts of the tables that a process serves, as checkpoints use them. With back-ups, a part moves when its server dies.

#include <cstdint>
#include <functional>

#include "base/result.hpp"
#include "engine/table/server/checkpoint_tables.hpp"

namespace mv::checkpoint {

/// A part is named by the number of the server whose part it was at the beginning. Loop thread only.
class ServedParts {
 public:
  virtual ~ServedParts() = default;
  /// nullptr if this process does not serve the part, as far as it knows.
  virtual table::CheckpointTables* served(uint64_t part) = 0;
  /// Another process may come to serve a part when its server dies.
  virtual bool can_move() const = 0;
  /// The values are being copied to a new back-up: there can't be another snapshot.
  virtual bool is_being_copied(uint64_t part) const = 0;
  /// Whether a load can replace the content.
  virtual base::Status may_replace(uint64_t part) = 0;
  /// From now until replaced(), the part differs from its back-up.
  virtual void begin_replacing(uint64_t part) = 0;
  /// The tables have their new content. Calls `done` once the back-up has it, too.
  virtual void replaced(uint64_t part, std::function<void()> done) = 0;
};

}  // namespace mv::checkpoint
