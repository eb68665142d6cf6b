#include "runtime/keeper/etcd.hpp"

#include <sodium.h>

#include <algorithm>
#include <charconv>

#include "base/json_writer.hpp"

namespace mv::runtime::keeper {

namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
using base::JsonValue;
using base::JsonWriter;

/// The longest wait for one endpoint if there are others.
constexpr base::Nanos kLongestTry = 1s;
constexpr base::Nanos kAgainAfter = 50ms;
constexpr int kOk = 200;
constexpr std::string_view kNotEtcds = "its answer is not one of etcd's: is this etcd's address?";
// Codes of gRPC in the answers.
constexpr int64_t kInvalidArgument = 3, kNotFound = 5, kDenied = 7, kUnauthenticated = 16;

std::string to_base64(std::string_view bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), kVariant);
  text.pop_back();  // the zero
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size(), '\0');
  size_t size = 0;
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(), text.size(), nullptr, &size, nullptr,
                        sodium_base64_VARIANT_ORIGINAL) != 0)
    return std::nullopt;
  bytes.resize(size);
  return bytes;
}

/// A 64-bit number, which this JSON has as a string, and leaves out if it is 0.
template <typename Number>
Number number(const JsonValue& object, std::string_view key) {
  Number value = 0;
  const auto text = object.find_text(key);
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

std::optional<Etcd::Value> first_value(const JsonValue& range) {
  const auto list = range.find_array("kvs");
  if (!list || list->size() == 0) return std::nullopt;
  const JsonValue one = *list->begin();
  auto bytes = from_base64(one.find_text("value").value_or(""));
  if (!bytes) return std::nullopt;
  return Etcd::Value{std::move(*bytes), number<uint64_t>(one, "mod_revision")};
}

/// The revision of the whole store when etcd answered.
uint64_t revision_of(const JsonValue& answer) {
  const auto header = answer.find_object("header");
  return header ? number<uint64_t>(*header, "revision") : 0;
}

/// Whether it is an answer of etcd: each one has a header, some within a result.
bool is_etcds(const JsonValue& answer) { return answer.find_object("header") || answer.find_object("result"); }

/// Whether the same request may succeed later: etcd has no leader or too many requests, or this is not its answer.
bool may_pass(int status, std::string_view why) {
  return status < 400 || status >= 500 || why.find("too many requests") != std::string_view::npos;
}

std::string range_of(const std::string& key) {
  JsonWriter json;
  json.object([&] { json.field("key", to_base64(key)); });
  return json.take();
}

void write_condition(JsonWriter& json, const Etcd::Condition& condition) {
  const std::string key = to_base64(condition.key);
  if (condition.revision)
    json.object([&] {
      json.field("key", key);
      json.field("target", "MOD");
      json.field("result", "EQUAL");
      json.field("mod_revision", std::to_string(*condition.revision));
    });
  if (condition.bytes)
    json.object([&] {
      json.field("key", key);
      json.field("target", "VALUE");
      json.field("result", "EQUAL");
      json.field("value", to_base64(*condition.bytes));
    });
}

}  // namespace

Etcd::Etcd(Address address, const std::string& auth) : address_(std::move(address)) {
  [[maybe_unused]] const int ready = sodium_init();
  const size_t colon = auth.find(':');
  user_ = auth.substr(0, colon);
  if (colon != std::string::npos) password_ = auth.substr(colon + 1);
}

void Etcd::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  canceled_ = true;
  if (client_ != nullptr) client_->cancel();
  canceling_.notify_all();
}

/// False if the call is cancelled.
bool Etcd::pause(base::Nanos span) {
  std::unique_lock lock(mutex_);
  canceling_.wait_for(lock, span, [this] { return canceled_; });
  return !canceled_;
}

base::Result<transport::HttpClient*> Etcd::client() {
  const std::lock_guard lock(mutex_);
  if (canceled_) return base::Status(MV_ECANCELED, "the request was cancelled");
  if (client_ == nullptr) {
    const transport::HostPort& endpoint = address_.endpoints[current_ % address_.endpoints.size()];
    int port = 0;
    std::from_chars(endpoint.port.data(), endpoint.port.data() + endpoint.port.size(), port);
    auto made = transport::make_http_client({endpoint.host, port, address_.tls, address_.ca, address_.cert, address_.key});
    if (!made.ok()) return made.status();
    client_ = std::move(made).value();
  }
  return client_.get();
}

void Etcd::next_endpoint() {
  const std::lock_guard lock(mutex_);
  client_.reset();
  ++current_;
}

base::Status Etcd::silent(const std::string& why) const {
  std::string list;
  for (const transport::HostPort& endpoint : address_.endpoints)
    list += (list.empty() ? "" : ",") + std::string(address_.tls ? "https://" : "") + transport::to_text(endpoint);
  return base::error(MV_EUNREACHABLE, "{} does not answer ({}): is it running? `ETCDCTL_API=3 etcdctl --endpoints={} endpoint health` tells",
                     address_.where(), why, list);
}

base::Status Etcd::authenticate(base::Nanos patience) {
  JsonWriter json;
  json.object([&] {
    json.field("name", user_);
    json.field("password", password_);
  });
  auto connection = client();
  if (!connection.ok()) return connection.status();
  auto answer = connection.value()->post({"/v3/auth/authenticate", json.take(), "", patience});
  if (!answer.ok()) return answer.status();
  const auto document = base::JsonDocument::parse(answer.value().text);
  const auto token = document ? document->root().find_text("token") : std::nullopt;
  const int status = answer.value().status;
  const std::string_view why = document ? document->root().find_text("error").value_or(kNotEtcds) : kNotEtcds;
  if (!token && may_pass(status, why)) return base::error(MV_EUNREACHABLE, "{}", why);
  if (!token)
    return base::error(MV_EAUTH, "{} refuses the user \"{}\" ({}): correct keeper_auth (POLYVERSO_KEEPER_AUTH), which is USER:PASSWORD",
                       address_.where(), user_, why);
  token_ = *token;
  return {};
}

base::Result<transport::HttpAnswer> Etcd::try_once(const std::string& path, const std::string& body, base::Nanos patience) {
  if (!user_.empty() && token_.empty())
    if (const base::Status status = authenticate(patience); !status.ok()) return status;
  auto connection = client();
  if (!connection.ok()) return connection.status();
  return connection.value()->post({path, body, token_, patience});
}

base::Result<Etcd::Reply> Etcd::call(const std::string& path, const std::string& body, Deadline deadline) {
  bool sure = true, renewed = false;
  std::string why = "no time was left";
  for (size_t tries = 0;; ++tries) {
    const base::Nanos left = deadline - SteadyClock::now();
    if (left <= base::Nanos(0)) return silent(why);
    const auto answer = try_once(path, body, address_.endpoints.size() > 1 ? std::min(left, kLongestTry) : left);
    if (answer.ok()) {
      const int status = answer.value().status;
      auto document = base::JsonDocument::parse(answer.value().text);
      if (status == kOk && document && is_etcds(document->root())) return Reply{std::move(*document), sure};
      const int64_t code = document ? document->root().find_integer("code").value_or(0) : 0;
      why = document ? std::string(document->root().find_text("error").value_or(status == kOk ? kNotEtcds : "an error"))
                     : fmt::format("HTTP status {}, and no JSON", status);
      if (code == kNotFound) return base::error(MV_ENOTFOUND, "{}: {}", address_.where(), why);
      // A token that says more than a name is for one state of etcd's users.
      const bool is_old = code == kUnauthenticated || why.find("auth store is old") != std::string::npos;
      if (is_old && !user_.empty() && !renewed) {
        renewed = true;
        token_.clear();
        continue;
      }
      const bool no_user = code == kInvalidArgument && why.find("user name is empty") != std::string::npos;
      if (code == kDenied || code == kUnauthenticated || no_user)
        return base::error(
            MV_EAUTH, "{} refuses this ({}): set keeper_auth (POLYVERSO_KEEPER_AUTH) to USER:PASSWORD of a user that may read and write /polyverso/",
            address_.where(), why);
      if (!may_pass(status, why)) return base::error(MV_ESYSTEM, "{} refuses this: {}", address_.where(), why);
      sure = false;  // no leader, a time-out inside of etcd
    } else if (answer.status().code() == MV_EUNREACHABLE || answer.status().code() == MV_EPEERLOST) {
      why = answer.status().text();
      sure = sure && answer.status().code() == MV_EUNREACHABLE;
    } else {
      return answer.status();
    }
    next_endpoint();
    if ((tries + 1) % address_.endpoints.size() == 0 && !pause(kAgainAfter)) return base::Status(MV_ECANCELED, "the request was cancelled");
  }
}

base::Result<std::optional<Etcd::Value>> Etcd::get(const std::string& key, Deadline deadline) {
  const auto reply = call("/v3/kv/range", range_of(key), deadline);
  if (!reply.ok()) return reply.status();
  seen_ = revision_of(reply.value().json.root());
  return first_value(reply.value().json.root());
}

base::Result<Etcd::Outcome> Etcd::transact(const std::vector<Condition>& conditions, const std::vector<Put>& puts,
                                           const std::vector<std::string>& looks, Deadline deadline) {
  JsonWriter json;
  json.object([&] {
    json.array("compare", [&] {
      for (const Condition& condition : conditions) write_condition(json, condition);
    });
    json.array("success", [&] {
      for (const Put& put : puts)
        json.object([&] {
          json.object("request_put", [&] {
            json.field("key", to_base64(put.key));
            json.field("value", to_base64(put.bytes));
            if (put.lease != 0) json.field("lease", std::to_string(put.lease));
          });
        });
    });
    json.array("failure", [&] {
      for (const std::string& key : looks) json.object([&] { json.object("request_range", [&] { json.field("key", to_base64(key)); }); });
    });
  });
  const auto reply = call("/v3/kv/txn", json.take(), deadline);
  if (!reply.ok()) return reply.status();
  const JsonValue root = reply.value().json.root();
  Outcome outcome;
  outcome.sure = reply.value().sure;
  outcome.revision = seen_ = revision_of(root);
  const auto responses = root.find_array("responses");
  // A flag that is false is left out, as are empty answers: the kind of the answers tells as well.
  outcome.done = responses && responses->size() > 0 && (*responses->begin()).find_object("response_put").has_value();
  if (outcome.done) return outcome;
  if (responses)
    for (const JsonValue each : *responses) {
      const auto range = each.find_object("response_range");
      outcome.found.push_back(range ? first_value(*range) : std::nullopt);
    }
  outcome.found.resize(looks.size());
  return outcome;
}

base::Status Etcd::remove(const std::string& key, const std::string& bytes, Deadline deadline) {
  JsonWriter json;
  json.object([&] {
    json.array("compare", [&] { write_condition(json, {.key = key, .bytes = bytes}); });
    json.array("success", [&] { json.object([&] { json.object("request_delete_range", [&] { json.field("key", to_base64(key)); }); }); });
  });
  const auto reply = call("/v3/kv/txn", json.take(), deadline);
  return reply.ok() ? base::Status() : reply.status();
}

base::Result<int64_t> Etcd::grant(int64_t ttl, Deadline deadline) {
  const auto reply = call("/v3/lease/grant", fmt::format(R"({{"TTL":"{}"}})", ttl), deadline);
  if (!reply.ok()) return reply.status();
  const auto lease = number<int64_t>(reply.value().json.root(), "ID");
  if (lease == 0) return base::error(MV_EPROTOCOL, "{} gives no lease: {}", address_.where(), kNotEtcds);
  return lease;
}

base::Status Etcd::keep_alive(int64_t lease, Deadline deadline) {
  const auto reply = call("/v3/lease/keepalive", fmt::format(R"({{"ID":"{}"}})", lease), deadline);
  if (!reply.ok()) return reply.status();
  const auto result = reply.value().json.root().find_object("result");
  if (result && number<int64_t>(*result, "TTL") > 0) return {};
  return base::error(MV_ENOTFOUND, "{}: the lease {:x} has expired", address_.where(), lease);
}

base::Status Etcd::revoke(int64_t lease, Deadline deadline) {
  const auto reply = call("/v3/lease/revoke", fmt::format(R"({{"ID":"{}"}})", lease), deadline);
  return reply.ok() || reply.status().code() == MV_ENOTFOUND ? base::Status() : reply.status();
}

base::Result<std::optional<int64_t>> Etcd::time_left(const std::string& key, Deadline deadline) {
  const auto range = call("/v3/kv/range", range_of(key), deadline);
  if (!range.ok()) return range.status();
  const auto list = range.value().json.root().find_array("kvs");
  const int64_t lease = list && list->size() > 0 ? number<int64_t>(*list->begin(), "lease") : 0;
  if (lease == 0) return std::optional<int64_t>();
  const auto reply = call("/v3/lease/timetolive", fmt::format(R"({{"ID":"{}"}})", lease), deadline);
  if (!reply.ok()) return reply.status();
  return std::optional(number<int64_t>(reply.value().json.root(), "TTL"));
}

base::Status Etcd::watch(const std::string& key, Deadline deadline) {
  JsonWriter json;
  json.object([&] {
    json.object("create_request", [&] {
      json.field("key", to_base64(key));
      json.field("start_revision", std::to_string(seen_ + 1));
    });
  });
  if (!user_.empty() && token_.empty())
    if (const base::Status status = authenticate(kLongestTry); !status.ok()) return status;
  auto connection = client();
  if (!connection.ok()) return connection.status();
  const base::Nanos left = deadline - SteadyClock::now();
  // The first line says that the watch exists; the next one is an event, or that old revisions are compacted: both are reasons to look.
  std::string line;
  size_t lines = 0;
  const auto take = [&](std::string_view part) {
    line += part;
    lines = static_cast<size_t>(std::count(line.begin(), line.end(), '\n'));
    return line.size() < (1 << 20) && lines < 2 && line.find("\"events\"") == std::string::npos && line.find("\"canceled\"") == std::string::npos;
  };
  const auto answer = connection.value()->stream({"/v3/watch", json.take(), token_, left}, take);
  if (answer.ok() && answer.value().status == kOk && lines > 0) {
    // cpp-httplib closes a connection whose answer is left in the middle.
    return {};
  }
  if (!answer.ok() && answer.status().code() == MV_ECANCELED) return answer.status();
  token_.clear();
  next_endpoint();
  return pause(kAgainAfter) ? base::Status() : base::Status(MV_ECANCELED, "the request was cancelled");
}

}  // namespace mv::runtime::keeper
