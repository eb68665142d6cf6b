// The C++ headers: a program of one process, or of several workers that run it together.
//   wrapper_test             everything below
//   wrapper_test thrown      an exception of worker 1 leaves the node's block; worker 0 hears of it
#include <polyverso/polyverso.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pv = polyverso;

namespace {

int failures = 0;

void expect(bool condition, const char* text, int line) {
  if (condition) return;
  std::fprintf(stderr, "line %d: not so: %s\n", line, text);
  ++failures;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

/// Whether f throws an E of this status whose text has `part`.
template <class E, class F>
bool throws(mv_status status, const std::string& part, F&& f) {
  try {
    f();
  } catch (const E& error) {
    if (error.status() == status && std::strstr(error.what(), part.c_str()) != nullptr) return true;
    std::fprintf(stderr, "thrown: %s: %s\n", error.name(), error.what());
    return false;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thrown instead: %s\n", error.what());
    return false;
  }
  std::fprintf(stderr, "nothing was thrown\n");
  return false;
}

// What may be passed: a temporary is read, but never written.
static_assert(std::is_constructible_v<pv::In, std::vector<float>>);
static_assert(std::is_constructible_v<pv::In, const std::array<double, 3>&>);
static_assert(std::is_constructible_v<pv::Out, std::vector<float>&>);
static_assert(std::is_constructible_v<pv::Out, std::span<float>>);
static_assert(!std::is_constructible_v<pv::Out, std::vector<float>>);
static_assert(!std::is_constructible_v<pv::Out, const std::vector<float>&>);
static_assert(!std::is_constructible_v<pv::In, std::vector<std::string>>);
static_assert(!std::is_copy_constructible_v<pv::Table> && std::is_nothrow_move_constructible_v<pv::Table>);
static_assert(!std::is_copy_constructible_v<pv::Request> && std::is_nothrow_move_assignable_v<pv::Request>);
static_assert(!std::is_copy_constructible_v<pv::Node> && std::is_nothrow_move_constructible_v<pv::Store>);

using Floats = std::vector<float>;

void nodes(const pv::Node& node) {
  EXPECT(node.rank() >= 0 && node.rank() < node.size());
  EXPECT(node.num_workers() == node.size() && node.num_servers() == node.size());
  EXPECT(node.worker_id() == node.rank() && node.server_id() == node.rank());
  EXPECT(node.is_master() == (node.rank() == 0));
  EXPECT(!node.is_sync());
  EXPECT(node.event_fd() >= 0);
  EXPECT(pv::version() == mv_version() && pv::version_text() == mv_version_text());
  EXPECT(node.status(MV_JSON).front() == '{');
  node.report("loss", 0.5);
  EXPECT(throws<pv::ArgumentError>(MV_EINVAL, "", [&] { node.report("", 0.5); }));
  EXPECT(node.metrics().find("polyverso_") != std::string::npos);
  node.report("loss", 0.25);
  EXPECT(node.metrics().find("polyverso_reported{name=\"loss\"} 0.25") != std::string::npos);
  EXPECT(!node.doctor().empty());
  EXPECT(throws<pv::StateError>(MV_ESTATE, "", [&] { node.trace(); }));
  EXPECT(throws<pv::ArgumentError>(MV_EINVAL, "", [] { pv::log_level(99); }));
}

void tables(const pv::Node& node) {
  const auto workers = static_cast<float>(node.num_workers());
  pv::Table table(node, "size=3 name=array", Floats{1, 2, 3});
  EXPECT(table.describe().rows == 3);
  table.add(std::array<float, 3>{1, 1, 1});
  node.barrier();
  Floats values(3);
  table.get(values);
  EXPECT((values == Floats{1 + workers, 2 + workers, 3 + workers}));
  EXPECT(throws<pv::ArgumentError>(MV_ESHAPE, "array", [&] { table.add(Floats(9)); }));
  EXPECT(throws<pv::ArgumentError>(MV_EDTYPE, "array", [&] { table.add(std::vector<double>(3)); }));
  EXPECT(throws<pv::ArgumentError>(MV_ENOTFOUND, "absent", [&] { pv::Table::open(node, "absent"); }));
  node.barrier();

  pv::Request added = table.add_async(Floats{1, 0, 0});
  added.wait();
  EXPECT(!added.valid());
  table.add(Floats{0, 1, 0}, {.flags = MV_FORGET});
  node.barrier();
  Floats later(3);
  pv::Request got = table.get_async(later);
  while (!got.test()) node.poll(1, pv::Milliseconds{100});
  EXPECT((later == Floats{1 + 2 * workers, 2 + 2 * workers, 3 + workers}));
  {
    Floats abandoned(3);
    pv::Request dropped = table.get_async(abandoned);  // ends before its buffer
  }
  pv::Request moved = table.get_async(later);
  got = std::move(moved);
  EXPECT(!moved.valid() && got.valid());
  got.wait();
  EXPECT(throws<pv::HandleError>(MV_EHANDLE, "", [&] { got.wait(); }));
  node.barrier();

  const std::vector<std::int64_t> rows{2, 0};
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.name = "matrix";
  spec.kind = MV_MATRIX;
  spec.dtype = MV_F64;
  spec.rows = 3;
  spec.cols = 2;
  const pv::Table matrix(node, spec);
  matrix.add_rows(rows, std::vector<double>{1, 2, 3, 4});
  node.barrier();
  std::vector<double> some(4);
  matrix.get_rows(rows, some);
  EXPECT((some == std::vector<double>{1.0 * workers, 2.0 * workers, 3.0 * workers, 4.0 * workers}));
  matrix.peek_rows_async(rows, some).wait();
  EXPECT(throws<pv::ArgumentError>(MV_ERANGE, "matrix", [&] { matrix.get_rows(std::vector<std::int64_t>{7, 0}, some); }));

  const pv::Table keyed(node, "kind=keyvalue cols=1 name=keyed");
  const std::vector<std::int64_t> keys{1LL << 40, 7};
  if (node.is_master()) keyed.set_rows(keys, Floats{5, 6});
  node.barrier();
  std::vector<std::int64_t> found;
  std::vector<std::int64_t> chunk(1);
  Floats chunk_values(1);
  for (std::int64_t cursor = 0; cursor != -1;) {
    const pv::Table::Scanned scanned = keyed.scan(cursor, chunk, chunk_values);
    found.insert(found.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(scanned.found));
    cursor = scanned.next;
  }
  EXPECT(found.size() == 2);
  node.barrier();
  if (node.is_master()) keyed.erase_rows(keys);
  table.set_updater_async("add").wait();
  table.clock();
  EXPECT(node.tables().find("keyed") != std::string::npos);
  node.barrier();
  pv::Table again = pv::Table::open(node, "array");
  again.close();
  node.barrier();
}

void devices() {
  EXPECT(pv::Device("cuda:1").number() == 1 && pv::Device("cpu").number() == MV_HOST && pv::Device::count() >= 0);
  const pv::Tensor here = pv::Tensor::on(MV_HOST, MV_F32, {2});
  EXPECT(here.device().number() == MV_HOST && here.to("host").close_to(here) && here.address() != 0);
  EXPECT(throws<pv::Error>(MV_ENOTFOUND, "-1", [&] { pv::Device(MV_HOST).wait(); }));
  EXPECT(throws<pv::ArgumentError>(MV_EINVAL, "cuda:0", [&] { pv::Device("tpu"); }));
  // tests/capi/device_test.c has devices.
  if (pv::Device::count() == 0) EXPECT(throws<pv::Error>(MV_ENOSYS, "mv_tensor_to", [&] { here.to("cuda:0"); }));
}

void tensors() {
  const pv::Tensor a = pv::Tensor::from(Floats{1, 2, 3, 4}, {2, 2});
  const pv::Tensor b = (a + a) * 0.5 - 1.0;
  EXPECT((b.shape() == std::vector<std::int64_t>{2, 2}));
  EXPECT(b.values<float>()[3] == 3 && b.get({0, 1}) == 1);
  EXPECT(throws<pv::ArgumentError>(MV_EDTYPE, "f32", [&] { b.values<double>(); }));
  EXPECT(throws<pv::ArgumentError>(MV_ESHAPE, "", [&] { a + pv::Tensor(MV_F32, {3}); }));
  EXPECT(a.matmul(a).get({0, 0}) == 7 && a.dot(a) == 30 && a.reduce(MV_SUM).get({}) == 10);
  a.copy_to(b);
  EXPECT(a.close_to(b) && !a.close_to(-a));
  Floats memory{1, 2};
  {
    const pv::Tensor view = pv::Tensor::view(memory, {2});
    view.fill(9);
  }
  EXPECT((memory == Floats{9, 9}));
  const pv::Tensor sparse = pv::Tensor::sparse(std::vector<std::int64_t>{1}, pv::Tensor::from(Floats{5, 6}, {1, 2}), 3);
  EXPECT(sparse.parts().first.values<std::int64_t>()[0] == 1);
  EXPECT(sparse.to_dense().get({1, 1}) == 6);
  const pv::Tensor file = pv::encode_states("test", "about", {a, b});
  const pv::DecodedStates decoded = pv::decode_states("test", file);
  EXPECT(decoded.about == "about" && decoded.tensors.size() == 2 && decoded.tensors[0].close_to(a));
  EXPECT(pv::optimizer_states("mx.adam").states == 2);
  pv::optimizer_step("sgd rate=1", 1, 0, a, b);
  EXPECT(a.dot(a) == 0);
}

void stores(pv::Node& node) {
  pv::Store store(node, "dist_sync");
  pv::Tensor weights(MV_F32, {2});
  store.init("w", weights);
  store.set_optimizer("add");
  store.push("w", pv::Tensor::from(Floats{1, 2}, {2}));
  store.pull("w", weights);
  EXPECT(weights.values<float>()[1] == 2 * static_cast<float>(node.num_workers()));
  store.pull_async("w", weights).wait();
  EXPECT(throws<pv::ArgumentError>(MV_ENOTFOUND, "nothing", [&] { store.pull("nothing", weights); }));

  // Commands: what a controller throws, the sender gets.
  std::string heard;
  node.set_controller([&](std::int64_t head, std::string_view body) {
    if (head == 2) throw std::runtime_error("this head is not known");
    heard = body;
  });
  store.barrier();
  if (node.size() == 1) {
    store.send_command(1, "hello");
    EXPECT(heard == "hello");
    EXPECT(throws<pv::Error>(MV_EINVAL, "this head is not known", [&] { store.send_command(2, ""); }));
  }
  node.set_controller({});

  // Updaters: what one throws is the push's error, and the value stays.
  pv::Store local(node, "local");
  local.init({1, 2}, {weights, weights});
  local.set_updater([](const char* key, const pv::Tensor& merged, const pv::Tensor& stored) {
    if (std::strcmp(key, "2") == 0) throw std::runtime_error("not this key");
    stored.axpy(10, merged);
  });
  const pv::Tensor one = pv::Tensor::from(Floats{1, 1}, {2});
  weights.fill(0);
  local.push(1, one);
  local.pull(1, weights);
  pv::Store other = std::move(local);  // the updater moves along
  other.push(1, one);
  pv::Tensor after(MV_F32, {2});
  other.pull(1, after);
  EXPECT(after.get({0}) - weights.get({0}) == 10);
  EXPECT(throws<pv::ArgumentError>(MV_EINVAL, "not this key", [&] { other.push(2, one); }));
  other.set_updater({});
}

void groups(const pv::Node& node) {
  pv::Group group(node);
  const auto ranks = static_cast<float>(group.size());
  const auto rank = static_cast<float>(group.rank());
  EXPECT(group.members().size() == static_cast<std::size_t>(group.size()));
  Floats values{rank, 1};
  group.allreduce(values);
  EXPECT(values[1] == ranks);
  group.allreduce_async(values, MV_REDUCE_AVG).wait();
  EXPECT(values[1] == ranks);
  Floats first{1};
  std::vector<double> second{1, 2};
  EXPECT(group.allreduce(pv::Arrays{first, second}) == static_cast<std::uint64_t>(group.size()));
  EXPECT(second[1] == 2.0 * static_cast<double>(ranks));
  Floats all(static_cast<std::size_t>(group.size()));
  group.allgather(Floats{rank}, all);
  EXPECT(all.back() == ranks - 1);
  group.broadcast(first, 0);
  group.reduce_scatter(all, first);
  group.gather(Floats{rank}, group.rank() == 0 ? pv::Out(all) : pv::Out(), 0);
  group.alltoall(all, all.size() > 1 ? pv::Out(values) : pv::Out(first));
  EXPECT(throws<pv::ArgumentError>(MV_ESHAPE, "allgather", [&] { group.allgather(Floats{1, 2}, first); }));
  EXPECT(throws<pv::ArgumentError>(MV_EDTYPE, "dtypes", [&] { group.allgather(Floats{1}, second); }));
  if (group.size() > 1) {
    if (group.rank() == 0) group.send(Floats{7}, 1, 5);
    if (group.rank() == 1) {
      EXPECT(group.recv(first, MV_ANY_RANK, 5) == 0);
      EXPECT(first[0] == 7);
    }
  }
  // A reducer, and one that throws: all ranks hear of it.
  Floats largest{rank};
  group.allreduce_custom(pv::Arrays{largest}, [](auto mine, auto theirs) {
    auto* m = static_cast<float*>(mine[0].data);
    const auto* t = static_cast<const float*>(theirs[0].data);
    if (*t > *m) *m = *t;
  });
  EXPECT(largest[0] == ranks - 1);
  group.barrier();
  if (group.size() > 1) {
    EXPECT(throws<pv::Error>(MV_EINVAL, "no maximum today",
                             [&] { group.allreduce_custom(pv::Arrays{largest}, [](auto, auto) { throw std::runtime_error("no maximum today"); }); }));
  }
  EXPECT(!group.grow(1, "team"));
  EXPECT(throws<pv::Error>(MV_ETIMEOUT, "by the name \"nobody\"", [&] { pv::Group::join(node, "nobody", pv::Call{std::chrono::milliseconds(20)}); }));
  {
    const pv::Group fresh = group.size() > 1 ? group.shrink() : pv::Group::of_host(node);
    EXPECT(fresh.size() == node.num_workers());
    Floats parameters{1, 2};
    const pv::AllReduceSgd sgd(fresh);
    EXPECT(sgd.sum_and_normalize(pv::Arrays{parameters}) == static_cast<std::uint64_t>(fresh.size()));
    sgd.synchronize(pv::Arrays{parameters});
    EXPECT(sgd.meter().steps == 1);
    const pv::LocalSgd local(fresh, "inner_steps=1");
    local.step(pv::Arrays{parameters});
    local.synchronize(pv::Arrays{parameters});
    const pv::Compressed compressed(fresh, "int8");
    compressed.average(pv::Arrays{parameters});
    compressed.finish(pv::Arrays{parameters});
    const pv::AllReduceEa ea(fresh, 1, 0.5);
    ea.average(pv::Arrays{parameters});
    ea.synchronize_parameters(pv::Arrays{parameters});
    const pv::Table centre(node, "size=2");
    const pv::AsyncEa async_ea(centre, 1, 0.5);
    async_ea.average(pv::Arrays{parameters});
    async_ea.read(pv::Arrays{parameters});
    node.barrier();
  }
  if (node.size() < 2) return;
  // An exception that leaves the block of a group breaks it for the other ranks.
  const bool leaves = node.rank() == 1;
  bool told = false;
  try {
    const pv::Group doomed(node);
    if (leaves) throw std::runtime_error("of the program");
    doomed.barrier();
  } catch (const pv::PeerError& error) {
    told = std::strstr(error.what(), "an exception left the block of the group") != nullptr;
    if (!told) std::fprintf(stderr, "thrown: %s\n", error.what());
  } catch (const std::runtime_error&) {
    told = leaves;
  }
  EXPECT(told);
  node.barrier();
}

void gossip() {
  const pv::Gossip node = pv::Gossip::from_text("nodes:\n  - {name: a, host: 127.0.0.1, port: 0}\n", "a");
  const Floats model{1, 2};
  node.add(model);
  node.publish(0.5);
  EXPECT(node.state().updates == 1 && node.peers().empty());
  node.add_peer("b", "127.0.0.1", 1);
  EXPECT(node.peers().size() == 1 && std::strcmp(node.peers()[0].name, "b") == 0);
  node.remove_peer("b");
  node.fetch_start();
  EXPECT(node.fetch_wait(0.5).got == 0);
  EXPECT(node.state_text(MV_JSON).front() == '{');
  EXPECT(throws<pv::ArgumentError>(MV_ENOTFOUND, "", [] { pv::Gossip("/nowhere.yml", "a"); }));
}

int thrown() {
  try {
    const pv::Node node;
    if (node.rank() == 1) throw std::runtime_error("of the program");
    node.barrier();
  } catch (const pv::PeerError& error) {
    if (std::strstr(error.what(), "an exception left the block of the node") != nullptr) return EXIT_SUCCESS;
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  } catch (const std::runtime_error&) {
    return EXIT_SUCCESS;
  }
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "thrown") == 0) return thrown();
  pv::Node node;
  nodes(node);
  tables(node);
  tensors();
  devices();
  stores(node);
  groups(node);
  gossip();
  node.shutdown();
  if (failures == 0) std::puts("ok");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
