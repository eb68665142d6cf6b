#include "transport/tls/tls.hpp"

#include "base/module_file.hpp"

namespace mv::transport {

std::optional<TlsMode> tls_mode(std::string_view word) {
  if (word == "off") return TlsMode::kOff;
  if (word == "auto") return TlsMode::kAuto;
  if (word == "psk") return TlsMode::kPsk;
  if (word == "mutual") return TlsMode::kMutual;
  return std::nullopt;
}

wire::Tls demand_of(TlsMode mode, bool beyond_loopback) {
  switch (mode) {
    case TlsMode::kOff:
      return wire::Tls::kOff;
    case TlsMode::kAuto:
      return beyond_loopback ? wire::Tls::kPsk : wire::Tls::kIfAsked;
    case TlsMode::kPsk:
      return wire::Tls::kPsk;
    case TlsMode::kMutual:
      break;
  }
  return wire::Tls::kMutual;
}

base::Result<std::shared_ptr<TlsContext>> make_tls(const TlsFiles& files) {
  static const base::Result<void*> kEntry = base::load_from_module(kTlsModuleFile, kTlsModuleEntry, "tls");
  if (!kEntry.ok())
    return base::error(
        MV_ENOSYS,
        "an encrypted connection needs the module {}, which this installation lacks: install it beside the library, or "
        "set "
        "tls=off (POLYVERSO_TLS) in all processes, and anyone on the network can read what they send ({})",
        kTlsModuleFile, kEntry.status().text());
  base::Result<std::shared_ptr<TlsContext>> made = base::Status();
  reinterpret_cast<MakeTls>(kEntry.value())(files, made);
  return made;
}

}  // namespace mv::transport
