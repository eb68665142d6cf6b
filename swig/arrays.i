/* (const mv_array *arrays, uint64_t count): a list of arrays in every language, lent for the call and written in place.
 *
 * MV_ARRAYS(name) applies this to parameters of that name */
#if defined(SWIGPYTHON)
%{
#include "python_arrays.h"
%}
%typemap(in) (const mv_array *arrays, uint64_t count) (pv_array_list list) {
  memset(&list, 0, sizeof list);
  if (!pv_lend_arrays($input, "$symname", &list)) {
    pv_release_arrays(&list);
    SWIG_fail;
  }
  $1 = list.arrays;
  $2 = (uint64_t)list.count;
}
%typemap(arginit) (const mv_array *arrays, uint64_t count) { memset(&list$argnum, 0, sizeof list$argnum); }
%typemap(freearg) (const mv_array *arrays, uint64_t count) { pv_release_arrays(&list$argnum); }
#elif defined(SWIGPERL)
%{
#include "perl_arrays.h"
%}
%typemap(in) (const mv_array *arrays, uint64_t count) (SV *written = NULL) {
  if (!($1 = pv_lend_arrays($input, "$symname", &$2))) SWIG_fail;
  written = $input;
}
%typemap(argout) (const mv_array *arrays, uint64_t count) { pv_written_arrays(written$argnum); }
#elif defined(SWIGLUA)
%{
#include "lua_arrays.h"
%}
%typemap(in) (const mv_array *arrays, uint64_t count) {
  if (!($1 = pv_lend_arrays(L, $input, "$symname", &$2))) SWIG_fail;
}
#endif

%define MV_ARRAYS(name)
%apply (const mv_array *arrays, uint64_t count) { (const mv_array *name, uint64_t count) };
%enddef
