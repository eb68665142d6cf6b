#include "api/group/stage.hpp"

#include "api/group/group.hpp"

namespace mv::api {

using collective::Kind;
using collective::Operation;
using Use = Staging::Use;

namespace {

Use use_of_out(const Operation& operation, uint64_t rank) {
  const bool is_root = rank == operation.root;
  if (operation.kind == Kind::kSend) return Use::kRead;
  if (operation.kind == Kind::kBroadcast) return is_root ? Use::kRead : Use::kWritten;
  if (operation.kind == Kind::kReduce && !is_root) return operation.in.empty() ? Use::kRead : Use::kNone;
  return operation.in.empty() ? Use::kBoth : Use::kWritten;
}

}  // namespace

base::Result<std::shared_ptr<Staging>> stage_arrays(std::vector<collective::Array>& arrays, const FindDevice& find) {
  const auto staging = std::make_shared<Staging>();
  for (collective::Array& array : arrays) {
    auto staged = staging->stage(array.data, array.bytes(), Use::kBoth, find);
    if (!staged.ok()) return staged.status();
    array.data = staged.value();
  }
  return staging->has_copies() ? staging : std::shared_ptr<Staging>();
}

base::Result<std::shared_ptr<Staging>> stage_operation(Operation& operation, uint64_t rank, uint64_t ranks, const FindDevice& find) {
  const auto staging = std::make_shared<Staging>();
  const Use use = use_of_out(operation, rank);
  for (size_t i = 0; i < operation.out.size(); ++i) {
    const Sizes sizes = sizes_of(operation, i, rank, ranks);
    if (!operation.in.empty()) {
      auto in = staging->stage(operation.in[i], sizes.in, Use::kRead, find);
      if (!in.ok()) return in.status();
      operation.in[i] = in.value();
    }
    auto out = staging->stage(operation.out[i].data, sizes.out, use, find);
    if (!out.ok()) return out.status();
    operation.out[i].data = out.value();
  }
  return staging->has_copies() ? staging : std::shared_ptr<Staging>();
}

}  // namespace mv::api
