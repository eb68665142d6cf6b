// The plug-in for UCX (https://openucx.org), by its active messages: transport/fabric/plugin.h in terms of <ucp/api/ucp.h>.
//
// Large bodies go by rendezvous: the receiver fetches them, by RDMA where the network has it, into memory that UCX keeps
// registered. UCX reports failed peers only over networks that can notice them, which its own shared memory (posix, sysv)
// cannot; a line over such a network has no MV_FABRIC_FAILED, and the library notices the end of the process itself.

#include <signal.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "transport/fabric/plugin.h"

struct mv_fabric_line_object {
  mv_fabric fabric;
  ucp_ep_h endpoint;
  void* user;
  bool ended;
};

struct mv_fabric_message_object {
  void* held;  // UCX's, to release or to fetch; null if the body is a copy
  void* body;
  size_t body_bytes, header_bytes;
  bool at_sender;
  // the header, and the copy of the body, follow
};

struct mv_fabric_memory_object {
  ucp_mem_h memory;
  void* key;  // of exposed memory, or null
};

struct mv_fabric_key_object {
  ucp_rkey_h key;
};

struct Pending;

struct mv_fabric_object {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_address_t* address = nullptr;
  size_t address_bytes = 0, most_header = 0;
  int descriptor = -1;
  std::string networks;           // "self/memory0, tcp/lo"
  bool notices_failure = false;   // one of them does
  std::vector<mv_fabric_event> events, shown;
  struct Closing {
    void* request;
    mv_fabric_line line;
  };
  std::vector<Closing> closing;
  Pending* pending = nullptr;  // the first of those that have not ended
  bool out_of_memory = false;

  void add(const mv_fabric_event& event) noexcept {
    try {
      events.push_back(event);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  }
};

namespace {

constexpr unsigned kMessageId = 1;
constexpr size_t kAlignment = 16;
/// Larger bodies stay at their sender until the receiver has a place for them.
constexpr size_t kRendezvous = 64 << 10;

thread_local std::string last_error;

const char* error() { return last_error.c_str(); }

mv_status code_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return MV_OK;
    case UCS_ERR_NO_MEMORY:
      return MV_ENOMEM;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NO_DEVICE:
      return MV_EUNREACHABLE;
    default:
      return MV_ESYSTEM;
  }
}

mv_status fail(const char* what, ucs_status_t status) {
  last_error = std::string(what) + ": " + ucs_status_string(status);
  if (status == UCS_ERR_UNREACHABLE) last_error += ": the two processes have no network in common (UCX_TLS, UCX_NET_DEVICES)";
  return code_of(status);
}

size_t padded(size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }
char* header_of(mv_fabric_message message) { return reinterpret_cast<char*>(message) + padded(sizeof(mv_fabric_message_object)); }

void free_message(mv_fabric_message message) { std::free(message); }

}  // namespace

/// What a send or a receive needs when it ends later. The fabric has a list of them: UCX does not end all of them before its worker is destroyed.
struct Pending {
  Pending(mv_fabric of, void* its_user, mv_fabric_message its_message) : fabric(of), user(its_user), message(its_message), next(of->pending) {
    if (next != nullptr) next->before = this;
    fabric->pending = this;
  }
  ~Pending() {
    (before != nullptr ? before->next : fabric->pending) = next;
    if (next != nullptr) next->before = before;
    free_message(message);
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  const mv_fabric fabric;
  void* const user;
  const mv_fabric_message message;  ///< of a receive, or null
  Pending* next;
  Pending* before = nullptr;
};

namespace {

mv_fabric_event event_of(mv_fabric_event_kind kind, ucs_status_t status, void* user) {
  mv_fabric_event event{};
  event.kind = kind;
  event.status = code_of(status);
  event.why = ucs_status_string(status);
  event.user = user;
  return event;
}

/// Called by UCX inside of progress().
ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* body, size_t body_bytes, const ucp_am_recv_param_t* about) {
  auto* fabric = static_cast<mv_fabric>(arg);
  const bool at_sender = (about->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool lasts = at_sender || (about->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
  const size_t head = padded(sizeof(mv_fabric_message_object)) + padded(header_bytes);
  auto* message = static_cast<mv_fabric_message>(std::aligned_alloc(kAlignment, padded(head + (lasts ? 0 : body_bytes))));
  if (message == nullptr) {
    fabric->out_of_memory = true;
    return UCS_OK;
  }
  new (message) mv_fabric_message_object{lasts ? body : nullptr, nullptr, body_bytes, header_bytes, at_sender};
  if (header_bytes > 0) std::memcpy(header_of(message), header, header_bytes);
  message->body = lasts ? body : reinterpret_cast<char*>(message) + head;
  if (!lasts && body_bytes > 0) std::memcpy(message->body, body, body_bytes);
  mv_fabric_event event{};
  event.kind = MV_FABRIC_ARRIVED;
  event.message = message;
  event.header = header_of(message);
  event.header_bytes = header_bytes;
  event.body = at_sender ? nullptr : message->body;
  event.body_bytes = body_bytes;
  fabric->add(event);
  return lasts ? UCS_INPROGRESS : UCS_OK;
}

void on_sent(void* request, ucs_status_t status, void* user) {
  auto* pending = static_cast<Pending*>(user);
  pending->fabric->add(event_of(MV_FABRIC_SENT, status, pending->user));
  ucp_request_free(request);
  delete pending;
}

void on_received(void* request, ucs_status_t status, size_t, void* user) {
  auto* pending = static_cast<Pending*>(user);
  pending->fabric->add(event_of(MV_FABRIC_RECEIVED, status, pending->user));
  ucp_request_free(request);
  delete pending;
}

void on_got(void* request, ucs_status_t status, void* user) {
  auto* pending = static_cast<Pending*>(user);
  pending->fabric->add(event_of(MV_FABRIC_GOT, status, pending->user));
  ucp_request_free(request);
  delete pending;
}

void on_failed(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* line = static_cast<mv_fabric_line>(arg);
  if (!line->ended) line->fabric->add(event_of(MV_FABRIC_FAILED, status, line->user));
}

// ------------------------------------------------------------ the fabric

/// UCX's handlers for SIGSEGV and others would take the place of the program's own.
void leave_signals() {
  static std::atomic<bool> done{false};
  if (done.exchange(true) || std::getenv("UCX_ERROR_SIGNALS") != nullptr || std::getenv("UCX_HANDLE_ERRORS") != nullptr) return;
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
}

ucs_status_t init_context(mv_fabric fabric, bool loopback_only, bool gets) {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) return status;
  if (loopback_only && std::getenv("UCX_NET_DEVICES") == nullptr) ucp_config_modify(config, "NET_DEVICES", "lo");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (gets ? UCP_FEATURE_RMA : 0);
  const ucs_status_t status = ucp_init(&params, config, &fabric->context);
  ucp_config_release(config);
  return status;
}

/// UCX has no function for this, but prints lines such as "#        resource 2  :  md 1  dev 1  flags -- tcp/lo".
std::string networks_of(ucp_context_h context) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* file = open_memstream(&text, &bytes);
  if (file == nullptr) return "";
  ucp_context_print_info(context, file);
  std::fclose(file);
  std::string networks;
  for (char* line = std::strtok(text, "\n"); line != nullptr; line = std::strtok(nullptr, "\n")) {
    if (std::strstr(line, " resource ") == nullptr) continue;
    const char* name = std::strrchr(line, ' ');
    if (name == nullptr || std::strchr(name, '/') == nullptr) continue;
    networks += (networks.empty() ? "" : ", ") + std::string(name + 1);
  }
  std::free(text);
  return networks;
}

/// Whether UCX's error handling, which excludes networks that notice nothing, leaves one to send by.
bool notices_failure(const std::string& networks) {
  size_t begin = 0;
  while (begin < networks.size()) {
    const std::string name = networks.substr(begin, networks.find('/', begin) - begin);
    bool only_on_one_machine = false;
    for (const char* other : {"self", "posix", "sysv", "cma", "xpmem", "knem"}) only_on_one_machine |= name == other;
    if (!only_on_one_machine) return true;
    const size_t comma = networks.find(", ", begin);
    if (comma == std::string::npos) break;
    begin = comma + 2;
  }
  return false;
}

ucs_status_t make_worker(mv_fabric fabric) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.am_alignment = 8;
  ucs_status_t status = ucp_worker_create(fabric->context, &params, &fabric->worker);
  if (status != UCS_OK) return status;
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kMessageId;
  handler.cb = on_message;
  handler.arg = fabric;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  if ((status = ucp_worker_set_am_recv_handler(fabric->worker, &handler)) != UCS_OK) return status;
  if ((status = ucp_worker_get_efd(fabric->worker, &fabric->descriptor)) != UCS_OK) return status;
  if ((status = ucp_worker_get_address(fabric->worker, &fabric->address, &fabric->address_bytes)) != UCS_OK) return status;
  ucp_worker_attr_t about{};
  about.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  status = ucp_worker_query(fabric->worker, &about);
  fabric->most_header = about.max_am_header;
  return status;
}

void reap(mv_fabric fabric) {
  std::erase_if(fabric->closing, [](const mv_fabric_object::Closing& closing) {
    if (ucp_request_check_status(closing.request) == UCS_INPROGRESS) return false;
    ucp_request_free(closing.request);
    delete closing.line;
    return true;
  });
}

void release(mv_fabric fabric, mv_fabric_message message) {
  if (message->held != nullptr) ucp_am_data_release(fabric->worker, message->held);
  free_message(message);
}

void close(mv_fabric fabric) {
  constexpr int kMostTurns = 1000;
  if (fabric->worker != nullptr) {
    for (int turn = 0; turn < kMostTurns && !fabric->closing.empty(); ++turn) {
      ucp_worker_progress(fabric->worker);
      reap(fabric);
    }
    for (const auto& event : fabric->events)
      if (event.kind == MV_FABRIC_ARRIVED) release(fabric, event.message);
    if (fabric->address != nullptr) ucp_worker_release_address(fabric->worker, fabric->address);
    // On a busy machine, some lines may still not be closed. UCX aborts the process if it destroys them while somebody holds their requests.
    for (const auto& closing : fabric->closing) ucp_request_free(closing.request);
    ucp_worker_destroy(fabric->worker);
    for (const auto& closing : fabric->closing) delete closing.line;
    while (fabric->pending != nullptr) delete fabric->pending;
  }
  if (fabric->context != nullptr) ucp_cleanup(fabric->context);
  delete fabric;
}

mv_status open(const mv_fabric_options* options, mv_fabric* made) {
  leave_signals();
  auto* fabric = new (std::nothrow) mv_fabric_object;
  if (fabric == nullptr) return fail("can't open UCX", UCS_ERR_NO_MEMORY);
  ucs_status_t status = init_context(fabric, options->loopback_only != 0, options->gets != 0);
  if (status == UCS_OK) {
    fabric->networks = networks_of(fabric->context);
    fabric->notices_failure = notices_failure(fabric->networks);
    status = make_worker(fabric);
  }
  if (status != UCS_OK) {
    close(fabric);
    return fail("can't open UCX with these settings (see UCX_TLS and UCX_NET_DEVICES, and `ucx_info -d`)", status);
  }
  *made = fabric;
  return MV_OK;
}

mv_status describe(mv_fabric fabric, mv_fabric_about* about) {
  std::snprintf(about->version, sizeof about->version, "UCX %s", ucp_get_version_string());
  std::snprintf(about->networks, sizeof about->networks, "%s", fabric->networks.c_str());
  about->has_rdma = 0;
  for (const char* verbs : {"rc_", "dc_", "ud_"})
    if (fabric->networks.find(verbs) != std::string::npos) about->has_rdma = 1;
  about->most_header = fabric->most_header;
  about->rank = about->size = about->machines = 0;
  return MV_OK;
}

mv_status address(mv_fabric fabric, const void** bytes, uint64_t* count) {
  *bytes = fabric->address;
  *count = fabric->address_bytes;
  return MV_OK;
}

int32_t descriptor(mv_fabric fabric) { return fabric->descriptor; }

int32_t arm(mv_fabric fabric) { return fabric->events.empty() && ucp_worker_arm(fabric->worker) == UCS_OK ? 1 : 0; }

mv_status progress(mv_fabric fabric, const mv_fabric_event** events, uint64_t* count) {
  ucp_worker_progress(fabric->worker);
  if (!fabric->closing.empty()) reap(fabric);
  if (fabric->out_of_memory) return fail("a message is lost", UCS_ERR_NO_MEMORY);
  fabric->shown.clear();
  fabric->shown.swap(fabric->events);
  *events = fabric->shown.data();
  *count = fabric->shown.size();
  return MV_OK;
}

// ------------------------------------------------------------ lines and messages

mv_status connect(mv_fabric fabric, const void* address, uint64_t, void* user, mv_fabric_line* made) {
  auto* line = new (std::nothrow) mv_fabric_line_object{fabric, nullptr, user, false};
  if (line == nullptr) return fail("connect", UCS_ERR_NO_MEMORY);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = static_cast<const ucp_address_t*>(address);
  params.err_mode = fabric->notices_failure ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler = {on_failed, line};
  const ucs_status_t status = ucp_ep_create(fabric->worker, &params, &line->endpoint);
  if (status != UCS_OK) {
    delete line;
    return fail("connect", status);
  }
  *made = line;
  return MV_OK;
}

void disconnect(mv_fabric fabric, mv_fabric_line line) {
  line->ended = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = fabric->notices_failure ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  void* const request = ucp_ep_close_nbx(line->endpoint, &params);
  if (!UCS_PTR_IS_PTR(request)) {
    delete line;
    return;
  }
  try {
    fabric->closing.push_back({request, line});
  } catch (const std::bad_alloc&) {
    fabric->out_of_memory = true;
  }
}

mv_status send(mv_fabric fabric, mv_fabric_line line, const void* header, uint64_t header_bytes, const void* body, uint64_t body_bytes, void* user,
               int32_t* ended) {
  auto* pending = new (std::nothrow) Pending{fabric, user, nullptr};
  if (pending == nullptr) return fail("send", UCS_ERR_NO_MEMORY);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = on_sent;
  params.user_data = pending;
  params.flags = body_bytes >= kRendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  void* const request = ucp_am_send_nbx(line->endpoint, kMessageId, header, header_bytes, body, body_bytes, &params);
  *ended = UCS_PTR_IS_PTR(request) ? 0 : 1;
  if (*ended != 0) delete pending;
  return UCS_PTR_IS_ERR(request) ? fail("send", UCS_PTR_STATUS(request)) : MV_OK;
}

mv_status receive(mv_fabric fabric, mv_fabric_message message, void* to, uint64_t bytes, void* user) {
  auto* pending = new (std::nothrow) Pending{fabric, user, message};
  if (pending == nullptr) return fail("receive", UCS_ERR_NO_MEMORY);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = on_received;
  params.user_data = pending;
  void* const request = ucp_am_recv_data_nbx(fabric->worker, message->held, to, bytes, &params);
  if (UCS_PTR_IS_PTR(request)) return MV_OK;
  fabric->add(event_of(MV_FABRIC_RECEIVED, request == nullptr ? UCS_OK : UCS_PTR_STATUS(request), user));
  delete pending;
  return MV_OK;
}

/// Registers memory; `use` then does the rest, and what it refuses is undone. `what`: for the error.
template <typename Use>
mv_status map_memory(mv_fabric fabric, const ucp_mem_map_params_t& params, const char* what, mv_fabric_memory* handle, Use use) {
  auto* made = new (std::nothrow) mv_fabric_memory_object{};
  if (made == nullptr) return fail(what, UCS_ERR_NO_MEMORY);
  ucs_status_t status = ucp_mem_map(fabric->context, &params, &made->memory);
  if (status == UCS_OK && (status = use(*made)) != UCS_OK) ucp_mem_unmap(fabric->context, made->memory);
  if (status != UCS_OK) {
    delete made;
    return fail(what, status);
  }
  *handle = made;
  return MV_OK;
}

mv_status memory_make(mv_fabric fabric, uint64_t bytes, void** memory, mv_fabric_memory* handle) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  return map_memory(fabric, params, "register memory", handle, [memory](const mv_fabric_memory_object& made) {
    ucp_mem_attr_t about{};
    about.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    const ucs_status_t status = ucp_mem_query(made.memory, &about);
    *memory = about.address;
    return status;
  });
}

void memory_free(mv_fabric fabric, mv_fabric_memory handle) {
  if (handle->key != nullptr) ucp_rkey_buffer_release(handle->key);
  ucp_mem_unmap(fabric->context, handle->memory);
  delete handle;
}

// ------------------------------------------------------------ reading the memory of peers

mv_status expose(mv_fabric fabric, void* memory, uint64_t bytes, mv_fabric_memory* handle, const void** key, uint64_t* key_bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT;
  params.address = memory;
  params.length = bytes;
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ;
  return map_memory(fabric, params, "expose memory", handle, [=](mv_fabric_memory_object& made) {
    const ucs_status_t status = ucp_rkey_pack(fabric->context, made.memory, &made.key, key_bytes);
    *key = made.key;
    return status;
  });
}

mv_status open_key(mv_fabric, mv_fabric_line line, const void* key, uint64_t, mv_fabric_key* made) {
  auto* opened = new (std::nothrow) mv_fabric_key_object{};
  if (opened == nullptr) return fail("open a key", UCS_ERR_NO_MEMORY);
  if (const ucs_status_t status = ucp_ep_rkey_unpack(line->endpoint, key, &opened->key); status != UCS_OK) {
    delete opened;
    return fail("open a key", status);
  }
  *made = opened;
  return MV_OK;
}

void close_key(mv_fabric, mv_fabric_key key) {
  ucp_rkey_destroy(key->key);
  delete key;
}

mv_status get(mv_fabric fabric, mv_fabric_line line, mv_fabric_key key, uint64_t address, void* to, uint64_t bytes, void* user) {
  auto* pending = new (std::nothrow) Pending{fabric, user, nullptr};
  if (pending == nullptr) return fail("get", UCS_ERR_NO_MEMORY);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_got;
  params.user_data = pending;
  void* const request = ucp_get_nbx(line->endpoint, to, bytes, address, key->key, &params);
  if (UCS_PTR_IS_PTR(request)) return MV_OK;
  delete pending;
  if (request != nullptr) return fail("get", UCS_PTR_STATUS(request));
  fabric->add(event_of(MV_FABRIC_GOT, UCS_OK, user));
  return MV_OK;
}

constexpr mv_fabric_plugin kPlugin = {MV_FABRIC_INTERFACE, sizeof(mv_fabric_plugin), "ucx", error, open, close, describe, address, nullptr, descriptor,
                                      arm, progress, connect, disconnect, send, receive, release, memory_make, memory_free, expose,
                                      open_key, close_key, get, nullptr, nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) const mv_fabric_plugin* polyverso_fabric_plugin(uint32_t interface) {
  return interface == MV_FABRIC_INTERFACE ? &kPlugin : nullptr;
}
