#pragma once
// A communication library that reduces by itself, as MPI does: it takes the calls of all ranks of a group in their order, whatever the
// network does, and gives up nothing that it has begun.

#include <fmt/core.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/collective/reducer.hpp"
#include "math/reduction.hpp"
#include "random.hpp"
#include "timeline.hpp"

namespace mv::sim {

class Library {
 public:
  Library(Timeline& timeline, Random random) : timeline_(timeline), random_(random) {}

  /// One rank's end of a team. `touch` runs after each of its operations has ended.
  std::unique_ptr<collective::Reducer> join(uint64_t team, size_t rank, size_t ranks, std::function<void()> touch) {
    return std::make_unique<End>(*this, team, rank, ranks, std::move(touch));
  }

 private:
  using Bytes = std::vector<std::byte>;
  struct End;
  struct Handed {
    std::weak_ptr<End*> end;
    collective::Operation operation;
    collective::Reducer::Done done;
    std::vector<Bytes> values;
  };
  struct Call {
    std::map<size_t, Handed> parts;  // by rank
  };

  struct End final : collective::Reducer {
    End(Library& of, uint64_t its_team, size_t its_rank, size_t of_ranks, std::function<void()> do_touch)
        : library(of), team(its_team), rank(its_rank), ranks(of_ranks), touch(std::move(do_touch)) {}
    void reduce(const collective::Operation& operation, Done done) override { library.take(*this, operation, std::move(done)); }
    const std::string& name() const override {
      static const std::string kName = "the library";
      return kName;
    }
    Library& library;
    const uint64_t team;
    const size_t rank, ranks;
    const std::function<void()> touch;
    size_t calls = 0;
    const std::shared_ptr<End*> alive = std::make_shared<End*>(this);
  };

  void take(End& end, const collective::Operation& operation, collective::Reducer::Done done) {
    Call& call = calls_[{end.team, end.calls++}];
    Handed part{end.alive, operation, std::move(done), {}};
    for (size_t i = 0; i < operation.out.size(); ++i) {
      const std::byte* const from = operation.in.empty() ? operation.out[i].data : operation.in[i];
      part.values.emplace_back(from, from + operation.out[i].bytes());
    }
    for (const auto& [rank, other] : call.parts)
      if (!fits(other.operation, operation)) return timeline_.violated(fmt::format("ranks {} and {} hand different operations over", rank, end.rank));
    call.parts.emplace(end.rank, std::move(part));
    if (call.parts.size() == end.ranks) finish(call);
  }

  static bool fits(const collective::Operation& a, const collective::Operation& b) {
    bool fits = a.out.size() == b.out.size() && a.reduction == b.reduction;
    for (size_t i = 0; fits && i < a.out.size(); ++i) fits = a.out[i].count == b.out[i].count && a.out[i].dtype == b.out[i].dtype;
    return fits;
  }

  void finish(Call& call) {
    const auto results = std::make_shared<std::vector<Bytes>>(call.parts.begin()->second.values);
    const collective::Operation& shape = call.parts.begin()->second.operation;
    for (auto part = std::next(call.parts.begin()); part != call.parts.end(); ++part)
      for (size_t i = 0; i < results->size(); ++i)
        math::reduce_bytes(shape.reduction, shape.out[i].dtype, (*results)[i].data(), part->second.values[i].data(), shape.out[i].count, math::Operand::kFirst);
    for (auto& [rank, part] : call.parts)
      timeline_.after(base::Nanos(random_.between(0, 10'000'000)), [results, end = part.end, operation = part.operation, done = part.done] {
        if (end.expired()) return;  // its memory is not ours any more
        for (size_t i = 0; i < results->size(); ++i)
          if (!(*results)[i].empty()) std::memcpy(operation.out[i].data, (*results)[i].data(), (*results)[i].size());
        const auto touch = (*end.lock())->touch;  // the end may be gone after this
        done({});
        touch();
      });
    call.parts.clear();
  }

  Timeline& timeline_;
  Random random_;
  std::map<std::pair<uint64_t, size_t>, Call> calls_;  // by team and number
};

}  // namespace mv::sim
