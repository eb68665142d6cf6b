#pragma once
// The algorithms of collective operations, one file each: pure functions from a rank to its schedule, for any size >= 1
// and any count. After an all-reduce, all ranks hold the same bits. docs/allreduce.md gives the cost of each.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/collective/operation.hpp"
#include "engine/collective/schedule.hpp"

namespace mv::collective {

struct Tree {
  int32_t arity = 2;     ///< >= 1; size - 1 or more make a star
  int32_t root = 0;
  uint64_t segment = 0;  ///< elements sent at a time, so that levels work in parallel; 0: all at once
};

/// The root ends with the result, the other ranks with partial results.
Schedule tree_reduce(int32_t rank, int32_t size, uint64_t count, const Tree& tree = {});
/// All ranks end with the root's value.
Schedule tree_broadcast(int32_t rank, int32_t size, uint64_t count, const Tree& tree = {});
Schedule tree_allreduce(int32_t rank, int32_t size, uint64_t count, const Tree& tree = {});

/// log2(size) exchanges of the whole value: the fewest steps, best for small values.
Schedule recursive_doubling_allreduce(int32_t rank, int32_t size, uint64_t count);

/// Each rank ends with slice(count, size, rank) of the result; the rest of its value holds partial results.
Schedule ring_reduce_scatter(int32_t rank, int32_t size, uint64_t count);
/// Each rank begins with slice(count, size, rank) and ends with all slices.
Schedule ring_allgather(int32_t rank, int32_t size, uint64_t count);
/// Both of them: a rank sends 2 (size - 1) / size of the value, the minimum, in 2 (size - 1) steps.
Schedule ring_allreduce(int32_t rank, int32_t size, uint64_t count);

/// The root ends with `each` elements of every rank; rank r's are the r-th of the value.
Schedule star_gather(int32_t rank, int32_t size, uint64_t each, int32_t root);
/// Each rank ends with the rank-th `each` elements of the root's value.
Schedule star_scatter(int32_t rank, int32_t size, uint64_t each, int32_t root);

/// The first element of those that rank `from` sends to rank `to` in an alltoall. A rank holds only the elements that
/// it sends or receives.
constexpr uint64_t first_of_pair(int32_t from, int32_t to, int32_t size) {
  return (static_cast<uint64_t>(from) * static_cast<uint64_t>(size) + static_cast<uint64_t>(to)) << kPairBits;
}
/// Pairs of ranks exchange their elements directly, `size - 1` steps. sends[r]: the number of elements for rank r;
/// receives[r]: those from rank r.
Schedule pairwise_alltoall(int32_t rank, int32_t size, const std::vector<uint64_t>& sends, const std::vector<uint64_t>& receives);
/// An allgather of `each` elements of every rank, those of rank r numbered as its pair with itself.
Schedule ring_allgather_of_pairs(int32_t rank, int32_t size, uint64_t each);

/// Recursive halving, then doubling: the ring's bytes in 2 log2(size) steps if size is a power of two, otherwise up to
/// twice the bytes.
Schedule rabenseifner_allreduce(int32_t rank, int32_t size, uint64_t count);

enum class Algorithm : uint8_t { kTree, kRecursiveDoubling, kRing, kRabenseifner };

constexpr const char* algorithm_name(Algorithm algorithm) {
  constexpr const char* kNames[] = {"tree", "recursive doubling", "ring", "Rabenseifner"};
  return algorithm <= Algorithm::kRabenseifner ? kNames[static_cast<size_t>(algorithm)] : "unknown";
}

Schedule allreduce(Algorithm algorithm, int32_t rank, int32_t size, uint64_t count, const Tree& tree = {});

/// hosts[r] is the host of rank r: any number that its ranks share. The ranks of each host reduce to their lowest rank.
/// These lowest ranks all-reduce by `across` among themselves, and broadcast the result on their hosts.
Schedule hierarchical_allreduce(int32_t rank, const std::vector<int32_t>& hosts, uint64_t count, Algorithm across);

/// Whether all hosts have equally many ranks.
bool are_even(const std::vector<int32_t>& hosts);
/// For even hosts. The ranks of each host reduce by a ring, so that each ends with its share of the value. It all-reduces
/// this share by `across` with the ranks of the other hosts that have the same place there. The ranks of a host then gather
/// all shares by a ring.
Schedule split_allreduce(int32_t rank, const std::vector<int32_t>& hosts, uint64_t count, Algorithm across);

}  // namespace mv::collective
