// A process with a TCP transport, for tests that kill or stop it:
//
//   transport_peer INCARNATION listen            prints its address
//   transport_peer INCARNATION dial ADDRESS      prints "connected" once it is; also listens
//   transport_peer INCARNATION dial-only ADDRESS the same, without listening
//
// Ends, without a goodbye, when its standard input does.

#include <unistd.h>

#include <cstdio>
#include <string>

#include "node.hpp"

int main(int argc, char** argv) {
  using namespace mv::test;
  if (argc < 3) return 2;
  mv::transport::TcpOptions options;
  options.self = std::stoull(argv[1]);
  Node node(Kind::kTcp, options);
  const std::string mode = argv[2];
  const std::string address = mode == "dial-only" ? "" : node.listen();
  if (mode != "listen") {
    node.dial(argv[3]);
    if (!node.wait([](const Record& record) { return !record.connected.empty(); })) return 1;
  }
  std::printf("%s\n", mode == "listen" ? address.c_str() : "connected");
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  _exit(0);
}
