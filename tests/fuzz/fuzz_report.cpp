// A member's report, as its header comes from the wire: parsed, merged with others, and printed.

#include <cstdint>
#include <cstring>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/status/overview.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mv;
  std::vector<std::byte> bytes(size);  // aligned, as in a transport's buffer
  std::memcpy(bytes.data(), data, size);
  const auto message = wire::read_header(bytes);
  if (!message.ok() || message.value()->body_as_Report() == nullptr) return 0;
  status::Overview overview;
  overview.seen_by = 1;
  for (const base::Peer peer : {1, 2, 3}) {
    cluster::Member member;
    member.rank = static_cast<uint32_t>(peer) - 1;
    member.peer = peer;
    overview.view.members.push_back(member);
    overview.reports[peer] = status::read_report(*message.value()->body_as_Report());
  }
  const std::string text = status::to_text(overview);
  for (const char c : text)
    if (static_cast<unsigned char>(c) < ' ' && c != '\n') __builtin_trap();
  if (!nlohmann::json::accept(status::to_json(overview))) __builtin_trap();
  return 0;
}
