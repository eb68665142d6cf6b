#include "table/shard.hpp"

#include "table/dense.hpp"

namespace mv::table {

base::Result<std::shared_ptr<Shard>> Shard::make(const Spec& spec, const Place& place) {
  return DenseShard::make(spec, place);
}

}  // namespace mv::table
