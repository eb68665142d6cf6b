// Adds to and gets from many small tables, in few messages.

#include <cstring>

#include "api/table/table_handle.hpp"
#include "api/table/tables.hpp"
#include "base/prefetch.hpp"

namespace mv::api {

namespace {
/// Limits of one message.
constexpr size_t kTablesAtOnce = 1024;
constexpr uint64_t kBytesAtOnce = 256 << 10;
/// Approximate memory of an unfinished add besides its values.
constexpr uint64_t kAddBytes = 64;

template <typename Call>
TableHandle& handle_of(const Call& call) {
  return static_cast<TableHandle&>(*call.table);
}

/// Tables are scattered in memory, so this prefetches the tables of later calls while it checks earlier ones.
template <typename Call>
base::Status join_all(std::span<const Call> calls, table::Use use) {
  constexpr size_t kHandle = 16, kTable = 8, kLine = 64;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i + kHandle < calls.size())
      for (size_t line = 0; line < sizeof(TableHandle); line += kLine)
        base::prefetch_to_write(reinterpret_cast<const std::byte*>(calls[i + kHandle].table) + line);
    if (i + kTable < calls.size()) handle_of(calls[i + kTable]).expect(false);
    if (base::Status wrong = handle_of(calls[i]).join_many(use); !wrong.ok()) return wrong;
  }
  return {};
}

/// Runs work(server, calls) on batches of the calls on one server's tables, in their order. Stops at the first error.
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
    const TableHandle& table = handle_of(call);
    const size_t server = table.home();
    some[server].push_back(&call);
    bytes[server] += table.bytes();
    if (some[server].size() < kTablesAtOnce && bytes[server] < kBytesAtOnce) continue;
    if (base::Status failed = send(server); !failed.ok()) return failed;
  }
  for (size_t server = 0; server < servers; ++server)
    if (base::Status failed = send(server); !failed.ok()) return failed;
  return {};
}
}  // namespace

base::Status Tables::add_many(std::span<const ManyAdd> adds, const CallOptions& options) {
  if (base::Status wrong = join_all(adds, table::Use::kAdd); !wrong.ok()) return wrong;
  bool begun = false;
  return by_server(static_cast<size_t>(calls_.identity().num_parts), adds, [&](size_t server, std::span<const ManyAdd* const> some) -> base::Status {
    table::Client::ManyAdds message;
    message.server = server;
    message.tables.reserve(some.size());
    uint64_t bytes = 0;
    for (const ManyAdd* add : some) {
      message.tables.push_back(handle_of(*add).view());
      bytes += handle_of(*add).bytes();
    }
    const uint64_t wanted = bytes + some.size() * kAddBytes;
    auto reserved = calls_.reserve(wanted, options);
    while (!reserved.ok() && reserved.status().code() == MV_EINTR && begun) reserved = calls_.reserve(wanted, options);  // others have begun
    if (!reserved.ok()) return reserved.status();
    begun = true;
    message.reserved = reserved.value();
    const auto block = calls_.buffer(bytes);
    if (!block.ok()) {
      calls_.give_back(message.reserved);
      return block.status();
    }
    std::byte* to = block.value()->data();
    for (size_t i = 0; i < some.size(); ++i) {
      const uint64_t size = handle_of(*some[i]).bytes();
      std::memcpy(to, some[i]->values, size);
      to += size;
      message.tables[i]->open_changes.fetch_add(1, std::memory_order_relaxed);
    }
    message.values = base::Payload::kept({block.value()->data(), bytes}, block.value());
    calls_.runtime().no_way_back([&] { calls_.loop().post([this, message = std::move(message)]() mutable { calls_.member().tables().add_many(std::move(message)); }); });
    return {};
  });
}

base::Status Tables::get_many(std::span<const ManyGet> gets, const CallOptions& options) {
  if (base::Status wrong = join_all(gets, table::Use::kGet); !wrong.ok()) return wrong;
  return by_server(static_cast<size_t>(calls_.identity().num_parts), gets, [&](size_t server, std::span<const ManyGet* const> some) {
    table::Request request;
    request.server = server;
    request.many.reserve(some.size());
    for (const ManyGet* get : some) {
      const TableHandle& table = handle_of(*get);
      request.many.push_back({table.view(), {get->out, table.bytes()}});
    }
    request.table = request.many.front().table;
    const CallRef call = calls_.make_call(options, request.table->consistency != shard::Consistency::kAsync);
    return calls_.run(call, options, std::move(request), {}).status;
  });
}

}  // namespace mv::api
