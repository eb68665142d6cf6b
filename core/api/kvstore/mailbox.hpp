#pragma once
// Mailbox: passes bytes between the workers of a store, through a hidden table, because workers have no direct channel.
// A worker that is in a barrier is asked for its bytes, and finds there what was left for it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/node/node.hpp"

namespace mv::kvstore {

/// Any thread, one call at a time.
class Mailbox {
 public:
  using Bytes = std::vector<std::byte>;
  enum class Wish { kNothing, kGive, kTake };

  /// Collective: all workers make the mailbox of a store. @param store  the prefix of its tables' names
  static base::Result<std::unique_ptr<Mailbox>> make(api::Node& node, const std::string& store);

  /// Sets whether other workers may ask this one.
  base::Status enrol(bool on);
  /// The request of another worker to this one.
  base::Result<Wish> wish();
  base::Status give(const Bytes& bytes);
  base::Result<Bytes> take();

  /// Collects the bytes of all enrolled workers except this one, which give them in their barrier, by worker; empty for
  /// others, and for workers that have finished or are lost. MV_ETIMEOUT names a worker that does not come.
  base::Result<std::vector<Bytes>> collect(base::Nanos timeout);
  /// Leaves bytes for a worker, which takes them in its next barrier.
  base::Status leave_for(size_t worker, const Bytes& bytes);

 private:
  enum State : int64_t { kNone, kWanted, kGiven, kLeft };
  struct Header {
    State state = kNone;
    uint64_t bytes = 0;
  };

  Mailbox(api::Node& node, api::TableRef table) : node_(node), table_(std::move(table)) {}
  size_t self() const { return static_cast<size_t>(node_.identity().worker_id); }
  base::Result<int64_t> read_number(int64_t row);
  base::Result<Header> read_header(size_t worker);
  base::Status write_row(int64_t row, int64_t first, int64_t second);
  base::Status write(size_t worker, State state, const Bytes& bytes);
  base::Result<Bytes> fetch(size_t worker, uint64_t bytes);
  base::Result<std::vector<bool>> gone();

  api::Node& node_;
  const api::TableRef table_;
};

}  // namespace mv::kvstore
