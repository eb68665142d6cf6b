// Preloaded, it keeps every `polyverso server` for two more seconds after the server has left the cluster and its main() has returned.

#include <stdio.h>
#include <string.h>
#include <time.h>

__attribute__((destructor)) static void linger(void) {
  char words[4096];
  FILE* const file = fopen("/proc/self/cmdline", "r");
  if (file == NULL) return;
  const size_t length = fread(words, 1, sizeof words - 1, file);
  fclose(file);
  words[length] = '\0';
  const char* const second = words + strlen(words) + 1;
  if (second >= words + length || strcmp(second, "server") != 0) return;
  const struct timespec time = {.tv_sec = 2};
  nanosleep(&time, NULL);
}
