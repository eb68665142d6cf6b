#include "runtime/keeper/etcd_keeper.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/keeper/etcd.hpp"
#include "runtime/keeper/quiet_thread.hpp"
#include "runtime/random.hpp"

namespace mv::runtime::keeper {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// What was seen last, by the thread.
struct Seen {
  uint64_t revision = 0;
  std::string mark;  ///< of its writer
};

class EtcdKeeper final : public cluster::Keeper {
 public:
  EtcdKeeper(const Address& address, const std::string& auth, base::Nanos patience, transport::Loop& loop)
      : etcd_(address, auth),
        patience_(std::chrono::duration_cast<SteadyClock::duration>(patience)),
        view_key_(view_key(address)),
        mark_key_(mark_key(address)),
        loop_(loop) {}
  ~EtcdKeeper() override {
    *alive_ = false;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
      news_.notify_all();
    }
    etcd_.cancel();
    if (thread_.joinable()) thread_.join();
  }

  base::Status start() {
    auto thread = start_quiet_thread([this] { run(); });
    if (!thread.ok()) return thread.status();
    thread_ = std::move(thread).value();
    return {};
  }

  void read(Read done) override {
    queue([this, done = std::move(done)] { answer<Content>(done, read_now()); });
  }
  void write(uint64_t revision, std::vector<std::byte> view, Written done) override {
    queue([this, revision, view = std::move(view), done = std::move(done)] { answer<uint64_t>(done, write_now(revision, view)); });
  }

 private:
  void queue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    news_.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      news_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }
  /// Calls back on the loop, unless the keeper is gone by then.
  template <typename T>
  void answer(const std::function<void(base::Result<T>)>& done, base::Result<T> result) {
    const auto kept = std::make_shared<base::Result<T>>(std::move(result));
    loop_.post_or_break([alive = alive_, done, kept] {
      if (*alive) done(std::move(*kept));
    });
  }
  SteadyClock::time_point deadline() const { return SteadyClock::now() + patience_; }

  base::Status lost(uint64_t revision) const {
    return base::error(MV_ESTATE,
                       "{} has lost the view of the cluster \"{}\": revision {} was there, and now it is {}. Nobody can decide about its members any "
                       "more: end this cluster, and start it from its last checkpoint",
                       etcd_.address().where(), etcd_.address().name, seen_.revision, revision);
  }
  base::Result<Content> read_now() {
    // Both keys at one revision: a transaction without puts, whose condition never holds.
    const auto looked = etcd_.transact({{.key = view_key_, .revision = UINT64_MAX >> 1}}, {}, {view_key_, mark_key_}, deadline());
    if (!looked.ok()) return unreachable(looked.status());
    return take(looked.value().found);
  }
  base::Result<Content> take(const std::vector<std::optional<Etcd::Value>>& found) {
    const auto &view = found[0], &mark = found[1];
    const uint64_t revision = view ? view->revision : 0;
    if (revision < seen_.revision || (revision == seen_.revision && revision != 0 && mark && mark->bytes != seen_.mark)) return lost(revision);
    if (!view) return Content{};
    seen_ = {revision, mark ? mark->bytes : ""};
    const auto* bytes = reinterpret_cast<const std::byte*>(view->bytes.data());
    return Content{revision, {bytes, bytes + view->bytes.size()}};
  }
  base::Result<uint64_t> write_now(uint64_t revision, const std::vector<std::byte>& view) {
    const std::string mark = random_secret().substr(0, 32);
    std::vector<Etcd::Condition> conditions{{.key = view_key_, .revision = revision}};
    if (revision != 0 && revision == seen_.revision) conditions.push_back({.key = mark_key_, .bytes = seen_.mark});
    if (revision < seen_.revision) return base::error(MV_ESTATE, "revision {} is no longer the newest: {} is", revision, seen_.revision);
    const std::string bytes(reinterpret_cast<const char*>(view.data()), view.size());
    const auto outcome = etcd_.transact(conditions, {{view_key_, bytes}, {mark_key_, mark}}, {view_key_, mark_key_}, deadline());
    if (!outcome.ok()) return unreachable(outcome.status());
    if (outcome.value().done) {
      seen_ = {outcome.value().revision, mark};
      return outcome.value().revision;
    }
    const auto& there = outcome.value().found;
    if (there[1] && there[1]->bytes == mark && there[0]) {  // an earlier try of this write was carried out
      seen_ = {there[0]->revision, mark};
      return there[0]->revision;
    }
    if (!outcome.value().sure)
      return base::error(MV_EUNREACHABLE,
                         "{} did not answer the first try of a write, and another process has written since: unknown whether it was written",
                         etcd_.address().where());
    const auto now = take(there);
    if (!now.ok()) return now.status();
    return base::error(MV_ESTATE, "another process has written a view of the cluster \"{}\": revision {} is there, not {}", etcd_.address().name,
                       now.value().revision, revision);
  }
  /// The codes that the interface knows; those that need a change of settings stay.
  static base::Status unreachable(const base::Status& why) {
    return why.code() == MV_EAUTH || why.code() == MV_ESYSTEM || why.code() == MV_EINVAL || why.code() == MV_ENOSYS
               ? why
               : base::Status(MV_EUNREACHABLE, why.text());
  }

  Etcd etcd_;
  const SteadyClock::duration patience_;
  const std::string view_key_, mark_key_;
  transport::Loop& loop_;
  Seen seen_;                                                         // the thread's
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // the loop's
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> queue_;  // under mutex_, like the next one
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

base::Result<std::unique_ptr<cluster::Keeper>> make_keeper(const std::string& setting, const std::string& auth, base::Nanos patience,
                                                           transport::Loop& loop) {
  if (setting.empty()) return std::unique_ptr<cluster::Keeper>();
  const auto address = parse_address(setting);
  if (!address.ok()) return address.status();
  if (address.value().kind != Address::Kind::kEtcd) return std::unique_ptr<cluster::Keeper>();
  auto made = std::make_unique<EtcdKeeper>(address.value(), auth, patience, loop);
  if (const base::Status status = made->start(); !status.ok()) return status;
  return std::unique_ptr<cluster::Keeper>(std::move(made));
}

}  // namespace mv::runtime::keeper
