/* Groups, for every language. Arrays are reduced in place, so one argument is both `in` and `out`; for an all-gather
 * and a reduce-scatter, and for a gather and a scatter on the root, it is the larger one, and the other is the rank's
 * own part of it. An alltoall takes a list: [send, receive], or [send, send_counts, receive, receive_counts] with
 * counts of dtype i64. mv_custom_next() copies
 * another rank's values into the caller's arrays, because the originals are invalid after mv_custom_done(). Only
 * mv_allreduce_custom(), which takes a function for C to call, is not available. */
%ignore mv_group_info;
%ignore mv_drained;
%ignore mv_array;
%ignore mv_reducer;
%ignore mv_allreduce_custom;

%{
/* This rank's own part of `*count` elements for all ranks: its address and count. 0: the elements can't be divided
 * evenly. If there is no such group, `*count` becomes 0, and the call itself will report it. */
static int pv_own_place(mv_group group, void *whole, uint64_t *count, mv_dtype dtype, void **own) {
  mv_group_info info = MV_GROUP_INFO_INIT;
  const size_t bytes = dtype == MV_RAW ? 1 : pv_dtype_bytes(dtype);
  mv_status status;
  while ((status = mv_group_describe(group, &info)) == MV_EINTR) continue;
  *own = whole;
  if (status != MV_OK) return *count = 0, 1;
  if (*count % (uint64_t)info.ranks != 0) return 0;
  *count /= (uint64_t)info.ranks;
  if (*count > 0) *own = (char *)whole + (uint64_t)info.rank * *count * bytes;
  return 1;
}
#define PV_NO_PARTS "%" PRIu64 " elements can't be divided evenly among the ranks"

/* pv_own_place() on the root; on another rank the array is its own part. */
static int pv_root_place(mv_group group, int64_t root, void *whole, uint64_t *count, mv_dtype dtype, void **own, int *is_root) {
  mv_group_info info = MV_GROUP_INFO_INIT;
  mv_status status;
  while ((status = mv_group_describe(group, &info)) == MV_EINTR) continue;
  *is_root = status == MV_OK && info.rank == root;
  *own = whole;
  return !*is_root || pv_own_place(group, whole, count, dtype, own);
}

/* Whether `counts` has a count for each rank, and they add up to the elements of `values`. If there is no such group,
 * the call itself will report it. */
static int pv_counts_fit(mv_group group, const mv_array *values, const mv_array *counts) {
  mv_group_info info = MV_GROUP_INFO_INIT;
  uint64_t sum = 0;
  mv_status status;
  while ((status = mv_group_describe(group, &info)) == MV_EINTR) continue;
  if (status != MV_OK) return 1;
  if (counts->dtype != MV_I64 || counts->count != (uint64_t)info.ranks) return 0;
  for (uint64_t i = 0; i < counts->count; ++i) {
    const int64_t count = ((const int64_t *)counts->data)[i];
    if (count < 0 || (uint64_t)count > values->count) return 0;
    sum += (uint64_t)count;
  }
  return sum == values->count;
}
#define PV_NOT_TWO "a list of two arrays of one dtype and length is needed: send, receive"
#define PV_NOT_FOUR                                                                              \
  "a list of four arrays is needed: send, send_counts, receive, receive_counts; counts are i64, " \
  "one for each rank, and add up to the elements"

/* Copies another rank's arrays to `places`. Returns how many were copied before one did not match, or `arrays`. */
static uint64_t pv_take(const mv_array *theirs, const mv_array *places, uint64_t arrays) {
  for (uint64_t i = 0; i < arrays; ++i) {
    const mv_array *from = &theirs[i], *to = &places[i];
    if (from->count != to->count || from->dtype != to->dtype) return i;
    if (from->count > 0) memcpy(to->data, from->data, from->count * (from->dtype == MV_RAW ? 1 : pv_dtype_bytes(from->dtype)));
  }
  return arrays;
}
#define PV_UNLIKE "array %" PRIu64 " differs from the received one in length or dtype"
%}

%include "arrays.i"
%apply (const int64_t *rows, uint64_t row_count) { (const int64_t *workers, uint64_t count) };
%apply (int64_t *rows, uint64_t capacity) { (int64_t *workers, uint64_t capacity) };
%apply uint64_t *found { uint64_t *count, uint64_t *contributors };
/* With MV_ASYNC it would be written after the wrapper's variable is gone: then the handle is the only result. */
%typemap(check) (uint64_t *contributors, const mv_call_options *options) {
  if ($2->flags & MV_ASYNC) $1 = NULL;
}

/* mv_recv()'s source: an array of one int64, or nothing. It is kept with the data while a request is unfinished. */
%typemap(check) int64_t *source {
  if ($1 && places$argnum != 1) {
    PV_REFUSE(MV_ESHAPE, "$symname", "source has %" PRIu64 " elements: one int64 is needed", places$argnum);
    SWIG_fail;
  }
}

#if defined(SWIGPYTHON)
%typemap(in) (const void *send, void *receive, uint64_t count, mv_dtype dtype)
    (pv_array_list list, const mv_array *given = NULL, uint64_t number = 0),
  (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype)
    (pv_array_list list, const mv_array *given = NULL, uint64_t number = 0) {
  if (!pv_lend_arrays($input, "$symname", &list)) SWIG_fail;
  given = list.arrays;
  number = (uint64_t)list.count;
}
%typemap(arginit) (const void *send, void *receive, uint64_t count, mv_dtype dtype),
  (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype) {
  memset(&list$argnum, 0, sizeof list$argnum);
}
%typemap(freearg) (const void *send, void *receive, uint64_t count, mv_dtype dtype),
  (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype) {
  pv_release_arrays(&list$argnum);
}
%typemap(in, numinputs = 1) int64_t *source (Py_buffer view, int lent = 0, uint64_t places = 0) {
  $1 = NULL;
  if ($input != Py_None) {
    if (!pv_view($input, "$symname", "source", PyBUF_WRITABLE, &view)) SWIG_fail;
    lent = 1;
    if (pv_dtype(&view) != MV_I64) {
      PV_REFUSE(MV_EDTYPE, "$symname", "source must have elements of int64");
      SWIG_fail;
    }
    places = (uint64_t)view.len / sizeof *$1;
    $1 = view.buf;
  }
}
%typemap(argout) int64_t *source ""
%typemap(freearg) int64_t *source {
  if (lent$argnum) PyBuffer_Release(&view$argnum);
}
%typemap(in) (const void *in, void *out, uint64_t count, mv_dtype dtype) (Py_buffer view, int lent = 0) {
  if (!pv_lend($input, "$symname", PyBUF_WRITABLE, &view, &lent, &$3, &$4)) SWIG_fail;
  $1 = NULL;
  $2 = lent ? view.buf : NULL;
}
%typemap(freearg) (const void *in, void *out, uint64_t count, mv_dtype dtype) {
  if (lent$argnum) PyBuffer_Release(&view$argnum);
}
%typemap(in) (const mv_array *in, const mv_array *out, uint64_t arrays) (pv_array_list list) {
  if (!pv_lend_arrays($input, "$symname", &list)) SWIG_fail;
  $1 = NULL;
  $2 = list.arrays;
  $3 = (uint64_t)list.count;
}
%typemap(arginit) (const mv_array *in, const mv_array *out, uint64_t arrays), mv_array *theirs { memset(&list$argnum, 0, sizeof list$argnum); }
%typemap(freearg) (const mv_array *in, const mv_array *out, uint64_t arrays) { pv_release_arrays(&list$argnum); }
%typemap(in) (const void *in, uint64_t count, void *out, mv_dtype dtype) (Py_buffer view, int lent = 0) {
  if (!pv_lend($input, "$symname", PyBUF_WRITABLE, &view, &lent, &$2, &$4)) SWIG_fail;
  $3 = lent ? view.buf : NULL;
}
%typemap(freearg) (const void *in, uint64_t count, void *out, mv_dtype dtype) {
  if (lent$argnum) PyBuffer_Release(&view$argnum);
}
%typemap(in) mv_array *theirs (pv_array_list list, const mv_array *places = NULL, uint64_t number = 0, void *room = NULL) {
  if (!pv_lend_arrays($input, "$symname", &list)) SWIG_fail;
  places = list.arrays;
  number = (uint64_t)list.count;
  if (!(room = PyMem_Calloc((size_t)number + 1, sizeof *$1))) {
    PyErr_NoMemory();
    SWIG_fail;
  }
  $1 = (mv_array *)room;
}
%typemap(freearg) mv_array *theirs {
  pv_release_arrays(&list$argnum);
  PyMem_Free(room$argnum);
}
%typemap(freearg) (mv_array *arrays, uint64_t capacity, mv_drained *next) { PyMem_Free($1); }
%{
/* Replaces `arrays` by room for `count` arrays. */
static int pv_drained_room(mv_array **arrays, uint64_t *capacity, uint64_t count) {
  PyMem_Free(*arrays);
  *arrays = (mv_array *)PyMem_Calloc((size_t)count, sizeof **arrays);
  *capacity = *arrays ? count : 0;
  return *arrays != NULL;
}

static PyObject *pv_drained(const mv_drained *next, const mv_array *arrays) {
  PyObject *const list = PyList_New((Py_ssize_t)next->arrays);
  for (uint64_t i = 0; list && i < next->arrays; ++i)
    PyList_SetItem(list, (Py_ssize_t)i, Py_BuildValue("{s:K,s:i,s:I}", "count", (unsigned long long)arrays[i].count, "dtype", (int)arrays[i].dtype,
                                           "note", (unsigned)arrays[i].note));
  return Py_BuildValue("{s:i,s:i,s:N}", "finished", (int)next->finished, "reduction", (int)next->reduction, "arrays", list);
}

static PyObject *pv_group_info(const mv_group_info *info) {
  return Py_BuildValue("{s:L,s:L,s:L,s:K,s:K,s:K,s:i,s:s,s:N,s:L,s:K,s:s,s:N,s:s}", "rank", (long long)info->rank, "ranks", (long long)info->ranks, "hosts",
                       (long long)info->hosts, "bytes_sent", (unsigned long long)info->bytes_sent, "bytes_received",
                       (unsigned long long)info->bytes_received, "operations", (unsigned long long)info->operations, "broken",
                       (int)info->broken, "transport", info->transport, "why",
                       pv_str(info->why), "elder", (long long)info->elder, "generation",
                       (unsigned long long)info->generation, "collective", info->collective, "collective_why",
                       pv_str(info->collective_why), "tuning", info->tuning);
}
%}
%typemap(argout) mv_group_info *info { $result = pv_append($result, pv_group_info($1)); }
%typemap(argout) uint64_t *contributors {
  if ($1) $result = pv_append($result, PyLong_FromUnsignedLongLong(*$1));
}
%typemap(argout) (mv_array *arrays, uint64_t capacity, mv_drained *next) { $result = pv_append($result, pv_drained($3, $1)); }
%thread mv_custom_end;
%exception mv_custom_end {
  $action
  pv_custom_ended(arg1);
}
%{
#define PV_REFUSE pv_refuse
#define PV_CUSTOM_ARRAYS pv_custom_arrays
%}
#elif defined(SWIGPERL)
%typemap(in) (const void *send, void *receive, uint64_t count, mv_dtype dtype)
    (SV *written = NULL, const mv_array *given = NULL, uint64_t number = 0),
  (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype)
    (SV *written = NULL, const mv_array *given = NULL, uint64_t number = 0) {
  if (!(given = pv_lend_arrays($input, "$symname", &number))) SWIG_fail;
  written = $input;
}
%typemap(argout) (const void *send, void *receive, uint64_t count, mv_dtype dtype),
  (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype) {
  pv_written_arrays(written$argnum);
}
%typemap(in, numinputs = 1) int64_t *source (uint64_t places = 0) {
  mv_dtype dtype = MV_I64;
  $1 = NULL;
  SvGETMAGIC($input);
  if (SvOK($input) && (pv_lend_tensor($input, 0, (void **)&$1, &places, &dtype) <= 0 || dtype != MV_I64)) {
    PV_REFUSE(MV_EDTYPE, "$symname", "source must be a tensor of dtype i64");
    SWIG_fail;
  }
}
%typemap(argout) int64_t *source ""
%typemap(in) (const void *in, void *out, uint64_t count, mv_dtype dtype) (SV *written = NULL) {
  $1 = NULL;
  if (!pv_lend($input, "$symname", 1, &$2, &$3, &$4)) SWIG_fail;
  written = $input;
}
%typemap(argout) (const void *in, void *out, uint64_t count, mv_dtype dtype) { pv_written(written$argnum); }
%typemap(in) (const mv_array *in, const mv_array *out, uint64_t arrays) (SV *written = NULL) {
  $1 = NULL;
  if (!($2 = pv_lend_arrays($input, "$symname", &$3))) SWIG_fail;
  written = $input;
}
%typemap(argout) (const mv_array *in, const mv_array *out, uint64_t arrays) { pv_written_arrays(written$argnum); }
%typemap(in) (const void *in, uint64_t count, void *out, mv_dtype dtype) (SV *written = NULL) {
  if (!pv_lend($input, "$symname", 1, &$3, &$2, &$4)) SWIG_fail;
  written = $input;
}
%typemap(argout) (const void *in, uint64_t count, void *out, mv_dtype dtype) { pv_written(written$argnum); }
%typemap(in) mv_array *theirs (const mv_array *places = NULL, uint64_t number = 0, SV *written = NULL) {
  if (!(places = pv_lend_arrays($input, "$symname", &number))) SWIG_fail;
  $1 = (mv_array *)pv_temporary((number + 1) * sizeof *$1);
  written = $input;
}
%{
static int pv_drained_room(mv_array **arrays, uint64_t *capacity, uint64_t count) {
  *arrays = (mv_array *)pv_temporary(count * sizeof **arrays);
  *capacity = count;
  return 1;
}

static SV *pv_drained(const mv_drained *next, const mv_array *arrays) {
  HV *hash = newHV();
  AV *list = newAV();
  for (uint64_t i = 0; i < next->arrays; ++i) {
    HV *array = newHV();
    (void)hv_stores(array, "count", newSVuv((UV)arrays[i].count));
    (void)hv_stores(array, "dtype", newSViv(arrays[i].dtype));
    (void)hv_stores(array, "note", newSVuv(arrays[i].note));
    av_push(list, newRV_noinc((SV *)array));
  }
  (void)hv_stores(hash, "finished", newSViv(next->finished));
  (void)hv_stores(hash, "reduction", newSViv(next->reduction));
  (void)hv_stores(hash, "arrays", newRV_noinc((SV *)list));
  return newRV_noinc((SV *)hash);
}

static SV *pv_group_info(const mv_group_info *info) {
  HV *hash = newHV();
  (void)hv_stores(hash, "rank", newSViv((IV)info->rank));
  (void)hv_stores(hash, "ranks", newSViv((IV)info->ranks));
  (void)hv_stores(hash, "hosts", newSViv((IV)info->hosts));
  (void)hv_stores(hash, "bytes_sent", newSVuv((UV)info->bytes_sent));
  (void)hv_stores(hash, "bytes_received", newSVuv((UV)info->bytes_received));
  (void)hv_stores(hash, "operations", newSVuv((UV)info->operations));
  (void)hv_stores(hash, "broken", newSViv(info->broken));
  (void)hv_stores(hash, "transport", newSVpv(info->transport, 0));
  (void)hv_stores(hash, "why", pv_str(info->why));
  (void)hv_stores(hash, "elder", newSViv((IV)info->elder));
  (void)hv_stores(hash, "generation", newSVuv((UV)info->generation));
  (void)hv_stores(hash, "collective", newSVpv(info->collective, 0));
  (void)hv_stores(hash, "collective_why", pv_str(info->collective_why));
  (void)hv_stores(hash, "tuning", newSVpv(info->tuning, 0));
  return newRV_noinc((SV *)hash);
}
%}
%typemap(argout) mv_group_info *info { PV_PUSH(pv_group_info($1)); }
%typemap(argout) uint64_t *contributors {
  if ($1) PV_PUSH(newSVuv((UV)*$1));
}
%typemap(argout) (mv_array *arrays, uint64_t capacity, mv_drained *next) { PV_PUSH(pv_drained($3, $1)); }
%exception mv_custom_end {
  $action
  pv_custom_ended(arg1);
}
%{
#define PV_REFUSE pv_refuse
#define PV_CUSTOM_ARRAYS pv_custom_arrays
%}
#elif defined(SWIGLUA)
%typemap(in) (const void *send, void *receive, uint64_t count, mv_dtype dtype) (const mv_array *given = NULL, uint64_t number = 0),
  (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype)
    (const mv_array *given = NULL, uint64_t number = 0) {
  if (!(given = pv_lend_arrays(L, $input, "$symname", &number))) SWIG_fail;
}
%typemap(in, numinputs = 1) int64_t *source (uint64_t places = 0) {
  mv_dtype dtype = MV_I64;
  $1 = NULL;
  if (!lua_isnil(L, $input)) {
    const int lent = pv_lend_memory(L, $input, "source", 0, 1, (void **)&$1, &places, &dtype);
    if (lent == 0) SWIG_fail;
    if (lent < 0 || dtype != MV_I64 || lua_isuserdata(L, 2)) { /* a userdata replaces a table of numbers */
      PV_REFUSE(MV_EDTYPE, "$symname", "source must be a tensor or FFI memory of int64, and data no table of numbers");
      SWIG_fail;
    }
  }
}
%typemap(argout) int64_t *source ""
%typemap(in) (const void *in, void *out, uint64_t count, mv_dtype dtype) {
  $1 = NULL;
  if (!pv_lend_in_place(L, $input, "$symname", &$2, &$3, &$4)) SWIG_fail;
}
%typemap(in) (const mv_array *in, const mv_array *out, uint64_t arrays) {
  $1 = NULL;
  if (!($2 = pv_lend_arrays(L, $input, "$symname", &$3))) SWIG_fail;
}
%typemap(in) (const void *in, uint64_t count, void *out, mv_dtype dtype) {
  if (!pv_lend_in_place(L, $input, "$symname", &$3, &$2, &$4)) SWIG_fail;
}
%typemap(in) mv_array *theirs (const mv_array *places = NULL, uint64_t number = 0) {
  if (!(places = pv_lend_arrays(L, $input, "$symname", &number))) SWIG_fail;
  $1 = (mv_array *)lua_newuserdata(L, (size_t)(number + 1) * sizeof *$1);
}
%{
static int pv_drained_room(lua_State *L, mv_array **arrays, uint64_t *capacity, uint64_t count) {
  *arrays = (mv_array *)lua_newuserdata(L, (size_t)count * sizeof **arrays);
  *capacity = count;
  return 1;
}

static void pv_push_drained(lua_State *L, const mv_drained *next, const mv_array *arrays) {
  lua_createtable(L, 0, 3);
  pv_set_integer(L, "finished", next->finished);
  pv_set_integer(L, "reduction", next->reduction);
  lua_createtable(L, (int)next->arrays, 0);
  for (uint64_t i = 0; i < next->arrays; ++i) {
    lua_createtable(L, 0, 3);
    pv_set_integer(L, "count", (int64_t)arrays[i].count);
    pv_set_integer(L, "dtype", arrays[i].dtype);
    pv_set_integer(L, "note", arrays[i].note);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "arrays");
}

static void pv_push_group_info(lua_State *L, const mv_group_info *info) {
  lua_createtable(L, 0, 14);
  pv_set_integer(L, "rank", info->rank);
  pv_set_integer(L, "ranks", info->ranks);
  pv_set_integer(L, "hosts", info->hosts);
  pv_set_integer(L, "bytes_sent", (int64_t)info->bytes_sent);
  pv_set_integer(L, "bytes_received", (int64_t)info->bytes_received);
  pv_set_integer(L, "operations", (int64_t)info->operations);
  pv_set_integer(L, "broken", info->broken);
  lua_pushstring(L, info->transport);
  lua_setfield(L, -2, "transport");
  lua_pushstring(L, info->why);
  lua_setfield(L, -2, "why");
  pv_set_integer(L, "elder", info->elder);
  pv_set_integer(L, "generation", (int64_t)info->generation);
  lua_pushstring(L, info->collective);
  lua_setfield(L, -2, "collective");
  lua_pushstring(L, info->collective_why);
  lua_setfield(L, -2, "collective_why");
  lua_pushstring(L, info->tuning);
  lua_setfield(L, -2, "tuning");
}
%}
%typemap(argout) mv_group_info *info {
  pv_push_group_info(L, $1);
  SWIG_arg++;
}
%typemap(argout) uint64_t *contributors {
  if ($1) {
    pv_push_integer(L, (int64_t)*$1);
    SWIG_arg++;
  }
}
%typemap(argout) (mv_array *arrays, uint64_t capacity, mv_drained *next) {
  pv_push_drained(L, $3, $1);
  SWIG_arg++;
}
%exception mv_custom_end {
  $action
  pv_custom_ended(L, arg1);
}
%{
#define PV_REFUSE(...) pv_refuse(L, __VA_ARGS__)
#define PV_CUSTOM_ARRAYS(custom) pv_custom_arrays(L, custom)
%}
%exception mv_group_members {
  $action
  if (result == MV_OK && !pv_written_rows(L, 2, "$symname", arg3, *arg4)) SWIG_fail;
}
#endif

/* MV_READS_MANY(function, options) is MV_READS() for a list of arrays as the second argument. MV_RECEIVES(function,
 * options) is MV_READS() for data as the second argument, and a place for the sender as the fifth. MV_DRAINS(function) is
 * MV_RESUMES() that retries with more room on demand. MV_BEGINS(function) keeps its arrays until mv_custom_end(). */
#if defined(SWIGLUA)
%define MV_READS_MANY(function, options)
%exception function {
  $action
  if (result == MV_EINTR) {
    pv_withdraw(L, options);
    SWIG_fail;
  }
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold_arrays(L, *options->request, 2);
}
%enddef
%define MV_RECEIVES(function, options)
%exception function {
  $action
  if (result == MV_EINTR) {
    pv_withdraw(L, options);
    SWIG_fail;
  }
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold_with_place(L, *options->request, 2, 5);
  if (result == MV_OK && !(options->flags & MV_ASYNC) && !pv_written(L, 2, "$symname")) SWIG_fail;
}
%enddef
%define MV_DRAINS(function)
%exception function {
  do {
    $action
  } while (result == MV_EINVAL && arg4->arrays > arg3 && pv_drained_room(L, &arg2, &arg3, arg4->arrays));
}
%enddef
%define MV_BEGINS(function)
%exception function {
  $action
  if (result == MV_OK) pv_custom_begun(L, *arg6, 2);
}
%enddef
#elif defined(SWIGPYTHON)
%define MV_READS_MANY(function, options)
%thread function;
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC) && !pv_hold_arrays(*options->request, swig_obj[1])) SWIG_fail;
}
%enddef
%define MV_RECEIVES(function, options)
%thread function;
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC) && !pv_hold_with_place(*options->request, swig_obj[1], swig_obj[4])) SWIG_fail;
}
%enddef
%define MV_DRAINS(function)
%thread function;
%exception function {
  do {
    $action
  } while ((result == MV_EINTR && PyErr_CheckSignals() == 0) ||
           (result == MV_EINVAL && arg4->arrays > arg3 && pv_drained_room(&arg2, &arg3, arg4->arrays)));
}
%enddef
%define MV_BEGINS(function)
%thread function;
%exception function {
  do {
    $action
  } while (result == MV_EINTR && PyErr_CheckSignals() == 0);
  if (result == MV_OK && !pv_custom_begun(*arg6, swig_obj[1])) SWIG_fail;
}
%enddef
#else
%define MV_READS_MANY(function, options)
MV_READS(function, options, 1)
%enddef
%define MV_RECEIVES(function, options)
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold_with_place(*options->request, ST(1), ST(4));
}
%enddef
%define MV_DRAINS(function)
%exception function {
  do {
    $action
  } while ((result == MV_EINTR && pv_signals()) ||
           (result == MV_EINVAL && arg4->arrays > arg3 && pv_drained_room(&arg2, &arg3, arg4->arrays)));
}
%enddef
%define MV_BEGINS(function)
%exception function {
  do {
    $action
  } while (result == MV_EINTR && pv_signals());
  if (result == MV_OK) pv_custom_begun(*arg6, ST(1));
}
%enddef
#endif
%typemap(in, numinputs = 0) mv_group_info *info (mv_group_info value = MV_GROUP_INFO_INIT) { $1 = &value; }
/* Without room at first: the call then returns the number of arrays. */
%typemap(in, numinputs = 0) (mv_array *arrays, uint64_t capacity, mv_drained *next) (mv_drained value = MV_DRAINED_INIT) {
  $1 = NULL;
  $2 = 0;
  $3 = &value;
}
%typemap(check) (const void *in, uint64_t count, void *out, mv_dtype dtype) {
  const uint64_t all = $2;
  void *own = NULL;
  if (!pv_own_place(arg1, $3, &$2, $4, &own)) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NO_PARTS, all);
    SWIG_fail;
  }
  $1 = own;
}
%typemap(check) (const void *in, void *out, uint64_t count, mv_dtype dtype) {
  const int is_scattered = strcmp("$symname", "mv_reduce_scatter") == 0; /* false for the other functions with this
                                                                            signature */
  const uint64_t all = $3;
  void *own = NULL;
  if (is_scattered && !pv_own_place(arg1, $2, &$3, $4, &own)) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NO_PARTS, all);
    SWIG_fail;
  }
  if (is_scattered) $1 = $2, $2 = own;
}
%apply (const void *in, void *out, uint64_t count, mv_dtype dtype) {
  (const void *mine, void *all, uint64_t count, mv_dtype dtype), (const void *all, void *mine, uint64_t count, mv_dtype dtype)
};
%typemap(check) (const void *mine, void *all, uint64_t count, mv_dtype dtype) {
  const uint64_t all = $3;
  void *own = NULL;
  int is_root = 0;
  if (!pv_root_place(arg1, arg6, $2, &$3, $4, &own, &is_root)) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NO_PARTS, all);
    SWIG_fail;
  }
  $1 = own;
  if (!is_root) $2 = NULL;
}
%typemap(check) (const void *all, void *mine, uint64_t count, mv_dtype dtype) {
  const uint64_t all = $3;
  void *own = NULL;
  int is_root = 0;
  if (!pv_root_place(arg1, arg6, $2, &$3, $4, &own, &is_root)) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NO_PARTS, all);
    SWIG_fail;
  }
  $1 = is_root ? $2 : NULL;
  $2 = own;
}
%typemap(check) (const void *send, void *receive, uint64_t count, mv_dtype dtype) {
  void *own = NULL;
  if (number$argnum != 2 || given$argnum[0].dtype != given$argnum[1].dtype || given$argnum[0].count != given$argnum[1].count) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NOT_TWO);
    SWIG_fail;
  }
  $1 = given$argnum[0].data;
  $2 = given$argnum[1].data;
  $3 = given$argnum[0].count;
  $4 = given$argnum[0].dtype;
  if (!pv_own_place(arg1, $2, &$3, $4, &own)) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NO_PARTS, given$argnum[0].count);
    SWIG_fail;
  }
}
%typemap(check) (const void *send, const uint64_t *send_counts, void *receive, const uint64_t *receive_counts, mv_dtype dtype) {
  if (number$argnum != 4 || given$argnum[0].dtype != given$argnum[2].dtype || !pv_counts_fit(arg1, &given$argnum[0], &given$argnum[1]) ||
      !pv_counts_fit(arg1, &given$argnum[2], &given$argnum[3])) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_NOT_FOUR);
    SWIG_fail;
  }
  $1 = given$argnum[0].data;
  $2 = (uint64_t *)given$argnum[1].data;
  $3 = given$argnum[2].data;
  $4 = (uint64_t *)given$argnum[3].data;
  $5 = given$argnum[0].dtype;
}
/* As many as it was begun with. For one that was not begun here, the C function checks. */
%typemap(check) mv_array *theirs {
  const int64_t wanted = PV_CUSTOM_ARRAYS(arg1);
  if (wanted >= 0 && number$argnum != (uint64_t)wanted) {
    PV_REFUSE(MV_ESHAPE, "$symname", "%" PRIu64 " arrays given, %" PRId64 " needed", number$argnum, wanted);
    SWIG_fail;
  }
  if (wanted < 0) $1 = NULL;
}
%typemap(argout) mv_array *theirs {
  const uint64_t taken = $1 && *arg3 ? pv_take($1, places$argnum, number$argnum) : number$argnum;
  if (taken < number$argnum) {
    PV_REFUSE(MV_ESHAPE, "$symname", PV_UNLIKE, taken);
    SWIG_fail;
  }
#if defined(SWIGPERL)
  pv_written_arrays(written$argnum);
#endif
}
%apply (const mv_array *arrays, uint64_t count) { (const mv_array *data, uint64_t arrays), (const mv_array *values, uint64_t arrays) };

MV_RESUMES(mv_group_open)
MV_RESUMES(mv_group_open_host)
MV_WAITS(mv_group_close)
MV_WAITS(mv_group_abort)
MV_RESUMES(mv_group_describe)
MV_RESUMES(mv_group_shrink)
MV_RESUMES(mv_group_grow)
MV_RESUMES(mv_group_join)
MV_READS(mv_allreduce, arg7, 1)
MV_READS_MANY(mv_allreduce_many, arg8)
MV_READS(mv_reduce, arg8, 1)
MV_READS(mv_broadcast, arg6, 1)
MV_READS_MANY(mv_broadcast_many, arg5)
MV_READS(mv_allgather, arg6, 1)
MV_READS(mv_reduce_scatter, arg7, 1)
MV_READS(mv_gather, arg7, 1)
MV_READS(mv_scatter, arg7, 1)
MV_READS_MANY(mv_alltoall, arg6)
MV_READS_MANY(mv_alltoall_counts, arg7)
MV_READS(mv_send, arg7, 1)
MV_RECEIVES(mv_recv, arg8)
MV_CALLS(mv_group_barrier, arg2)
MV_DRAINS(mv_allreduce_drain)
MV_RESUMES(mv_allreduce_zeros)
MV_BEGINS(mv_custom_begin)
MV_RESUMES(mv_custom_next)

%include <polyverso/group.h>
