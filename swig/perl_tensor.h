/* Tensors in Perl: PDLs in a tensor's memory, tensors in a PDL's memory, and lent memory that is kept alive. */
#ifndef POLYVERSO_SWIG_PERL_TENSOR_H
#define POLYVERSO_SWIG_PERL_TENSOR_H

/* ------------------------------------------------------------------ lent memory */

/* %Polyverso::CAPI::lent: storage => the argument that owns it, so that it is not freed or moved. */
static HV *pv_lent(void) { return get_hv("Polyverso::CAPI::lent", GV_ADD); }

static void pv_tensor_keep(mv_tensor tensor, SV *sv) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  SV *kept = NULL;
  if (!SvOK(sv) || mv_tensor_describe(tensor, &info) != MV_OK) return;
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(sv)) {
    pv_pdl_behind(sv)->state |= PDL_DONTTOUCHDATA;
    kept = newSVsv(sv);
  }
#endif
  if (!kept) {
    if (!SvROK(sv)) SvREADONLY_on(sv);
    kept = newRV_inc(sv);
  }
  (void)hv_store(pv_lent(), (const char *)&info.storage, sizeof info.storage, kept, 0);
}

static void pv_lent_end(SV *kept) {
#ifdef POLYVERSO_HAVE_PDL
  if (pv_is_pdl(kept)) {
    pv_pdl_behind(kept)->state &= ~PDL_DONTTOUCHDATA;
    return;
  }
#endif
  if (!SvROK(SvRV(kept))) SvREADONLY_off(SvRV(kept));
}

/* Frees the handle, and releases lent memory with the last tensor in it. */
static mv_status pv_tensor_free(mv_tensor tensor) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  const int is_last = mv_tensor_describe(tensor, &info) == MV_OK && info.is_lent && info.sharers == 1;
  const mv_status status = mv_tensor_free(tensor);
  if (status == MV_OK && is_last) {
    SV *kept = hv_delete(pv_lent(), (const char *)&info.storage, sizeof info.storage, 0);
    if (kept) pv_lent_end(kept);
  }
  return status;
}

/* ------------------------------------------------------------------ values */

/* A tensor as an argument: a Polyverso::Tensor, a handle, or undef for 0. */
static int pv_tensor_handle(SV *sv, const char *function, int position, mv_tensor *tensor) {
  SvGETMAGIC(sv);
  *tensor = 0;
  if (!SvOK(sv)) return 1;
  if (SvROK(sv) && sv_derived_from(sv, "Polyverso::Tensor")) sv = SvRV(sv);
  return pv_integer(sv, function, position, "mv_tensor", tensor);
}

/* (values, count, dtype): any argument that tables accept, or [dtype, a packed string]. */
static int pv_tensor_values(SV *sv, const char *function, int writable, void **data, uint64_t *count,
                            mv_dtype *dtype) {
  SvGETMAGIC(sv);
  if (!SvROK(sv) || SvTYPE(SvRV(sv)) != SVt_PVAV) return pv_lend(sv, function, writable, data, count, dtype);
  int32_t wanted = 0;
  SV **first = av_fetch((AV *)SvRV(sv), 0, 0), **second = av_fetch((AV *)SvRV(sv), 1, 0);
  if (writable || !first || !second)
    return pv_refuse(MV_EDTYPE, function, "values must be a PDL%s", writable ? "" : " or [dtype, a packed string]");
  if (!pv_integer32(*first, function, 1, "mv_dtype", &wanted)) return 0;
  if (wanted < MV_F32 || wanted > MV_I8)
    return pv_refuse(MV_EINVAL, function, "%d is not a dtype of tensors", (int)wanted);
  if (!pv_lend_string(*second, function, 0, data, count)) return 0;
  *dtype = wanted;
  if (*count % pv_dtype_bytes(wanted))
    return pv_refuse(MV_ESHAPE, function, "%" PRIu64 " bytes are not a whole number of elements", *count);
  *count /= pv_dtype_bytes(wanted);
  return 1;
}

/* One integer, or a reference to an array of them. Beyond the largest number of dimensions they are only counted:
 * the function will refuse them. */
static int pv_lengths(SV *sv, const char *function, int position, int64_t *lengths, uint64_t *dims) {
  SvGETMAGIC(sv);
  *dims = 1;
  if (!SvROK(sv)) return pv_integer(sv, function, position, "length", lengths);
  if (SvTYPE(SvRV(sv)) != SVt_PVAV)
    return pv_refuse(MV_EINVAL, function, "argument %d must be a reference to an array of integers", position);
  AV *array = (AV *)SvRV(sv);
  *dims = (uint64_t)(av_len(array) + 1);
  for (uint64_t i = 0; i < *dims && i < MV_MAX_DIMS; ++i) {
    SV **number = av_fetch(array, (SSize_t)i, 0);
    if (!pv_integer(number ? *number : &PL_sv_undef, function, position, "length", &lengths[i])) return 0;
  }
  return 1;
}

static SV *pv_tensor_info(const mv_tensor_info *info) {
  HV *hash = newHV();
  AV *shape = newAV();
  for (uint32_t d = 0; d < info->dims; ++d) av_push(shape, newSViv((IV)info->shape[d]));
  (void)hv_stores(hash, "dtype", newSViv(info->dtype));
  (void)hv_stores(hash, "shape", newRV_noinc((SV *)shape));
  (void)hv_stores(hash, "count", newSVuv(info->count));
  (void)hv_stores(hash, "bytes", newSVuv(info->bytes));
  (void)hv_stores(hash, "is_view", newSViv(info->is_view));
  (void)hv_stores(hash, "is_lent", newSViv(info->is_lent));
  (void)hv_stores(hash, "is_shared", newSViv(info->is_shared));
  (void)hv_stores(hash, "row_sparse", newSViv(info->row_sparse));
  (void)hv_stores(hash, "rows_held", newSVuv(info->rows_held));
  (void)hv_stores(hash, "storage", newSVuv(info->storage));
  (void)hv_stores(hash, "sharers", newSVuv(info->sharers));
  (void)hv_stores(hash, "device", newSViv((IV)info->device));
  return newRV_noinc((SV *)hash);
}

static SV *pv_device_info(const mv_device_info *info) {
  HV *hash = newHV();
  (void)hv_stores(hash, "name", newSVpv(info->name, 0));
  (void)hv_stores(hash, "model", newSVpv(info->model, 0));
  (void)hv_stores(hash, "bus", newSVpv(info->bus, 0));
  (void)hv_stores(hash, "driver", newSVpv(info->driver, 0));
  (void)hv_stores(hash, "runtime", newSVpv(info->runtime, 0));
  (void)hv_stores(hash, "architecture", newSViv(info->architecture));
  (void)hv_stores(hash, "processors", newSViv(info->processors));
  (void)hv_stores(hash, "memory", newSVuv(info->memory));
  (void)hv_stores(hash, "unused", newSVuv(info->unused));
  return newRV_noinc((SV *)hash);
}

/* The text of mv_tensor_text(); repeats the call with more room if the text was cut. */
static SV *pv_tensor_text(mv_tensor tensor, const char *text, uint64_t capacity, uint64_t length) {
  if (length >= capacity) {
    char *more = (char *)pv_temporary(length + 1);
    const mv_status status = mv_tensor_text(tensor, more, length + 1, &length);
    if (status != MV_OK) {
      pv_raise(status);
      return NULL;
    }
    text = more;
  }
  return pv_str_of(text, length);
}

/* ------------------------------------------------------------------ PDLs in a tensor's memory */

#ifdef POLYVERSO_HAVE_PDL
/* Called when the PDL is destroyed: detaches the memory, which it never owned, and frees its handle of the tensor. */
static void pv_pdl_ends(pdl *piddle, Size_t alias) {
  piddle->data = NULL;
  piddle->state &= ~(PDL_DONTTOUCHDATA | PDL_ALLOCATED);
  pv_tensor_free((mv_tensor)alias);
}

/* A PDL in the tensor's memory, with a handle of its own; NULL with $@ set. PDL's first dimension is the last one
 * here. */
static SV *pv_pdl_of_tensor(mv_tensor tensor, const char *function) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  mv_tensor alias = 0;
  void *data = NULL;
  if (!pv_have_pdl(function)) return NULL;
  mv_status status = mv_tensor_describe(tensor, &info);
  if (status == MV_OK) status = mv_tensor_data(tensor, &data, NULL, NULL);
  int type = -1;
  for (size_t i = sizeof pv_pdl_types / sizeof *pv_pdl_types; i-- > 0;)
    if (pv_pdl_types[i].dtype == info.dtype) type = pv_pdl_types[i].type;
  if (status == MV_OK && type < 0) {
    pv_refuse(MV_EDTYPE, function, "PDL has no type for 16-bit floats: cast to f32 first");
    return NULL;
  }
  if (status == MV_OK) status = mv_tensor_reshape(tensor, info.shape, info.dims, &alias);
  if (status != MV_OK) {
    pv_raise(status);
    return NULL;
  }
  pdl *piddle = PDL->pdlnew();
  PDL_Indx dims[MV_MAX_DIMS];
  for (uint32_t d = 0; d < info.dims; ++d) dims[d] = (PDL_Indx)info.shape[info.dims - 1 - d];
  piddle->datatype = (pdl_datatypes)type;
  PDL->barf_if_error(PDL->setdims(piddle, dims, (PDL_Indx)info.dims));
  piddle->data = data;
  piddle->state |= PDL_DONTTOUCHDATA | PDL_ALLOCATED;
  PDL->add_deletedata_magic(piddle, pv_pdl_ends, (Size_t)alias);
  SV *reference = newSV(0);
  PDL->SetSV_PDL(reference, piddle);
  return reference;
}
#endif

/* Polyverso::CAPI::tensor_pdl(tensor) */
XS(pv_tensor_pdl) {
  dXSARGS;
  mv_tensor handle = 0;
  SV *result = NULL;
  if (items != 1) croak("Usage: tensor_pdl(tensor);");
  if (pv_tensor_handle(ST(0), "tensor_pdl", 1, &handle)) {
#ifdef POLYVERSO_HAVE_PDL
    result = pv_pdl_of_tensor(handle, "tensor_pdl");
#else
    pv_refuse(MV_ENOSYS, "tensor_pdl", "this module was built without PDL");
#endif
  }
  if (!result) croak(NULL);
  ST(0) = sv_2mortal(result);
  XSRETURN(1);
}

#endif
