// The settings derived from launchers' variables. The environments are synthetic; tests/cluster has real ones.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "launcher.hpp"

#include "cpp_expect.hpp"

namespace {

using mv::capi::Detected;
using mv::capi::Assignment;
using Variables = std::map<std::string, std::string>;

mv::capi::Environment environment(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

mv::base::Result<Detected> detect(const Variables& variables, const char* wish = "auto") {
  return mv::capi::detect_launcher(wish, environment(variables));
}

Assignment place_of(const Variables& variables, const char* wish = "auto") {
  const auto detected = detect(variables, wish);
  if (!detected.ok()) fail_msg("%s", detected.status().text().c_str());
  if (!detected.value().place) fail_msg("no launcher was found");
  return *detected.value().place;
}

void expect_none(const Variables& variables, const char* wish = "auto") {
  const auto detected = detect(variables, wish);
  if (!detected.ok()) fail_msg("%s", detected.status().text().c_str());
  assert_false(detected.value().place.has_value());
}

void expect_refused(const mv::base::Status& status, mv_status code, std::initializer_list<const char*> parts) {
  assert_int_equal(status.code(), code);
  for (const char* part : parts)
    if (status.text().find(part) == std::string::npos) fail_msg("\"%s\" is not in: %s", part, status.text().c_str());
}
void expect_refused(const Variables& variables, mv_status code, std::initializer_list<const char*> parts) {
  const auto detected = detect(variables);
  if (detected.ok()) fail_msg("this should have been refused");
  expect_refused(detected.status(), code, parts);
}

#define assert_found(found, text)                          \
  do {                                                     \
    if (!(found))                                          \
      fail_msg(#found " is not there");                    \
    else                                                   \
      assert_string_equal((found)->value.c_str(), (text)); \
  } while (0)

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "223215617"},
                            {"PMIX_RANK", "2"},
                            {"PMIX_SERVER_TMPDIR", "/tmp/ompi.vm.0/pid.25008"}};
const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},         {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "42"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_JOB_NODELIST", "gpu[08-09]"}};
const Variables kDmlc = {{"DMLC_ROLE", "worker"},
                         {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                         {"DMLC_PS_ROOT_PORT", "9091"},
                         {"DMLC_NUM_WORKER", "2"},
                         {"DMLC_NUM_SERVER", "1"}};

void nothing_set_is_no_launcher(void**) {
  expect_none({});
  expect_none({{"RANK", "3"}, {"PATH", "/bin"}});  // RANK alone may have another origin
  expect_none({{"OMPI_COMM_WORLD_RANK", ""}, {"OMPI_COMM_WORLD_SIZE", ""}});
  expect_none(kOpenMpi, "none");
}

void open_mpi_on_one_machine_meets_under_the_jobs_name(void**) {
  const Assignment place = place_of(kOpenMpi);
  assert_string_equal(place.launcher.c_str(), "Open MPI");
  assert_found(place.rank, "2");
  assert_found(place.nodes, "4");
  assert_string_equal(place.rank->from.c_str(), "OMPI_COMM_WORLD_RANK=2");
  assert_found(place.rendezvous, "openmpi.223215617.pid.25008");
  assert_false(place.master.has_value());
}

void open_mpi_across_machines_wants_a_master(void**) {
  const Assignment place = place_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  assert_false(place.rendezvous.has_value());
  assert_non_null(strstr(place.missing.c_str(), "POLYVERSO_MASTER=host:port"));
  assert_non_null(strstr(place_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).missing.c_str(),
                         "several machines"));
}

void half_of_a_launchers_variables_are_an_error_not_a_cluster_of_one(void**) {
  expect_refused({{"OMPI_COMM_WORLD_SIZE", "2"}}, MV_EINVAL,
                 {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not", "POLYVERSO_LAUNCHER=none"});
  expect_refused({{"OMPI_COMM_WORLD_RANK", "2"}}, MV_EINVAL, {"OMPI_COMM_WORLD_SIZE is not"});
  expect_refused({{"WORLD_SIZE", "2"}}, MV_EINVAL, {"WORLD_SIZE=2", "RANK is not"});
  expect_refused({{"PMI_RANK", "1"}}, MV_EINVAL, {"PMI_RANK=1", "PMI_SIZE is not"});
  expect_refused({{"PMI_ID", "1"}, {"PMI_PORT", "vm:4711"}}, MV_EINVAL, {"PMI_ID=1", "PMI_RANK is not"});
  expect_refused({{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}}, MV_EINVAL, {"SLURM_PROCID=1", "SLURM_NTASKS is not"});
  expect_refused({{"RANK", "1"}, {"MASTER_ADDR", "node7"}}, MV_EINVAL, {"RANK=1", "WORLD_SIZE is not"});
  expect_refused({{"DMLC_ROLE", "worker"}}, MV_EINVAL, {"DMLC_ROLE=worker", "DMLC_PS_ROOT_URI is not"});
  expect_refused({{"DMLC_PS_ROOT_URI", "10.0.0.1"}, {"DMLC_NUM_WORKER", "2"}}, MV_EINVAL, {"DMLC_PS_ROOT_URI=10.0.0.1", "DMLC_ROLE is not"});
  expect_none({{"WORLD_SIZE", "1"}});
}

void launchers_that_are_not_read_are_an_error_too(void**) {
  for (const char* name : {"PMIX_RANK", "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "PALS_RANKID"}) {
    const Variables variables = {{name, "1"}};
    expect_none(variables);
    expect_refused(mv::capi::refuse_unknown_launchers(environment(variables)), MV_EINVAL,
                   {name, "POLYVERSO_MASTER", "POLYVERSO_LAUNCHER=none"});
  }
  assert_true(mv::capi::refuse_unknown_launchers(environment({})).ok());
}

void torchrun_on_one_machine_needs_no_port(void**) {
  const Assignment place = place_of(kTorchrun);
  assert_found(place.rank, "1");
  assert_found(place.nodes, "2");
  assert_found(place.rendezvous, "torchrun.none.29500.0");
  assert_found(place_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).rendezvous, "torchrun.none.29500.3");
}

void torchrun_across_machines_takes_the_port_after_its_stores(void**) {
  const Assignment place = place_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}}));
  assert_found(place.master, "node7:29501");
  assert_found(place.bind, "0.0.0.0");
  assert_string_equal(place.master->from.c_str(), "MASTER_ADDR=node7 MASTER_PORT=29500");
  const Assignment last =
      place_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}, {"MASTER_PORT", "65535"}, {"MASTER_ADDR", "fd00::7"}}));
  assert_found(last.master, "[fd00::7]:65534");
  assert_found(last.bind, "::");
  assert_false(place_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "::1"}})).bind.has_value());
  expect_refused(with(kTorchrun, {{"MASTER_PORT", "many"}}), MV_EINVAL, {"MASTER_PORT=many is not a port"});
  assert_non_null(strstr(place_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).missing.c_str(), "MASTER_ADDR"));
}

void slurm_puts_rank_0_on_the_first_machine(void**) {
  const Assignment place = place_of(kSlurm);
  assert_found(place.rank, "3");
  assert_found(place.nodes, "4");
  assert_found(place.master, "gpu08:61294");  // 61000 + 42 * 7
  assert_found(place.bind, "0.0.0.0");
  assert_found(place_of(with(kSlurm, {{"SLURM_STEP_RESV_PORTS", "12012-12015"}})).master, "gpu08:12012");
  assert_found(place_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "login,gpu[08-09]"}})).master, "login:61294");
  assert_found(place_of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "2"}})).nodes, "2");
  expect_refused(with(kSlurm, {{"SLURM_JOB_NODELIST", "gpu[08"}}), MV_EINVAL,
                 {"SLURM_JOB_NODELIST=gpu[08", "never closed"});
  expect_refused(with(kSlurm, {{"SLURM_STEP_RESV_PORTS", "x"}}), MV_EINVAL, {"SLURM_STEP_RESV_PORTS=x"});
}

void slurm_on_one_machine_meets_under_the_steps_name(void**) {
  const Assignment place = place_of(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}}));
  assert_found(place.rendezvous, "slurm.42.0.0");
  assert_false(place.master.has_value());
}

void a_batch_script_is_one_process_whatever_slurm_has_reserved(void**) {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  Variables of_salloc = script;
  of_salloc.erase("SLURM_PROCID");
  for (const Variables& variables : {script, with(script, {{"SLURM_STEP_ID", "4294967291"}}), of_salloc}) {
    const auto detected = detect(variables);
    assert_true(detected.ok() && !detected.value().place);
    assert_int_equal(detected.value().notes.size(), 1);
    assert_non_null(strstr(detected.value().notes.front().c_str(), "not started by srun"));
  }
  Variables by_mpirun = kOpenMpi;
  by_mpirun.insert(of_salloc.begin(), of_salloc.end());
  const auto detected = detect(by_mpirun);
  assert_true(detected.ok() && detected.value().place && detected.value().notes.empty());
}

void pmi_needs_a_name_of_the_job(void**) {
  assert_found(
      place_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_PORT", "vm:4711"}}).rendezvous,
      "pmi.vm:4711");
  for (const Variables& variables : {Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
                                     Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}}})
    assert_non_null(strstr(place_of(variables).missing.c_str(), "POLYVERSO_MASTER"));
}

void pmi_without_a_name_meets_under_the_name_of_the_managers_process(void**) {
  int pair[2], other[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
  const auto pmi = [](int descriptor) {
    return Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", std::to_string(descriptor)}};
  };
  const Assignment place = place_of(pmi(pair[0]));
  assert_true(place.rendezvous.has_value());
  const std::string name = place.rendezvous->value;
  assert_true(name.starts_with("pmi." + std::to_string(getpid()) + ".") && name.back() != '.');
  assert_found(place_of(pmi(other[1])).rendezvous, name.c_str());  // one process made both
  for (const int descriptor : {pair[0], pair[1], other[0], other[1]}) close(descriptor);

  const int file = open("/dev/null", O_RDONLY), tcp = socket(AF_INET, SOCK_STREAM, 0);
  for (const int descriptor : {-1, file, tcp, 1'000'000}) {
    const Assignment nameless = place_of(pmi(descriptor));
    assert_false(nameless.rendezvous.has_value());
    assert_non_null(strstr(nameless.missing.c_str(), "POLYVERSO_MASTER"));
  }
  close(file);
  close(tcp);
}

void srun_that_speaks_pmi_is_slurm(void**) {
  const Variables srun = with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}}), pmi = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "42.0"}};
  const auto detected = detect(with(srun, pmi));
  assert_true(detected.ok() && detected.value().place);
  assert_string_equal(detected.value().place->launcher.c_str(), "Slurm");
  assert_found(detected.value().place->rendezvous, "slurm.42.0.0");
  assert_true(detected.value().seen == std::vector<std::string>({"Slurm", "PMI"}));
  const Assignment inside = place_of(with(srun, {{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}}));  // an mpiexec, whose daemons srun has started
  assert_string_equal(inside.launcher.c_str(), "PMI");
  assert_false(inside.missing.empty());
}

void dmlc_has_three_roles(void**) {
  const Assignment worker = place_of(kDmlc);
  assert_found(worker.role, "worker");
  assert_found(worker.nodes, "4");
  assert_found(worker.master, "127.0.0.1:9091");
  assert_false(worker.rank.has_value() || worker.bind.has_value());
  const Assignment scheduler = place_of(with(kDmlc, {{"DMLC_ROLE", "scheduler"}}));
  assert_found(scheduler.role, "scheduler");
  assert_found(scheduler.rank, "0");
  assert_found(place_of(with(kDmlc, {{"DMLC_ROLE", "server"}})).role, "server");
  expect_refused(with(kDmlc, {{"DMLC_ROLE", "boss"}}), MV_EINVAL, {"DMLC_ROLE=boss"});
  expect_refused(with(kDmlc, {{"DMLC_NUM_WORKER", "0"}}), MV_EINVAL, {"DMLC_NUM_WORKER=0"});
  expect_refused(with(kDmlc, {{"DMLC_PS_ROOT_PORT", "99999"}}), MV_EINVAL, {"DMLC_PS_ROOT_PORT=99999"});
}

void dmlc_says_where_a_process_listens(void**) {
  assert_found(place_of(with(kDmlc, {{"DMLC_PS_ROOT_URI", "10.0.0.1"}})).bind, "0.0.0.0");
  assert_found(place_of(with(kDmlc, {{"DMLC_INTERFACE", "ib0"}})).bind, "ib0");
  const Assignment place = place_of(with(kDmlc, {{"DMLC_INTERFACE", "ib0"}, {"DMLC_NODE_HOST", "10.0.0.7"}}));
  assert_found(place.bind, "10.0.0.7");
  assert_found(place.advertise, "10.0.0.7");
}

void of_two_launchers_the_inner_one_counts(void**) {
  // mpirun starts its daemons with srun, one per machine: Slurm's variables describe the daemons.
  assert_string_equal(place_of(with(kSlurm, kOpenMpi)).launcher.c_str(), "Open MPI");
  // A torchrun agent on each machine, started by srun or mpirun.
  assert_string_equal(place_of(with(kSlurm, kTorchrun)).launcher.c_str(), "torchrun");
  assert_string_equal(place_of(with(kOpenMpi, kTorchrun)).launcher.c_str(), "torchrun");
  // A tracker that starts its processes with mpirun.
  const auto both = detect(with(kOpenMpi, kDmlc));
  assert_string_equal(both.value().place->launcher.c_str(), "DMLC");
  assert_int_equal(both.value().seen.size(), 2);
}

void two_launchers_that_agree_are_fine(void**) {
  // A common form in batch scripts: RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS.
  Variables variables =
      with(kSlurm, {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "gpu08"}, {"MASTER_PORT", "3000"}});
  assert_found(place_of(variables).master, "gpu08:3001");
  // srun --mpi=pmi2
  assert_true(detect(with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}})).ok());
}

void two_launchers_that_disagree_are_an_error_naming_both(void**) {
  Variables variables =
      with(kSlurm, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "gpu08"}, {"MASTER_PORT", "3000"}});
  expect_refused(variables, MV_EDISAGREE,
                 {"RANK=1 (torchrun)", "SLURM_PROCID=3 (Slurm)", "POLYVERSO_LAUNCHER=torchrun or slurm"});
  expect_refused(with(kOpenMpi, {{"PMI_RANK", "2"}, {"PMI_SIZE", "8"}}), MV_EDISAGREE,
                 {"OMPI_COMM_WORLD_SIZE=4", "PMI_SIZE=8"});
  assert_string_equal(place_of(variables, "slurm").launcher.c_str(), "Slurm");
  const auto absent = detect(kSlurm, "openmpi");
  assert_false(absent.ok());
  expect_refused(absent.status(), MV_EINVAL, {"launcher=openmpi"});
}

void lists_of_hosts_are_written_out(void**) {
  const auto expect = [](const char* list, const std::vector<std::string>& hosts) {
    const auto got = mv::capi::expand_hosts(list);
    if (!got.ok()) fail_msg("%s", got.status().text().c_str());
    if (got.value() != hosts) fail_msg("%s was not written out well", list);
  };
  expect("node1", {"node1"});
  expect("a,b-c.example", {"a", "b-c.example"});
  expect("n[1-3]", {"n1", "n2", "n3"});
  expect("n[008-010,7],m", {"n008", "n009", "n010", "n7", "m"});
  expect("r[1-2]n[0,5]-ib", {"r1n0-ib", "r1n5-ib", "r2n0-ib", "r2n5-ib"});
  for (const char* bad : {"", ",", "a,,b", "n[1", "n]1[", "n[]", "n[1-]", "n[3-1]", "n[a-b]", "n[[1]]", "n[0-99999999]",
                          "n[0-999]m[0-999]"})
    assert_false(mv::capi::expand_hosts(bad).ok());
  expect("n[18446744073709551615]", {"n18446744073709551615"});  // the largest number
  // 65,536 names of 100,000 characters would take gigabytes.
  const std::string long_name(100'000, 'x'), wide = "n[" + std::string(100'000, '0') + "-65534]";
  for (const std::string& bad : {"n[0-65535]" + long_name, long_name, wide})
    assert_false(mv::capi::expand_hosts(bad).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_set_is_no_launcher),
      cmocka_unit_test(open_mpi_on_one_machine_meets_under_the_jobs_name),
      cmocka_unit_test(open_mpi_across_machines_wants_a_master),
      cmocka_unit_test(half_of_a_launchers_variables_are_an_error_not_a_cluster_of_one),
      cmocka_unit_test(launchers_that_are_not_read_are_an_error_too),
      cmocka_unit_test(torchrun_on_one_machine_needs_no_port),
      cmocka_unit_test(torchrun_across_machines_takes_the_port_after_its_stores),
      cmocka_unit_test(slurm_puts_rank_0_on_the_first_machine),
      cmocka_unit_test(slurm_on_one_machine_meets_under_the_steps_name),
      cmocka_unit_test(a_batch_script_is_one_process_whatever_slurm_has_reserved),
      cmocka_unit_test(pmi_needs_a_name_of_the_job),
      cmocka_unit_test(pmi_without_a_name_meets_under_the_name_of_the_managers_process),
      cmocka_unit_test(srun_that_speaks_pmi_is_slurm),
      cmocka_unit_test(dmlc_has_three_roles),
      cmocka_unit_test(dmlc_says_where_a_process_listens),
      cmocka_unit_test(of_two_launchers_the_inner_one_counts),
      cmocka_unit_test(two_launchers_that_agree_are_fine),
      cmocka_unit_test(two_launchers_that_disagree_are_an_error_naming_both),
      cmocka_unit_test(lists_of_hosts_are_written_out),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
