// add: w += g.  assign, replace: w = g; they differ in the rows that an add does not name. For all dtypes.

#include <cstring>

#include "math/kernels.hpp"
#include "shard/updater/kind.hpp"

namespace mv::shard {

namespace {

void add(std::span<const double>, mv_dtype storage, const Block& block) {
  math::add_bytes(storage, block.values, block.added, block.count);
}

void assign(std::span<const double>, mv_dtype storage, const Block& block) {
  std::memcpy(block.values, block.added, block.count * tensor::dtype_bytes(storage));
}

}  // namespace

constinit const Kind kAdd = {"add", {}, false, false, always<0>, add};
constinit const Kind kAssign = {"assign", {}, false, false, always<0>, assign};
constinit const Kind kReplace = {kReplacing, {}, false, false, always<0>, assign, nullptr, true};

}  // namespace mv::shard
