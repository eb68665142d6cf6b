// runtime/keeper: names of clusters and views of members, in a folder and in a real etcd, which is killed, stopped and emptied. Without etcd
// (Debian's etcd-server), the tests with it are skipped.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/keeper/address.hpp"
#include "runtime/keeper/etcd.hpp"
#include "runtime/keeper/etcd_keeper.hpp"
#include "runtime/keeper/registry.hpp"
#include "transport/loop/loop.hpp"
#include "transport/tcp/socket.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using namespace mv::runtime::keeper;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
using Content = cluster::Keeper::Content;

SteadyClock::time_point within(std::chrono::milliseconds span) { return SteadyClock::now() + span; }

struct Folder {
  Folder() {
    char name[] = "/tmp/keeper-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

/// Like tests/ports.py, outside the range from which the system takes ports: no other test gets it before etcd listens there.
int free_port() {
  int first = 32768, last = 60999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  static std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<int> any(10'000, 65'535);
  while (true) {
    const int port = any(random);
    const bool is_outside = port < first || port > last || (first <= 10'000 && last >= 65'535);
    if (is_outside && transport::listen_on(transport::resolve({"127.0.0.1", std::to_string(port)}, true, true).value().front()).ok()) return port;
  }
}

/// A real etcd with its data in a folder of its own.
class Server {
 public:
  Server() { start(); }
  ~Server() { end(SIGKILL); }
  void start() {
    const std::string client = "http://127.0.0.1:" + std::to_string(port_), peer = "http://127.0.0.1:" + std::to_string(peer_port_);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int log = open((folder_.path + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(log, 1);
      dup2(log, 2);
      execlp("etcd", "etcd", "--data-dir", (folder_.path + "/data").c_str(), "--listen-client-urls", client.c_str(), "--advertise-client-urls",
             client.c_str(), "--listen-peer-urls", peer.c_str(), "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster",
             ("default=" + peer).c_str(), nullptr);
      _exit(127);
    }
    Etcd asker(address(), "");
    const auto up = asker.get("nothing", within(20s));
    if (!up.ok()) {
      std::ifstream log(folder_.path + "/log");
      fail_msg("etcd does not start: %s; %s", up.status().text().c_str(), std::string(std::istreambuf_iterator<char>(log), {}).c_str());
    }
  }
  void end(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    if (signal == SIGKILL) waitpid(std::exchange(pid_, -1), nullptr, 0);
    if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);  // until then, it may still answer
  }
  void forget() { std::filesystem::remove_all(folder_.path + "/data"); }
  std::string setting(const std::string& name) const { return "etcd://127.0.0.1:" + std::to_string(port_) + "/" + name; }
  Address address() const { return parse_address(setting("x")).value(); }
  int port() const { return port_; }

 private:
  Folder folder_;
  const int port_ = free_port(), peer_port_ = free_port();
  pid_t pid_ = -1;
};

bool has_etcd() {
  static const bool kHas = std::system("etcd --version > /dev/null 2>&1") == 0;
  return kHas;
}
#define NEEDS_ETCD() \
  if (!has_etcd()) skip()

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
std::string text_of(const Content& content) { return {reinterpret_cast<const char*>(content.view.data()), content.view.size()}; }

/// A keeper on a loop of its own, with calls that wait.
struct Member {
  explicit Member(const std::string& setting, base::Nanos patience = 2s) {
    assert_true(loop.start().ok());
    auto made = make_keeper(setting, "", patience, loop);
    assert_true(made.ok());
    keeper = std::move(made).value();
  }
  ~Member() {
    on_loop([&] { keeper.reset(); });
    loop.stop();
  }
  void on_loop(const std::function<void()>& work) {
    std::promise<void> done;
    loop.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  base::Result<Content> read() {
    std::promise<base::Result<Content>> end;
    on_loop([&] { keeper->read([&](base::Result<Content> result) { end.set_value(std::move(result)); }); });
    return end.get_future().get();
  }
  base::Result<uint64_t> write(uint64_t revision, const std::string& view) {
    std::promise<base::Result<uint64_t>> end;
    on_loop([&] { keeper->write(revision, bytes_of(view), [&](base::Result<uint64_t> result) { end.set_value(std::move(result)); }); });
    return end.get_future().get();
  }
  transport::Loop loop;
  std::unique_ptr<cluster::Keeper> keeper;
};

Entry entry_of(const std::string& id) { return {"127.0.0.1:1", "here", static_cast<uint32_t>(getpid()), id}; }

// ---- without etcd

void settings_name_endpoints_files_and_a_cluster(void**) {
  const auto plain = parse_address("etcd://a:2379,[::1]:2380/job-1.x_y");
  assert_true(plain.ok());
  assert_int_equal(plain.value().endpoints.size(), 2);
  assert_string_equal(plain.value().endpoints[1].host.c_str(), "::1");
  assert_string_equal(plain.value().name.c_str(), "job-1.x_y");
  assert_string_equal(plain.value().where().c_str(), "etcd at a:2379, [::1]:2380");
  const auto tls = parse_address("etcds://a:2379/n?ca=/x/ca.pem&cert=c&key=k");
  assert_true(tls.ok() && tls.value().tls && tls.value().ca == "/x/ca.pem" && tls.value().key == "k");
  const auto file = parse_address("file:///shared/jobs/n");
  assert_true(file.ok() && file.value().folder == "/shared/jobs" && file.value().name == "n");
  for (const char* text : {"", "etcd", "etcd://", "etcd://a:1", "etcd://a:1/", "etcd://a/n", "etcd://a:0/n", "etcd://a:1,/n", "etcd://a:1/n/m",
                           "etcd://a:1/n m", "etcd://a:1/n?ca=x", "etcds://a:1/n?ca", "etcds://a:1/n?cert=x", "etcds://a:1/n?x=y", "http://a:1/n",
                           "file://n", "file:///", "file:///a/", "file:///a/.."}) {
    const auto wrong = parse_address(text);
    assert_false(wrong.ok());
    assert_int_equal(wrong.status().code(), MV_EINVAL);
    assert_non_null(strstr(wrong.status().text().c_str(), "etcd://HOST:2379"));
  }
  const auto with_password = parse_address("etcd://job:pass/word@a:2379/n");
  assert_false(with_password.ok());
  assert_non_null(strstr(with_password.status().text().c_str(), "keeper_auth"));
  assert_null(strstr(with_password.status().text().c_str(), "pass/word"));
  assert_true(parse_address("etcds://a:2379/n?ca=/x@y/ca.pem").ok());
}

void entries_are_parsed_as_they_were_written(void**) {
  const Entry entry{"[::1]:7", "host", 42, "abc"};
  assert_true(parse_entry(write_entry(entry)) == entry);
  const std::string text = write_entry(entry);
  for (size_t cut = 0; cut < text.size(); ++cut) assert_false(parse_entry(text.substr(0, cut)).has_value());
  assert_false(parse_entry(text + "x").has_value());
  assert_true(parse_entry(text + "\n\n") == entry);  // over a longer one
  assert_false(parse_entry("polyverso 1\na\nb\nnumber\nc\n").has_value());
}

void a_name_in_a_folder_is_free_again_when_its_process_dies(void**) {
  const Folder folder;
  const Address address = parse_address("file://" + folder.path + "/n").value();
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto registry = make_registry(address, "", 5s);
    const bool claimed = registry->claim(entry_of("the child, whose entry is longer"), within(1s)).ok();
    _exit(write(ready[1], claimed ? "y" : "n", 1) == 1 ? pause() : 1);
  }
  char answer = 0;
  assert_true(read(ready[0], &answer, 1) == 1 && answer == 'y');
  const auto registry = make_registry(address, "", 5s);
  const auto taken = registry->claim(entry_of("parent"), within(1s));
  assert_true(taken.ok() && taken.value() && taken.value()->id == "the child, whose entry is longer");
  kill(child, SIGSTOP);
  assert_true(registry->look(within(1s)).value().has_value());  // a stopped process keeps it
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  assert_false(registry->look(within(1s)).value().has_value());  // the entry is still there, and recognized as a dead process's
  assert_true(std::filesystem::exists(folder.path + "/n.polyverso"));
  const auto claimed = registry->claim(entry_of("parent"), within(1s));
  assert_true(claimed.ok() && !claimed.value());
  assert_true(registry->keep(within(1s)).ok());
  assert_string_equal(registry->look(within(1s)).value()->id.c_str(), "parent");
  const auto second = make_registry(address, "", 5s);
  assert_string_equal(second->claim(entry_of("second"), within(1s)).value()->id.c_str(), "parent");
  registry->release(within(1s));
  assert_false(std::filesystem::exists(folder.path + "/n.polyverso"));
  assert_false(second->claim(entry_of("second"), within(1s)).value().has_value());
  close(ready[0]);
  close(ready[1]);
}

void members_of_a_folder_keep_the_name_for_each_other(void**) {
  const Folder folder;
  const Address address = parse_address("file://" + folder.path + "/n").value();
  const std::string file = folder.path + "/n.polyverso";
  auto master = make_registry(address, "", 5s);
  assert_false(master->claim(entry_of("master"), within(1s)).value().has_value());
  auto member = make_registry(address, "", 5s), other = make_registry(address, "", 5s);
  member->attend(true);
  other->attend(true);
  master->release(within(1s));  // it drains; when it dies, its file stays as well
  const auto stranger = make_registry(address, "", 5s);
  for (int i = 0; i < 3; ++i) assert_string_equal(stranger->claim(entry_of("stranger"), within(1s)).value()->id.c_str(), "master");
  assert_false(stranger->look(within(1s)).value().has_value());  // nobody to be joined yet
  assert_false(member->take_over(entry_of("member"), {}, within(1s)).value().has_value());
  assert_string_equal(stranger->look(within(1s)).value()->id.c_str(), "member");
  assert_string_equal(stranger->claim(entry_of("stranger"), within(1s)).value()->id.c_str(), "member");
  member->release(within(1s));
  assert_string_equal(stranger->claim(entry_of("stranger"), within(1s)).value()->id.c_str(), "member");
  other.reset();
  assert_false(std::filesystem::exists(file));  // the last member has removed it
  assert_false(stranger->claim(entry_of("stranger"), within(1s)).value().has_value());
  stranger->release(within(1s));
  assert_false(std::filesystem::exists(file));
}

void a_folder_that_is_missing_is_named(void**) {
  const Folder folder;
  const auto registry = make_registry(parse_address("file://" + folder.path + "/missing/n").value(), "", 5s);
  for (const auto& result : {registry->claim(entry_of("a"), within(1s)), registry->look(within(1s))}) {
    assert_false(result.ok());
    assert_int_equal(result.status().code(), MV_EINVAL);
    assert_non_null(strstr(result.status().text().c_str(), (folder.path + "/missing").c_str()));
  }
}

void an_etcd_that_does_not_run_is_unreachable_in_time(void**) {
  Etcd etcd(parse_address("etcd://127.0.0.1:" + std::to_string(free_port()) + "/n").value(), "");
  const auto begun = SteadyClock::now();
  const auto got = etcd.get("key", within(300ms));
  assert_false(got.ok());
  assert_int_equal(got.status().code(), MV_EUNREACHABLE);
  assert_non_null(strstr(got.status().text().c_str(), "is it running?"));
  assert_true(SteadyClock::now() - begun < 3s);
}

// ---- with etcd

void writers_that_race_lose_nothing(void**) {
  NEEDS_ETCD();
  Server server;
  constexpr int kWriters = 4, kEach = 25;
  std::vector<std::thread> threads;
  std::vector<std::map<uint64_t, std::string>> written(kWriters);
  for (int writer = 0; writer < kWriters; ++writer)
    threads.emplace_back([&, writer] {
      Member member(server.setting("race"));
      for (int done = 0; done < kEach;) {
        const auto now = member.read();
        if (!now.ok()) continue;
        const std::string view = std::to_string(now.value().revision == 0 ? 1 : std::stoi(text_of(now.value())) + 1);
        const auto revision = member.write(now.value().revision, view);
        if (!revision.ok()) continue;
        written[writer][revision.value()] = view;
        ++done;
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::map<uint64_t, std::string> all;
  for (const auto& each : written) all.insert(each.begin(), each.end());
  assert_int_equal(all.size(), kWriters * kEach);  // no revision was given twice
  int expected = 0;
  for (const auto& [revision, view] : all) assert_int_equal(std::stoi(view), ++expected);
  Member reader(server.setting("race"));
  assert_int_equal(std::stoi(text_of(reader.read().value())), kWriters * kEach);
  Member other(server.setting("another"));
  assert_int_equal(other.read().value().revision, 0);
}

void a_deposed_writer_is_refused(void**) {
  NEEDS_ETCD();
  Server server;
  Member old(server.setting("n"), 20s), fresh(server.setting("n"), 20s);
  assert_int_equal(old.read().value().revision, 0);
  const uint64_t first = old.write(0, "first").value();
  assert_int_equal(old.write(0, "again").status().code(), MV_ESTATE);
  const Content seen = fresh.read().value();
  assert_true(seen.revision == first && text_of(seen) == "first");
  const uint64_t second = fresh.write(first, "second").value();
  assert_true(second > first);
  assert_int_equal(old.write(first, "late").status().code(), MV_ESTATE);
  assert_string_equal(text_of(old.read().value()).c_str(), "second");
  const std::string large(300'000, 'x');
  assert_true(old.write(second, large).ok());
  assert_true(text_of(fresh.read().value()) == large);
  const auto refused = fresh.write(fresh.read().value().revision, std::string(3 << 20, 'x'));
  assert_int_equal(refused.status().code(), MV_ESYSTEM);
  assert_non_null(strstr(refused.status().text().c_str(), "refuses this"));
}

void a_stopped_etcd_is_unreachable_and_reading_resolves_the_unknown(void**) {
  NEEDS_ETCD();
  Server server;
  Member member(server.setting("n"), 500ms);
  const uint64_t revision = member.write(0, "before").value();
  server.end(SIGSTOP);
  const auto begun = SteadyClock::now();
  const auto unknown = member.write(revision, "unknown");
  assert_int_equal(unknown.status().code(), MV_EUNREACHABLE);
  assert_int_equal(member.read().status().code(), MV_EUNREACHABLE);
  assert_true(SteadyClock::now() - begun < 4s);
  server.end(SIGCONT);
  Member patient(server.setting("n"), 10s);
  const Content now = patient.read().value();
  const std::string view = text_of(now);
  assert_true(view == "before" ? now.revision == revision : view == "unknown" && now.revision > revision);
  // The member reads, and goes on from what is there.
  const auto resolved = member.read();
  assert_true(resolved.ok());
  assert_true(member.write(resolved.value().revision, "after").ok());
}

void an_etcd_that_restarts_goes_on_and_delays_calls(void**) {
  NEEDS_ETCD();
  Server server;
  Member member(server.setting("n"), 20s);
  const uint64_t revision = member.write(0, "before").value();
  server.end(SIGKILL);
  auto during = std::async(std::launch::async, [&] { return member.write(revision, "during"); });
  assert_true(during.wait_for(300ms) == std::future_status::timeout);
  server.start();
  const auto written = during.get();
  assert_true(written.ok());
  assert_string_equal(text_of(member.read().value()).c_str(), "during");
  assert_true(member.write(written.value(), "after").ok());
}

void an_etcd_that_has_lost_its_data_is_noticed(void**) {
  NEEDS_ETCD();
  Server server;
  Member master(server.setting("n"), 20s);
  uint64_t revision = master.write(0, "one").value();
  revision = master.write(revision, "two").value();
  server.end(SIGKILL);
  server.forget();
  server.start();
  assert_int_equal(master.read().status().code(), MV_ESTATE);
  assert_non_null(strstr(master.read().status().text().c_str(), "has lost the view"));
  // Somebody else writes until the new etcd has the old one's revision.
  Member other(server.setting("n"), 20s);
  uint64_t now = other.write(0, "other").value();
  while (now < revision) now = other.write(now, "other").value();
  assert_int_equal(now, revision);
  assert_int_equal(master.write(revision, "three").status().code(), MV_ESTATE);
  assert_string_equal(text_of(other.read().value()).c_str(), "other");
}

void a_compacted_history_is_not_needed(void**) {
  NEEDS_ETCD();
  Server server;
  Member member(server.setting("n"));
  uint64_t revision = 0;
  for (int i = 0; i < 5; ++i) revision = member.write(revision, "v").value();
  auto http = transport::make_http_client({"127.0.0.1", server.port(), false});
  assert_true(http.ok());
  const auto compacted = http.value()->post({"/v3/kv/compaction", "{\"revision\":\"" + std::to_string(revision) + "\"}", "", 5s});
  assert_true(compacted.ok() && compacted.value().status == 200);
  assert_int_equal(member.read().value().revision, revision);
  assert_true(member.write(revision, "w").ok());
  Etcd watcher(server.address(), "");
  const auto begun = SteadyClock::now();
  assert_true(watcher.watch("/polyverso/n/view", within(10s)).ok());
  assert_true(SteadyClock::now() - begun < 5s);
}

void a_key_that_was_deleted_is_waited_for(void**) {
  NEEDS_ETCD();
  Server server;
  auto first = make_registry(parse_address(server.setting("n")).value(), "", 5s), second = make_registry(parse_address(server.setting("n")).value(), "", 5s);
  assert_false(first->claim(entry_of("first"), within(1s)).value().has_value());
  first->release(within(1s));
  assert_false(second->look(within(1s)).value().has_value());
  const auto begun = SteadyClock::now();
  assert_true(second->wait(within(500ms)).ok());
  assert_true(SteadyClock::now() - begun > 400ms);  // what has happened before the look is no change
}

void a_new_master_takes_the_name_from_members_only(void**) {
  NEEDS_ETCD();
  Server server;
  const Address address = parse_address(server.setting("n")).value();
  auto holder = make_registry(address, "", 5s), master = make_registry(address, "", 5s);
  Entry held = entry_of("holder"), own = entry_of("master");
  held.address = "127.0.0.1:1", own.address = "127.0.0.1:2";
  assert_false(holder->claim(held, within(1s)).value().has_value());
  assert_string_equal(master->take_over(own, {"127.0.0.1:2", "127.0.0.1:3"}, within(1s)).value()->id.c_str(), "holder");
  assert_string_equal(master->look(within(1s)).value()->id.c_str(), "holder");
  assert_false(master->take_over(own, {"127.0.0.1:2", "127.0.0.1:1"}, within(1s)).value().has_value());
  assert_string_equal(holder->look(within(1s)).value()->id.c_str(), "master");
  assert_int_equal(holder->keep(within(1s)).code(), MV_ESTATE);
}

void a_dead_endpoint_is_passed_over(void**) {
  NEEDS_ETCD();
  Server server;
  Member member("etcd://127.0.0.1:" + std::to_string(free_port()) + ",127.0.0.1:" + std::to_string(server.port()) + "/n", 5s);
  assert_true(member.write(0, "v").ok());
  assert_string_equal(text_of(member.read().value()).c_str(), "v");
}

void no_callback_runs_after_the_destructor(void**) {
  NEEDS_ETCD();
  Server server;
  Member member(server.setting("n"), 30s);
  server.end(SIGSTOP);
  auto called = std::make_shared<bool>(false);
  const auto begun = SteadyClock::now();
  member.on_loop([&] {
    for (int i = 0; i < 3; ++i) member.keeper->read([called](const base::Result<Content>&) { *called = true; });
  });
  std::this_thread::sleep_for(50ms);
  member.on_loop([&] { member.keeper.reset(); });
  assert_true(SteadyClock::now() - begun < 5s);
  bool was_called = false;
  member.on_loop([&] { was_called = *called; });
  assert_false(was_called);  // not on the loop: cmocka ends the process without a word if an assertion fails on another thread
}

void a_lease_that_expires_frees_the_name(void**) {
  NEEDS_ETCD();
  Server server;
  const auto first = make_registry(server.address(), "", 1s), second = make_registry(server.address(), "", 1s);
  assert_true(first->free_after() == 2s);
  assert_false(first->claim(entry_of("first"), within(5s)).value().has_value());
  assert_true(first->keep(within(5s)).ok());
  assert_string_equal(second->claim(entry_of("second"), within(5s)).value()->id.c_str(), "first");
  // As if the process were stopped: it does not keep the lease. The other one hears of the end of it.
  const auto begun = SteadyClock::now();
  while (second->look(within(5s)).value()) assert_true(second->wait(within(10s)).ok());
  assert_true(SteadyClock::now() - begun < 8s);
  assert_true(first->keep(within(5s)).ok());  // nobody has taken the name meanwhile
  assert_string_equal(second->claim(entry_of("second"), within(5s)).value()->id.c_str(), "first");
  first->release(within(5s));
  assert_false(second->claim(entry_of("second"), within(5s)).value().has_value());
  const base::Status deposed = first->keep(within(5s));
  assert_int_equal(deposed.code(), MV_ESTATE);
  assert_non_null(strstr(deposed.text().c_str(), "has taken the name"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(settings_name_endpoints_files_and_a_cluster),
      cmocka_unit_test(entries_are_parsed_as_they_were_written),
      cmocka_unit_test(a_name_in_a_folder_is_free_again_when_its_process_dies),
      cmocka_unit_test(members_of_a_folder_keep_the_name_for_each_other),
      cmocka_unit_test(a_folder_that_is_missing_is_named),
      cmocka_unit_test(an_etcd_that_does_not_run_is_unreachable_in_time),
      cmocka_unit_test(writers_that_race_lose_nothing),
      cmocka_unit_test(a_deposed_writer_is_refused),
      cmocka_unit_test(a_stopped_etcd_is_unreachable_and_reading_resolves_the_unknown),
      cmocka_unit_test(an_etcd_that_restarts_goes_on_and_delays_calls),
      cmocka_unit_test(an_etcd_that_has_lost_its_data_is_noticed),
      cmocka_unit_test(a_compacted_history_is_not_needed),
      cmocka_unit_test(a_key_that_was_deleted_is_waited_for),
      cmocka_unit_test(a_new_master_takes_the_name_from_members_only),
      cmocka_unit_test(a_dead_endpoint_is_passed_over),
      cmocka_unit_test(no_callback_runs_after_the_destructor),
      cmocka_unit_test(a_lease_that_expires_frees_the_name),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
