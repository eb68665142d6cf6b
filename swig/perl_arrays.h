/* Lists of arrays in Perl: a reference to an array of PDLs or tensors, used in place. */
#ifndef POLYVERSO_SWIG_PERL_ARRAYS_H
#define POLYVERSO_SWIG_PERL_ARRAYS_H

/* The arrays of the list; their memory lives until the end of the statement. NULL with $@ set if one can't be lent. */
static mv_array *pv_lend_arrays(SV *sv, const char *function, uint64_t *count) {
  SvGETMAGIC(sv);
  if (!SvROK(sv) || SvTYPE(SvRV(sv)) != SVt_PVAV) {
    pv_refuse(MV_EINVAL, function, "a reference to an array of PDLs or tensors is needed");
    return NULL;
  }
  AV *const list = (AV *)SvRV(sv);
  *count = (uint64_t)(av_len(list) + 1);
  SV *const room = sv_2mortal(newSV((STRLEN)(*count + 1) * sizeof(mv_array)));
  mv_array *const arrays = (mv_array *)SvPVX(room);
  memset(arrays, 0, (size_t)(*count + 1) * sizeof *arrays);
  for (uint64_t i = 0; i < *count; ++i) {
    SV **const item = av_fetch(list, (SSize_t)i, 0);
    if (!item || !SvROK(*item)) {
      pv_refuse(MV_EDTYPE, function, "array %" PRIu64 " is neither a PDL nor a tensor", i);
      return NULL;
    }
    if (!pv_lend(*item, pv_array_of(function, i), 1, &arrays[i].data, &arrays[i].count, &arrays[i].dtype)) return NULL;
  }
  return arrays;
}

/* Called after C has written into the arrays. */
static void pv_written_arrays(SV *sv) {
  AV *const list = (AV *)SvRV(sv);
  for (SSize_t i = 0; i <= av_len(list); ++i) {
    SV **const item = av_fetch(list, i, 0);
    if (item) pv_written(*item);
  }
}

/* pv_hold() of a receive's data, and of the place for its sender's rank: undef, or a tensor. */
static void pv_hold_with_place(mv_request request, SV *data, SV *place) {
  pv_hold(request, SvOK(data) ? data : place);
  if (!SvOK(data) || !SvOK(place)) return;
  SV **held = hv_fetch(pv_held(), (const char *)&request, sizeof request, 0);
  av_push((AV *)SvRV(*held), newSVsv(place));
}

/* ------------------------------------------------------------------ custom reductions */

/* %Polyverso::CAPI::customs: custom => a list of its arrays, from begin to end. */
static HV *pv_customs(void) { return get_hv("Polyverso::CAPI::customs", GV_ADD); }

static void pv_custom_begun(mv_custom custom, SV *sv) {
  AV *const list = (AV *)SvRV(sv);
  SV *const held = newRV_noinc((SV *)av_make(av_len(list) + 1, AvARRAY(list)));
  (void)hv_store(pv_customs(), (const char *)&custom, sizeof custom, held, 0);
}

/* The number of arrays that the reduction has; -1: it was not begun here, or has ended. */
static int64_t pv_custom_arrays(mv_custom custom) {
  SV **const held = hv_fetch(pv_customs(), (const char *)&custom, sizeof custom, 0);
  return held ? (int64_t)av_len((AV *)SvRV(*held)) + 1 : -1;
}

static void pv_custom_ended(mv_custom custom) {
  SV *const held = hv_delete(pv_customs(), (const char *)&custom, sizeof custom, 0);
  if (held) pv_written_arrays(held);
}

#endif
