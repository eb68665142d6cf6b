/// Groups. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_GROUP_HPP
#define POLYVERSO_CPP_GROUP_HPP

#include <polyverso/cpp/node.hpp>

#include <optional>
#include <string>

namespace polyverso {

/// Workers that reduce arrays together. Every rank makes the same calls in the same order. If an exception leaves the block of the group,
/// the other ranks' calls fail with this rank's loss (mv_group_abort()); otherwise the destructor closes it.
///
/// In asynchronous calls all arrays are lent until the request has ended.
class Group {
 public:
  /// Collective among these worker ids; none: all workers.
  explicit Group(const Node& node, Ids workers = {}) : id_(open_group(node, workers)) {}
  /// The workers on this machine.
  static Group of_host(const Node& node) { return Group(detail::value<mv_group>(mv_group_open_host, node.id())); }

  Group(Group&& other) noexcept : id_(std::exchange(other.id_, 0)), exceptions_(other.exceptions_) {}
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (id_ == 0) return;
    if (std::uncaught_exceptions() > exceptions_) {
      mv_group_abort(id_, "an exception left the block of the group");
    } else {
      mv_group_close(id_);
    }
  }
  mv_group id() const noexcept { return id_; }
  void close() { check(mv_group_close(std::exchange(id_, 0))); }
  /// Closes the handle and breaks the group; the other ranks' errors have the reason.
  void abort(const std::string& why) { check(mv_group_abort(std::exchange(id_, 0), why.c_str())); }
  mv_group_info describe() const {
    mv_group_info info = MV_GROUP_INFO_INIT;
    check(mv_group_describe(id_, &info));
    return info;
  }
  std::int64_t rank() const { return describe().rank; }
  std::int64_t size() const { return describe().ranks; }
  /// The worker ids, in the order of ranks.
  std::vector<std::int64_t> members() const {
    std::vector<std::int64_t> workers(static_cast<std::size_t>(size()));
    std::uint64_t count = 0;
    check(mv_group_members(id_, workers.data(), workers.size(), &count));
    return workers;
  }
  /// A group of the ranks that are not lost.
  Group shrink(const Call& call = {}) const {
    mv_group survivors = 0;
    detail::block(call, [&](auto* options) { return mv_group_shrink(id_, options, &survivors); });
    return Group(survivors);
  }

  /// A group of the ranks that are not lost and of workers that join() by the name, of at least `ranks` ranks; none if this group continues.
  std::optional<Group> grow(std::uint64_t ranks = 0, const std::string& name = {}, const Call& call = {}) const {
    mv_group grown = 0;
    detail::block(call, [&](auto* options) { return mv_group_grow(id_, name.c_str(), ranks, options, &grown); });
    return grown == 0 ? std::nullopt : std::optional<Group>(Group(grown));
  }
  /// Joins the group whose members grow() it by the name.
  static Group join(const Node& node, const std::string& name = {}, const Call& call = {}) {
    mv_group joined = 0;
    detail::block(call, [&](auto* options) { return mv_group_join(node.id(), name.c_str(), options, &joined); });
    return Group(joined);
  }

  /// In place: the reduction of all ranks' values, the same bits on all. An mv_reduction.
  void allreduce(const Out& values, std::int32_t reduction = MV_REDUCE_SUM, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_allreduce(id_, nullptr, values.data, values.count, values.dtype, reduction, options); });
  }
  Request allreduce_async(const Out& values, std::int32_t reduction = MV_REDUCE_SUM, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) {
      return mv_allreduce(id_, nullptr, values.data, values.count, values.dtype, reduction, options);
    });
  }
  /// From `in` into `out`, of the same shape.
  void allreduce(const In& in, const Out& out, std::int32_t reduction, const Call& call = {}) const {
    same(in, out, 1, "allreduce");
    detail::block(call, [&](auto* options) { return mv_allreduce(id_, in.data, out.data, out.count, out.dtype, reduction, options); });
  }
  /// Several arrays in one operation, in place. Returns the number of ranks that contributed; flags: MV_DRAINING.
  std::uint64_t allreduce(const Arrays& arrays, std::int32_t reduction = MV_REDUCE_SUM, std::uint32_t flags = 0, const Call& call = {}) const {
    std::uint64_t contributors = 0;
    detail::block(call, [&](auto* options) {
      return mv_allreduce_many(id_, nullptr, arrays.data(), arrays.size(), reduction, flags, &contributors, options);
    });
    return contributors;
  }
  /// @param contributors written when the request is done; may be null
  Request allreduce_async(const Arrays& arrays, std::int32_t reduction = MV_REDUCE_SUM, std::uint32_t flags = 0,
                          std::uint64_t* contributors = nullptr, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) {
      return mv_allreduce_many(id_, nullptr, arrays.data(), arrays.size(), reduction, flags, contributors, options);
    });
  }
  /// Only `root` gets the result, in `out`; of the other ranks Out().
  void reduce(const In& in, const Out& out, std::int64_t root, std::int32_t reduction = MV_REDUCE_SUM, const Call& call = {}) const {
    if (out.data != nullptr) same(in, out, 1, "reduce");
    detail::block(call, [&](auto* options) { return mv_reduce(id_, in.data, out.data, in.count, in.dtype, reduction, root, options); });
  }
  Request reduce_async(const In& in, const Out& out, std::int64_t root, std::int32_t reduction = MV_REDUCE_SUM, const Call& call = {}) const {
    if (out.data != nullptr) same(in, out, 1, "reduce");
    return detail::start(call, [&](auto* options) { return mv_reduce(id_, in.data, out.data, in.count, in.dtype, reduction, root, options); });
  }
  void broadcast(const Out& values, std::int64_t root, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_broadcast(id_, values.data, values.count, values.dtype, root, options); });
  }
  Request broadcast_async(const Out& values, std::int64_t root, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_broadcast(id_, values.data, values.count, values.dtype, root, options); });
  }
  void broadcast(const Arrays& arrays, std::int64_t root, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_broadcast_many(id_, arrays.data(), arrays.size(), root, options); });
  }
  Request broadcast_async(const Arrays& arrays, std::int64_t root, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_broadcast_many(id_, arrays.data(), arrays.size(), root, options); });
  }
  /// all = all ranks' `mine`, in the order of ranks.
  void allgather(const In& mine, const Out& all, const Call& call = {}) const {
    same(mine, all, size(), "allgather");
    detail::block(call, [&](auto* options) { return mv_allgather(id_, mine.data, mine.count, all.data, mine.dtype, options); });
  }
  Request allgather_async(const In& mine, const Out& all, const Call& call = {}) const {
    same(mine, all, size(), "allgather");
    return detail::start(call, [&](auto* options) { return mv_allgather(id_, mine.data, mine.count, all.data, mine.dtype, options); });
  }
  /// mine = this rank's part of the reduction of `all`.
  void reduce_scatter(const In& all, const Out& mine, std::int32_t reduction = MV_REDUCE_SUM, const Call& call = {}) const {
    same(mine, all, size(), "reduce_scatter");
    detail::block(call, [&](auto* options) { return mv_reduce_scatter(id_, all.data, mine.data, mine.count, mine.dtype, reduction, options); });
  }
  Request reduce_scatter_async(const In& all, const Out& mine, std::int32_t reduction = MV_REDUCE_SUM, const Call& call = {}) const {
    same(mine, all, size(), "reduce_scatter");
    return detail::start(call, [&](auto* options) {
      return mv_reduce_scatter(id_, all.data, mine.data, mine.count, mine.dtype, reduction, options);
    });
  }
  /// On root, all = all ranks' `mine`; on the other ranks Out().
  void gather(const In& mine, const Out& all, std::int64_t root, const Call& call = {}) const {
    if (all.data != nullptr) same(mine, all, size(), "gather");
    detail::block(call, [&](auto* options) { return mv_gather(id_, mine.data, all.data, mine.count, mine.dtype, root, options); });
  }
  Request gather_async(const In& mine, const Out& all, std::int64_t root, const Call& call = {}) const {
    if (all.data != nullptr) same(mine, all, size(), "gather");
    return detail::start(call, [&](auto* options) { return mv_gather(id_, mine.data, all.data, mine.count, mine.dtype, root, options); });
  }
  /// mine = this rank's part of root's `all`; on the other ranks In().
  void scatter(const In& all, const Out& mine, std::int64_t root, const Call& call = {}) const {
    if (all.data != nullptr) same(mine, all, size(), "scatter");
    detail::block(call, [&](auto* options) { return mv_scatter(id_, all.data, mine.data, mine.count, mine.dtype, root, options); });
  }
  Request scatter_async(const In& all, const Out& mine, std::int64_t root, const Call& call = {}) const {
    if (all.data != nullptr) same(mine, all, size(), "scatter");
    return detail::start(call, [&](auto* options) { return mv_scatter(id_, all.data, mine.data, mine.count, mine.dtype, root, options); });
  }
  /// Equal parts for every rank.
  void alltoall(const In& send, const Out& receive, const Call& call = {}) const {
    const std::uint64_t part = alltoall_part(send, receive);
    detail::block(call, [&](auto* options) { return mv_alltoall(id_, send.data, receive.data, part, send.dtype, options); });
  }
  Request alltoall_async(const In& send, const Out& receive, const Call& call = {}) const {
    const std::uint64_t part = alltoall_part(send, receive);
    return detail::start(call, [&](auto* options) { return mv_alltoall(id_, send.data, receive.data, part, send.dtype, options); });
  }
  using Counts = std::span<const std::uint64_t>;
  /// By rank: how many elements it is sent, and how many it sends to this rank.
  void alltoall(const In& send, Counts send_counts, const Out& receive, Counts receive_counts, const Call& call = {}) const {
    counted(send, send_counts, receive, receive_counts);
    detail::block(call, [&](auto* options) {
      return mv_alltoall_counts(id_, send.data, send_counts.data(), receive.data, receive_counts.data(), send.dtype, options);
    });
  }
  Request alltoall_async(const In& send, Counts send_counts, const Out& receive, Counts receive_counts, const Call& call = {}) const {
    counted(send, send_counts, receive, receive_counts);
    return detail::start(call, [&](auto* options) {
      return mv_alltoall_counts(id_, send.data, send_counts.data(), receive.data, receive_counts.data(), send.dtype, options);
    });
  }
  void barrier(const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_group_barrier(id_, options); });
  }
  Request barrier_async(const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_group_barrier(id_, options); });
  }

  /// Between two ranks.
  void send(const In& values, std::int64_t to, std::int64_t tag = 0, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_send(id_, values.data, values.count, values.dtype, to, tag, options); });
  }
  Request send_async(const In& values, std::int64_t to, std::int64_t tag = 0, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_send(id_, values.data, values.count, values.dtype, to, tag, options); });
  }
  /// Returns the rank that sent the message; from MV_ANY_RANK: the one whose message arrived first.
  std::int64_t recv(const Out& values, std::int64_t from, std::int64_t tag = 0, const Call& call = {}) const {
    std::int64_t source = 0;
    detail::block(call, [&](auto* options) { return mv_recv(id_, values.data, values.count, values.dtype, from, tag, &source, options); });
    return source;
  }
  /// @param source written when the request is done; may be null
  Request recv_async(const Out& values, std::int64_t from, std::int64_t tag = 0, std::int64_t* source = nullptr, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_recv(id_, values.data, values.count, values.dtype, from, tag, source, options); });
  }

  /// The next operation of the other ranks, for a rank without further data.
  struct Drained {
    mv_drained next = MV_DRAINED_INIT;
    std::vector<mv_array> arrays;  ///< counts, dtypes and notes
  };
  Drained drain(const Call& call = {}) const {
    Drained result;
    result.arrays.resize(16);
    const mv_call_options blocking = detail::options(call);
    for (;;) {
      const mv_status status = mv_allreduce_drain(id_, result.arrays.data(), result.arrays.size(), &result.next, &blocking);
      if (status == MV_EINVAL && result.next.arrays > result.arrays.size()) {
        result.arrays.resize(result.next.arrays);
        continue;
      }
      check(status);
      result.arrays.resize(result.next.arrays);
      return result;
    }
  }
  /// Takes part in the others' all-reduces with neutral values until all ranks drain.
  void allreduce_zeros(const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_allreduce_zeros(id_, options); });
  }
  Request allreduce_zeros_async(const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_allreduce_zeros(id_, options); });
  }

  /// mine = f(mine, theirs), on the calling thread. An exception fails the operation on all ranks.
  using Reducer = std::function<void(std::span<const mv_array> mine, std::span<const mv_array> theirs)>;
  /// An all-reduce in place by the program's own function; returns the number of contributors.
  std::uint64_t allreduce_custom(const Arrays& arrays, Reducer reducer, std::uint32_t flags = 0, const Call& call = {}) const {
    std::uint64_t contributors = 0;
    detail::block(call, [&](auto* options) {
      return mv_allreduce_custom(id_, arrays.data(), arrays.size(), &run_reducer, &reducer, flags, &contributors, options);
    });
    return contributors;
  }

 private:
  explicit Group(mv_group id) noexcept : id_(id) {}
  static mv_group open_group(const Node& node, Ids workers) {
    return detail::value<mv_group>(mv_group_open, node.id(), workers.empty() ? nullptr : workers.data(), workers.size());
  }
  static mv_status run_reducer(void* user, const mv_array* mine, const mv_array* theirs, std::uint64_t arrays) noexcept {
    return detail::callback([&] { (*static_cast<Reducer*>(user))({mine, arrays}, {theirs, arrays}); });
  }
  // The C functions take one count and one dtype for both arrays, so a difference must be found here.
  template <class Part, class All>
  static void same(const Part& part, const All& all, std::int64_t ranks, const char* what) {
    if (all.dtype != part.dtype) raise(MV_EDTYPE, std::string(what) + ": the two arrays have different dtypes");
    const std::uint64_t needed = part.count * static_cast<std::uint64_t>(ranks);
    if (all.count != needed) {
      raise(MV_ESHAPE, std::string(what) + ": " + std::to_string(all.count) + " elements given, " + std::to_string(needed) + " needed (" +
                           std::to_string(part.count) + " for each of " + std::to_string(ranks) + ")");
    }
  }
  std::uint64_t alltoall_part(const In& send, const Out& receive) const {
    same(send, receive, 1, "alltoall");
    const auto ranks = static_cast<std::uint64_t>(size());
    if (send.count % ranks != 0) {
      raise(MV_ESHAPE, "alltoall: " + std::to_string(send.count) + " elements cannot be divided among " + std::to_string(ranks) + " ranks");
    }
    return send.count / ranks;
  }
  void counted(const In& send, Counts send_counts, const Out& receive, Counts receive_counts) const {
    if (send.dtype != receive.dtype) raise(MV_EDTYPE, "alltoall: the two arrays have different dtypes");
    const auto ranks = static_cast<std::uint64_t>(size());
    if (send_counts.size() != ranks || receive_counts.size() != ranks) {
      raise(MV_ESHAPE, "alltoall: the counts need one number for each of " + std::to_string(ranks) + " ranks");
    }
    if (total(send_counts) != send.count || total(receive_counts) != receive.count) {
      raise(MV_ESHAPE, "alltoall: the sum of the counts is not the number of elements");
    }
  }
  static std::uint64_t total(Counts counts) {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts) sum += count;
    return sum;
  }

  mv_group id_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace polyverso

#endif
