#include "table/shard.hpp"

#include "table/dense.hpp"
#include "table/keyed/keyed.hpp"

namespace mv::table {

base::Result<std::shared_ptr<Shard>> Shard::make(const Spec& spec, const Place& place) {
  return spec.is_keyed() ? KeyedShard::make(spec, place) : DenseShard::make(spec, place);
}

}  // namespace mv::table
