// Compiled as C++, with the header first and alone.
#include <polyverso/polyverso.h>

extern const mv_init_options tests_cxx_init_options;
extern const mv_call_options tests_cxx_call_options;
extern const mv_table_spec tests_cxx_table_spec;
extern const mv_table_info tests_cxx_table_info;
const mv_init_options tests_cxx_init_options = MV_INIT_OPTIONS_INIT;
const mv_call_options tests_cxx_call_options = MV_CALL_OPTIONS_INIT;
const mv_table_spec tests_cxx_table_spec = MV_TABLE_SPEC_INIT;
const mv_table_info tests_cxx_table_info = MV_TABLE_INFO_INIT;
static_assert(sizeof(mv_status) == 4 && sizeof(mv_table) == 8 && MV_EINTERNAL == -26, "types of fixed size");
