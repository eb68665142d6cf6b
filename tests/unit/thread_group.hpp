#pragma once
// A group whose ranks are threads of this process: implements api::Group with memory and a lock.

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "api/group/group.hpp"

class ThreadGroups {
 public:
  explicit ThreadGroups(size_t size) : size_(size), next_(size) {
    node = mv::api::Node::make({});
    if (!node->join().ok()) std::abort();
    for (size_t rank = 0; rank < size; ++rank) groups.push_back(std::make_shared<Group>(*this, rank));
  }
  ~ThreadGroups() {
    groups.clear();
    (void)node->shutdown();
  }

  std::unique_ptr<mv::api::Node> node;
  std::vector<mv::api::GroupRef> groups;

  /// Runs work(rank) on one thread per rank.
  void run(const std::function<void(size_t rank)>& work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < size_; ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  using Operation = mv::collective::Operation;
  using Kind = mv::collective::Kind;

  struct Slot {
    std::map<size_t, Operation> operations;  ///< by rank
    std::vector<mv::api::CallRef> calls;    ///< to be ended
    std::set<size_t> draining;
    bool done = false, finished = false;
  };

  class Group final : public mv::api::Group {
   public:
    Group(ThreadGroups& all, size_t rank) : all_(all), rank_(rank) {
      for (size_t other = 0; other < all.size_; ++other) members_.push_back(static_cast<int64_t>(other));
    }
    mv::api::GroupInfo info() override {
      mv::api::GroupInfo about;
      about.rank = static_cast<int64_t>(rank_);
      about.size = static_cast<int64_t>(all_.size_);
      return about;
    }
    const std::vector<int64_t>& members() const override { return members_; }
    mv::api::Started run(Operation&& operation, const mv::api::CallOptions& options) override {
      return all_.begin(rank_, std::move(operation), options);
    }
    mv::base::Result<mv::collective::Shape> drain(const mv::api::CallOptions&) override { return all_.drain(rank_); }
    mv::base::Result<mv::api::CustomReductionRef> custom(Operation, const mv::api::CallOptions&) override { return unknown(); }
    mv::base::Result<mv::api::GroupRef> shrink(const mv::api::CallOptions&) override { return unknown(); }
    mv::base::Result<mv::api::GroupRef> grow(const mv::api::Growth&, const mv::api::CallOptions&) override { return unknown(); }
    mv::base::Status close() override { return {}; }
    mv::base::Status abort(const std::string&) override { return {}; }
    void give_up(const mv::base::Status&) noexcept override {}

   private:
    static mv::base::Status unknown() { return {MV_EINVAL, "threads don't do that"}; }
    ThreadGroups& all_;
    const size_t rank_;
    std::vector<int64_t> members_;
  };

  mv::api::Started begin(size_t rank, Operation operation, const mv::api::CallOptions& options) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[next_[rank]++];
    slot.operations.emplace(rank, std::move(operation));
    mv::api::CallRef call;
    if (options.mode == mv::api::Mode::kAsync) slot.calls.push_back(call = node->group(options));
    if (slot.operations.size() == size_) finish(slot);
    changed_.notify_all();
    if (call == nullptr) changed_.wait(lock, [&] { return slot.done; });
    return {{}, call};
  }

  mv::base::Result<mv::collective::Shape> drain(size_t rank) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[next_[rank]];
    slot.draining.insert(rank);
    slot.finished = slot.finished || slot.draining.size() == size_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return slot.finished || !slot.operations.empty(); });
    if (slot.finished) {
      ++next_[rank];
      return mv::collective::Shape{true, {}, {}};
    }
    const Operation& first = slot.operations.begin()->second;
    mv::collective::Shape shape{false, first.reduction, first.out};
    for (auto& array : shape.arrays) array.data = nullptr;
    return shape;
  }

  void finish(Slot& slot) {
    const Operation& first = slot.operations.at(0);
    if (first.kind == Kind::kAllreduce) reduce(slot);
    if (first.kind == Kind::kBroadcast)
      for (auto& [rank, operation] : slot.operations)
        for (size_t i = 0; i < operation.out.size(); ++i)
          if (operation.out[i].count > 0)
            std::memmove(operation.out[i].data, slot.operations.at(first.root).out[i].data, operation.out[i].bytes());
    if (first.kind == Kind::kAllgather)
      for (auto& [to, operation] : slot.operations)
        for (auto& [from, other] : slot.operations) {
          const size_t part = operation.out[0].bytes() / size_;
          std::memcpy(operation.out[0].data + from * part, other.in[0], part);
        }
    slot.done = true;
    for (const auto& call : slot.calls) node->close_group(call, [] { return mv::base::Status(); });
  }

  void reduce(Slot& slot) {
    const Operation first = slot.operations.at(0);
    uint64_t contributors = 0;
    for (auto& [rank, operation] : slot.operations) contributors += operation.draining ? 0 : 1;
    for (size_t i = 0; i < first.out.size(); ++i) {
      const auto& array = first.out[i];
      for (size_t rank = 1; rank < size_; ++rank)
        mv::math::reduce_bytes(first.reduction, array.dtype, array.data, slot.operations.at(rank).out[i].data,
                               array.count, mv::math::Operand::kFirst);
      if (first.reduction == mv::math::Reduction::kAverage && contributors > 0)
        mv::math::divide_bytes(array.dtype, array.data, array.count, static_cast<uint64_t>(contributors));
      for (size_t rank = 1; rank < size_ && array.count > 0; ++rank) std::memcpy(slot.operations.at(rank).out[i].data, array.data, array.bytes());
    }
    for (auto& [rank, operation] : slot.operations)
      if (operation.contributors != nullptr) *operation.contributors = contributors;
  }

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> next_;
  std::map<uint64_t, Slot> slots_;
};

/// A model of a few arrays of T.
template <typename T>
struct Model {
  std::vector<std::vector<T>> values;
  std::vector<mv::collective::Array> arrays() {
    std::vector<mv::collective::Array> all;
    for (auto& value : values) all.push_back({reinterpret_cast<std::byte*>(value.data()), value.size(), sizeof(T) == 8 ? MV_F64 : MV_F32});
    return all;
  }
};
