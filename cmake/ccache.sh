#!/bin/sh
# Compiles through ccache:   ccache.sh COMPILER ARGUMENTS...
# The compiler takes a precompiled header that is there for the content of its source, also while it makes a new one, so
# that one is removed first: ccache would return a header made from older sources.
case " $* " in
  *" c++-header "*)
    previous=
    for argument in "$@"; do
      [ "$previous" != -o ] || rm -f "$argument"
      previous=$argument
    done
    ;;
esac
# Without this, ccache does not cache files that use a precompiled header.
export CCACHE_SLOPPINESS=pch_defines,time_macros
exec ccache "$@"
