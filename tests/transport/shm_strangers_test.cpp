// transport/shm: hostile and broken peers can do no more harm than lose their own connection.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "node.hpp"
#include "shm_stranger.hpp"
#include "wire/frame.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace base = mv::base;
namespace transport = mv::transport;
namespace wire = mv::wire;

transport::TcpOptions options_of(Peer self, const std::string& secret = "") {
  transport::TcpOptions options;
  options.self = self;
  options.secret = secret;
  return options;
}

/// Asserts that `node` still accepts an honest peer and has broken no promise.
void assert_still_sound(Node& node, const std::string& address, const std::string& secret = "") {
  static Peer next = 10'000;
  Node friendly(Kind::kShm, options_of(++next, secret));
  friendly.dial(address);
  assert_true(friendly.wait([&](const Record& record) { return record.connections_of(node.self()) == 1; }));
  friendly.send(node.self(), 1, 10);
  assert_true(node.wait([&](const Record& record) { return record.messages_of(friendly.self()) == 1; }));
  assert_true(friendly.stop());
  for (const std::string& violation : node.record().violations) fail_test("broken promise: %s", violation.c_str());
}

void another_secret_is_refused(void**) {
  Node node(Kind::kShm, options_of(1, "right"));
  const std::string address = node.listen();
  for (const char* secret : {"wrong", ""}) {
    Node other(Kind::kShm, options_of(2, secret));
    other.dial(address);
    assert_true(other.wait([](const Record& record) { return record.dial_failed.size() == 1; }));
    assert_int_equal(other.record().dial_failed[0].code, MV_EAUTH);
    assert_int_equal(other.record().connected.size(), 0);
  }
  assert_still_sound(node, address, "right");
  assert_int_equal(node.record().connections_of(2), 0);
}

void nothing_is_parsed_before_the_hello(void**) {
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  wire::FrameBuilder builder;
  ShmStranger rude(address);
  rude.send(builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb())).head);
  assert_true(rude.is_turned_away());
  ShmStranger hasty(address);
  hasty.offer({});
  assert_true(hasty.is_turned_away());
  ShmStranger silent(address);
  assert_still_sound(node, address);
}

void an_offer_must_be_sealed_memory_of_its_size_and_a_bell(void**) {
  using Offer = ShmStranger::Offer;
  const Offer wrong[] = {
      {.sealed = false},
      {.with_descriptors = false},
      {.bell_is_a_pipe = true},
      {.bytes = 4096},
      {.bytes = 100, .said_bytes = transport::kControlBytes + transport::kRingBytes},
      {.said_bytes = size_t{1} << 50},
      {.said_bytes = 0},
      {.bytes = transport::kControlBytes + (size_t{256} << 20), .ring_bytes = size_t{256} << 20},
      {.magic = 7},
      {.ring_bytes = transport::kRingBytes * 2},
      {.ring_bytes = transport::kRingBytes - 16},
      {.ring_bytes = 0},
      {.ring_bytes = UINT64_MAX},
  };
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  Peer self = 100;
  for (const Offer& offer : wrong) {
    ShmStranger stranger(address);
    assert_true(stranger.introduce(++self));
    assert_true(stranger.offer(offer));
    assert_true(stranger.is_turned_away());
    assert_int_equal(node.record().connections_of(self), 0);
  }
  assert_still_sound(node, address);
}

/// A stranger that has completed the hello like an honest peer.
struct Intruder {
  Intruder(Node& node, const std::string& address, Peer self) : node(node), self(self), stranger(address) {
    assert_true(stranger.introduce(self));
    assert_true(stranger.offer({}));
    assert_true(stranger.take_offer());
    assert_true(node.wait([&](const Record& record) { return record.connections_of(self) == 1; }));
  }
  void put(size_t at, transport::Mark mark) { std::memcpy(stranger.ring() + at, &mark, sizeof mark); }
  /// Writes a whole frame; returns its size in bytes.
  size_t put_frame(size_t at, uint64_t seq, size_t payload) {
    wire::FrameBuilder builder;
    base::Frame frame =
        builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()), base::Payload::copy(pattern(seq, payload)));
    wire::stamp(frame, seq, 0);
    std::memcpy(stranger.ring() + at, frame.head.data(), frame.head.size());
    if (frame.tail)
      std::memcpy(stranger.ring() + at + frame.head.size(), frame.tail->bytes().data(), frame.tail->size());
    return transport::record_bytes(frame.bytes());
  }
  void expect_thrown_out() {
    assert_true(node.wait([&](const Record& record) { return record.has_lost(self); }));
    for (const Ended& end : node.record().lost) {
      if (end.peer == self) assert_int_equal(end.code, MV_EPROTOCOL);
    }
    assert_true(stranger.is_turned_away());
  }

  Node& node;
  const Peer self;
  ShmStranger stranger;
};

void records_that_make_no_sense_cost_their_own_connection(void**) {
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  Peer self = 100;
  const auto mark = [](transport::RecordKind kind, uint32_t first, uint64_t second) {
    return transport::Mark{static_cast<uint32_t>(kind), first, second};
  };
  struct Case {
    transport::Mark mark;
    uint64_t written;
  };
  const Case cases[] = {
      {{0, 0, 0}, 16},
      {{0xffff'ffff, 1, 1}, 64},
      {mark(transport::RecordKind::kFrame, 0, 0), 64},
      {mark(transport::RecordKind::kFrame, 0x7fff'ffff, 0), 64},
      {mark(transport::RecordKind::kFrame, 64, 0), 64},
      {mark(transport::RecordKind::kFrame, 64, uint64_t{1} << 40), 4096},
      {mark(transport::RecordKind::kFrame, 64, UINT64_MAX), 4096},
      {mark(transport::RecordKind::kFrame, 64, 64), 4096},  // a header of zeros
      {mark(transport::RecordKind::kStart, 64, 64), 4096},
      {mark(transport::RecordKind::kPart, 16, 0), 4096},
      {mark(transport::RecordKind::kPlace, 64, 64), 64},
      {mark(transport::RecordKind::kSkip, 0, 0), 16},
      {{0, 0, 0}, 8},                    // misaligned
      {{0, 0, 0}, transport::kRingBytes + 16},  // more than the ring holds
      {{0, 0, 0}, UINT64_MAX - 15},
  };
  for (const Case& each : cases) {
    Intruder intruder(node, address, ++self);
    intruder.put(0, each.mark);
    intruder.stranger.show(each.written);
    intruder.expect_thrown_out();
  }
  assert_int_equal(node.record().messages.size(), 0);
  assert_still_sound(node, address);
}

void positions_that_jump_cost_their_own_connection(void**) {
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  {
    Intruder back(node, address, 100);
    const size_t bytes = back.put_frame(0, 1, 100);
    back.stranger.show(bytes);
    assert_true(node.wait([](const Record& record) { return record.messages_of(100) == 1; }));
    back.stranger.show(bytes - 16);
    back.expect_thrown_out();
  }
  {
    Intruder ahead(node, address, 101);  // it claims to have read what was never written
    ahead.stranger.control().read = 1 << 20;
    node.send(101, 1, 10);
    ahead.stranger.ring_bell();
    ahead.expect_thrown_out();
  }
  assert_int_equal(node.record().messages.size(), 1);
  assert_still_sound(node, address);
}

void places_outside_of_segments_cost_their_own_connection(void**) {
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  struct Case {
    uint64_t number, offset, bytes;
    bool ok;
  };
  Peer self = 100;
  for (const Case& each : {Case{1, 0, 4096, true}, Case{2, 0, 64, false}, Case{1, 4096, 64, false},
                           Case{1, 4000, 200, false}, Case{1, 4, 64, false}, Case{1, UINT64_MAX - 7, 64, false}}) {
    Intruder intruder(node, address, ++self);
    const transport::Fd memory(memfd_create("payload", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    assert_int_equal(ftruncate(memory.get(), 4096), 0);
    fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    transport::Note note;
    note.kind = transport::Note::Type::kSegment;
    note.number = 1;
    note.bytes = 4096;
    const int descriptors[] = {memory.get()};
    assert_true(transport::send_note(intruder.stranger.socket(), note, descriptors));
    wire::FrameBuilder builder;
    base::Frame frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()));
    transport::Mark mark;
    std::memcpy(&mark, frame.head.data(), sizeof mark);
    mark.magic = static_cast<uint32_t>(transport::RecordKind::kPlace);
    mark.second = each.bytes;
    std::memcpy(frame.head.data(), &mark, sizeof mark);
    const size_t place_at = transport::record_bytes(frame.head.size());
    std::memcpy(intruder.stranger.ring(), frame.head.data(), frame.head.size());
    new (intruder.stranger.ring() + place_at) transport::PayloadLocation{{each.number}, {each.offset}, {0}, {0}};
    intruder.stranger.show(place_at + sizeof(transport::PayloadLocation));
    if (each.ok)
      assert_true(node.wait([&](const Record& record) { return record.messages_of(self) == 1; }));
    else
      intruder.expect_thrown_out();
  }
  assert_int_equal(node.record().messages.size(), 1);
  assert_still_sound(node, address);
}

void a_header_that_changes_while_it_is_read_does_no_harm(void**) {
  Node node(Kind::kShm, options_of(1));
  node.expect_headers_up_to(wire::kMaxHeaderBytes);  // a changed length may be that of a message, too
  const std::string address = node.listen();
  for (Peer self = 100; self < 112; ++self) {
    Intruder intruder(node, address, self);
    std::atomic<bool> stop{false};
    uint64_t written = 0;
    while (written < (64 << 10)) written += intruder.put_frame(written, 1, 200);
    std::thread vandal([&] {  // the node has its own copy of everything that it has verified
      for (uint64_t random = self; !stop;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        intruder.stranger.ring()[(random >> 33) % written] ^= static_cast<std::byte>(1 << (random >> 61));
      }
    });
    for (uint64_t shown = 0; shown < written; shown += 1024) intruder.stranger.show(shown);
    node.wait([&](const Record& record) { return record.has_lost(self); }, 50ms);
    stop = true;
    vandal.join();
  }
  assert_still_sound(node, address);
}

#if !defined(__SANITIZE_THREAD__)
/// Writes a record whose payload lies in one of the intruder's segments.
size_t put_place(Intruder& intruder, size_t at, uint64_t seq, uint64_t segment, uint64_t offset, uint64_t bytes, bool is_lent) {
  wire::FrameBuilder builder;
  base::Frame frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()));
  wire::stamp(frame, seq, 0);
  transport::Mark mark;
  std::memcpy(&mark, frame.head.data(), sizeof mark);
  mark.magic = static_cast<uint32_t>(transport::RecordKind::kPlace);
  mark.second = bytes;
  std::memcpy(frame.head.data(), &mark, sizeof mark);
  const size_t place_at = transport::record_bytes(frame.head.size());
  std::memcpy(intruder.stranger.ring() + at, frame.head.data(), frame.head.size());
  new (intruder.stranger.ring() + at + place_at) transport::PayloadLocation{{segment}, {offset}, {0}, {is_lent ? 1U : 0U}};
  return place_at + sizeof(transport::PayloadLocation);
}
#endif

/// Each intruder writes random words into all of its memory while the node reads its records, shows it payloads, and takes them back.
void a_peer_that_scribbles_over_its_memory_costs_its_own_connection(void**) {
#if !defined(__SANITIZE_THREAD__)  // these writes are deliberate data races
  Node node(Kind::kShm, options_of(1));
  node.expect_headers_up_to(wire::kMaxHeaderBytes);
  const std::string address = node.listen();
  const auto memory = base::SharedMemory::make("test", 1 << 20).value();
  base::SharedMemory::enlist(memory);
  for (Peer self = 100; self < 140; ++self) {
    Intruder intruder(node, address, self);
    transport::Note note;
    note.kind = transport::Note::Type::kSegment;
    note.number = 1;
    note.bytes = memory->bytes();
    const int descriptors[] = {memory->fd()};
    assert_true(transport::send_note(intruder.stranger.socket(), note, descriptors));
    uint64_t written = 0;
    for (uint64_t seq = 1; written < (64 << 10); ++seq)
      written += seq % 2 == 0 ? put_place(intruder, written, seq, 1, seq * 8, 1 + seq * 4096 % (900 << 10), seq % 4 == 0)
                              : intruder.put_frame(written, seq, 200);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> shown{0};
    std::thread vandal([&] {
      std::mt19937_64 random(self);
      transport::Control& page = intruder.stranger.control();
      std::atomic<uint64_t>* const words[] = {&page.written, &page.read, &page.naps, &page.wants_read, &page.magic, &page.ring_bytes};
      while (!stop) {
        const uint64_t choice = random();
        if (choice % 64 == 0) {  // rarely: most of these end the connection
          words[random() % 6]->store(random() % 2 == 0 ? random() : shown + random() % 4 * 16);
        } else if (choice % 2 == 0) {
          page.naps.store(random() % 4);
          page.wants_read.store(random() % 2 == 0 ? transport::kNoWish : 0);
          page.read.store(intruder.stranger.peer().written.load());
        } else {
          intruder.stranger.ring()[random() % written] ^= static_cast<std::byte>(1 << random() % 8);
        }
      }
    });
    for (; shown < written; shown += 1024) {
      const auto payload = base::Payload::lent({memory->data(), 256 << 10});
      node.send(self, 1, payload);
      intruder.stranger.show(shown);
      node.run([&] { payload->make_owned(); });
    }
    node.wait([&](const Record& record) { return record.has_lost(self); }, 10ms);
    stop = true;
    vandal.join();
  }
  assert_still_sound(node, address);
#endif
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(another_secret_is_refused),
      cmocka_unit_test(nothing_is_parsed_before_the_hello),
      cmocka_unit_test(an_offer_must_be_sealed_memory_of_its_size_and_a_bell),
      cmocka_unit_test(records_that_make_no_sense_cost_their_own_connection),
      cmocka_unit_test(positions_that_jump_cost_their_own_connection),
      cmocka_unit_test(places_outside_of_segments_cost_their_own_connection),
      cmocka_unit_test(a_header_that_changes_while_it_is_read_does_no_harm),
      cmocka_unit_test(a_peer_that_scribbles_over_its_memory_costs_its_own_connection),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
