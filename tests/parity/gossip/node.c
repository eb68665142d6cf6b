/* A node of gossip_test.py, in C; node.py, node.pl and node.lua do the same.  node NAME VALUE
 * Tells its port, learns its peers ("peer NAME PORT"), and makes a step for each line "step", until its input ends. */
#include <polyverso/polyverso.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 1000 };
static float model[kCount];

static int make_step(mv_gossip node) {
  int32_t started = 0;
  mv_gossip_fetched fetched = MV_GOSSIP_FETCHED_INIT;
  if (mv_gossip_add(node, model, kCount, MV_F32) || mv_gossip_publish(node, 1) || mv_gossip_fetch_start(node, &started) ||
      mv_gossip_fetch_wait(node, 1, &fetched))
    return 1;
  if (fetched.got && mv_gossip_average(node, model, kCount, MV_F32)) return 1;
  printf("stepped %g %.9g\n", fetched.got ? fetched.factor : 0, (double)model[kCount - 1]);
  return 0;
}

static int run(mv_gossip node) {
  char line[256], text[4096], name[128];
  uint64_t length = 0;
  int port = 0;
  if (mv_gossip_state_text(node, MV_JSON, text, sizeof text, &length)) return 1;
  const char* address = strstr(text, "127.0.0.1:");
  printf("listens %s\n", address ? strtok((char*)address + strlen("127.0.0.1:"), "\"") : "nowhere");
  while (fgets(line, sizeof line, stdin)) {
    const int is_peer = sscanf(line, "peer %127s %d", name, &port) == 2;
    if (is_peer ? mv_gossip_add_peer(node, name, "127.0.0.1", port) : make_step(node)) return 1;
  }
  return mv_gossip_close(node);
}

int main(int argc, char** argv) {
  char config[512];
  mv_gossip node = 0;
  if (argc != 3) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 0; i < kCount; ++i) model[i] = strtof(argv[2], NULL);
  snprintf(config, sizeof config, "nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\n", argv[1]);
  if (mv_gossip_open_text(config, argv[1], &node) || run(node)) return fprintf(stderr, "%s\n", mv_last_error()), 1;
  return 0;
}
