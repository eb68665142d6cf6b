#include "programs/ranks.h"

#include <string.h>
#include <time.h>

#include "programs/batch.h"

typedef enum action { kPrepare, kRepeat, kRepeatEach, kCheck, kEnd } action;
typedef struct message {
  int32_t action;
  char operation[60];
  uint64_t number; /* bytes, or times */
} message;

static const char kPaused[] = "paused-";
enum { kOneIn = 20, kPauseNanos = 1000000 };
static int pauses;           /* in the operation of this batch */
static uint32_t random_state = 1; /* the same on all ranks */

static uint32_t draw(uint32_t below) {
  random_state = random_state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

static void prepare_one(const ranks_program *program, const message *what) {
  pauses = strncmp(what->operation, kPaused, strlen(kPaused)) == 0;
  program->prepare(program->self, what->operation + (pauses ? strlen(kPaused) : 0), what->number);
}

/* Times each call. `seconds` may be NULL: only rank 0 keeps them. */
static void repeat_each_here(const ranks_program *program, uint64_t times, double *seconds) {
  for (uint64_t i = 0; i < times; ++i) {
    const int one_pauses = pauses && draw(kOneIn) == 0;
    if (one_pauses && (int)draw((uint32_t)program->ranks) == program->rank) nanosleep(&(struct timespec){0, kPauseNanos}, NULL);
    const double begun = batch_now();
    program->repeat(program->self, 1);
    if (seconds != NULL) seconds[i] = batch_now() - begun;
  }
}

static void act(const ranks_program *program, message *what, double *seconds) {
  program->tell(program->self, what, sizeof(*what));
  if (what->action == kPrepare) prepare_one(program, what);
  if (what->action == kRepeat) program->repeat(program->self, what->number);
  if (what->action == kRepeatEach) repeat_each_here(program, what->number, seconds);
  if (what->action == kCheck) program->check(program->self);
}

static void prepare(void *self, const char *operation, uint64_t bytes) {
  message what = {.action = kPrepare, .number = bytes};
  strncpy(what.operation, operation, sizeof(what.operation) - 1);
  act(self, &what, NULL);
}

static void repeat(void *self, uint64_t times) { act(self, &(message){.action = kRepeat, .number = times}, NULL); }

static void repeat_each(void *self, uint64_t times, double *seconds) {
  act(self, &(message){.action = kRepeatEach, .number = times}, seconds);
}

static void check(void *self) { act(self, &(message){.action = kCheck}, NULL); }

void ranks_serve(const ranks_program *program) {
  if (program->rank == 0) {
    batch_serve(&(batch_program){prepare, repeat, check, (void *)program, repeat_each});
    act(program, &(message){.action = kEnd}, NULL);
    return;
  }
  message what = {.action = kPrepare};
  do act(program, &what, NULL);
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
