/// Tables. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_TABLE_HPP
#define POLYVERSO_CPP_TABLE_HPP

#include <polyverso/cpp/node.hpp>

namespace polyverso {

/// Numbers shared by all workers. The destructor closes the handle; the table lives on. Values are row-major, of the table's dtype.
class Table {
 public:
  /// Collective: Table weights(node, "kind=matrix rows=10 cols=64 name=weights"). The values are worker 0's; none: zeros.
  Table(const Node& node, const std::string& spec, const In& values = {}) {
    mv_table id = 0;
    check(mv_table_create_text(node.id(), spec.c_str(), values.data, values.count, values.dtype, &id));
    handle_ = Handle(id);
  }
  Table(const Node& node, const mv_table_spec& spec, const In& values = {}) {
    mv_table id = 0;
    check(mv_table_create(node.id(), &spec, values.data, values.count, values.dtype, &id));
    handle_ = Handle(id);
  }
  /// An existing table.
  static Table open(const Node& node, const std::string& name) {
    return Table(detail::value<mv_table>(mv_table_open, node.id(), name.c_str()));
  }

  mv_table id() const noexcept { return handle_.id(); }
  void close() { handle_.close(); }
  /// Frees the table on all servers. One worker calls it.
  void destroy() { check(mv_table_destroy(handle_.release())); }
  mv_table_info describe() const {
    mv_table_info info = MV_TABLE_INFO_INIT;
    check(mv_table_describe(id(), &info));
    return info;
  }

  /// Adds through the updater. Call{.flags = MV_FORGET} returns at once.
  void add(const In& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_table_add(id(), values.data, values.count, values.dtype, options); });
  }
  Request add_async(const In& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_table_add(id(), values.data, values.count, values.dtype, options); });
  }
  /// Row i of the values is for rows[i]: row ids, elements of an array, or keys.
  void add_rows(Ids rows, const In& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return rows_in(mv_table_add_rows, rows, values, options); });
  }
  Request add_rows_async(Ids rows, const In& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return rows_in(mv_table_add_rows, rows, values, options); });
  }

  void get(const Out& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_table_get(id(), values.data, values.count, values.dtype, options); });
  }
  /// The values are lent until the request has ended.
  Request get_async(const Out& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_table_get(id(), values.data, values.count, values.dtype, options); });
  }
  void get_rows(Ids rows, const Out& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return rows_out(mv_table_get_rows, rows, values, options); });
  }
  Request get_rows_async(Ids rows, const Out& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return rows_out(mv_table_get_rows, rows, values, options); });
  }
  /// The same without sync mode's gates, for validation.
  void peek(const Out& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_table_peek(id(), values.data, values.count, values.dtype, options); });
  }
  Request peek_async(const Out& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_table_peek(id(), values.data, values.count, values.dtype, options); });
  }
  void peek_rows(Ids rows, const Out& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return rows_out(mv_table_peek_rows, rows, values, options); });
  }
  Request peek_rows_async(Ids rows, const Out& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return rows_out(mv_table_peek_rows, rows, values, options); });
  }

  /// Assigns without the updater, between two barriers.
  void set(const In& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_table_set(id(), values.data, values.count, values.dtype, options); });
  }
  Request set_async(const In& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_table_set(id(), values.data, values.count, values.dtype, options); });
  }
  void set_rows(Ids rows, const In& values, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return rows_in(mv_table_set_rows, rows, values, options); });
  }
  Request set_rows_async(Ids rows, const In& values, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return rows_in(mv_table_set_rows, rows, values, options); });
  }
  void erase_rows(Ids rows, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_table_erase_rows(id(), rows.data(), rows.size(), options); });
  }
  Request erase_rows_async(Ids rows, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_table_erase_rows(id(), rows.data(), rows.size(), options); });
  }

  struct Scanned {
    std::int64_t next;    ///< the cursor of the next call; -1: end
    std::uint64_t found;  ///< rows written, possibly 0 before the end
  };
  /// The next stored rows of a sparse or key-value table, from cursor 0 on; `values` has room for as many rows as `rows`, or is Out().
  Scanned scan(std::int64_t cursor, std::span<std::int64_t> rows, const Out& values = {}) const {
    Scanned result{};
    check(mv_table_scan(id(), cursor, rows.data(), rows.size(), values.data, values.count, values.dtype, &result.next, &result.found));
    return result;
  }
  /// Ends an iteration on a table with staleness.
  void clock() const { check(mv_table_clock(id())); }
  /// "sgd rate=0.1"; see mv_table_set_updater().
  void set_updater(const std::string& updater, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_table_set_updater(id(), updater.c_str(), options); });
  }
  Request set_updater_async(const std::string& updater, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_table_set_updater(id(), updater.c_str(), options); });
  }

 private:
  using Handle = detail::Handle<mv_table_close>;
  explicit Table(mv_table id) noexcept : handle_(id) {}
  template <class F>
  mv_status rows_in(F f, Ids rows, const In& values, const mv_call_options* options) const {
    return f(id(), rows.data(), rows.size(), values.data, values.count, values.dtype, options);
  }
  template <class F>
  mv_status rows_out(F f, Ids rows, const Out& values, const mv_call_options* options) const {
    return f(id(), rows.data(), rows.size(), values.data, values.count, values.dtype, options);
  }

  Handle handle_;
};

}  // namespace polyverso

#endif
