// Calls on many small tables, in few messages.

#include <cstring>

#include "node/member_node.hpp"
#include "node/table_handle.hpp"

namespace mv::node {

namespace {
/// Of one message.
constexpr size_t kTablesAtOnce = 1024;
constexpr uint64_t kBytesAtOnce = 256 << 10;
/// What an add under way costs besides its values, about.
constexpr uint64_t kAddBytes = 64;

/// work(server, calls) with the calls on tables of one server, some at a time, in their order; it ends with the first error.
template <typename Call, typename Work>
base::Status by_server(size_t servers, std::span<const Call> calls, const Work& work) {
  std::vector<std::vector<const Call*>> some(servers);
  std::vector<uint64_t> bytes(servers);
  const auto send = [&](size_t server) {
    const auto sent = std::exchange(some[server], {});
    bytes[server] = 0;
    return sent.empty() ? base::Status() : work(server, std::span(sent));
  };
  for (const Call& call : calls) {
    const auto& table = static_cast<const TableHandle&>(*call.table);
    const size_t server = table.home();
    some[server].push_back(&call);
    bytes[server] += table.view()->spec.bytes();
    if (some[server].size() < kTablesAtOnce && bytes[server] < kBytesAtOnce) continue;
    if (base::Status failed = send(server); !failed.ok()) return failed;
  }
  for (size_t server = 0; server < servers; ++server)
    if (base::Status failed = send(server); !failed.ok()) return failed;
  return {};
}
}  // namespace

base::Status MemberNode::add_many(std::span<const ManyAdd> adds, const CallOptions& options) {
  for (const ManyAdd& add : adds)
    if (base::Status wrong = static_cast<TableHandle&>(*add.table).join_many(ps::Use::kAdd); !wrong.ok()) return wrong;
  bool begun = false;
  return by_server(static_cast<size_t>(identity_.num_servers), adds, [&](size_t server, std::span<const ManyAdd* const> some) -> base::Status {
    ps::Client::ManyAdds message;
    message.server = server;
    message.tables.reserve(some.size());
    uint64_t bytes = 0;
    for (const ManyAdd* add : some) {
      message.tables.push_back(static_cast<TableHandle&>(*add->table).view());
      bytes += message.tables.back()->spec.bytes();
    }
    const uint64_t wanted = bytes + some.size() * kAddBytes;
    auto reserved = reserve(wanted, options);
    while (!reserved.ok() && reserved.status().code() == MV_EINTR && begun) reserved = reserve(wanted, options);  // the messages before it have begun
    if (!reserved.ok()) return reserved.status();
    begun = true;
    message.reserved = reserved.value();
    const auto block = snapshots_.allocate(bytes, tensor::Heap::Content::kAnything);
    if (!block.ok()) {
      member_->tables().in_flight().fetch_sub(message.reserved, std::memory_order_relaxed);
      return block.status();
    }
    std::byte* to = block.value()->data();
    for (size_t i = 0; i < some.size(); ++i) {
      const uint64_t size = message.tables[i]->spec.bytes();
      std::memcpy(to, some[i]->values, size);
      to += size;
      message.tables[i]->open_changes.fetch_add(1, std::memory_order_relaxed);
    }
    message.values = base::Payload::kept({block.value()->data(), bytes}, block.value());
    no_way_back([&] { loop_.post([this, message = std::move(message)]() mutable { member_->tables().add_many(std::move(message)); }); });
    return {};
  });
}

base::Status MemberNode::get_many(std::span<const ManyGet> gets, const CallOptions& options) {
  for (const ManyGet& get : gets)
    if (base::Status wrong = static_cast<TableHandle&>(*get.table).join_many(ps::Use::kGet); !wrong.ok()) return wrong;
  return by_server(static_cast<size_t>(identity_.num_servers), gets, [&](size_t server, std::span<const ManyGet* const> some) {
    ps::Request request;
    request.server = server;
    request.many.reserve(some.size());
    for (const ManyGet* get : some) {
      const ps::TableViewRef& table = static_cast<TableHandle&>(*get->table).view();
      request.many.push_back({table, {get->out, table->spec.bytes()}});
    }
    request.table = request.many.front().table;
    const CallRef call = make_call(options, request.table->pace != table::Pace::kAsync);
    return run(call, options, std::move(request), {}).status;
  });
}

}  // namespace mv::node
