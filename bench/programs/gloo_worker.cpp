// A rank of Gloo, over TCP on the loopback device. Operations: an allreduce of BYTES bytes of f32, "out" of place or "in" place.
//
//     gloo_worker FOLDER RANK RANKS
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "programs/batch.h"
#include "programs/ranks.h"
}

namespace {

struct Worker {
  std::shared_ptr<gloo::rendezvous::Context> context;
  bool in_place = false;
  std::vector<float> from, to;
};

void tell(void* self, void* message, uint64_t bytes) {
  gloo::BroadcastOptions options(static_cast<Worker*>(self)->context);
  options.setRoot(0);
  options.setOutput(static_cast<char*>(message), bytes);
  gloo::broadcast(options);
}

void prepare(void* self, const char* operation, uint64_t bytes) {
  auto* worker = static_cast<Worker*>(self);
  worker->in_place = std::strcmp(operation, "in") == 0;
  worker->from.assign(bytes / sizeof(float), 1);
  worker->to.assign(bytes / sizeof(float), 1);
}

void repeat(void* self, uint64_t times) {
  auto* worker = static_cast<Worker*>(self);
  for (uint64_t i = 0; i < times; ++i) {
    gloo::AllreduceOptions options(worker->context);
    if (!worker->in_place) options.setInput(worker->from.data(), worker->from.size());
    options.setOutput(worker->to.data(), worker->to.size());
    options.setReduceFunction([](void* sum, const void* a, const void* b, size_t count) { gloo::sum<float>(sum, a, b, count); });
    gloo::allreduce(options);
  }
}

void check(void* self) {
  auto* worker = static_cast<Worker*>(self);
  ranks_fill(worker->to.data(), worker->to.size());
  repeat(self, 1);
  ranks_check(worker->to.data(), worker->to.size(), static_cast<float>(worker->context->size));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) batch_fail("usage: gloo_worker FOLDER RANK RANKS");
  try {
    const int rank = std::atoi(argv[2]), ranks = std::atoi(argv[3]);
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    gloo::rendezvous::FileStore store(argv[1]);
    Worker worker;
    worker.context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    auto device = gloo::transport::tcp::CreateDevice(address);
    worker.context->connectFullMesh(store, device);
    const ranks_program program = {rank, ranks, tell, prepare, repeat, check, &worker};
    ranks_serve(&program);
  } catch (const std::exception& error) {
    batch_fail("%s", error.what());
  }
}
