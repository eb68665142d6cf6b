#pragma once
// The waiting requests of a server, by request; the parts of a split request lie side by side.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/rpc/pending.hpp"

namespace mv::table {

/// References stay valid until the request, or all its parts, are erased. Loop thread only.
template <typename Value>
class Requests {
 public:
  /// Parts 1 .. `parts` of this request may arrive. Makes room for all of them at once. Otherwise each part would cost
  /// an allocation and a look-up in scattered memory.
  void expect_parts(const rpc::Asked& whole, size_t parts) {
    Split& split = split_[whole];
    split.values.resize(parts);
    split.come = true;
  }
  /// No more parts will arrive.
  void parts_came(const rpc::Asked& whole) {
    const auto found = split_.find(whole);
    if (found == split_.end()) return;
    found->second.come = false;
    if (found->second.open == 0) split_.erase(found);
  }

  Value* find(const rpc::Asked& asked) {
    if (asked.part == 0) {
      const auto found = whole_.find(asked);
      return found != whole_.end() ? &found->second : nullptr;
    }
    Split* const split = split_of(asked);
    return split != nullptr && split->values[asked.part - 1] ? &*split->values[asked.part - 1] : nullptr;
  }
  const Value* find(const rpc::Asked& asked) const { return const_cast<Requests*>(this)->find(asked); }

  void insert(const rpc::Asked& asked, Value&& value) {
    if (asked.part == 0) {
      whole_.insert_or_assign(asked, std::move(value));
      return;
    }
    Split& split = split_[{asked.client, asked.seq}];
    if (split.values.size() < asked.part) split.values.resize(asked.part);
    split.open += split.values[asked.part - 1] ? 0 : 1;
    split.values[asked.part - 1] = std::move(value);
  }

  void erase(const rpc::Asked& asked) {
    if (asked.part == 0) {
      whole_.erase(asked);
      return;
    }
    Split* const split = split_of(asked);
    if (split == nullptr || !split->values[asked.part - 1]) return;
    split->values[asked.part - 1].reset();
    if (--split->open == 0 && !split->come) split_.erase({asked.client, asked.seq});
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [asked, value] : whole_) visit(asked, value);
    for (const auto& [asked, split] : split_)
      for (uint32_t i = 0; i < split.values.size(); ++i)
        if (split.values[i]) visit(rpc::Asked{asked.client, asked.seq, i + 1}, *split.values[i]);
  }
  template <typename Which>
  void erase_if(Which which) {
    std::vector<rpc::Asked> some;
    for_each([&](const rpc::Asked& asked, const Value& value) {
      if (which(asked, value)) some.push_back(asked);
    });
    for (const rpc::Asked& asked : some) erase(asked);
  }

  size_t size() const {
    size_t count = whole_.size();
    for (const auto& [asked, split] : split_) count += split.open;
    return count;
  }

 private:
  struct Split {
    std::vector<std::optional<Value>> values;  ///< by part
    size_t open = 0;
    bool come = false;  ///< more parts may come
  };
  Split* split_of(const rpc::Asked& asked) {
    const auto found = split_.find({asked.client, asked.seq});
    return found != split_.end() && asked.part <= found->second.values.size() ? &found->second : nullptr;
  }

  std::unordered_map<rpc::Asked, Value, rpc::Asked::Hash> whole_;
  std::unordered_map<rpc::Asked, Split, rpc::Asked::Hash> split_;
};

}  // namespace mv::table
