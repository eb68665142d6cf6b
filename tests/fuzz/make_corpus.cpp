// Writes the seed inputs of the fuzz targets of the wire and the transports: mostly valid ones, from which a fuzzer reaches invalid ones.
// The corpora of the C interface are not generated.
//
//   make_fuzz_corpus tests/fuzz/corpus

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/part_file.hpp"
#include "checkpoint/states_file.hpp"
#include "engine/status/report.hpp"
#include "shard/updater/updater.hpp"
#include "transport/shm/ring.hpp"
#include "transport/tls/tls.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace {

namespace fs = std::filesystem;
using namespace mv;
using Bytes = std::vector<std::byte>;

fs::path root;

void write(const std::string& target, const std::string& name, const Bytes& bytes) {
  fs::create_directories(root / target);
  std::ofstream(root / target / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes stream_of(const base::Frame& frame) {
  Bytes bytes = frame.head;
  if (frame.tail) {
    const auto tail = frame.tail->bytes();
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    bytes.resize(wire::padded(bytes.size()));
  }
  return bytes;
}

base::PayloadRef payload(size_t bytes) { return base::Payload::copy(Bytes(bytes, std::byte{0x3f})); }

/// Messages of every shape: none, some and many fields, strings, vectors, nested tables.
std::vector<std::pair<std::string, base::Frame>> frames() {
  using wire::Body;
  std::vector<std::pair<std::string, base::Frame>> made;
  wire::FrameBuilder builder;
  auto& fbb = builder.fbb();
  made.emplace_back("ack", builder.finish(Body::Ack, wire::CreateAck(fbb)));
  {
    const auto address = fbb.CreateString("127.0.0.1:4000"), host = fbb.CreateString("here");
    wire::JoinBuilder join(fbb);
    join.add_nodes(4);
    join.add_address(address);
    join.add_host(host);
    made.emplace_back("join", builder.finish(Body::Join, join.Finish()));
  }
  {
    std::vector<flatbuffers::Offset<wire::Member>> members;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const auto address = fbb.CreateString("127.0.0.1:4000");
      wire::MemberBuilder member(fbb);
      member.add_rank(rank);
      member.add_address(address);
      members.push_back(member.Finish());
    }
    const auto list = fbb.CreateVector(members);
    wire::ViewBuilder view(fbb);
    view.add_members(list);
    made.emplace_back("view", builder.finish(Body::View, view.Finish()));
  }
  {
    wire::ChangeBuilder change(fbb);
    change.add_count(25);
    made.emplace_back("change_small", builder.finish(Body::Change, change.Finish(), payload(100)));
  }
  {
    wire::ChangeBuilder change(fbb);
    change.add_count(5000);
    made.emplace_back("change_large", builder.finish(Body::Change, change.Finish(), payload(20'001)));
  }
  made.emplace_back("inquire", builder.finish(Body::Inquire, wire::CreateInquire(fbb, 3, true, true)));
  {
    status::Report report;
    report.phase = "ready";
    report.peers.push_back({2, {"shm", 10, 20, ""}, 1.5, 2.5, {}});
    report.own.push_back({"w", "an array", shard::Consistency::kSync, true, {{0, 41, 40, 0}}});
    report.held = report.own;
    report.waits.push_back({cluster::WaitKind::kGet,
                            2,
                            "w",
                            41,
                            std::chrono::seconds(12),
                            std::chrono::seconds(12),
                            {{3, "has made 40 of 41 adds"}}});
    report.waits.push_back({cluster::WaitKind::kBarrier, 2, "", 0, {}, {}, {}});
    const auto written = status::write_report(fbb, 3, report);
    made.emplace_back("report", builder.finish(Body::Report, written));
  }
  made.emplace_back("overview", builder.finish(Body::Overview, wire::CreateOverview(fbb, 3), payload(200)));
  {
    const auto words = fbb.CreateVectorOfStrings({"a barrier", "table \"w\""});
    made.emplace_back("stuck", builder.finish(Body::Stuck, wire::CreateStuck(fbb, words)));
  }
  made.emplace_back("error", builder.answer(base::Status(MV_EINVAL, "a sentence")));
  return made;
}

template <typename T>
Bytes raw(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

Bytes whole_units(Bytes record) {
  record.resize(transport::record_bytes(record.size()));
  return record;
}

/// Records that only the shared-memory transport has: payloads in parts and in other memory, skip marks, goodbyes.
void write_rings(const base::Frame& frame, const Bytes& records) {
  const auto marked = [&](transport::RecordKind kind, uint64_t payload) {
    Bytes head = whole_units(frame.head);
    transport::Mark mark;
    std::memcpy(&mark, head.data(), sizeof mark);
    mark.magic = static_cast<uint32_t>(kind);
    mark.second = payload;
    std::memcpy(head.data(), &mark, sizeof mark);
    return head;
  };
  const auto mark = [](transport::RecordKind kind, uint32_t first) { return raw(transport::Mark{static_cast<uint32_t>(kind), first, 0}); };
  const Bytes part = whole_units(join({mark(transport::RecordKind::kPart, 1000), Bytes(1000)}));
  const Bytes in_parts = join({marked(transport::RecordKind::kStart, 3000), part, part, part});
  const uint64_t place[4] = {1, 64, 0, 0};
  const Bytes elsewhere = join({marked(transport::RecordKind::kPlace, 1024), raw(place)});
  const Bytes forget = mark(transport::RecordKind::kForget, 1), goodbye = mark(transport::RecordKind::kGoodbye, 0);
  const Bytes once = bytes_of(std::string("\x01\x00\xff\x80", 4)), in_steps = bytes_of(std::string("\x00\x80\x03\x00", 4));
  write("fuzz_ring", "in_parts", join({once, in_parts, goodbye}));
  write("fuzz_ring", "in_parts_discarded", join({in_steps, in_parts, goodbye}));
  write("fuzz_ring", "elsewhere", join({once, elsewhere, forget, elsewhere, goodbye}));
  write("fuzz_ring", "skipped", join({once, mark(transport::RecordKind::kSkip, 0), Bytes(64 << 10)}));
  write("fuzz_ring", "all_at_once", join({once, records, in_parts, elsewhere, goodbye}));
  write("fuzz_ring", "all_around_the_end", join({bytes_of(std::string("\x01\x80\xff\x80", 4)), records, in_parts, elsewhere, goodbye}));
}

void write_frames() {
  Bytes all, records;
  for (const auto& [name, frame] : frames()) {
    write("fuzz_frame", name, frame.head);
    if (name == "report") write("fuzz_report", name, {frame.head.begin() + wire::kPrefixBytes, frame.head.end()});
    const Bytes stream = stream_of(frame);
    write("fuzz_stream", name, join({bytes_of(std::string("\x01\x00\x07\x05", 4)), stream}));
    write("fuzz_ring", name, join({bytes_of(std::string("\x01\x00\x07\x05", 4)), stream}));
    all.insert(all.end(), stream.begin(), stream.end());
    records.insert(records.end(), stream.begin(), stream.end());
    records.resize((records.size() + 15) / 16 * 16);  // records are aligned to this
  }
  write_rings(frames().front().second, records);
  const auto goodbye = wire::goodbye();
  all.insert(all.end(), goodbye.begin(), goodbye.end());
  write("fuzz_stream", "all_by_bytes", join({bytes_of(std::string("\x01\x00\x00\x0f", 4)), all}));
  write("fuzz_stream", "all_at_once", join({bytes_of(std::string("\x01\x00\xff\xff", 4)), all}));
  write("fuzz_stream", "all_discarded", join({bytes_of(std::string("\x00\x00\x3f\x0f", 4)), all}));
  write("fuzz_stream", "stopped_after_two", join({bytes_of(std::string("\x01\x81\x3f\x0f", 4)), all}));
}

void write_hellos() {
  using wire::Handshake;
  wire::Introduction dialer, listener;
  dialer.incarnation = 5;
  dialer.address = "127.0.0.1:5";
  listener.incarnation = 6;
  dialer.has_secret = listener.has_secret = true;
  const std::string secret = "a secret that no fuzzer finds";
  Handshake::Randomness d_dice, l_dice;
  d_dice.scalar[0] = std::byte{5};
  l_dice.scalar[0] = std::byte{6};
  Handshake d(Handshake::Side::kDialer, dialer, d_dice), l(Handshake::Side::kListener, listener, l_dice);
  const auto say = [](Handshake& from, Handshake& to) {
    const Bytes said = std::exchange(from.output(), {});
    to.feed(said);
    return said;
  };
  const Bytes d_hello = say(d, l), l_hello = say(l, d);
  d.prove(secret);
  const Bytes d_share = say(d, l);
  l.prove(secret);
  const Bytes l_share = say(l, d), d_proof = say(d, l);
  l.accept();
  const Bytes l_proof = say(l, d);
  Handshake refusing(Handshake::Side::kListener, listener, l_dice);
  refusing.feed(d_hello);
  refusing.output().clear();
  refusing.refuse(wire::Refusal::kFenced);
  const Bytes refuse = refusing.output();
  write("fuzz_hello", "to_a_listener", join({bytes_of("\x03\x3f"), d_hello, d_share, d_proof}));
  write("fuzz_hello", "to_a_listener_by_bytes", join({bytes_of(std::string("\x03\x00", 2)), d_hello, d_share, d_proof}));
  write("fuzz_hello", "to_a_dialer", join({bytes_of("\x02\x3f"), l_hello, l_share, l_proof}));
  write("fuzz_hello", "a_proof_without_a_share", join({bytes_of("\x03\x3f"), d_hello, d_proof}));
  write("fuzz_hello", "its_own_words_to_a_dialer", join({bytes_of("\x02\x3f"), l_hello, d_share, d_proof}));
  write("fuzz_hello", "to_a_dialer_who_refuses", join({bytes_of(std::string("\x00\x3f", 2)), l_hello}));
  write("fuzz_hello", "a_refusal", join({bytes_of("\x02\x3f"), refuse}));
  write("fuzz_hello", "a_refusal_after_the_hello", join({bytes_of("\x02\x3f"), l_hello, refuse}));
  write("fuzz_hello", "http", bytes_of("\x03\x3fGET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

/// What the other side says first, with another key.
void write_tls() {
#ifdef POLYVERSO_TLS
  const auto context = transport::make_tls({});
  if (!context.ok()) std::abort();
  transport::TlsContext::Key key{};
  const auto dialer = context.value()->psk(/*dials=*/true, key), listener = context.value()->psk(/*dials=*/false, key);
  if (!dialer.ok() || !listener.ok()) std::abort();
  const auto output_of = [](transport::TlsStream& stream) { return Bytes(stream.output().begin(), stream.output().end()); };
  const Bytes hello = output_of(*dialer.value());
  std::copy(hello.begin(), hello.end(), listener.value()->room().begin());
  listener.value()->arrived(hello.size());
  const Bytes answer = output_of(*listener.value());
  write("fuzz_tls", "to_a_listener", join({bytes_of("\x01\xff"), hello}));
  write("fuzz_tls", "to_a_listener_by_bytes", join({bytes_of(std::string("\x01\x00", 2)), hello}));
  write("fuzz_tls", "to_a_dialer", join({bytes_of(std::string("\x00\xff", 2)), answer}));
  write("fuzz_tls", "an_alert", join({bytes_of("\x01\xff"), bytes_of(std::string("\x15\x03\x03\x00\x02\x02\x28", 7))}));
  write("fuzz_tls", "http", bytes_of("\x01\xffGET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
#endif
}

void write_transport_texts() {
  write("fuzz_transport_text", "faults", bytes_of("drop=0.01 duplicate=0.01 delay_ms=5 break=0.001 seed=7"));
  write("fuzz_transport_text", "unknown_fault", bytes_of("rain=1,drop"));
  write("fuzz_transport_text", "ipv4", bytes_of("127.0.0.1:4000"));
  write("fuzz_transport_text", "ipv6", bytes_of("[::1]:0"));
  write("fuzz_transport_text", "no_port", bytes_of("host:"));
}

void write_checkpoints() {
  namespace checkpoint = checkpoint;
  const auto entry = [](const char* name, int32_t kind, mv_dtype dtype, const char* updater) {
    checkpoint::TableEntry entry;
    entry.spec.name = name;
    entry.spec.kind = kind;
    entry.spec.dtype = dtype;
    entry.spec.rows = kind == MV_KEYVALUE ? 0 : 9;
    entry.spec.cols = kind == MV_ARRAY ? 1 : 3;
    entry.spec.updater = entry.updater = shard::parse_updater(updater).value();
    return entry;
  };
  const std::vector<checkpoint::TableEntry> entries = {entry("a", MV_ARRAY, MV_U8, "add"), entry("m", MV_MATRIX, MV_F64, "momentum"),
                                                       entry("s", MV_SPARSE, MV_BF16, "adagrad rate=0.5"), entry("k", MV_KEYVALUE, MV_I64, "assign")};
  checkpoint::Manifest manifest{7, 1700000000, {}, entries};
  checkpoint::PartLayout part;
  part.number = 7;
  for (const auto& each : entries) checkpoint::add_table(part, each, {0, 4}, each.updater.name == "add" || each.updater.name == "assign" ? 0 : 1);
  checkpoint::lay_out(part);
  manifest.files.push_back({checkpoint::file_name(0), part.file_bytes(), std::string(37, '0')});
  write("fuzz_checkpoint", "manifest", bytes_of("m" + checkpoint::to_json(manifest)));
  write("fuzz_checkpoint", "manifest_empty", bytes_of("m{}"));
  std::string header = checkpoint::write_header(part).substr(checkpoint::kLengthBytes);
  header.resize(header.find_last_not_of(' ') + 1);
  const auto with_length = [&](uint64_t bytes) {
    std::string input(1 + sizeof bytes, 'h');
    std::memcpy(input.data() + 1, &bytes, sizeof bytes);
    return bytes_of(input + header);
  };
  const uint64_t bytes = checkpoint::kLengthBytes + header.size() + part.data_bytes;
  write("fuzz_checkpoint", "header", with_length(bytes));
  write("fuzz_checkpoint", "header_of_a_truncated_file", with_length(bytes - 1));
}

Bytes content_of(const std::string& path) { return bytes_of(checkpoint::read_file(path, 1 << 20).value()); }

void write_checkpoint_files() {
  namespace checkpoint = checkpoint;
  std::string scratch = (fs::temp_directory_path() / "polyverso-corpus-XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) std::abort();
  std::vector<checkpoint::SavedTable> tables;
  for (const auto& [name, kind, updater] : {std::tuple("m", MV_MATRIX, "momentum"), std::tuple("s", MV_SPARSE, "add")}) {
    shard::Spec spec;
    spec.name = name;
    spec.kind = kind;
    spec.rows = 5;
    spec.cols = 2;
    spec.updater = shard::parse_updater(updater).value();
    const auto shard = shard::Shard::make(spec, {1, 0, false, nullptr}).value();
    const int64_t row = 3;
    const float ones[] = {1, 1};
    shard->change_rows(shard::Write::Add, shard::kNoWorker, {&row, 1}, reinterpret_cast<const std::byte*>(ones));
    tables.push_back({{spec, spec.updater, 7, {}}, shard->rows(), shard->snapshot().value()});
  }
  const std::atomic<bool> given_up{false};
  const auto file = checkpoint::write_part(scratch, 7, 0, 1, false, tables, given_up);
  Bytes part = content_of(scratch + "/" + file.value().name);
  write("fuzz_checkpoint_file", "part", part);
  part.pop_back();
  write("fuzz_checkpoint_file", "truncated", part);
  write("fuzz_checkpoint_file", "nothing", {});
  checkpoint::StatesFile states;
  states.dumped = true;
  states.optimizer = shard::parse_updater("mx.sgd momentum=0.9").value();
  checkpoint::KeyStates key;
  key.key = "k";
  key.shape = {2, 2};
  key.optimizer = "mx.sgd";
  key.updater = states.optimizer;
  key.marks.resize(1);
  key.states = {Bytes(16)};
  key.residuals = {Bytes(16)};
  states.keys.push_back(std::move(key));
  if (!checkpoint::write_states(scratch + "/states", states).ok()) std::abort();
  write("fuzz_checkpoint_file", "states", content_of(scratch + "/states"));
  fs::remove_all(scratch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  root = argv[1];
  write_frames();
  write_hellos();
  write_tls();
  write_transport_texts();
  write_checkpoints();
  write_checkpoint_files();
  return 0;
}
