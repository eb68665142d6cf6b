#pragma once
// The parts of the tables that a process serves, as checkpoints use them. With back-ups, a part moves when its server dies.

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "engine/checkpoint/held_save.hpp"
#include "engine/table/server/checkpoint_tables.hpp"

namespace mv::checkpoint {

/// The name of a part is the number of the server that served it at first. Loop thread only.
class ServedParts {
 public:
  virtual ~ServedParts() = default;
  /// nullptr if this process does not serve the part, as far as it knows.
  virtual table::CheckpointTables* served(uint64_t part) = 0;
  /// Whether this process has given the part to another one.
  virtual bool is_elsewhere(uint64_t part) const = 0;
  /// Whether another process may serve a part later, when its server dies.
  virtual bool can_move() const = 0;
  /// Why nobody can decide about parts whose processes are lost: this process is cut off.
  virtual base::Status why_cut_off() const = 0;
  /// Whether the values are being copied to a new back-up, or the part is moving. There can't be another snapshot then.
  virtual bool is_being_copied(uint64_t part) const = 0;
  /// Whether the parts are about to move to other servers. No checkpoint begins here then; those in progress continue.
  virtual bool is_leaving() const = 0;
  /// From now until replaced(), the part differs from its back-up.
  virtual void begin_replacing(uint64_t part) = 0;
  /// The tables have their new content. Calls `done` once the back-up has it too.
  virtual void replaced(uint64_t part, std::function<void()> done) = 0;
  /// A save has just taken its snapshot. The back-ups take and keep theirs.
  /// @param clocks  see read_clocks(); valid during the call
  virtual void hold(uint64_t part, const std::string& path, std::span<const std::byte> clocks) = 0;
  /// Whether the back-ups have done so, or there are none: then the save survives the loss of this process.
  virtual bool is_held(uint64_t part) const = 0;
  /// The part's file of this save is written, or (null) will not be: the back-ups drop their snapshots.
  virtual void written(uint64_t part, const std::string& path, const FileEntry* file) = 0;
  /// The last save of the part that this process knows; null if there was none. Valid until the next call of this object.
  virtual HeldSave* held(uint64_t part) = 0;
};

}  // namespace mv::checkpoint
