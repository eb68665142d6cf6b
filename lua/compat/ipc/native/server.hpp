#pragma once
// What listens: a thread of its own greets who comes, so that no stranger who says nothing holds up anybody.

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
  /// Waits until so many clients are connected.
  bool wait(size_t count, Clock::time_point deadline, const Interrupts& interrupts, Failure& failure);
  /// Those with this tag, or all, by id and then in the order in which they came.
  std::vector<std::shared_ptr<Connection>> clients(const std::string& tag, bool inverted);
  /// What all clients, also those that are gone, have sent and received.
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
  /// False: it is a client now, or was refused.
  bool greet(Stranger& stranger);
  void forget_closed();

  Descriptor listening_, wake_read_, wake_write_;
  const Address address_;
  std::list<Stranger> strangers_;  // the thread's

  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<Connection>> clients_;
  uint64_t gone_[4] = {};  // bytes and calls that clients who are gone were sent and sent
  bool closed_ = false;
  std::thread thread_;
};

/// server([host [, port]]): the server, its port
int open_server(lua_State* L);

/// ready(clients): the place in the list of one that has something to say; waits for it
int wait_ready(lua_State* L);

/// Makes the metatable and pushes the table of its methods.
void open_servers(lua_State* L);

}  // namespace mv::native
