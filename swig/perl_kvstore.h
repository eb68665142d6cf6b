/* Key-value stores in Perl: the keys and the tensors of a call. Their memory belongs to Perl, for the statement. */
#ifndef POLYVERSO_SWIG_PERL_KVSTORE_H
#define POLYVERSO_SWIG_PERL_KVSTORE_H

static int pv_is_array(SV *sv) { return SvROK(sv) && SvTYPE(SvRV(sv)) == SVt_PVAV; }

/* Element i of an array reference. Its magic is called once. */
static SV *pv_element(SV *array, SSize_t i) {
  SV **element = av_fetch((AV *)SvRV(array), i, 0);
  SV *sv = element ? *element : &PL_sv_undef;
  SvGETMAGIC(sv);
  return sv;
}

/* A name, or a reference to an array of them: 3 is "3". */
static int pv_keys(SV *sv, const char *function, kv_keys *keys) {
  SvGETMAGIC(sv);
  const int is_list = pv_is_array(sv);
  keys->count = is_list ? (uint64_t)(av_len((AV *)SvRV(sv)) + 1) : 1;
  const char **names = (const char **)pv_temporary((keys->count + 1) * sizeof *names);
  keys->names = names;
  for (uint64_t i = 0; i < keys->count; ++i) {
    SV *key = is_list ? pv_element(sv, (SSize_t)i) : sv;
    if (!SvOK(key) || (SvROK(key) && !SvAMAGIC(key)))
      return pv_refuse(MV_EINVAL, function, "key %" PRIu64 " is %s, not a name", i, SvROK(key) ? "a reference" : "undef");
    if (!pv_text(key, function, &names[i])) return 0;
  }
  return 1;
}

/* The tensors of {tensors => ..., priority => ...}; any other argument as it is. NULL with $@ set. */
static SV *pv_tensors_of(SV *sv, const char *function, int position, kv_values *values) {
  if (!SvROK(sv) || SvTYPE(SvRV(sv)) != SVt_PVHV || SvOBJECT(SvRV(sv))) return sv;
  HV *hash = (HV *)SvRV(sv);
  SV **tensors = hv_fetchs(hash, "tensors", 0), **priority = hv_fetchs(hash, "priority", 0);
  if (!tensors || HvUSEDKEYS(hash) != (priority ? 2 : 1)) {
    pv_refuse(MV_EINVAL, function, "a hash of values must have the keys tensors and priority");
    return NULL;
  }
  SvGETMAGIC(*tensors);
  return !priority || pv_integer(*priority, function, position, "priority", &values->priority) ? *tensors : NULL;
}

/* Reads the tensors of `key_count` keys. A flat array does not determine the number for each key: the C function
 * does. In an array that contains arrays, each element belongs to one key. A key without any has 0, which the C
 * function refuses. */
static int pv_tensors(SV *sv, const char *function, int position, uint64_t key_count, kv_values *values) {
  SvGETMAGIC(sv);
  if (!SvOK(sv)) return 1;
  if (!(sv = pv_tensors_of(sv, function, position, values))) return 0;
  const int is_list = pv_is_array(sv);
  const SSize_t length = is_list ? av_len((AV *)SvRV(sv)) + 1 : 1;
  uint64_t *per_key = (uint64_t *)pv_temporary(((size_t)length + key_count + 1) * sizeof *per_key);
  uint64_t count = 0;
  memset(per_key, 0, ((size_t)length + key_count + 1) * sizeof *per_key);
  for (SSize_t i = 0; i < length; ++i) {
    SV *item = is_list ? pv_element(sv, i) : sv;
    per_key[i] = is_list && pv_is_array(item) ? (uint64_t)(av_len((AV *)SvRV(item)) + 1) : 1;
    if (is_list && pv_is_array(item)) values->per_key = per_key;
    count += per_key[i];
  }
  mv_tensor *tensors = (mv_tensor *)pv_temporary((count + 1) * sizeof *tensors);
  values->tensors = tensors;
  for (SSize_t i = 0; i < length; ++i) {
    SV *item = is_list ? pv_element(sv, i) : sv;
    for (uint64_t k = 0; k < per_key[i] && values->count < count; ++k) {
      SV *one = is_list && pv_is_array(item) ? pv_element(item, (SSize_t)k) : item;
      if (!pv_tensor_handle(one, function, position, &tensors[values->count++])) return 0;
    }
  }
  return 1;
}

/* Copies nested arrays, so that the tensors stay alive even if the caller's arrays change. */
static SV *pv_copied(SV *sv) {
  if (SvROK(sv) && SvTYPE(SvRV(sv)) == SVt_PVHV && !SvOBJECT(SvRV(sv))) sv = *hv_fetchs((HV *)SvRV(sv), "tensors", 0);
  if (!pv_is_array(sv)) return newSVsv(sv);
  AV *copy = newAV();
  for (SSize_t i = 0; i <= av_len((AV *)SvRV(sv)); ++i) av_push(copy, pv_copied(pv_element(sv, i)));
  return newRV_noinc((SV *)copy);
}

#endif
