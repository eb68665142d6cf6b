// transport/tcp/outbox and transport/tcp/receiver without a socket between them: the output equals the input, however the stream is split.

#include <algorithm>
#include <cstring>
#include <random>

#include "node.hpp"
#include "transport/tcp/outbox.hpp"
#include "transport/tcp/receiver.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace base = mv::base;
namespace transport = mv::transport;
namespace wire = mv::wire;

/// Records messages. Large payloads go to its own memory; every third one is discarded.
struct Listener : base::LinkEvents {
  void on_connected(Peer, const std::string&) override {}
  void on_dial_failed(const std::string&, const base::Status&) override {}
  void on_lost(Peer, const base::Status&) override {}
  void on_part(Peer) override { ++parts; }
  void on_message(Peer, const wire::Message& message, std::span<const std::byte> payload) override {
    aligned = aligned && reinterpret_cast<uintptr_t>(payload.data()) % 8 == 0;
    take(message.seq(), payload, false);
  }
  base::SinkRef on_header(Peer, const wire::Message& message, size_t bytes) override {
    if (message.seq() % 3 == 0) return base::Sink::nowhere();
    memory.assign(bytes, std::byte{0});
    return base::Sink::into(memory);
  }
  void on_payload(Peer, const wire::Message& message, base::Sink& sink) override {
    take(message.seq(), sink.memory(), sink.discards());
  }
  void take(uint64_t seq, std::span<const std::byte> payload, bool discarded) {
    const auto expected = pattern(seq, payload.size());
    sound = sound && seq == ++count && (discarded || std::equal(payload.begin(), payload.end(), expected.begin()));
    bytes += payload.size();
    if (stop_at != 0 && seq == stop_at) receiver->stop();
  }
  std::vector<std::byte> memory;
  uint64_t count = 0, stop_at = 0, parts = 0;
  size_t bytes = 0;
  bool sound = true, aligned = true;
  transport::Receiver* receiver = nullptr;
};

base::Frame frame_of(uint64_t seq, size_t bytes, size_t text = 0) {
  wire::FrameBuilder builder;
  base::Frame frame = text == 0 ? builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()),
                                                 base::Payload::copy(pattern(seq, bytes)))
                                : builder.answer(base::Status(MV_EINVAL, std::string(text, 'x')));
  wire::stamp(frame, seq, 0);
  return frame;
}

std::vector<std::byte> drain(transport::Outbox& outbox, std::mt19937& random) {
  std::vector<std::byte> stream;
  while (!outbox.empty()) {
    iovec pieces[7];
    const size_t count = outbox.gather(pieces, std::size(pieces));
    size_t limit = random() % 3 == 0 ? random() % 300 : random() % 3'000'000;  // the bytes that "the kernel takes"
    size_t written = 0;
    for (size_t i = 0; i < count && limit > 0; ++i) {
      const size_t part = std::min(limit, pieces[i].iov_len);
      const auto* data = static_cast<const std::byte*>(pieces[i].iov_base);
      stream.insert(stream.end(), data, data + part);
      written += part;
      limit -= part;
    }
    outbox.written(written);
  }
  return stream;
}

/// Feeds `stream` in pieces of at most `step` bytes; returns the first error.
base::Status feed(transport::Receiver& receiver, std::span<const std::byte> stream, const std::function<size_t()>& step) {
  while (!stream.empty() && !receiver.stopped()) {
    const auto room = receiver.room();
    assert_true(!room.first.empty());
    const size_t taken = std::min({stream.size(), room.bytes(), std::max<size_t>(1, step())});
    const size_t first = std::min(taken, room.first.size());
    std::memcpy(room.first.data(), stream.data(), first);
    if (taken > first) std::memcpy(room.second.data(), stream.data() + first, taken - first);
    stream = stream.subspan(taken);
    if (auto status = receiver.received(taken); !status.ok()) return status;
  }
  return {};
}

std::vector<size_t> odd_sizes(std::mt19937& random) {
  std::vector<size_t> sizes;
  for (int i = 0; i < 120; ++i) {
    switch (random() % 6) {
      case 0:
        sizes.push_back(random() % 5000);
        break;
      case 1:
        sizes.push_back(transport::Receiver::kInPlaceBytes - 100 + random() % 200);
        break;
      case 2:
        sizes.push_back(transport::Receiver::kBufferBytes - 100 + random() % 200);
        break;
      case 3:
        sizes.push_back(random() % 200'000);
        break;
      default:
        sizes.push_back(random() % 64);
        break;
    }
  }
  return sizes;
}

void a_stream_may_be_cut_anywhere(void**) {
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    transport::Outbox outbox;
    uint64_t seq = 0;
    for (size_t size : odd_sizes(random)) outbox.push(frame_of(++seq, size));
    outbox.push_bytes(wire::goodbye());
    const size_t queued = outbox.bytes();
    const auto stream = drain(outbox, random);
    assert_int_equal(stream.size(), queued);

    Listener listener;
    transport::Receiver receiver(listener, 9);
    const size_t most = size_t{1} << (round * 3);
    assert_true(feed(receiver, stream, [&] { return random() % (most + 1); }).ok());
    assert_int_equal(listener.count, seq);
    assert_true(listener.sound);
    assert_true(listener.aligned);
    assert_true(receiver.goodbye());
  }
}

void every_byte_alone_is_enough(void**) {
  std::mt19937 random(2);
  transport::Outbox outbox;
  uint64_t seq = 0;
  for (size_t size : {0, 1, 7, 8, 9, 4096, 4097, 4103, 16384, 20001, 20002, 20003, 20004, 20005, 20006, 20007, 20008})
    outbox.push(frame_of(++seq, static_cast<size_t>(size)));
  const auto stream = drain(outbox, random);
  Listener listener;
  transport::Receiver receiver(listener, 9);
  assert_true(feed(receiver, stream, [] { return 1; }).ok());
  assert_int_equal(listener.count, seq);
  assert_true(listener.sound && listener.aligned);
  assert_false(receiver.inside_a_frame());
}

void headers_larger_than_the_buffer_arrive(void**) {
  std::mt19937 random(3);
  for (size_t step : {size_t{100}, size_t{70'000}, size_t{10'000'000}}) {
    transport::Outbox outbox;
    uint64_t seq = 0;
    for (size_t text :
         {size_t{10}, size_t{20'000}, transport::Receiver::kBufferBytes - 60, transport::Receiver::kBufferBytes, size_t{900'000}}) {
      outbox.push(frame_of(++seq, 0, text));
      outbox.push(frame_of(++seq, 33));
    }
    const auto stream = drain(outbox, random);
    Listener listener;
    transport::Receiver receiver(listener, 9);
    assert_true(feed(receiver, stream, [&] { return step; }).ok());
    assert_int_equal(listener.count, seq);
  }
}

void each_part_of_a_message_is_told_and_whole_messages_have_none(void**) {
  for (const size_t bytes : {size_t{1000}, size_t{100'000}, size_t{1'000'000}}) {
    std::mt19937 random(6);
    transport::Outbox outbox;
    outbox.push(frame_of(1, bytes));
    const auto stream = drain(outbox, random);
    for (const size_t pieces : {1, 10}) {
      const size_t step = (stream.size() + pieces - 1) / pieces;
      Listener listener;
      transport::Receiver receiver(listener, 9);
      assert_true(feed(receiver, stream, [&] { return step; }).ok());
      assert_int_equal(listener.count, 1);
      if (pieces == 1) assert_true(listener.parts == 0 || bytes > transport::Receiver::kBufferBytes);
      if (pieces > 1) assert_true(listener.parts >= pieces - 1);
    }
  }
}

void a_stopped_receiver_is_silent(void**) {
  std::mt19937 random(4);
  transport::Outbox outbox;
  for (uint64_t seq = 1; seq <= 50; ++seq) outbox.push(frame_of(seq, 100));
  const auto stream = drain(outbox, random);
  Listener listener;
  transport::Receiver receiver(listener, 9);
  listener.receiver = &receiver;
  listener.stop_at = 17;
  assert_true(feed(receiver, stream, [] { return 100'000; }).ok());
  assert_int_equal(listener.count, 17);
}

void nonsense_ends_the_stream_before_memory_is_touched(void**) {
  struct Prefix {
    uint32_t magic, header_bytes;
    uint64_t payload_bytes;
  };
  const Prefix bad[] = {
      {0x12345678, 100, 0},
      {wire::kFrameMagic, 0, 0},
      {wire::kFrameMagic, wire::kMaxHeaderBytes + 1, 0},
      {wire::kFrameMagic, 0xffff'ffff, 0},
      {wire::kFrameMagic, 100, wire::kMaxPayloadBytes + 1},
      {wire::kFrameMagic, 100, ~uint64_t{0}},
      {wire::kFrameMagic, 100, ~uint64_t{0} - 6},
  };
  for (const Prefix& prefix : bad) {
    Listener listener;
    transport::Receiver receiver(listener, 9);
    const auto status = feed(receiver, std::as_bytes(std::span(&prefix, 1)), [] { return 16; });
    assert_int_equal(status.code(), MV_EPROTOCOL);
  }
  std::vector<std::byte> zeros(1000);
  const Prefix plausible{wire::kFrameMagic, 400, 400};
  std::memcpy(zeros.data(), &plausible, sizeof plausible);
  Listener listener;
  transport::Receiver receiver(listener, 9);
  assert_int_equal(feed(receiver, zeros, [] { return 4096; }).code(), MV_EPROTOCOL);
  assert_int_equal(listener.count, 0);
}

void a_lent_payload_is_read_where_it_lies_when_it_is_written(void**) {
  std::mt19937 random(5);
  auto memory = std::make_unique<std::vector<std::byte>>(pattern(1, 100'000));
  const auto payload = base::Payload::lent(*memory);
  wire::FrameBuilder builder;
  base::Frame frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()), payload);
  wire::stamp(frame, 1, 0);
  transport::Outbox outbox;
  outbox.push(frame);
  iovec pieces[2];
  assert_int_equal(outbox.gather(pieces, 2), 2);
  std::vector<std::byte> stream(static_cast<const std::byte*>(pieces[0].iov_base),
                                static_cast<const std::byte*>(pieces[0].iov_base) + pieces[0].iov_len);
  const auto* tail = static_cast<const std::byte*>(pieces[1].iov_base);
  stream.insert(stream.end(), tail, tail + 5000);
  outbox.written(stream.size());
  payload->make_owned();
  memory.reset();
  const auto rest = drain(outbox, random);
  stream.insert(stream.end(), rest.begin(), rest.end());
  Listener listener;
  transport::Receiver receiver(listener, 9);
  assert_true(feed(receiver, stream, [] { return 100'000'000; }).ok());
  assert_int_equal(listener.count, 1);
  assert_true(listener.sound);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_stream_may_be_cut_anywhere),
      cmocka_unit_test(every_byte_alone_is_enough),
      cmocka_unit_test(headers_larger_than_the_buffer_arrive),
      cmocka_unit_test(each_part_of_a_message_is_told_and_whole_messages_have_none),
      cmocka_unit_test(a_stopped_receiver_is_silent),
      cmocka_unit_test(nonsense_ends_the_stream_before_memory_is_touched),
      cmocka_unit_test(a_lent_payload_is_read_where_it_lies_when_it_is_written),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
