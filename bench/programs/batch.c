#include "programs/batch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kMostSamples = 1 << 20, kFewestSamples = 3 };
static const double kWarmUp = 0.1; /* of the batch's seconds */
static const char kEach[] = "each-";

double batch_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void batch_fail(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  for (char *c = text; *c; ++c) {
    if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '\''; /* the text becomes part of a JSON string */
  }
  printf("{\"error\": \"%s\"}\n", text);
  fflush(stdout);
  exit(1);
}

void *batch_memory(uint64_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory == NULL) batch_fail("no memory for %llu bytes", (unsigned long long)bytes);
  memset(memory, 1, bytes);
  return memory;
}

void *batch_fresh_memory(uint64_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) batch_fail("no addresses for %llu bytes", (unsigned long long)bytes);
  return memory;
}

void batch_free_fresh(void *memory, uint64_t bytes) { munmap(memory, bytes); }

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void answer(double *samples, size_t count, uint64_t block) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += samples[i];
  qsort(samples, count, sizeof(double), compare);
  printf("{\"median\": %.9g, \"mean\": %.9g, \"least\": %.9g, \"p99\": %.9g, \"count\": %llu}\n", samples[count / 2],
         sum / (double)count, samples[0], samples[(count - 1) * 99 / 100], (unsigned long long)(count * block));
  fflush(stdout);
}

static void run(const batch_program *program, double *samples, double seconds, uint64_t block) {
  const double begun = batch_now();
  do program->repeat(program->self, block);
  while (batch_now() < begun + kWarmUp * seconds);

  size_t count = 0;
  double now = batch_now();
  const double end = now + seconds;
  while (count < kMostSamples && (now < end || count < kFewestSamples)) {
    program->repeat(program->self, block);
    const double then = now;
    now = batch_now();
    samples[count++] = (now - then) / (double)block;
  }
  if (program->check) program->check(program->self);
  answer(samples, count, block);
}

static void run_each(const batch_program *program, double *samples, double seconds, uint64_t block) {
  size_t count = 0;
  program->repeat_each(program->self, block, samples);
  const double end = batch_now() + seconds;
  for (; count + block <= kMostSamples && (count == 0 || batch_now() < end); count += block) {
    program->repeat_each(program->self, block, samples + count);
  }
  if (program->check) program->check(program->self);
  answer(samples, count, 1);
}

void batch_serve(const batch_program *program) {
  double *samples = batch_memory(kMostSamples * sizeof(double));
  printf("{\"ready\": true}\n");
  fflush(stdout);
  char line[256], operation[64];
  while (fgets(line, sizeof(line), stdin)) {
    unsigned long long bytes = 0, block = 0;
    double seconds = 0;
    if (sscanf(line, "%63s %llu %lf %llu", operation, &bytes, &seconds, &block) != 4 || block == 0) {
      batch_fail("not a batch: %s", line);
    }
    const int each = strncmp(operation, kEach, strlen(kEach)) == 0;
    if (each && program->repeat_each == NULL) batch_fail("can't time single calls: %s", line);
    program->prepare(program->self, each ? operation + strlen(kEach) : operation, bytes);
    (each ? run_each : run)(program, samples, seconds, block);
  }
  free(samples);
}
