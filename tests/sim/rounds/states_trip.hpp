#pragma once
// A round trip of an updater's states: read from all servers, written with other values, written unchanged, and read again.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/table/client/client.hpp"

namespace mv::sim {

/// To be used while the table does not change.
class StatesTrip : public std::enable_shared_from_this<StatesTrip> {
 public:
  /// @param touched  called when there is something to send
  /// @param done  with what went wrong; "" if nothing did
  StatesTrip(table::Client& client, table::TableViewRef table, std::function<void()> touched, std::function<void(const std::string& wrong)> done)
      : client_(client), table_(std::move(table)), touched_(std::move(touched)), done_(std::move(done)) {}
  void go();

 private:
  using Chunks = std::vector<table::StatesChunk>;  ///< of a server's part; the last one has no states, only the mark
  void read(Chunks& into, std::function<void()> then);
  void write(const Chunks& chunks, size_t next, std::function<void()> then);
  void next_server();

  table::Client& client_;
  const table::TableViewRef table_;
  const std::function<void()> touched_;
  const std::function<void(const std::string&)> done_;
  size_t server_ = 0;
  Chunks found_, other_, again_;
};

}  // namespace mv::sim
