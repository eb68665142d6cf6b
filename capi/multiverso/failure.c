#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** The end of an error message: a line feed, and if the process aborts, how to continue instead. */
static const char *ending(bool *goes_on) {
  static const char kAborting[] = "\nmultiverso: aborting; set POLYVERSO_MULTIVERSO_ERRORS=continue to carry on\n";
  static const char kUnknown[] = "\nmultiverso: aborting; POLYVERSO_MULTIVERSO_ERRORS is neither abort nor continue\n";
  const char *choice = getenv("POLYVERSO_MULTIVERSO_ERRORS");
  *goes_on = choice != NULL && strcmp(choice, "continue") == 0;
  if (*goes_on) return "\n";
  return choice == NULL || choice[0] == '\0' || strcmp(choice, "abort") == 0 ? kAborting : kUnknown;
}

/** Writes the message in one call, so that lines of several workers do not mix. */
static void tell(char *text, size_t capacity) {
  bool goes_on;
  const char *end = ending(&goes_on);
  size_t length = strlen(text);
  if (length + strlen(end) >= capacity) length = capacity - strlen(end) - 1;
  memcpy(text + length, end, strlen(end) + 1);
  fputs(text, stderr);
  fflush(stderr);
  if (!goes_on) abort();
}

bool succeeded(const char *function, mv_status status) {
  if (status == MV_OK) return true;
  char text[2048];
  snprintf(text, sizeof(text), "multiverso: %s: %s: %s", function, mv_status_name(status), mv_last_error());
  tell(text, sizeof(text));
  return false;
}

bool refused(const char *function, const char *format, ...) {
  char text[2048];
  const size_t begun = (size_t)snprintf(text, sizeof(text), "multiverso: %s: ", function);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + begun, sizeof(text) - begun, format, arguments);
  va_end(arguments);
  tell(text, sizeof(text));
  return false;
}
