// Sources of settings, their precedence, and refusals. The fake node shows the settings that arrived.

#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "fake_node.hpp"
#include "options.hpp"

#include "cpp_expect.hpp"

namespace {

namespace fake = mv::fake;
using mv::runtime::Settings;
using namespace std::chrono_literals;

const char* const kVariables[] = {"SYNC",       "ROLE",      "RANK",      "NODES",          "MASTER",  "SECRET",
                                  "TIMEOUT_MS", "LISTEN_FD", "LOG_LEVEL", "INFLIGHT_BYTES", "SPIN_US", "CHECKPOINT", "LAUNCHER", "BIND", "ADVERTISE",
                                  "IO"};
const char* const kLaunchers[] = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMIX_RANK"};

int fresh(void**) {
  fake::reset();
  for (const char* key : kVariables) unsetenv((std::string("POLYVERSO_") + key).c_str());
  for (const char* variable : kLaunchers) unsetenv(variable);
  return 0;
}
int all_shut(void**) {
  while (mv_shutdown(0) == MV_OK) continue;
  return fresh(nullptr);
}
void environment(const char* key, const char* value) { setenv((std::string("POLYVERSO_") + key).c_str(), value, 1); }

/// The settings of a node that starts with this text.
Settings settings_of(const char* text) {
  expect_ok(mv_init_text(text));
  expect_ok(mv_shutdown(0));
  return fake::seen.settings;
}
void refuse(const char* text, const char* part) { expect_error(mv_init_text(text), MV_EINVAL, part); }

/// As torchrun sets it, for two processes on one machine or on two.
void torchrun(const char* rank, const char* local_size) {
  const char* const values[][2] = {{"RANK", rank},           {"WORLD_SIZE", "2"},           {"LOCAL_WORLD_SIZE", local_size},
                                   {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : values) setenv(name, value, 1);
}

void nothing_said_means_the_defaults(void**) {
  expect_ok(mv_init(nullptr));
  const Settings &got = fake::seen.settings, standard;
  assert_true(got.sync == standard.sync && got.role == standard.role && got.rank == standard.rank &&
              got.nodes == standard.nodes);
  assert_true(got.bind == standard.bind && got.transport == standard.transport && got.inflight_bytes == standard.inflight_bytes);
  assert_true(got.timeout == standard.timeout && got.gate_timeout == standard.gate_timeout);
  assert_true(got.init_timeout == standard.init_timeout && got.heartbeat_timeout == standard.heartbeat_timeout &&
              got.listen_fd == -1);
  assert_true(got.spin_us == standard.spin_us && got.checkpoint.empty() && got.checkpoint_keep == 3 &&
              got.checkpoint_every == 60s);
  assert_true(got.collective_costs.empty());
}

void text_takes_every_separator_and_spelling(void**) {
  Settings got =
      settings_of(" sync=yes,nodes=3;rank=2\n\tmaster=localhost:7000  timeout_ms=1500 ; inflight_bytes=64KiB ");
  assert_true(got.sync && got.nodes == 3 && got.rank == 2 && got.master == "localhost:7000");
  assert_true(got.timeout == 1500ms && got.inflight_bytes == 65536);
  got = settings_of(
      "secret=\"a b,c;\\\"d\\\\\" faults=\"drop=0.5 seed=7\" gate_timeout_ms=-1 inflight_bytes=2GiB sync=off");
  assert_string_equal(got.secret.c_str(), "a b,c;\"d\\");
  assert_string_equal(got.faults.c_str(), "drop=0.5 seed=7");
  assert_true(got.gate_timeout == mv::base::kNever && got.inflight_bytes == 2ull << 30 && !got.sync);
  assert_string_equal(settings_of("").tuning.c_str(), "auto");
  assert_string_equal(settings_of("").collective.c_str(), "auto");
  for (const char* by : {"own", "mpi", "nccl"}) assert_string_equal(settings_of(("collective=" + std::string(by)).c_str()).collective.c_str(), by);
  assert_string_equal(settings_of("tuning=whole-staged-256k").tuning.c_str(), "whole-staged-256k");
  assert_string_equal(settings_of("collective_costs=\"tcp=3e-5,1e-9 reduce=0\"").collective_costs.c_str(), "tcp=3e-5,1e-9 reduce=0");
  for (const char* yes : {"sync=1", "sync=TRUE", "sync=on", "sync=\"yes\""}) assert_true(settings_of(yes).sync);
  assert_int_equal(settings_of("role=all").role, MV_ROLE_ALL);
  assert_int_equal(settings_of("nodes=2,master=[::1]:9,role=1").role, MV_ROLE_WORKER);
}

void bad_text_is_told_by_name(void**) {
  refuse("snyc=1", "unknown setting \"snyc\"; known: sync, role (worker|server|all|scheduler), rank");
  refuse("listen_fd=3", "unknown setting \"listen_fd\"");
  refuse("sync", "has no value: write sync=");
  refuse("sync=maybe", "sync=maybe in the text is not a boolean");
  refuse("sync=", "sync= in the text is not a boolean");
  refuse("=1", "no key before the \"=\" at character 1");
  refuse("secret=\"abc", "no closing quote");
  refuse("secret=\"abc\"d", "separator must follow");
  refuse("nodes=0", "nodes=0 in the text is outside 1 .. 65535");
  refuse("nodes=99999999999999999999", "not a whole number");
  refuse("rank=-1", "rank=-1");
  refuse("timeout_ms=0", "at least 1 ms");
  refuse("timeout_ms=-2", "at least 1 ms");
  refuse("inflight_bytes=9000000000GiB", "bytes such as");
  refuse("inflight_bytes=0", "less than 1");
  refuse("transport=udp", "transport=udp in the text is not one of auto|shm|tcp|ucx|mpi|inproc");
  refuse("transport=1", "transport=1 in the text is not one of");
  refuse("role=boss", "worker|server|all");
  refuse("role=none", "worker|server|all");
  refuse("log_level=6", "trace|debug|info|warn|error|off");
  refuse("spin_us=51", "spin_us=51 in the text is outside 0 .. 50");
  refuse("spin_us=-1", "spin_us=-1");
  refuse("checkpoint_every_ms=0", "at least 1 ms");
  refuse("checkpoint_keep=0", "less than 1");
  refuse("tuning=fast", "tuning=\"fast\" is none of auto, trial, fixed, nor an algorithm of all-reduces: inline, shares, shares-16k, ");
  refuse("collective_costs=fast", "collective_costs=\"fast\": unknown cost \"fast\"; known: inproc, shm, tcp, ucx, mpi, reduce");
  refuse("collective_costs=\"shm=1e-6,1e-10 tcp=1e-6\"", "tcp=1e-6: expected two numbers");
  refuse("help", "heartbeat_timeout_ms");
  assert_int_equal(fake::seen.starts, 0);
}

void a_secret_is_never_shown(void**) {
  expect_error(mv_init_text("secret=hush1 secret=hush2"), MV_EDISAGREE, "secret=(secret) in the text");
  assert_null(std::strstr(mv_last_error(), "hush"));
}

void settings_must_make_sense_together(void**) {
  refuse("nodes=4", "polyverso run -n 4");
  refuse("nodes=2 master=localhost:1 rank=2", "ranks go from 0 to 1");
  refuse("role=worker", "cluster of one");
  refuse("nodes=2 master=localhost", "host:port");
  refuse("nodes=2 master=localhost:99999", "host:port");
  refuse("nodes=2 master=:99", "host:port");
  refuse("nodes=2 master=localhost:7000 bind=0.0.0.0",
         "bind=0.0.0.0 reaches beyond this machine's loopback and needs a secret");
  refuse("nodes=2 master=10.0.0.1:7000", "master=10.0.0.1:7000 reaches beyond");
  refuse("nodes=2 master=127.0.0.1:7000 tls=mutual tls_cert=a tls_ca=c", "tls=mutual needs tls_key");
  refuse("nodes=2 master=127.0.0.1:7000 tls=psk tls_cert=a", "tls_cert=a has no effect with tls=psk");
  refuse("nodes=2 master=127.0.0.1:7000 tls=ssl", "tls=ssl in the text is not one of auto|off|psk|mutual");
  refuse("nodes=2 master=127.evil.example:7000", "reaches beyond");
  refuse("nodes=2 master=127.0.0.1:7000 transport=ucx tls=psk", "transport=ucx does not encrypt, and tls=psk demands it: set tls=off");
  refuse("nodes=2 master=10.0.0.1:7000 transport=ucx secret=s", "transport=ucx does not encrypt, and master=10.0.0.1:7000 is beyond this machine's loopback");
  refuse("nodes=2 master=127.0.0.1:7000 bind=0.0.0.0 transport=ucx secret=s", "bind=0.0.0.0 is beyond");
  refuse("nodes=2 keeper=etcd://localhost/job", "is not HOST:PORT");
  refuse("nodes=2 keeper=ftp://localhost:1/job", "is of no known kind");
  refuse("nodes=2 keeper=file:///tmp/job transport=inproc master=name", "transport=inproc needs master=NAME");
  refuse("nodes=2 keeper=file:///tmp/job transport=inproc", "transport=inproc needs master=NAME");
  refuse("nodes=2 keeper=etcd://localhost:2379/job keeper_auth=nobody", "keeper_auth=(secret) is not USER:PASSWORD");
  refuse("nodes=2 keeper=etcd://localhost:2379/job bind=0.0.0.0", "bind=0.0.0.0 reaches beyond");
  refuse("keeper=etcd://localhost:2379/job", "nodes is not");
  assert_true(settings_of("nodes=2 keeper=\"etcd://localhost:2379,other:2379/job\"").meets_by_keeper());
  assert_true(settings_of("nodes=2 keeper=etcd://localhost:2379/job bind=0.0.0.0 secret=s").meets_by_keeper());
  for (const std::string keeper : {"etcd://localhost:2379/job", "file:///tmp/job"}) {
    const Settings both = settings_of(("nodes=2 master=127.0.0.1:7000 keeper=" + keeper).c_str());
    assert_true(both.is_named() && !both.meets_by_keeper());
  }
  assert_false(settings_of("nodes=1 keeper=etcd://localhost:2379/job").is_named());
  assert_false(settings_of("nodes=2 keeper=etcd://localhost:2379/job transport=inproc master=name").is_named());
  refuse("nodes=2 transport=mpi tls=psk", "transport=mpi does not encrypt, and tls=psk demands it: set tls=off");
  refuse("nodes=2 master=127.0.0.1:7000 collective=mpi tls=psk", "collective=mpi does not encrypt, and tls=psk demands it: set tls=off");
  refuse("transport=mpi tls=mutual tls_cert=a tls_key=b tls_ca=c", "transport=mpi does not encrypt, and tls=mutual demands it");
  settings_of("nodes=2 transport=mpi");  // the job says the rest
  settings_of("transport=mpi role=server");
  settings_of("nodes=2 master=127.0.0.1:7000 transport=ucx");
  settings_of("nodes=2 master=10.0.0.1:7000 bind=0.0.0.0 transport=ucx tls=off secret=s");
  settings_of("nodes=2 master=127.0.0.1:7000 transport=shm tls=psk");
  settings_of("nodes=2 master=10.0.0.1:7000 bind=0.0.0.0 secret=s");
  settings_of("nodes=2 master=10.0.0.1:7000 bind=0.0.0.0 tls=mutual tls_cert=a tls_key=b tls_ca=c");
  settings_of("nodes=2 master=anything transport=inproc");
}

void the_transport_has_a_second_name(void**) {
  assert_true(settings_of("io=tcp").transport == "tcp");
  expect_error(mv_init_text("io=tcp transport=inproc"), MV_EDISAGREE, "io=tcp in the text and transport=inproc in the text disagree");
  environment("IO", "tcp");
  assert_true(settings_of("").transport == "tcp");
}

void the_struct_says_the_same_as_text(void**) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.sync = 1;
  options.role = MV_ROLE_SERVER;
  options.rank = 1;
  options.nodes = 2;
  options.master = "localhost:7000";
  options.bind = "127.0.0.1:0";
  options.secret = "s";
  options.transport = "tcp";
  options.faults = "drop=0.1";
  options.timeout_ms = 1;
  options.gate_timeout_ms = 2;
  options.init_timeout_ms = MV_FOREVER;
  options.heartbeat_timeout_ms = 4;
  options.inflight_bytes = 5;
  options.spin_us = 0;
  options.checkpoint = "/a path";
  options.checkpoint_every_ms = 6;
  options.checkpoint_keep = 7;
  options.advertise = "me.example:7001";
  options.text = "log_level=error sync=1";
  expect_ok(mv_init(&options));
  const Settings& got = fake::seen.settings;
  assert_true(got.sync && got.role == MV_ROLE_SERVER && got.rank == 1 && got.nodes == 2 &&
              got.master == "localhost:7000");
  assert_true(got.bind == "127.0.0.1:0" && got.secret == "s" && got.transport == "tcp" && got.faults == "drop=0.1");
  assert_true(got.timeout == 1ms && got.gate_timeout == 2ms && got.init_timeout == mv::base::kNever);
  assert_true(got.heartbeat_timeout == 4ms && got.inflight_bytes == 5);
  assert_true(got.spin_us == 0 && got.checkpoint == "/a path" && got.checkpoint_every == 6ms &&
              got.checkpoint_keep == 7 && got.advertise == "me.example:7001");
  assert_int_equal(mv::base::log_level(), MV_LOG_ERROR);
  expect_ok(mv_log_level_set(MV_LOG_WARN));
}

void a_struct_of_the_first_release_says_what_it_has(void**) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.size = offsetof(mv_init_options, spin_us);
  options.inflight_bytes = 5;
  options.spin_us = 1000;
  options.checkpoint = options.advertise = reinterpret_cast<const char*>(1);
  expect_ok(mv_init(&options));
  assert_true(fake::seen.settings.inflight_bytes == 5 && fake::seen.settings.spin_us == Settings().spin_us);
  assert_true(fake::seen.settings.checkpoint.empty() && fake::seen.settings.advertise.empty());
}

void a_struct_from_before_advertise_leaves_it_to_the_environment(void**) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.size = offsetof(mv_init_options, advertise);
  options.checkpoint_keep = 7;
  options.advertise = reinterpret_cast<const char*>(1);
  environment("ADVERTISE", "me.example");
  expect_ok(mv_init(&options));
  assert_true(fake::seen.settings.checkpoint_keep == 7 && fake::seen.settings.advertise == "me.example");
}

void a_master_or_rank_without_a_number_of_nodes_is_no_cluster_of_one(void**) {
  refuse("master=localhost:7000", "master=localhost:7000 in the text is set, but nodes is not");
  assert_int_equal(settings_of("master=localhost:7000 nodes=1").nodes, 1);
  environment("RANK", "0");
  refuse("", "POLYVERSO_RANK=0 in the environment is set, but nodes is not");
  environment("MASTER", "localhost:7000");
  refuse("", "POLYVERSO_MASTER=localhost:7000 in the environment is set, but nodes is not");
  torchrun("1", "2");
  assert_int_equal(settings_of("").nodes, 2);
}

void explicit_sources_must_agree(void**) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.nodes = 2;
  options.text = "nodes=3";
  expect_error(mv_init(&options), MV_EDISAGREE, "mv_init_options.nodes=2 and nodes=3 in mv_init_options.text disagree");
  expect_error(mv_init_text("timeout_ms=5 timeout_ms=6"), MV_EDISAGREE,
               "timeout_ms=5 in the text and timeout_ms=6 in the text");
  expect_ok(mv_init_text("inflight_bytes=1KiB inflight_bytes=1024 sync=1 sync=yes"));
}

void the_environment_stands_behind_what_is_explicit(void**) {
  environment("SYNC", "1");
  environment("TIMEOUT_MS", "77");
  environment("SECRET", "");
  assert_true(settings_of("").sync);
  const Settings got = settings_of("sync=0");
  assert_true(!got.sync && got.timeout == 77ms && got.secret.empty());
  environment("NODES", "abc");
  refuse("", "POLYVERSO_NODES=abc in the environment is not a whole number");
}

void the_environments_place_is_only_for_its_own_cluster(void**) {
  environment("NODES", "4");
  environment("RANK", "3");
  environment("MASTER", "localhost:7000");
  environment("ROLE", "worker");
  environment("LISTEN_FD", "9");
  Settings got = settings_of("");
  assert_true(got.nodes == 4 && got.rank == 3 && got.master == "localhost:7000" && got.role == MV_ROLE_WORKER &&
              got.listen_fd == 9);
  got = settings_of("nodes=1");
  assert_true(got.nodes == 1 && got.rank == -1 && got.role == MV_ROLE_ALL && got.listen_fd == -1);
  got = settings_of("nodes=2 transport=inproc master=mine");
  assert_true(got.nodes == 2 && got.rank == -1 && got.role == MV_ROLE_ALL && got.listen_fd == -1);
}

void a_launchers_variables_stand_behind_the_environments_own(void**) {
  torchrun("1", "2");
  Settings got = settings_of("");
  assert_true(got.nodes == 2 && got.rank == 1 && got.master.empty() && got.rendezvous == "torchrun..29500.0" && got.role == MV_ROLE_ALL);
  environment("MASTER", "localhost:7000");
  environment("ROLE", "server");
  got = settings_of("");
  assert_true(got.nodes == 2 && got.rank == 1 && got.master == "localhost:7000" && got.rendezvous.empty() && got.role == MV_ROLE_SERVER);
  environment("RANK", "0");
  assert_true(settings_of("").rank == 0);
  assert_true(settings_of("rank=1").rank == 1);
}

void a_launcher_of_several_machines_needs_a_secret(void**) {
  torchrun("1", "1");
  refuse("", "bind=0.0.0.0 reaches beyond this machine's loopback and needs a secret");
  environment("SECRET", "s");
  Settings got = settings_of("");
  assert_true(got.master == "node7:29501" && got.bind == "0.0.0.0" && got.advertise.empty());
  got = settings_of("bind=eth0 advertise=me.example");
  assert_true(got.bind == "eth0" && got.advertise == "me.example");
  refuse("advertise=a:b", "advertise=a:b is neither");
}

void a_launcher_can_be_switched_off_or_chosen(void**) {
  torchrun("1", "2");
  for (const char* text : {"nodes=1", "launcher=none"}) {
    const Settings got = settings_of(text);
    assert_true(got.nodes == 1 && got.rank == -1 && got.rendezvous.empty());
  }
  environment("LAUNCHER", "none");
  assert_true(settings_of("").nodes == 1);
  assert_true(settings_of("launcher=torchrun").nodes == 2);
  refuse("launcher=slurm", "launcher=slurm, but none of its variables");
  refuse("launcher=fork", "is not one of auto|none|openmpi");
  const Settings other = settings_of("nodes=3 transport=inproc master=m launcher=auto");  // a cluster other than torchrun's
  assert_true(other.nodes == 3 && other.rank == -1 && other.rendezvous.empty());
}

void what_a_launcher_says_is_checked_under_its_own_names(void**) {
  torchrun("two", "2");
  refuse("", "RANK=two in the environment is not a whole number");
  torchrun("2", "2");
  refuse("", "rank=2 does not fit nodes=2");
  unsetenv("RANK");
  refuse("", "WORLD_SIZE=2 is set, but RANK is not");
  fresh(nullptr);
  setenv("PMIX_RANK", "1", 1);
  refuse("", "PMIX_RANK=1 comes from a launcher that is not supported directly");
  assert_true(settings_of("nodes=1").nodes == 1);
}

void only_rank_0_is_a_scheduler(void**) {
  assert_int_equal(settings_of("nodes=2 rank=0 role=scheduler master=localhost:7000").role, mv::runtime::kRoleScheduler);
  refuse("nodes=2 rank=1 role=scheduler master=localhost:7000", "role=scheduler is only for the master");
  refuse("role=scheduler rank=0 nodes=1", "in a cluster of one");
}

void the_environments_log_level_gives_way_to_a_choice(void**) {
  expect_ok(mv_log_level_set(MV_LOG_OFF));
  environment("LOG_LEVEL", "trace");
  settings_of("");
  assert_int_equal(mv::base::log_level(), MV_LOG_OFF);
  settings_of("log_level=error");
  assert_int_equal(mv::base::log_level(), MV_LOG_ERROR);
  expect_ok(mv_log_level_set(MV_LOG_WARN));
}

void arguments_are_used_and_removed(void**) {
  std::vector<std::string> words = {"train",           "--epochs=3",       "-sync",          "data.csv",
                                    "--timeout_ms=90", "-ps_role=default", "-log_level=off", "-nodes",
                                    "-unknown=1",      "--transport=inproc",      "sync=0",         "-"};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  expect_ok(mv_init_args(&argc, argv.data()));
  const std::vector<std::string> kept = {"train", "--epochs=3", "data.csv", "-nodes", "-unknown=1", "sync=0", "-"};
  assert_int_equal(argc, kept.size());
  for (size_t i = 0; i < kept.size(); ++i) assert_string_equal(argv[i], kept[i].c_str());
  assert_null(argv[kept.size()]);
  assert_true(fake::seen.settings.sync && fake::seen.settings.timeout == 90ms && fake::seen.settings.transport == "inproc");
  expect_ok(mv_log_level_set(MV_LOG_WARN));
}

void arguments_that_fail_stay(void**) {
  char program[] = "train", sync[] = "-sync=1", nodes[] = "--nodes=x";
  char* argv[] = {program, sync, nodes, nullptr};
  int argc = 3;
  expect_error(mv_init_args(&argc, argv), MV_EINVAL, "-nodes=x among the arguments is not a whole number");
  assert_int_equal(argc, 3);
  assert_ptr_equal(argv[1], sync);
  expect_error(mv_init_args(&argc, nullptr), MV_EINVAL, "both");
  expect_error(mv_init_args(nullptr, argv), MV_EINVAL, "both");
  argc = -1;
  expect_error(mv_init_args(&argc, argv), MV_EINVAL, "-1");
  argc = 0;
  expect_ok(mv_init_args(&argc, argv));
  expect_ok(mv_init_args(nullptr, nullptr));
}

void a_further_init_must_agree_with_the_running_node(void**) {
  expect_ok(mv_init_text("sync=1 nodes=2 master=m transport=inproc timeout_ms=500"));
  expect_error(mv_init_text("sync=0"), MV_EDISAGREE,
               "sync=0 in the text disagrees with the running node, which has sync=1");
  expect_error(mv_init_text("timeout_ms=501"), MV_EDISAGREE, "timeout_ms=500");
  expect_error(mv_init_text("rank=1"), MV_EDISAGREE, "rank=0");  // the rank that the cluster assigned
  expect_error(mv_init_text("bogus=1"), MV_EINVAL, "bogus");
  environment("SYNC", "0");  // later changes of the environment do not affect this call
  expect_ok(mv_init(nullptr));
  expect_ok(mv_init_text("sync=on rank=0 master=m timeout_ms=500"));
  assert_int_equal(fake::seen.starts, 1);
  for (int i = 0; i < 3; ++i) expect_ok(mv_shutdown(0));
  expect_error(mv_shutdown(0), MV_ESTATE, "");
}

}  // namespace

int main() {
#define TEST(function) cmocka_unit_test_setup_teardown(function, fresh, all_shut)
  const CMUnitTest tests[] = {
      TEST(nothing_said_means_the_defaults),
      TEST(text_takes_every_separator_and_spelling),
      TEST(bad_text_is_told_by_name),
      TEST(a_secret_is_never_shown),
      TEST(settings_must_make_sense_together),
      TEST(the_transport_has_a_second_name),
      TEST(the_struct_says_the_same_as_text),
      TEST(a_struct_of_the_first_release_says_what_it_has),
      TEST(a_struct_from_before_advertise_leaves_it_to_the_environment),
      TEST(a_master_or_rank_without_a_number_of_nodes_is_no_cluster_of_one),
      TEST(explicit_sources_must_agree),
      TEST(the_environment_stands_behind_what_is_explicit),
      TEST(the_environments_place_is_only_for_its_own_cluster),
      TEST(the_environments_log_level_gives_way_to_a_choice),
      TEST(a_launchers_variables_stand_behind_the_environments_own),
      TEST(a_launcher_of_several_machines_needs_a_secret),
      TEST(a_launcher_can_be_switched_off_or_chosen),
      TEST(what_a_launcher_says_is_checked_under_its_own_names),
      TEST(only_rank_0_is_a_scheduler),
      TEST(arguments_are_used_and_removed),
      TEST(arguments_that_fail_stay),
      TEST(a_further_init_must_agree_with_the_running_node),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
