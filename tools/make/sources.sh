# shellcheck shell=sh
# For scripts that make packages, from the root of the repository:   . tools/make/sources.sh

# The version, which only the header has.
library_version() {
  sed -n 's/^#define MV_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' capi/include/polyverso/polyverso.h | paste -sd.
}

# bundle_library FOLDER: the source of the library and of the command, with packaging/bundled/build.sh.
bundle_library() {
  mkdir -p "$1"
  cp -R CMakeLists.txt LICENSE cmake core tools "$1/"
  mv "$1/tools/make/packages.txt" "$1/packages.txt"
  rm -r "$1/tools/make"
  mkdir "$1/capi"
  cp -R capi/CMakeLists.txt capi/polyverso.map capi/src "$1/capi/"
  mkdir "$1/capi/include"
  cp -R capi/include/polyverso "$1/capi/include/"
  mkdir "$1/packaging"
  cp -R packaging/prometheus packaging/grafana "$1/packaging/"
  cp packaging/bundled/build.sh "$1/"
  find "$1" -name __pycache__ -prune -exec rm -r {} +
}
