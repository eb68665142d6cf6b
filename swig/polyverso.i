/* The whole C API, for every language: SWIG reads the public header, and the language's typemap file converts its
 * numbers, buffers, mappings and errors. The functions keep their C names.
 *
 * Several C parameters are one argument in a language:
 *   (data, count, dtype)        one buffer; its element type is the dtype, bytes are MV_RAW
 *   (rows, row_count)           one buffer or list of int64; (rows, capacity) is one to be filled
 *   mv_init_options etc.        a mapping of the struct's fields; optional where C allows NULL
 *   mv_call_options             nothing, flags as a number, or a mapping; with MV_ASYNC the handle is the call's result
 * Results that C returns through pointers are the call's results; a status other than MV_OK is raised as an error. */
#if defined(SWIGPYTHON)
%module(package="polyverso", threads="1",
        docstring="The functions and constants of polyverso.h and the headers beside it, under their own names.") capi
%feature("autodoc", "1"); /* a signature as each function's docstring */
#elif defined(SWIGPERL)
%module "Polyverso::CAPI"
#else
%module capi
#endif

%include <stdint.i>

/* Structs are mappings in every language, so classes for them are not generated. */
%ignore mv_init_options;
%ignore mv_call_options;
%ignore mv_table_spec;
%ignore mv_table_info;
%ignore mv_membership_event;
%ignore MV_STRUCT_VERSION;

%{
#include <polyverso/polyverso.h>

#include "deadline.h"
#include "devices.h"
#include "dtypes.h"
#include "fields.h"

/* A call whose text did not fit is repeated, with the same arguments before the text: one macro for each function
 * with (text, capacity, length). */
#define PV_AGAIN_mv_table_list(...) mv_table_list(arg1, __VA_ARGS__)
#define PV_AGAIN_mv_checkpoint_inspect(...) mv_checkpoint_inspect(arg1, __VA_ARGS__)
#define PV_AGAIN_mv_doctor_text(...) mv_doctor_text(arg1, arg2, __VA_ARGS__)
#define PV_AGAIN_mv_status_text(...) mv_status_text(arg1, arg2, __VA_ARGS__)
#define PV_AGAIN_mv_metrics_text(...) mv_metrics_text(arg1, __VA_ARGS__)
#define PV_AGAIN_mv_trace_text(...) mv_trace_text(arg1, __VA_ARGS__)
#define PV_AGAIN_mv_cluster_status_text(...) mv_cluster_status_text(arg1, arg2, __VA_ARGS__)
#define PV_AGAIN_mv_cluster_log_text(...) mv_cluster_log_text(arg1, arg2, arg3, __VA_ARGS__)
%}

#if defined(SWIGPYTHON)
%include "python.i"
#elif defined(SWIGPERL)
%include "perl.i"
#elif defined(SWIGLUA)
%include "lua.i"
#endif

#if !defined(SWIGLUA)
%apply const char *path { const char *directory };
#endif

/* How functions that may wait behave; each language defines these macros.
 *   MV_CALLS(function, options)       takes mv_call_options as the C argument `options`: a signal leaves it running
 *                                     under a handle
 *   MV_READS(function, options, at)   MV_CALLS() that writes into the buffer that is argument `at`, from 0, of the
 *                                     language's call
 *   MV_RESUMES(function)              may simply be called again after a signal
 *   MV_SCANS(function, capacity, found)  MV_RESUMES() that fills `*found` of `capacity` rows of its last two arguments
 *   MV_RESUMES_FOR(function, timeout) MV_RESUMES() with the rest of the C argument `timeout`
 *   MV_RELEASES(function)             may release the request that is its first argument
 *   MV_RELEASES_AFTER(function, timeout)  MV_RELEASES() and MV_RESUMES_FOR()
 *   MV_DROPS(function)                releases the request that is its first argument: at once, or, if its call uses a
 *                                     buffer that is kept alive for it, at a later asynchronous call or release after
 *                                     its end
 *   MV_ENDS(function)                 may be called again after a signal, and ends a node with its requests
 *   MV_WAITS(function)                ends with MV_EINTR at a signal */
MV_RESUMES(mv_init)
MV_RESUMES(mv_init_text)
MV_RESUMES(mv_init_args)
MV_RESUMES(mv_node_open)
MV_ENDS(mv_shutdown)
MV_ENDS(mv_abort)
MV_RESUMES_FOR(mv_cluster_drain, arg2)
MV_RESUMES_FOR(mv_cluster_resize, arg3)
MV_RESUMES_FOR(mv_membership_next, arg3)
MV_RESUMES(mv_doctor_text)
MV_CALLS(mv_barrier, arg2)
MV_RELEASES_AFTER(mv_request_wait, arg2)
MV_RELEASES(mv_request_test)
MV_RELEASES(mv_request_cancel)
MV_DROPS(mv_request_release)
MV_RESUMES_FOR(mv_poll, arg5)
MV_RESUMES(mv_table_create)
MV_RESUMES(mv_table_create_text)
MV_RESUMES(mv_table_open)
MV_WAITS(mv_table_close)
MV_WAITS(mv_table_destroy)
MV_RESUMES(mv_table_describe)
MV_RESUMES(mv_table_list)
MV_RESUMES(mv_metrics_text)
MV_RESUMES(mv_trace_text)
MV_CALLS(mv_table_add, arg5)
MV_CALLS(mv_table_add_rows, arg7)
MV_READS(mv_table_get, arg5, 1)
MV_READS(mv_table_get_rows, arg7, 2)
MV_READS(mv_table_peek, arg5, 1)
MV_READS(mv_table_peek_rows, arg7, 2)
MV_CALLS(mv_table_set, arg5)
MV_CALLS(mv_table_set_rows, arg7)
MV_CALLS(mv_table_erase_rows, arg4)
MV_SCANS(mv_table_scan, arg4, arg9)
MV_CALLS(mv_table_set_updater, arg3)
MV_CALLS(mv_checkpoint_save, arg4)
MV_CALLS(mv_checkpoint_load, arg3)
MV_RESUMES(mv_checkpoint_inspect)
MV_RESUMES(mv_status_text)
MV_RESUMES(mv_cluster_status_text)
MV_RESUMES(mv_cluster_log_text)
MV_RESUMES(mv_cluster_resize_at)

%include <polyverso/polyverso.h>
%include "tensor.i"
%include "kvstore.i"
%include "gossip.i"
%include "group.i"
%include "distlearn.i"
%include <polyverso/membership.h>

#if defined(SWIGPYTHON)
#if defined(POLYVERSO_ABI3)
/* What -fastproxy does, which SWIG can't for the stable ABI: calls go to the compiled functions without a Python function between. */
%pythoncode %{
globals().update({_name: _function for _name, _function in vars(_capi).items() if _name.startswith(("mv_", "kv_"))})
%}
#endif
%pythoncode %{
__all__ = sorted(name for name in globals() if name.startswith(("mv_", "kv_", "MV_", "KV_")))


def __dir__():
    return [*__all__, "__all__", "__doc__", "__file__", "__name__"]
%}
#endif
