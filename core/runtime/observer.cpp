#include "runtime/observer.hpp"

#include <atomic>

#include "runtime/random.hpp"
#include "transport/loop/loop.hpp"
#include "transport/tcp/tcp.hpp"
#include "wire/frame.hpp"

namespace mv::runtime {

namespace {

/// Sends the question to the process that answers the dial, and receives its reply.
class Asker final : public base::LinkEvents {
 public:
  Asker(transport::Transport& transport, const Observation& what) : transport_(transport), what_(what) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Valid once done.
  const base::Result<std::string>& result() const { return result_; }

  void on_connected(base::Peer peer, const std::string&) override {
    wire::FrameBuilder builder;
    const auto inquire =
        wire::CreateInquire(builder.fbb(), 1, true, what_.json, what_.live, what_.log_of.has_value(), what_.log_of.value_or(0), what_.servers);
    transport_.send(peer, builder.finish(wire::Body::Inquire, inquire));
  }
  void on_dial_failed(const std::string&, const base::Status& why) override { end(why); }
  void on_lost(base::Peer, const base::Status& why) override { end(why); }
  void on_message(base::Peer, const wire::Message& message, std::span<const std::byte> payload) override {
    if (message.body_type() != wire::Body::Overview) return;
    std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
    const int32_t status = message.body_as_Overview()->status();
    if (status == MV_OK) return end(std::move(text));
    end(base::Status(status < 0 ? static_cast<mv_status>(status) : MV_EPROTOCOL, text));
  }
  base::SinkRef on_header(base::Peer, const wire::Message& message, size_t bytes) override {
    if (message.body_type() != wire::Body::Overview) return base::Sink::nowhere();
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
    return base::Sink::into({memory.get(), bytes}, memory);
  }
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override {
    if (!sink.discards()) on_message(from, message, sink.memory());
  }

 private:
  void end(base::Result<std::string> result) {
    if (done()) return;
    result_ = std::move(result);
    done_.store(true, std::memory_order_release);
  }

  transport::Transport& transport_;
  const Observation& what_;
  base::Result<std::string> result_ = base::Status(MV_ETIMEOUT, "");
  std::atomic<bool> done_{false};
};

}  // namespace

base::Result<std::string> observe(const Observation& observation) {
  transport::Loop loop;
  if (!loop.ready().ok()) return loop.ready();
  transport::TcpOptions options;
  options.self = random_peer();
  options.secret = observation.secret;
  options.observes = true;
  options.tls = observation.tls;
  transport::TcpTransport transport(loop, options);
  Asker asker(transport, observation);
  transport.attach(asker);
  if (const base::Status status = loop.start(); !status.ok()) return status;
  loop.post([&] { transport.dial(observation.address); });
  const transport::Driven driven =
      loop.drive_until([&] { return asker.done(); }, base::after(loop.now(), observation.patience));

  std::atomic<bool> stopped{false};
  loop.post([&] { transport.stop([&] { stopped = true; }); });
  loop.drive_until([&] { return stopped.load(); }, loop.now() + transport::Transport::kLinger);
  loop.stop();
  if (asker.done()) return asker.result();
  if (driven == transport::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait");
  return base::error(MV_ETIMEOUT, "{} has not answered within {:.3g} s", observation.address,
                     base::seconds(observation.patience));
}

}  // namespace mv::runtime
