// runtime/transports: the transports that each setting leads to, and the reason that is told.

#include "runtime/transports.hpp"

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
      cmocka_unit_test(by_itself_it_takes_ucx_only_where_that_is_faster_and_allowed),
      cmocka_unit_test(without_a_device_the_plug_in_is_not_loaded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
