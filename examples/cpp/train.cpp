// Linear regression by several workers: each has its own samples of y = 3x - 1, and all share the two parameters in a table.
//   polyverso run -n 2 -- build/train
#include <polyverso/polyverso.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

int main() try {
  polyverso::Node node;  // one worker of the cluster that `polyverso run` starts; alone, a cluster of one
  polyverso::Table model(node, "size=2 name=model updater=\"sgd rate=0.1\"");

  std::mt19937 random(static_cast<unsigned>(node.worker_id()));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> parameters(2);
  std::vector<float> gradients(2);
  for (int step = 0; step < 500; ++step) {
    model.get(parameters);
    const float x = uniform(random);
    const float error = parameters[0] * x + parameters[1] - (3 * x - 1);
    gradients = {2 * error * x, 2 * error};
    model.add(gradients);  // the servers apply it: parameters -= 0.1 * gradients
  }
  node.barrier();  // all workers' steps are in the table

  model.get(parameters);
  std::printf("y = %.2f x %+.2f\n", parameters[0], parameters[1]);
  return std::abs(parameters[0] - 3) < 0.01F && std::abs(parameters[1] + 1) < 0.01F ? 0 : 1;
} catch (const polyverso::Error& error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
