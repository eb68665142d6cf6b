#pragma once
// A listening server. Its own thread greets new connections, so that a silent stranger delays nobody.

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "connection.hpp"
#include "greeting.hpp"

namespace mv::native {

class Server : public Shared {
 public:
  static constexpr const char* kKind = "ipc.server";

  explicit Server(Descriptor listening);
  ~Server() override { close(); }
  const char* kind() const override { return kKind; }

  Address address() const { return address_; }
  /// Waits until this many clients are connected.
  bool wait(size_t count, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure);
  /// The clients with this tag, or all, ordered by id and then by arrival.
  std::vector<std::shared_ptr<Connection>> clients(const std::string& tag, bool inverted);
  /// The bytes that all clients, including closed ones, have sent and received.
  void push_traffic(lua_State* L);
  void close();

 private:
  struct Stranger {
    Descriptor socket;
    std::string address;
    Greeting greeting;
    Clock::time_point deadline;
  };

  void serve();
  void accept_all();
  /// False: the stranger is a client now, or was refused.
  bool greet(Stranger& stranger);
  void forget_closed();

  Descriptor listening_, wake_read_, wake_write_;
  const Address address_;
  std::list<Stranger> strangers_;  // used by the thread only

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<Connection>> clients_;
  uint64_t gone_[4] = {};  // bytes and calls to and from clients that are gone
  bool closed_ = false;
  std::thread thread_;
};

/// server([host [, port]]): the server, its port
int open_server(lua_State* L);

/// ready(clients): waits for a client with a message; returns its index in the list
int wait_ready(lua_State* L);

/// Makes the metatable and pushes the table of its methods.
void open_servers(lua_State* L);

}  // namespace mv::native
