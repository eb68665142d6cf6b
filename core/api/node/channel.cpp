// MemberNode: the ends of channels.

#include <utility>

#include "api/node/member_node.hpp"
#include "engine/channel/channels.hpp"

namespace mv::api {

namespace {

class MemberChannel final : public Channel {
 public:
  MemberChannel(Calls& calls, const std::string& name) : calls_(calls), name_(name) {
    calls_.on_loop([&] { channels().open(name_, shared_, [&calls] { calls.wake(); }); });
  }
  ~MemberChannel() override {
    calls_.loop().post_or_break([&calls = calls_, name = name_] { calls.member().channels().close(name); });
  }

  void set_giving(bool on) override {
    calls_.on_loop([&] { channels().set_giving(name_, on); });
  }
  void accept(uint64_t more) noexcept override { shared_->limit += more; }
  bool is_due() const override { return shared_->due.load(std::memory_order_acquire); }
  Due take() override {
    channel::Channels::Due due;
    calls_.on_loop([&] { due = channels().take(name_); });
    return {due.asked, std::move(due.delivered)};
  }
  void give(Bytes bytes) override {
    const auto given = std::make_shared<const Bytes>(std::move(bytes));
    calls_.on_loop([&] { channels().give(name_, given); });
  }
  base::Result<std::vector<Bytes>> collect(base::Nanos timeout) override {
    CallOptions options;
    options.timeout = timeout;
    const CallRef call = calls_.make_call(options, false);
    const auto by_worker = std::make_shared<std::vector<Bytes>>();
    const base::Status failed = calls_.start(call, options, [this, call, by_worker] { channels().collect(call, name_, by_worker); }).status;
    if (!failed.ok()) return failed;
    return std::move(*by_worker);
  }
  base::Status deliver(std::vector<Bytes> bytes) override {
    std::vector<channel::BytesRef> by_worker;
    for (Bytes& each : bytes) by_worker.push_back(std::make_shared<const Bytes>(std::move(each)));
    const CallRef call = calls_.make_call({}, false);
    return calls_.start(call, {}, [this, call, by_worker] { channels().deliver(call, name_, by_worker); }).status;
  }

 private:
  channel::Channels& channels() const { return calls_.member().channels(); }

  Calls& calls_;
  const std::string name_;
  const std::shared_ptr<channel::Shared> shared_ = std::make_shared<channel::Shared>();
};

}  // namespace

std::unique_ptr<Channel> MemberNode::open_channel(const std::string& name) { return std::make_unique<MemberChannel>(calls_, name); }

}  // namespace mv::api
