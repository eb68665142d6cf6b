// runtime/transport_choice: the transports that each setting leads to, and the reason that is told.

#include "runtime/transport_choice.hpp"

#include <cstring>
#include <optional>
#include <string>

#include "transport/fabric/mpi.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using runtime::TransportChoice;

struct Case {
  const char *transport, *tls;
  bool has_rdma, has_plugin;
};

TransportChoice choose(const Case& of) {
  runtime::Settings settings;
  settings.transport = of.transport;
  settings.tls = of.tls;
  const auto plugin = [&] { return of.has_plugin ? base::Status() : base::Status(MV_ENOSYS, "install it"); };
  return runtime::choose_transports(settings, {of.has_rdma, plugin});
}

void expect(const Case& of, bool shm, bool ucx, const char* reason) {
  const TransportChoice choice = choose(of);
  if (choice.shm != shm || choice.ucx != ucx) fail_msg("transport=%s: shm %d, ucx %d: %s", of.transport, choice.shm, choice.ucx, choice.reason.c_str());
  if (choice.reason.find(reason) == std::string::npos) fail_msg("\"%s\" lacks \"%s\"", choice.reason.c_str(), reason);
}

void a_named_transport_is_taken_at_its_word(void**) {
  for (const bool has_rdma : {false, true}) {
    expect({"tcp", "off", has_rdma, true}, false, false, "transport=tcp");
    expect({"shm", "off", has_rdma, true}, true, false, "never UCX");
    expect({"ucx", "off", has_rdma, true}, false, true, "transport=ucx");
    expect({"mpi", "off", has_rdma, true}, false, false, "transport=mpi: also within a machine, without TCP");
    expect({"inproc", "off", has_rdma, true}, false, false, "transport=inproc");
  }
  expect({"ucx", "auto", false, false}, false, true, "transport=ucx");  // an error when it is opened
}

void by_itself_it_takes_ucx_only_where_that_is_faster_and_allowed(void**) {
  expect({"auto", "off", false, true}, true, false, "no RDMA device");
  expect({"auto", "off", true, true}, true, true, "UCX beyond");
  expect({"auto", "off", true, false}, true, false, "install it");
  for (const char* tls : {"auto", "psk", "mutual"}) expect({"auto", tls, true, true}, true, false, "tls=off allows it");
}

using transport::MpiFamily;

base::Result<transport::MpiChoice> choose_mpi(std::optional<MpiFamily> initialized, std::optional<MpiFamily> loaded, const std::string& variable) {
  return transport::choose_mpi({initialized, loaded, [&](const char* name) { return variable == name ? "1" : nullptr; }});
}

void the_mpi_of_the_program_or_of_its_launcher_is_taken(void**) {
  const auto expect_mpi = [](const base::Result<transport::MpiChoice>& choice, std::optional<MpiFamily> family, const char* reason) {
    assert_true(choice.ok());
    assert_true(choice.value().family == family);
    assert_non_null(std::strstr(choice.value().reason.c_str(), reason));
  };
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}) expect_mpi(choose_mpi({}, {}, variable), MpiFamily::kOpenMpi, variable);
  for (const char* variable : {"PMI_RANK", "PMI_ID", "PMI_FD"}) expect_mpi(choose_mpi({}, MpiFamily::kOpenMpi, variable), MpiFamily::kMpich, variable);
  expect_mpi(choose_mpi(MpiFamily::kMpich, MpiFamily::kOpenMpi, ""), MpiFamily::kMpich, "has initialized MPICH");
  expect_mpi(choose_mpi({}, MpiFamily::kMpich, ""), MpiFamily::kMpich, "has loaded MPICH");
  expect_mpi(choose_mpi({}, {}, ""), std::nullopt, "no launcher of MPI");
  const auto refused = choose_mpi(MpiFamily::kMpich, MpiFamily::kMpich, "OMPI_COMM_WORLD_SIZE");
  assert_int_equal(refused.status().code(), MV_EDISAGREE);
  assert_non_null(std::strstr(refused.status().text().c_str(), "uses MPICH, but OMPI_COMM_WORLD_SIZE is set, so Open MPI's launcher has started it"));
}

void without_a_device_the_plug_in_is_not_loaded(void**) {
  runtime::Settings settings;
  settings.tls = "off";
  bool asked = false;
  runtime::choose_transports(settings, {false, [&] { return asked = true, base::Status(); }});
  assert_false(asked);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_named_transport_is_taken_at_its_word),
      cmocka_unit_test(the_mpi_of_the_program_or_of_its_launcher_is_taken),
      cmocka_unit_test(by_itself_it_takes_ucx_only_where_that_is_faster_and_allowed),
      cmocka_unit_test(without_a_device_the_plug_in_is_not_loaded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
