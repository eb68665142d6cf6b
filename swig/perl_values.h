/* Helpers of the Perl typemaps. On failure they return 0 or NULL with an exception object in $@, for SWIG_fail to
 * throw. Memory that must be freed after a die belongs to Perl: mortals and the save stack. */
#ifndef POLYVERSO_SWIG_PERL_VALUES_H
#define POLYVERSO_SWIG_PERL_VALUES_H

#ifdef POLYVERSO_HAVE_PDL
#include <pdlcore.h>
#undef warn
#undef barf
static Core *PDL; /* PDL's functions; NULL until the first PDL arrives */
#endif

/* Appends a result. */
#define PV_PUSH(sv)                \
  do {                             \
    SV *pushed = sv_2mortal(sv);   \
    if (argvi >= items) EXTEND(sp, 1); \
    ST(argvi) = pushed;            \
    argvi++;                       \
  } while (0)

static const mv_call_options pv_call_defaults = MV_CALL_OPTIONS_INIT;

/* ------------------------------------------------------------------ exceptions */

/* Text from C as characters. Names, paths and reasons of other programs, and texts that were cut, may be no UTF-8: those
 * become one character for each byte, because Perl dies when it meets malformed UTF-8. */
static SV *pv_str_of(const char *text, STRLEN length) {
  return newSVpvn_utf8(text, length, is_utf8_string((const U8 *)text, length));
}
static SV *pv_str(const char *text) { return pv_str_of(text, strlen(text)); }

/* Puts a Polyverso::Error into $@. */
static void pv_raise_text(mv_status status, const char *text) {
  dSP;
  ENTER;
  SAVETMPS;
  PUSHMARK(SP);
  mXPUSHs(newSVpvs("Polyverso::Error"));
  mXPUSHs(newSViv(status));
  mXPUSHs(pv_str(text));
  PUTBACK;
  call_method("new", G_SCALAR);
  SPAGAIN;
  sv_setsv(ERRSV, POPs);
  PUTBACK;
  FREETMPS;
  LEAVE;
}

static void pv_raise(mv_status status) { pv_raise_text(status, mv_last_error()); }

/* Puts an argument error that names the function into $@. Returns 0. */
static int pv_refuse(mv_status status, const char *function, const char *format, ...) {
  char text[PV_MESSAGE_SIZE];
  int used = snprintf(text, sizeof text, "%s: ", function);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
  va_end(arguments);
  pv_raise_text(status, text);
  return 0;
}

/* ------------------------------------------------------------------ numbers */

static int pv_is_integer(SV *sv, int64_t *value) {
  *value = 0;
  if (SvIOK(sv)) {
    *value = (int64_t)SvIVX(sv);
    return !SvIsUV(sv) || SvUVX(sv) <= (UV)INT64_MAX;
  }
  if (SvROK(sv) || !SvOK(sv) || !looks_like_number(sv)) return 0;
  NV number = SvNV(sv);
  if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0)) return 0;
  *value = (int64_t)number;
  return (NV)*value == number;
}

static int pv_integer(SV *sv, const char *function, int position, const char *type, int64_t *value) {
  SvGETMAGIC(sv);
  if (pv_is_integer(sv, value)) return 1;
  return pv_refuse(MV_EINVAL, function, "argument %d (%s) must be an integer, not %.100s", position, type,
                   SvROK(sv) ? "a reference" : SvOK(sv) ? SvPV_nolen(sv) : "undef");
}

static int pv_integer32(SV *sv, const char *function, int position, const char *type, int32_t *value) {
  int64_t wide;
  if (!pv_integer(sv, function, position, type, &wide)) return 0;
  *value = (int32_t)wide;
  return *value == wide || pv_refuse(MV_EINVAL, function, "argument %d (%s) does not fit 32 bits", position, type);
}

static int pv_count(SV *sv, const char *function, int position, const char *name, uint64_t *value) {
  int64_t number;
  if (!pv_integer(sv, function, position, name, &number)) return 0;
  *value = (uint64_t)number;
  return number >= 0 || pv_refuse(MV_EINVAL, function, "%s is %" PRId64 ", a count can't be negative", name, number);
}

static int pv_number(SV *sv, const char *function, int position, double *value) {
  SvGETMAGIC(sv);
  if ((SvOK(sv) && !SvROK(sv) && looks_like_number(sv)) || (SvROK(sv) && SvAMAGIC(sv))) {
    *value = (double)SvNV_nomg(sv);
    return 1;
  }
  return pv_refuse(MV_EINVAL, function, "argument %d must be a number, not %.100s", position,
                   SvROK(sv) ? "a reference" : SvOK(sv) ? SvPV_nolen(sv) : "undef");
}

/* ------------------------------------------------------------------ PDLs */

#ifdef POLYVERSO_HAVE_PDL
static int pv_is_pdl(SV *sv) {
  if (!SvROK(sv) || !SvOBJECT(SvRV(sv))) return 0;
  const char *name = HvNAME_get(SvSTASH(SvRV(sv)));
  return (name && strcmp(name, "PDL") == 0) || sv_derived_from(sv, "PDL"); /* most are no subclass; the search takes longer */
}

/* Whether PDL is loaded, in the version of this build; else $@ is set. */
static int pv_have_pdl(const char *function) {
  if (PDL) return 1;
  SV *core = get_sv("PDL::SHARE", 0);
  Core *found = core && SvOK(core) ? INT2PTR(Core *, SvIV(core)) : NULL;
  if (!found || found->Version != PDL_CORE_VERSION)
    return pv_refuse(MV_ENOSYS, function, "this module was built for another version of PDL: build it again");
  PDL = found;
  return 1;
}

/* The PDL behind the reference, as PDL->SvPDLV() returns it. That looks for other classes first, which takes longer than a call into the library. */
static pdl *pv_pdl_behind(SV *sv) {
  SV *const object = SvROK(sv) ? SvRV(sv) : NULL;
  const char *name = object && SvOBJECT(object) ? HvNAME_get(SvSTASH(object)) : NULL;
  if (name && strcmp(name, "PDL") == 0 && SvTYPE(object) == SVt_PVMG && SvIOK(object)) {
    pdl *piddle = INT2PTR(pdl *, SvIVX(object));
    if (piddle && piddle->magicno == PDL_MAGICNO) return piddle;
  }
  return PDL->SvPDLV(sv);
}

/* The physical PDL behind the reference; NULL with $@ set if there can't be one. */
static pdl *pv_pdl(SV *sv, const char *function) {
  if (!pv_have_pdl(function)) return NULL;
  pdl *piddle = pv_pdl_behind(sv);
  PDL->barf_if_error(PDL->make_physical(piddle));
  return piddle;
}

/* PDL's types and their dtypes; PDL has no 16-bit floats, so unsigned shorts are the bits of MV_BF16. */
static const struct {
  int type;
  mv_dtype dtype;
} pv_pdl_types[] = {{PDL_F, MV_F32},   {PDL_D, MV_F64}, {PDL_LL, MV_I64}, {PDL_IND, MV_I64},
                    {PDL_L, MV_I32},   {PDL_B, MV_U8},  {PDL_US, MV_BF16},
                    {PDL_SB, MV_I8}};

static mv_dtype pv_dtype_of_pdl(const pdl *piddle) {
  for (size_t i = 0; i < sizeof pv_pdl_types / sizeof *pv_pdl_types; ++i)
    if (pv_pdl_types[i].type == (int)piddle->datatype) return pv_pdl_types[i].dtype;
  return MV_RAW;
}
#endif

/* Called after C has written into the argument's memory: updates Perl's magic, and the parent of a slice. */
static void pv_written(SV *sv) {
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(sv)) {
    PDL->barf_if_error(PDL->changed(pv_pdl_behind(sv), PDL_PARENTDATACHANGED, 0));
    return;
  }
#endif
  SvSETMAGIC(sv);
}

/* ------------------------------------------------------------------ buffers */

static int pv_lend_string(SV *sv, const char *function, int writable, void **data, uint64_t *count) {
  STRLEN length;
  if (!SvPOK(sv))
    return pv_refuse(MV_EDTYPE, function, "data must be a PDL or a packed string, not %.60s",
                     SvROK(sv) ? sv_reftype(SvRV(sv), 1) : "a number");
  if (writable && SvREADONLY(sv))
    return pv_refuse(MV_EINVAL, function, "data is read-only: results need writable memory");
  if (SvUTF8(sv) && (SvREADONLY(sv) || !sv_utf8_downgrade(sv, 1)))
    return pv_refuse(MV_EDTYPE, function, "data is a string of characters, not of bytes: use pack('f*', ...)");
  /* SvPV_force un-shares a copy-on-write string, so that its other owners do not change. */
  *data = writable ? SvPV_force_nomg(sv, length) : SvPV_nomg(sv, length);
  *count = length;
  return 1;
}

/* A Polyverso::Tensor's memory. 1: lent, 0: refused, -1: the argument is not a tensor. */
static int pv_lend_tensor(SV *sv, int takes_devices, void **data, uint64_t *count, mv_dtype *dtype) {
  if (!SvROK(sv) || !sv_derived_from(sv, "Polyverso::Tensor")) return -1;
  const mv_status status = pv_data_of((mv_tensor)SvIV(SvRV(sv)), takes_devices, data, count, dtype);
  if (status != MV_OK) pv_raise(status);
  return status == MV_OK;
}

/* A call's (data, count, dtype), without a copy: a tensor, a PDL of a table's dtype, or a string's bytes as MV_RAW. */
static int pv_lend(SV *sv, const char *function, int writable, void **data, uint64_t *count, mv_dtype *dtype) {
  *data = NULL;
  *count = 0;
  *dtype = MV_RAW;
  SvGETMAGIC(sv);
  if (!SvOK(sv)) return 1;
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(sv)) {
    pdl *piddle = pv_pdl(sv, function);
    if (!piddle) return 0;
    *dtype = pv_dtype_of_pdl(piddle);
    if (*dtype == MV_RAW)
      return pv_refuse(MV_EDTYPE, function,
                       "data is a PDL of a type that tables do not support: use ->float, ->double, ->longlong, ->long or ->byte "
                       "to convert it");
    *data = piddle->data;
    *count = (uint64_t)piddle->nvals;
    return 1;
  }
#endif
  const int lent = pv_lend_tensor(sv, pv_takes_devices(function), data, count, dtype);
  return lent >= 0 ? lent : pv_lend_string(sv, function, writable, data, count);
}

/* Row ids: a longlong or indx PDL, or a string packed with 'q*'. */
static int pv_lend_rows(SV *sv, const char *function, int writable, int64_t **rows, uint64_t *count) {
  void *data = NULL;
  *rows = NULL;
  *count = 0;
  SvGETMAGIC(sv);
  if (!SvOK(sv)) return 1;
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(sv)) {
    pdl *piddle = pv_pdl(sv, function);
    if (!piddle) return 0;
    if (piddle->datatype != PDL_LL && piddle->datatype != PDL_IND)
      return pv_refuse(MV_EDTYPE, function,
                       "rows must be a PDL of type longlong or indx: use ->longlong to convert it");
    *rows = (int64_t *)piddle->data;
    *count = (uint64_t)piddle->nvals;
    return 1;
  }
#endif
  mv_dtype dtype = MV_I64;
  const int lent = pv_lend_tensor(sv, 0, (void **)rows, count, &dtype);
  if (lent > 0 && dtype != MV_I64) return pv_refuse(MV_EDTYPE, function, "rows must be a tensor of dtype i64");
  if (lent >= 0) return lent;
  if (!pv_lend_string(sv, function, writable, &data, count)) return 0;
  if (*count % sizeof(int64_t) != 0)
    return pv_refuse(MV_EDTYPE, function,
                     "rows is a string of %" PRIu64 " bytes, not of 8 bytes per id: use pack('q*', ...)", *count);
  *rows = (int64_t *)data;
  *count /= sizeof(int64_t);
  return 1;
}

/* ------------------------------------------------------------------ signals */

/* Runs the handlers of signals that have arrived; does not return if one dies. */
static int pv_signals(void) {
  PERL_ASYNC_CHECK();
  return 1;
}

static void pv_withdraw(pTHX_ void *request) {
  PERL_UNUSED_CONTEXT;
  if (*(mv_request *)request) mv_request_cancel(*(mv_request *)request);
  Safefree(request);
}

/* A signal interrupted a blocking call, which continues under a handle: waits for its end, unless the signal's
 * handler dies; then the save stack withdraws the call, before its buffers are freed. */
static mv_status pv_resume(const mv_call_options *options) {
  mv_status status = MV_EINTR;
  if (*options->request == 0) pv_signals();
  while (status == MV_EINTR && *options->request != 0) {
    mv_request *pending;
    Newx(pending, 1, mv_request);
    *pending = *options->request;
    ENTER;
    SAVEDESTRUCTOR_X(pv_withdraw, pending);
    pv_signals();
    *pending = 0;
    LEAVE;
    status = mv_request_wait(*options->request, 0);
  }
  return status;
}

/* ------------------------------------------------------------------ buffers of unfinished requests */

/* %Polyverso::CAPI::held: request => [the argument, whether it was locked here, what else lives as long]. During a get its PDL can't be
 * reallocated and its string can't be assigned to. */
static HV *pv_held(void) { return get_hv("Polyverso::CAPI::held", GV_ADD); }

static void pv_sweep(void);

static void pv_hold(mv_request request, SV *sv) {
  pv_sweep();
  if (!SvOK(sv)) return;
  SV *entry[2] = {NULL, NULL};
  int locked = 0;
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(sv)) {
    pdl *piddle = pv_pdl_behind(sv);
    locked = !(piddle->state & PDL_DONTTOUCHDATA);
    piddle->state |= PDL_DONTTOUCHDATA;
    entry[0] = newSVsv(sv);
  }
#endif
  if (!entry[0] && SvROK(sv)) entry[0] = newSVsv(sv); /* a tensor, whose memory does not move */
  if (!entry[0]) {
    locked = !SvREADONLY(sv);
    SvREADONLY_on(sv);
    entry[0] = newRV_inc(sv);
  }
  entry[1] = newSViv(locked);
  AV *held = newAV();
  av_push(held, entry[0]);
  av_push(held, entry[1]);
  (void)hv_store(pv_held(), (const char *)&request, sizeof request, newRV_noinc((SV *)held), 0);
}

static void pv_unlock(SV *argument) {
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(argument)) {
    pv_pdl_behind(argument)->state &= ~PDL_DONTTOUCHDATA;
    return;
  }
#endif
  SvREADONLY_off(SvRV(argument));
}

/* Releases the request's buffer if the request is released by now. */
static void pv_settle(mv_request request) {
  HV *held = pv_held();
  if (HvUSEDKEYS(held) == 0 || !hv_exists(held, (const char *)&request, sizeof request)) return;
  if (mv_request_error(request) != MV_EHANDLE) return;
  SV *entry = sv_2mortal(SvREFCNT_inc(hv_delete(held, (const char *)&request, sizeof request, 0)));
  SV *argument = *av_fetch((AV *)SvRV(entry), 0, 0);
  if (SvTRUE(*av_fetch((AV *)SvRV(entry), 1, 0))) pv_unlock(argument);
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(argument)) pv_written(argument);
#endif
}

/* Calls visit(request) for every key of the hash; visit() may delete the key. */
static void pv_each_request(HV *hash, void (*visit)(mv_request)) {
  AV *requests = newAV();
  HE *entry;
  hv_iterinit(hash);
  while ((entry = hv_iternext(hash))) av_push(requests, newSVpvn(HeKEY(entry), sizeof(mv_request)));
  for (SSize_t i = 0; i <= av_len(requests); ++i) {
    mv_request request;
    memcpy(&request, SvPVX(*av_fetch(requests, i, 0)), sizeof request);
    visit(request);
  }
  SvREFCNT_dec((SV *)requests);
}

static void pv_settle_all(void) { pv_each_request(pv_held(), pv_settle); }

/* %Polyverso::CAPI::dropped: requests that were dropped while they used a buffer. */
static HV *pv_dropped(void) { return get_hv("Polyverso::CAPI::dropped", GV_ADD); }

/* Leaves a request that can't be released yet to pv_sweep(). */
static mv_status pv_drop(mv_request request) {
  (void)hv_store(pv_dropped(), (const char *)&request, sizeof request, newSV(0), 0);
  return MV_OK;
}

static void pv_drop_again(mv_request request) {
  if (mv_request_release(request) == MV_EPENDING) return;
  (void)hv_delete(pv_dropped(), (const char *)&request, sizeof request, G_DISCARD);
  pv_settle(request);
}

/* Releases dropped requests that have finished. Checks all of them, but not at each call: amortized constant cost. */
static void pv_sweep(void) {
  static size_t calls, left;
  HV *dropped = pv_dropped();
  if (HvUSEDKEYS(dropped) == 0 || ++calls < left) return;
  pv_each_request(dropped, pv_drop_again);
  calls = 0;
  left = HvUSEDKEYS(dropped);
}

/* ------------------------------------------------------------------ hashes */

/* Text as an argument; undef is NULL. */
static int pv_text(SV *value, const char *function, const char **text) {
  STRLEN length;
  *text = NULL;
  if (!SvOK(value)) return 1;
  *text = SvPVutf8(value, length);
  return pv_is_c_text(*text, length) ||
         pv_refuse(MV_EINVAL, function, "\"%.100s\" contains a zero byte", *text);
}

/* A path, or a text with paths or secrets in it, as an argument: its bytes, as for Perl's open(). Names of files come as
 * bytes from the command line, the environment and the directory. */
static int pv_path(SV *value, const char *function, const char **path) {
  STRLEN length;
  *path = NULL;
  if (!SvOK(value)) return 1;
  *path = SvPV(value, length);
  return pv_is_c_text(*path, length) || pv_refuse(MV_EINVAL, function, "\"%.100s\" contains a zero byte", *path);
}

static int pv_field_string(SV *value, const pv_field *field, void *options, char *message) {
  STRLEN length;
  const char *text = strcmp(field->key, "name") == 0 ? SvPVutf8(value, length) : SvPV(value, length);
  return pv_field_text(options, field, text, length, message);
}

static int pv_field_set(SV *value, const pv_field *field, void *options, char *message) {
  int64_t number;
  SvGETMAGIC(value);
  if (!SvOK(value)) return 1;
  if (field->kind == PV_FIELD_TEXT && !SvROK(value)) return pv_field_string(value, field, options, message);
  if (pv_is_integer(value, &number)) return pv_field_number(options, field, number, message);
  if (!SvROK(value) && looks_like_number(value)) return pv_field_real(options, field, SvNV(value), message);
  if (!SvROK(value)) return pv_field_string(value, field, options, message);
  snprintf(message, PV_MESSAGE_SIZE, "option %s is a reference", field->key);
  return 0;
}

/* Sets the options' fields from a hash; undef leaves them unchanged. */
static int pv_fields(SV *sv, const char *function, const pv_field *fields, void *options) {
  char message[PV_MESSAGE_SIZE];
  SvGETMAGIC(sv);
  if (!SvOK(sv)) return 1;
  if (!SvROK(sv) || SvTYPE(SvRV(sv)) != SVt_PVHV)
    return pv_refuse(MV_EINVAL, function, "options must be a reference to a hash");
  HV *hash = (HV *)SvRV(sv);
  HE *entry;
  hv_iterinit(hash);
  while ((entry = hv_iternext(hash))) {
    const pv_field *field = pv_field_find(fields, HePV(entry, PL_na), message);
    if (!field || !pv_field_set(hv_iterval(hash, entry), field, options, message))
      return pv_refuse(MV_EINVAL, function, "%s", message);
  }
  return 1;
}

static int pv_call_options(SV *sv, const char *function, mv_call_options *options) {
  int64_t flags;
  SvGETMAGIC(sv);
  if (!SvOK(sv)) return 1;
  if (SvROK(sv)) return pv_fields(sv, function, pv_call_fields, options);
  if (!pv_is_integer(sv, &flags) || flags != (int64_t)(uint32_t)flags)
    return pv_refuse(MV_EINVAL, function, "flags must be a number or a reference to a hash");
  options->flags = (uint32_t)flags;
  return 1;
}

/* ------------------------------------------------------------------ results of several values */

/* Memory that Perl frees at the end of the statement, however it ends. */
static void *pv_temporary(size_t bytes) {
  SV *memory = sv_2mortal(newSV(bytes + 1));
  return SvPVX(memory);
}

static char **pv_arguments(SV *sv, const char *function, int *count) {
  SvGETMAGIC(sv);
  if (!SvROK(sv) || SvTYPE(SvRV(sv)) != SVt_PVAV) {
    pv_refuse(MV_EINVAL, function, "a reference to an array of strings is needed");
    return NULL;
  }
  AV *array = (AV *)SvRV(sv);
  *count = (int)av_len(array) + 1;
  char **argv = (char **)pv_temporary(((size_t)*count + 1) * sizeof *argv);
  for (int i = 0; i < *count; ++i) {
    SV **element = av_fetch(array, i, 0);
    argv[i] = element ? SvPVutf8_nolen(*element) : (char *)"";
  }
  argv[*count] = NULL;
  return argv;
}

static SV *pv_argument_list(int count, char **argv) {
  AV *array = newAV();
  for (int i = 0; i < count; ++i) av_push(array, pv_str(argv[i]));
  return newRV_noinc((SV *)array);
}

/* Room for as many handles as the caller requests at once. */
static int pv_handles(SV *sv, const char *function, int position, mv_request **handles, uint64_t *capacity) {
  int64_t wanted = 0;
  *capacity = 0;
  if (!pv_integer(sv, function, position, "capacity", &wanted)) return 0;
  if (wanted < 0 || wanted > 1 << 20) return pv_refuse(MV_EINVAL, function, "capacity must be 0 .. 1048576");
  *capacity = (uint64_t)wanted;
  *handles = (mv_request *)pv_temporary((size_t)(wanted + 1) * sizeof(mv_request));
  return 1;
}

static SV *pv_handle_list(const mv_request *handles, uint64_t count) {
  AV *array = newAV();
  for (uint64_t i = 0; i < count; ++i) av_push(array, newSViv((IV)handles[i]));
  return newRV_noinc((SV *)array);
}

static SV *pv_event(const mv_membership_event *event) {
  HV *hash = newHV();
  (void)hv_stores(hash, "kind", newSViv(event->kind));
  (void)hv_stores(hash, "role", newSViv(event->role));
  (void)hv_stores(hash, "rank", newSViv((IV)event->rank));
  (void)hv_stores(hash, "part", newSViv((IV)event->part));
  (void)hv_stores(hash, "epoch", newSVuv(event->epoch));
  (void)hv_stores(hash, "dropped", newSVuv(event->dropped));
  (void)hv_stores(hash, "reason", pv_str(event->reason));
  return newRV_noinc((SV *)hash);
}

static SV *pv_info(const mv_table_info *info) {
  HV *hash = newHV();
  (void)hv_stores(hash, "name", pv_str(info->name));
  (void)hv_stores(hash, "kind", newSViv(info->kind));
  (void)hv_stores(hash, "dtype", newSViv(info->dtype));
  (void)hv_stores(hash, "rows", newSVuv(info->rows));
  (void)hv_stores(hash, "cols", newSVuv(info->cols));
  (void)hv_stores(hash, "flags", newSVuv(info->flags));
  (void)hv_stores(hash, "servers", newSVuv(info->servers));
  (void)hv_stores(hash, "bytes", newSVuv(info->bytes));
  (void)hv_stores(hash, "adds", newSVuv(info->adds));
  (void)hv_stores(hash, "gets", newSVuv(info->gets));
  (void)hv_stores(hash, "updater", pv_str(info->updater));
  (void)hv_stores(hash, "staleness", newSViv((IV)info->staleness));
  (void)hv_stores(hash, "clock", newSVuv(info->clock));
  (void)hv_stores(hash, "stored", newSVuv(info->stored));
  (void)hv_stores(hash, "memory_bytes", newSVuv(info->memory_bytes));
  (void)hv_stores(hash, "state_bytes", newSVuv(info->state_bytes));
  (void)hv_stores(hash, "updates", newSVuv(info->updates));
  return newRV_noinc((SV *)hash);
}

/* ------------------------------------------------------------------ for Polyverso::Values */

static SV *pv_fresh_pdl(mv_dtype dtype, int64_t rows, int64_t cols) {
#ifdef POLYVERSO_HAVE_PDL
  if (!pv_have_pdl("PDL")) croak(NULL);
  PDL_Indx dims[2] = {cols ? (PDL_Indx)cols : (PDL_Indx)rows, (PDL_Indx)rows};
  pdl *piddle = PDL->pdlnew();
  SV *reference = sv_newmortal();
  PDL->SetSV_PDL(reference, piddle);
  for (size_t i = 0; i < sizeof pv_pdl_types / sizeof *pv_pdl_types; ++i)
    if (pv_pdl_types[i].dtype == dtype && pv_pdl_types[i].type != PDL_IND) piddle->datatype = pv_pdl_types[i].type;
  PDL->barf_if_error(PDL->setdims(piddle, dims, cols ? 2 : 1));
  PDL->barf_if_error(PDL->make_physical(piddle));
  return reference;
#else
  pv_refuse(MV_ENOSYS, "PDL", "this module was built without PDL: build it again where PDL is installed");
  croak(NULL);
#endif
}

/* Whether the value is a PDL that a table of this dtype takes as it is: of the same type, and without bad values. */
static int pv_is_plain_pdl(SV *value, mv_dtype dtype) {
#ifdef POLYVERSO_HAVE_PDL
  if (!PDL || dtype == MV_BF16 || !pv_is_pdl(value)) return 0;
  const pdl *piddle = pv_pdl_behind(value);
  return (piddle->state & PDL_BADVAL) == 0 && pv_dtype_of_pdl(piddle) == dtype;
#else
  (void)value, (void)dtype;
  return 0;
#endif
}

/* Whether PDLs of ids and of their rows' values, of `cols` columns, are taken as they are; cols 0: of any dimensions. */
static int pv_are_plain_rows(SV *ids, SV *values, mv_dtype dtype, int64_t cols) {
#ifdef POLYVERSO_HAVE_PDL
  if (!pv_is_plain_pdl(ids, MV_I64) || !pv_is_plain_pdl(values, dtype)) return 0;
  const pdl *numbers = pv_pdl_behind(ids), *data = pv_pdl_behind(values);
  if (((numbers->state | data->state) & PDL_PARENTDIMSCHANGED) != 0 || numbers->ndims != 1) return 0;
  return cols == 0 || data->ndims < 2 || (data->ndims == 2 && data->dims[0] == cols && data->dims[1] == numbers->dims[0]);
#else
  (void)ids, (void)values, (void)dtype, (void)cols;
  return 0;
#endif
}

static SV *pv_pack_halves(mv_dtype dtype, SV *doubles) {
  STRLEN length;
  const char *from = SvPVbyte(doubles, length);
  SV *halves = sv_2mortal(newSV(length / 4 + 1));
  SvPOK_only(halves);
  SvCUR_set(halves, length / 4);
  for (size_t i = 0; i < length / sizeof(double); ++i) {
    double value;
    memcpy(&value, from + i * sizeof value, sizeof value);
    const uint16_t half = pv_half_of(dtype, value);
    memcpy(SvPVX(halves) + i * sizeof half, &half, sizeof half);
  }
  return halves;
}

static SV *pv_unpack_halves(mv_dtype dtype, SV *halves) {
  STRLEN length;
  const char *from = SvPVbyte(halves, length);
  SV *floats = sv_2mortal(newSV(length * 2 + 1));
  SvPOK_only(floats);
  SvCUR_set(floats, length * 2);
  for (size_t i = 0; i < length / sizeof(uint16_t); ++i) {
    uint16_t half;
    memcpy(&half, from + i * sizeof half, sizeof half);
    const float value = (float)pv_number_of_half(dtype, half);
    memcpy(SvPVX(floats) + i * sizeof value, &value, sizeof value);
  }
  return floats;
}

#endif
