#pragma once
// A set of numbers of requests.

#include <algorithm>
#include <iterator>
#include <map>

#include "engine/rpc/pending.hpp"

namespace mv::rpc {

/// Kept as intervals, because most numbers in it follow one another: while one request of a client waits, millions of later ones may finish.
class SeqSet {
 public:
  bool empty() const { return ranges_.empty(); }
  /// The first interval. The set must not be empty.
  std::pair<Seq, Seq> front() const { return *ranges_.begin(); }
  void pop_front() { ranges_.erase(ranges_.begin()); }
  void add(Seq seq) { add(seq, seq); }
  /// Adds first to last.
  void add(Seq first, Seq last) {
    if (first > last) return;
    auto at = ranges_.upper_bound(first);
    if (at != ranges_.begin() && std::prev(at)->second + 1 >= first) {
      --at;
      first = at->first;
      last = std::max(last, at->second);
      at = ranges_.erase(at);
    }
    while (at != ranges_.end() && at->first <= last + 1) {
      last = std::max(last, at->second);
      at = ranges_.erase(at);
    }
    ranges_.emplace_hint(at, first, last);
  }
  void remove_through(Seq seq) {
    while (!ranges_.empty() && ranges_.begin()->first <= seq) {
      const Seq last = ranges_.begin()->second;
      ranges_.erase(ranges_.begin());
      if (last > seq) ranges_.emplace(seq + 1, last);
    }
  }
  /// By first number: the last one.
  const std::map<Seq, Seq>& ranges() const { return ranges_; }

 private:
  std::map<Seq, Seq> ranges_;
};

}  // namespace mv::rpc
