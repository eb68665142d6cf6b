// engine/gossip between messages and mapped memory, in orders of events that are rare on a real network.

#include <iterator>
#include <memory>
#include <utility>

#include "engine/gossip/gossip.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using namespace mv::unit;

constexpr base::Peer kOther = 7;
constexpr float kModel[] = {1, 2, 3};

/// A node that knows one peer, which has published, and is fetching from it.
struct Fetcher {
  Fetcher() {
    for (gossip::Publisher* publisher : {&own, &other}) {
      assert_true(publisher->add(kModel, std::size(kModel), MV_F32).ok());
      assert_true(publisher->publish(1, 0.5).ok());
    }
    gossip::Gossip::Hooks hooks;
    hooks.on_done = [this] { done = true; };
    hooks.on_more = [this] { ++more; };
    hooks.mapped = [this](base::Peer) { return is_mapped ? other.reader() : nullptr; };
    engine = std::make_unique<gossip::Gossip>(still, kept, config, gossip::Node{"a", "here", 1}, 1, own, std::move(hooks));
    assert_true(engine->add_peer({"b", "there", 2}).ok());
    engine->fetch(0, {{std::size(kModel), MV_F32}});
  }

  StillClock still;
  KeepingLink kept;
  gossip::Config config;
  gossip::Publisher own, other;
  std::unique_ptr<gossip::Gossip> engine;
  bool is_mapped = false, done = false;
  int more = 0;
};

void a_question_by_message_gives_way_to_memory_that_is_mapped_meanwhile(void**) {
  Fetcher fetcher;
  fetcher.engine->on_connected(kOther, "there:2");
  assert_int_equal(fetcher.more, 0);  // it asks
  fetcher.is_mapped = true;
  fetcher.engine->on_connected(kOther, "there:2");  // by another way now
  for (int turns = 0; fetcher.more > turns && turns < 3; ++turns) fetcher.engine->go_on();
  assert_true(fetcher.done);
  assert_string_equal(fetcher.engine->caught().peer.c_str(), "b");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_question_by_message_gives_way_to_memory_that_is_mapped_meanwhile),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
