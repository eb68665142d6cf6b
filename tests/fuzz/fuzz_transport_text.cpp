// Users' text for transports: faults and addresses. Every refusal has a message.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "transport/faulty/faults.hpp"
#include "transport/tcp/socket.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mv::transport;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto faults = parse_faults(text);
  if (!faults.ok() && faults.status().text().empty()) abort();
  if (faults.ok() && !(faults.value().drop >= 0 && faults.value().drop <= 1)) abort();

  const auto address = parse_address(text);
  if (!address.ok()) {
    if (address.status().text().empty()) abort();
    return 0;
  }
  const auto again = parse_address(to_text(address.value()));
  if (!again.ok() || again.value().host != address.value().host || again.value().port != address.value().port) abort();
  return 0;
}
