#!/bin/bash
# artefact: ../site/index.html ../share/man/man1/polyverso.1
# Checks the built site, the man pages and the completions of an installed `polyverso`, each in its own shell.
#   site.sh      after `make site` and `make man`
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
build=$PWD/build
share=$build/share
# shellcheck source=tests/packages/lib/counting.sh
. tests/packages/lib/counting.sh
tools/make/deps.sh man || exit 1

# contains TEXT COMMAND...: the command's output has the text.
contains() {
  local output
  output=$("${@:2}" 2>&1) || { printf '%s\n' "$output"; return 1; }
  [[ $output == *"$1"* ]] || { printf 'without "%s":\n%s\n' "$1" "$output"; return 1; }
}

clean() { # the pages have no date, so that two builds are equal
  local output
  output=$(mandoc -Tlint -W warning "$1" | grep -v 'missing date')
  [ -z "$output" ] || { printf '%s\n' "$output"; return 1; }
}

bash_completes() {
  env PATH="$build/bin:$PATH" bash -c '. "$1"; COMP_WORDS=(polyverso "${@:2}"); COMP_CWORD=$(($# - 1)); _polyverso; printf "%s\n" "${COMPREPLY[@]}"' - \
    "$share/bash-completion/completions/polyverso" "$@"
}

fish_completes() { env HOME="$scratch" fish -c "source $share/fish/vendor_completions.d/polyverso.fish; complete -C '$1'"; }

# zsh shows completions only in an interactive shell on a terminal of its own.
zsh_completes() {
  env HOME="$scratch" zsh -fc '
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "PS1=; stty -echo; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; zstyle \":completion:*\" list-prompt; LISTMAX=999; print ready=\$((1+1))"
    zpty -r -m shell line "*ready=2*"
    zpty -w -n shell "$2"$'"'\\t\\t'"'
    zpty -r -m shell line "*$3*" && print -r -- "$line"
    zpty -d shell' - "$share/zsh/site-functions" "$1" "$2"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check "links, anchors and loaded files of the site" python3 tests/packages/site_links.py "$build/site"
check "the search has an index that a local page can load" contains "Search.setIndex" head -c 100 "$build/site/searchindex.js"
for page in README docs/tutorial-tables docs/coming-from-dpwa docs/reference/c-polyverso docs/reference/python-polyverso \
  docs/reference/perl-polyverso-table docs/reference/lua-table docs/benchmarks; do
  check "$page is there" test -s "$build/site/$page.html"
done
for function in polyverso:mv_table_add kvstore:kv_push group:mv_allreduce distlearn:mv_ea_open gossip:mv_gossip_open tensor:mv_tensor_create; do
  check "the C reference has ${function#*:}()" contains "id=\"c.${function#*:}\"" cat "$build/site/docs/reference/c-${function%:*}.html"
done
check "the Perl reference shows lists as text" contains '<p>Seconds; default' cat "$build/site/docs/reference/perl-polyverso-table.html"
check "the Python reference has methods" contains 'id="polyverso.Table.add"' cat "$build/site/docs/reference/python-polyverso.html"
for page in tutorial-tables reference/c-kvstore reference/python-polyverso reference/perl-polyverso-table reference/lua-table; do
  check "examples are in tabs: $page" contains 'sd-tab-label' cat "$build/site/docs/$page.html"
done

for page in "$share"/man/man1/*.1; do check "mandoc finds ${page##*/} clean" clean "$page"; done
check "man shows the options of run" contains "--server-command COMMAND" man -l "$share/man/man1/polyverso-run.1"

check "bash completes commands" contains doctor bash_completes ""
check "bash completes options" contains --keep-going bash_completes run --k
check "bash completes a command's command" contains inspect bash_completes checkpoint ""
check "fish completes commands" contains doctor fish_completes "polyverso d"
check "fish completes options" contains --keep-going fish_completes "polyverso run --k"
check "zsh completes options" contains keep-going zsh_completes "polyverso run --k" "keep-going"

result
