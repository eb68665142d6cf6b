#include "engine/collective/plan.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "engine/collective/reducer.hpp"

namespace mv::collective {

namespace {
constexpr uint8_t kManyDtypes = 255;
constexpr uint8_t kByHost = 16, kBinaryTree = 32, kHandedOver = 64, kSplit = 128, kAgreedUpon = kSplit | kHandedOver;

/// Converts the segment of a chosen tree from bytes to the elements of a schedule.
Tree in_elements(Tree tree, const Value& value, uint64_t root) {
  const uint64_t bytes = std::max<uint64_t>(1, value.bytes({0, value.count()}));
  if (tree.segment > 0) tree.segment = std::max<uint64_t>(1, tree.segment * std::max<uint64_t>(1, value.count()) / bytes);
  tree.root = static_cast<int32_t>(root);
  return tree;
}

Plan plan_allreduce(const Setting& at, uint64_t count, uint64_t bytes) {
  const Choice choice = choose_allreduce(bytes, at.layout, at.costs);
  const auto algorithm = static_cast<uint8_t>(choice.algorithm);
  if (choice.is_split) return {split_allreduce(at.rank, at.layout.hosts, count, choice.algorithm), static_cast<uint8_t>(kSplit | algorithm)};
  if (choice.by_host) return {hierarchical_allreduce(at.rank, at.layout.hosts, count, choice.algorithm), static_cast<uint8_t>(kByHost | algorithm)};
  return {allreduce(choice.algorithm, at.rank, at.size, count), algorithm};
}

/// A variant of FNV-1a for 64-bit numbers.
struct Hash {
  uint64_t value = 14695981039346656037u;
  void add(uint64_t number) { value = (std::rotl(value, 23) ^ number) * 1099511628211u; }
};
}  // namespace

bool is_handed_over(const Setting& setting, const Operation& operation) {
  if (operation.vote != nullptr || setting.hand_over_from == UINT64_MAX || !can_be_handed_over(operation)) return false;
  uint64_t bytes = 0;
  for (const Array& array : operation.out) bytes += array.bytes();
  return bytes >= setting.hand_over_from;
}

Plan plan_handed_over(const Setting& at) { return {recursive_doubling_allreduce(at.rank, at.size, 1), kHandedOver}; }

Plan plan_agreement(const Setting& at) { return {recursive_doubling_allreduce(at.rank, at.size, 2), kAgreedUpon}; }

Plan plan(const Setting& at, const Operation& operation, const Value& value) {
  const uint64_t count = value.count(), bytes = value.bytes({0, count});
  const auto tree = [&] { return in_elements(choose_tree(bytes, at.layout, at.costs), value, operation.root); };
  switch (operation.kind) {
    case Kind::kBarrier:
    case Kind::kGrow:
      return {recursive_doubling_allreduce(at.rank, at.size, count), 0};
    case Kind::kReduce: {
      const Tree shape = tree();
      return {tree_reduce(at.rank, at.size, count, shape), static_cast<uint8_t>(std::min(shape.arity, 255))};
    }
    case Kind::kBroadcast: {
      const Tree shape = tree();
      return {tree_broadcast(at.rank, at.size, count, shape), static_cast<uint8_t>(std::min(shape.arity, 255))};
    }
    case Kind::kAllgather:
      return {ring_allgather(at.rank, at.size, count), 0};
    case Kind::kReduceScatter:
      return {ring_reduce_scatter(at.rank, at.size, count), 0};
    case Kind::kGather:
      return {star_gather(at.rank, at.size, operation.out.front().count / static_cast<uint64_t>(at.size), static_cast<int32_t>(operation.root)), 0};
    case Kind::kScatter:
      return {star_scatter(at.rank, at.size, operation.out.front().count, static_cast<int32_t>(operation.root)), 0};
    case Kind::kAlltoall: {
      const std::vector<uint64_t> each(static_cast<size_t>(at.size), operation.out.front().count / static_cast<uint64_t>(at.size));
      return {pairwise_alltoall(at.rank, at.size, each, each), 0};
    }
    case Kind::kAlltoallCounts: {
      Schedule schedule = ring_allgather_of_pairs(at.rank, at.size, 2 * static_cast<uint64_t>(at.size));
      append(schedule, pairwise_alltoall(at.rank, at.size, operation.send_counts, operation.receive_counts));
      return {std::move(schedule), 0};
    }
    case Kind::kCustom:
      return {tree_allreduce(at.rank, at.size, count, {}), kBinaryTree};
    default:
      return plan_allreduce(at, count, bytes);
  }
}

std::shared_ptr<const Plan> Planner::plan(const Operation& operation, const Value& value) {
  const Kind kind = operation.kind;
  const bool follows_from_key = kind == Kind::kBarrier || kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast;
  if (!follows_from_key) return std::make_shared<const Plan>(collective::plan(setting_, operation, value));
  const Key key{kind, operation.root, value.count(), value.bytes({0, value.count()})};
  if (last_ == nullptr || key != key_) last_ = std::make_shared<const Plan>(collective::plan(setting_, operation, value));
  key_ = key;
  return last_;
}

wire::Signature sign(const Operation& operation, uint8_t algorithm) {
  Hash hash;
  uint64_t elements = 0;
  uint8_t dtype = operation.out.empty() ? 0 : static_cast<uint8_t>(operation.out.front().dtype);
  for (const Array& array : operation.out) {
    const uint64_t count = operation.kind == Kind::kAlltoallCounts ? 0 : array.count;  // the ranks' own
    hash.add(count);
    hash.add(static_cast<uint64_t>(array.dtype));
    elements += count;
    if (array.dtype != operation.out.front().dtype) dtype = kManyDtypes;
  }
  if (is_between_two(operation.kind)) hash.value = static_cast<uint64_t>(operation.tag);
  const uint32_t root = has_root(operation.kind) ? static_cast<uint32_t>(operation.root) : 0;
  return {elements, hash.value, static_cast<uint32_t>(operation.out.size()), root, static_cast<uint8_t>(operation.kind),
          static_cast<uint8_t>(operation.reduction), dtype, algorithm, operation.label};
}

bool same(const wire::Signature& a, const wire::Signature& b) {
  return a.elements() == b.elements() && a.hash() == b.hash() && a.arrays() == b.arrays() && a.kind() == b.kind() && a.root() == b.root() &&
         a.reduction() == b.reduction() && a.algorithm() == b.algorithm() && labels_fit(a.label(), b.label());
}

bool can_be_drained(const wire::Signature& signature) {
  const auto kind = static_cast<Kind>(signature.kind());
  return kind == Kind::kAllreduce || kind == Kind::kCustom;
}

std::string describe(const wire::Signature& signature) {
  const auto kind = static_cast<Kind>(signature.kind());
  std::string text = kind_name(kind);
  if (kind == Kind::kBarrier || kind == Kind::kDrain || kind == Kind::kGrow) return text;
  if (kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter)
    text += fmt::format(" ({})", math::reduction_name(static_cast<math::Reduction>(signature.reduction())));
  text += kind == Kind::kAlltoallCounts ? " of" : fmt::format(" of {}", signature.elements());
  text += " ";
  text += signature.dtype() == kManyDtypes ? "elements of several dtypes" : tensor::dtype_name(static_cast<mv_dtype>(signature.dtype()));
  if (signature.arrays() != 1) text += fmt::format(" in {} arrays", signature.arrays());
  if (is_to_root(kind)) text += fmt::format(" to rank {}", signature.root());
  if (is_from_root(kind)) text += fmt::format(" from rank {}", signature.root());
  if (is_between_two(kind)) text += fmt::format(" with tag {}", static_cast<int64_t>(signature.hash()));
  return text;
}

}  // namespace mv::collective
