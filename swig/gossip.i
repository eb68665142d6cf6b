/* Gossip, for every language. An mv_gossip_fetched becomes a mapping of its fields, without size and version. */
%ignore mv_gossip_fetched;
%ignore mv_gossip_info;
%ignore mv_gossip_peer;
%ignore mv_gossip_state;
%ignore mv_gossip_peers;

%{
#define PV_AGAIN_mv_gossip_state_text(...) mv_gossip_state_text(arg1, arg2, __VA_ARGS__)
#define PV_AGAIN_mv_gossip_metrics_text(...) mv_gossip_metrics_text(arg1, __VA_ARGS__)
#define PV_AGAIN_mv_gossip_status_text(...) mv_gossip_status_text(arg1, arg2, __VA_ARGS__)
%}

%typemap(in, numinputs = 0) mv_gossip_fetched *fetched (mv_gossip_fetched value = MV_GOSSIP_FETCHED_INIT) { $1 = &value; }

#if defined(SWIGPYTHON)
%{
static PyObject *pv_fetched(const mv_gossip_fetched *fetched) {
  return Py_BuildValue("{s:i,s:d,s:d,s:d,s:K,s:N,s:N}", "got", (int)fetched->got, "factor", fetched->factor, "peer_clock",
                       fetched->peer_clock, "peer_loss", fetched->peer_loss, "bytes", (unsigned long long)fetched->bytes,
                       "peer", pv_str(fetched->peer),
                       "why", pv_str(fetched->why));
}
%}
%typemap(argout) mv_gossip_fetched *fetched { $result = pv_append($result, pv_fetched($1)); }
#endif

#if defined(SWIGPERL)
%{
static SV *pv_fetched(const mv_gossip_fetched *fetched) {
  HV *hash = newHV();
  (void)hv_stores(hash, "got", newSViv(fetched->got));
  (void)hv_stores(hash, "factor", newSVnv(fetched->factor));
  (void)hv_stores(hash, "peer_clock", newSVnv(fetched->peer_clock));
  (void)hv_stores(hash, "peer_loss", newSVnv(fetched->peer_loss));
  (void)hv_stores(hash, "bytes", newSVuv(fetched->bytes));
  (void)hv_stores(hash, "peer", pv_str(fetched->peer));
  (void)hv_stores(hash, "why", pv_str(fetched->why));
  return newRV_noinc((SV *)hash);
}
%}
%typemap(argout) mv_gossip_fetched *fetched { PV_PUSH(pv_fetched($1)); }
#endif

#if defined(SWIGLUA)
%{
static void pv_set_number(lua_State *L, const char *key, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, key);
}
static void pv_push_fetched(lua_State *L, const mv_gossip_fetched *fetched) {
  lua_createtable(L, 0, 7);
  pv_set_integer(L, "got", fetched->got);
  pv_set_number(L, "factor", fetched->factor);
  pv_set_number(L, "peer_clock", fetched->peer_clock);
  pv_set_number(L, "peer_loss", fetched->peer_loss);
  pv_set_integer(L, "bytes", (int64_t)fetched->bytes);
  lua_pushstring(L, fetched->peer);
  lua_setfield(L, -2, "peer");
  lua_pushstring(L, fetched->why);
  lua_setfield(L, -2, "why");
}
%}
%typemap(argout) mv_gossip_fetched *fetched {
  pv_push_fetched(L, $1);
  SWIG_arg++;
}
/* A table of numbers is averaged in place like memory: read first, then written. */
%typemap(in) (void *data, uint64_t count, mv_dtype dtype) {
  const int read_first = lua_istable(L, $input) && strcmp("$symname", "mv_gossip_average") == 0;
  if (!pv_lend(L, $input, "$symname", arg1, !read_first, &$1, &$2, &$3)) SWIG_fail;
}
%define MV_FILLS(function)
%exception function {
  $action
  if (result == MV_OK && !pv_written(L, 2, "$symname")) SWIG_fail;
}
%enddef
#else
%define MV_FILLS(function)
MV_RESUMES(function)
%enddef
#endif

MV_RESUMES(mv_gossip_add)
MV_RESUMES(mv_gossip_add_shaped)
MV_RESUMES(mv_gossip_set_clock)
MV_RESUMES(mv_gossip_publish)
MV_RESUMES(mv_gossip_fetch_wait)
MV_FILLS(mv_gossip_average)
MV_FILLS(mv_gossip_read)
MV_RESUMES(mv_gossip_state_text)
MV_RESUMES(mv_gossip_metrics_text)
MV_RESUMES(mv_gossip_status_text)
MV_RESUMES(mv_gossip_add_peer)
MV_RESUMES(mv_gossip_remove_peer)
MV_RESUMES(mv_gossip_close)

/* `config` is a path, except for mv_gossip_open_text(), where it is the YAML itself. */
#if defined(SWIGPYTHON)
%typemap(in) const char *config (PyObject *held = NULL) {
  const int is_text = strcmp("$symname", "mv_gossip_open_text") == 0;
  if (!(is_text ? pv_text($input, "$symname", (const char **)&$1) : pv_path($input, "$symname", &held, (const char **)&$1))) SWIG_fail;
}
%typemap(freearg) const char *config { Py_XDECREF(held$argnum); }
#elif defined(SWIGPERL)
%typemap(in) const char *config {
  const int is_text = strcmp("$symname", "mv_gossip_open_text") == 0;
  if (!(is_text ? pv_text : pv_path)($input, "$symname", (const char **)&$1)) SWIG_fail;
}
#endif

%include <polyverso/gossip.h>
