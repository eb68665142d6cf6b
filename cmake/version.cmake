# The version is written only in the header.
file(STRINGS capi/include/polyverso/polyverso.h lines REGEX "^#define MV_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
list(JOIN numbers "." POLYVERSO_VERSION)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS capi/include/polyverso/polyverso.h)
