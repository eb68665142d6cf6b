// core/device/cuda: the plug-in loads on any machine, and tells what is missing where there is no device. What it computes: unit/device_test.

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "device/device.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

device::Plugin plugin() {
  const auto loaded = device::load_plugin(PLUGIN);
  if (!loaded.ok()) fail_msg("%s", loaded.status().text().c_str());
  return loaded.value();
}

void it_has_every_function_of_the_table(void**) {
  const device::Plugin table = plugin();
  assert_string_equal(table->name, "cuda");
  const char* const* const pointers = reinterpret_cast<const char* const*>(table);
  for (size_t i = 1; i < sizeof(*table) / sizeof(void*); ++i) assert_non_null(pointers[i]);
}

void it_refuses_another_version_of_the_interface(void**) {
  (void)plugin();
  void* const module = dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(module);
  const auto entry = reinterpret_cast<mv_device_entry>(dlsym(module, MV_DEVICE_ENTRY));
  assert_null(entry(MV_DEVICE_INTERFACE + 1));
  assert_non_null(entry(MV_DEVICE_INTERFACE));
}

/// Without a device, every function fails with a sentence that names what to do, and none of them crashes.
void without_a_device_it_tells_what_is_missing(void**) {
  const device::Plugin table = plugin();
  int32_t devices = 0;
  if (table->count(&devices) == MV_OK) {
    assert_true(devices > 0);
    skip();
  }
  const auto opened = device::Device::open(table, 0);
  assert_int_equal(opened.status().code(), MV_ENOSYS);
  assert_non_null(std::strstr(opened.status().text().c_str(), "NVIDIA driver"));
  const auto fails = [&](mv_status status) {
    assert_int_equal(status, MV_ENOSYS);
    assert_non_null(std::strstr(table->error(), "driver"));
  };
  mv_device_about about;
  void* made = nullptr;
  const mv_device_blas product{};
  fails(table->describe(0, &about));
  fails(table->stream_make(0, &made));
  fails(table->event_make(0, &made));
  fails(table->allocate(0, nullptr, 64, &made));
  fails(table->copy(0, nullptr, &about, &about, 1));
  fails(table->pin(64, &made));
  fails(table->blas(0, nullptr, &product));
  const mv_device_comm_id id{};
  fails(table->comm_make(0, &id, 2, 0, &made));
  const mv_device_fill fill{};
  fails(table->launch(0, nullptr, MV_DEVICE_FILL, &fill, sizeof(fill)));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(it_has_every_function_of_the_table),
      cmocka_unit_test(it_refuses_another_version_of_the_interface),
      cmocka_unit_test(without_a_device_it_tells_what_is_missing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
