#pragma once
// Answers gets with values.

#include <unordered_map>
#include <vector>

#include "base/pool.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/table.hpp"
#include "wire/form.hpp"

namespace mv::table {

/// A get has an answer of its own. The parts of a GetMany share one, which is collected here. Loop thread only.
class Answers {
 public:
  Answers(rpc::Server& rpc, const Roster& roster, base::Pool& pool) : rpc_(rpc), roster_(roster), pool_(pool) {}

  /// Answers a get, or ends a part of a GetMany.
  void answer(const rpc::Asked& asked, Table& table, const HeldGet& get);

  /// Begins the answer to a GetMany: part i has `bytes[i - 1]` bytes, in this order.
  void begin_many(const rpc::Asked& asked, const flatbuffers::Vector<uint32_t>& bytes);
  /// Reads the values of a part into their place in the answer.
  void answer_part(const rpc::Asked& asked, Table& table);
  /// The number of the parts of a GetMany; 0 for other requests.
  uint32_t parts_of(const rpc::Asked& asked) const;
  void forget(base::Peer worker);
  bool is_idle() const { return many_.empty(); }

 private:
  /// The answer to a GetMany while its parts are collected.
  struct Many {
    base::Pool::Block values;
    std::vector<uint32_t> at;  ///< offset of each part's values
  };
  void end_many(const rpc::Asked& asked, const base::Status& status);
  base::Pool::Block encode(const Table& table, const HeldGet& get, const base::Pool::Block& values);

  rpc::Server& rpc_;
  const Roster& roster_;
  base::Pool& pool_;
  wire::FrameBuilder builder_;
  const wire::Form<wire::Reply> reply_{wire::Body::Reply, [](flatbuffers::FlatBufferBuilder& fbb) { return wire::CreateReply(fbb); }};
  std::unordered_map<rpc::Asked, Many, rpc::Asked::Hash> many_;
};

}  // namespace mv::table
