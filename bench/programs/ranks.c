#include "programs/ranks.h"

#include <string.h>

#include "programs/batch.h"

typedef enum action { kPrepare, kRepeat, kCheck, kEnd } action;
typedef struct message {
  int32_t action;
  char operation[60];
  uint64_t number; /* bytes, or times */
} message;

static void act(const ranks_program *program, message *what) {
  program->tell(program->self, what, sizeof(*what));
  if (what->action == kPrepare) program->prepare(program->self, what->operation, what->number);
  if (what->action == kRepeat) program->repeat(program->self, what->number);
  if (what->action == kCheck) program->check(program->self);
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  message what = {.action = kPrepare, .number = bytes};
  strncpy(what.operation, operation, sizeof(what.operation) - 1);
  act(self, &what);
}

static void repeat(void *self, uint64_t times) { act(self, &(message){.action = kRepeat, .number = times}); }

static void check(void *self) { act(self, &(message){.action = kCheck}); }

void ranks_serve(const ranks_program *program) {
  if (program->rank == 0) {
    batch_serve(&(batch_program){prepare, repeat, check, (void *)program});
    act(program, &(message){.action = kEnd});
    return;
  }
  message what = {.action = kPrepare};
  do act(program, &what);
  while (what.action != kEnd);
}

void ranks_fill(float *values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) values[i] = 1;
}

void ranks_check(const float *values, uint64_t count, float expected) {
  for (uint64_t i = 0; i < count; ++i) {
    if (values[i] != expected) batch_fail("element %llu of the sum is %g, not %g", (unsigned long long)i, (double)values[i], (double)expected);
  }
}
