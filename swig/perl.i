/* Perl: integers, PDLs, packed strings, hashes and exception objects. Helpers are in perl_values.h. A call may end
 * in a longjmp (die), so all memory here belongs to Perl. */
%{
#include "halves.h"
#include "perl_values.h"
%}

%perlcode %{
require Polyverso::Error;
%}

/* --------------------------------------------------------------- status: an exception object, or nothing */

%typemap(out) mv_status {
  if (result != MV_OK) {
    pv_raise(result);
    SWIG_fail;
  }
}

%define MV_WAITS(function)
%exception function {
  $action
  if (result == MV_EINTR) pv_signals();
}
%enddef

%define MV_RESUMES(function)
%exception function {
  do {
    $action
  } while (result == MV_EINTR && pv_signals());
}
%enddef

%define MV_SCANS(function, capacity, found)
MV_RESUMES(function)
%enddef

%define MV_RESUMES_FOR(function, timeout)
%exception function {
  const int64_t whole = timeout, started = pv_clock_ms();
  do {
    $action
  } while (result == MV_EINTR && pv_signals() && pv_shorten(&timeout, whole, started));
}
%enddef

%define MV_ENDS(function)
%exception function {
  do {
    $action
  } while (result == MV_EINTR && pv_signals());
  if (result == MV_OK) pv_settle_all();
}
%enddef

%define MV_RELEASES(function)
%exception function {
  $action
  if (result != MV_OK) pv_raise(result);
  pv_settle(arg1);
  if (result != MV_OK) SWIG_fail;
}
%enddef

%define MV_DROPS(function)
%exception function {
  $action
  if (result == MV_EPENDING) result = pv_drop(arg1);
  if (result != MV_OK) pv_raise(result);
  pv_settle(arg1);
  pv_sweep();
  if (result != MV_OK) SWIG_fail;
}
%enddef

%define MV_RELEASES_AFTER(function, timeout)
%exception function {
  const int64_t whole = timeout, started = pv_clock_ms();
  do {
    $action
  } while (result == MV_EINTR && pv_signals() && pv_shorten(&timeout, whole, started));
  if (result != MV_OK) pv_raise(result);
  pv_settle(arg1);
  if (result != MV_OK) SWIG_fail;
}
%enddef

%define MV_CALLS(function, options)
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
}
%enddef

%define MV_READS(function, options, at)
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold(*options->request, ST(at));
}
%enddef

/* --------------------------------------------------------------- numbers and text */

%typemap(in) int64_t {
  if (!pv_integer($input, "$symname", $argnum, "$1_type", &$1)) SWIG_fail;
}
%typemap(in) int32_t {
  if (!pv_integer32($input, "$symname", $argnum, "$1_type", &$1)) SWIG_fail;
}
%typemap(in) double {
  if (!pv_number($input, "$symname", $argnum, &$1)) SWIG_fail;
}
%typemap(in) uint64_t {
  if (!pv_count($input, "$symname", $argnum, "$1_name", &$1)) SWIG_fail;
}
%typemap(in, numinputs = 0) int64_t * (int64_t value = 0), int32_t * (int32_t value = 0),
                            uint64_t *found (uint64_t value = 0) {
  $1 = &value;
}
%typemap(argout) int64_t *, int32_t *, uint64_t *found { PV_PUSH(newSViv((IV)*$1)); }

%typemap(in) const char * { if (!pv_text($input, "$symname", (const char **)&$1)) SWIG_fail; }
%typemap(freearg) const char * ""
%typemap(in) const char *path { if (!pv_path($input, "$symname", (const char **)&$1)) SWIG_fail; }
%typemap(freearg) const char *path ""
%typemap(out) const char * { PV_PUSH(pv_str($1)); }

/* --------------------------------------------------------------- buffers */

%typemap(in) (const void *data, uint64_t count, mv_dtype dtype) {
  void *memory = NULL;
  if (!pv_lend($input, "$symname", 0, &memory, &$2, &$3)) SWIG_fail;
  $1 = memory;
}
%typemap(in) (void *data, uint64_t count, mv_dtype dtype) (SV *written = NULL) {
  if (!pv_lend($input, "$symname", 1, &$1, &$2, &$3)) SWIG_fail;
  written = $input; /* results overwrite the arguments on Perl's stack */
}
%typemap(argout) (void *data, uint64_t count, mv_dtype dtype) { pv_written(written$argnum); }
%typemap(in) (const int64_t *rows, uint64_t row_count) {
  if (!pv_lend_rows($input, "$symname", 0, &$1, &$2)) SWIG_fail;
}
%typemap(argout) (const int64_t *rows, uint64_t row_count) ""
%typemap(in) (int64_t *rows, uint64_t capacity) (SV *written = NULL) {
  if (!pv_lend_rows($input, "$symname", 1, &$1, &$2)) SWIG_fail;
  written = $input;
}
%typemap(argout) (int64_t *rows, uint64_t capacity) { pv_written(written$argnum); }

/* --------------------------------------------------------------- options, as hashes */

%typemap(arginit) const mv_call_options * {
  value$argnum = pv_call_defaults;
  value$argnum.request = &request$argnum;
  $1 = &value$argnum;
}
%typemap(default) const mv_call_options * ""
%typemap(in) const mv_call_options * (mv_call_options value, mv_request request = 0) {
  if (!pv_call_options($input, "$symname", &value)) SWIG_fail;
}
%typemap(argout) const mv_call_options * {
  if ($1->flags & MV_ASYNC) PV_PUSH(newSViv((IV)request$argnum));
}
%typemap(default) const mv_init_options * { $1 = NULL; }
%typemap(in) const mv_init_options * (mv_init_options value = MV_INIT_OPTIONS_INIT) {
  if (SvPOK($input))
    value.text = SvPV_nolen($input);
  else if (!pv_fields($input, "$symname", pv_init_fields, &value))
    SWIG_fail;
  if (SvOK($input)) $1 = &value;
}
%typemap(in) const mv_table_spec * (mv_table_spec value = MV_TABLE_SPEC_INIT) {
  if (!pv_fields($input, "$symname", pv_spec_fields, &value)) SWIG_fail;
  $1 = SvOK($input) ? &value : NULL;
}

/* --------------------------------------------------------------- results of several values, as references */

%typemap(in) (int *argc, char **argv) (int count = 0) {
  if (!($2 = pv_arguments($input, "$symname", &count))) SWIG_fail;
  $1 = &count;
}
%typemap(argout) (int *argc, char **argv) { PV_PUSH(pv_argument_list(*$1, $2)); }

%typemap(in) (mv_request *finished, uint64_t capacity, uint64_t *count) (uint64_t count = 0) {
  if (!pv_handles($input, "$symname", $argnum, &$1, &$2)) SWIG_fail;
  $3 = &count;
}
%typemap(argout) (mv_request *finished, uint64_t capacity, uint64_t *count) { PV_PUSH(pv_handle_list($1, *$3)); }

%typemap(in, numinputs = 0) mv_membership_event *event (mv_membership_event value = MV_MEMBERSHIP_EVENT_INIT) { $1 = &value; }
%typemap(argout) mv_membership_event *event { PV_PUSH(pv_event($1)); }
%typemap(in, numinputs = 0) mv_table_info *info (mv_table_info value = MV_TABLE_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_table_info *info { PV_PUSH(pv_info($1)); }

%typemap(in, numinputs = 0) (char *text, uint64_t capacity, uint64_t *length) (char first[1024], uint64_t length = 0) {
  $1 = first;
  $2 = sizeof first;
  $3 = &length;
}
/* Repeats the call with more room as long as the text is cut: it may have grown meanwhile. */
%typemap(argout) (char *text, uint64_t capacity, uint64_t *length) {
  while (*$3 >= $2) {
    $2 = *$3 + 1;
    $1 = (char *)pv_temporary($2);
    while ((result = PV_AGAIN_$symname($1, $2, $3)) == MV_EINTR) pv_signals();
    if (result != MV_OK) {
      pv_raise(result);
      SWIG_fail;
    }
  }
  PV_PUSH(pv_str_of($1, *$3));
}

/* --------------------------------------------------------------- for Polyverso::Values */

%inline %{
/* A new PDL of a table's dtype, with cols x rows elements, or rows if cols is 0. */
static SV *fresh_pdl(int32_t dtype, int64_t rows, int64_t cols) { return pv_fresh_pdl(dtype, rows, cols); }
/* Whether a PDL needs no conversion for a table of this dtype. */
static int is_plain_pdl(SV *value, int32_t dtype) { return pv_is_plain_pdl(value, dtype); }
/* The same of ids and of the values of so many columns. */
static int are_plain_rows(SV *ids, SV *values, int32_t dtype, int64_t cols) { return pv_are_plain_rows(ids, values, dtype, cols); }
/* Converts packed doubles to MV_F16 or MV_BF16, and back, to packed floats. */
static SV *pack_halves(int32_t dtype, SV *doubles) { return pv_pack_halves(dtype, doubles); }
static SV *unpack_halves(int32_t dtype, SV *halves) { return pv_unpack_halves(dtype, halves); }
%}
