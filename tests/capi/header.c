/* Compiled as strict C99, with the header first and alone: it needs no other header and no extension. */
#include <polyverso/polyverso.h>

/* Every initializer covers its struct, in order and type. */
extern const mv_init_options tests_init_options;
extern const mv_call_options tests_call_options;
extern const mv_table_spec tests_table_spec;
extern const mv_table_info tests_table_info;
const mv_init_options tests_init_options = MV_INIT_OPTIONS_INIT;
const mv_call_options tests_call_options = MV_CALL_OPTIONS_INIT;
const mv_table_spec tests_table_spec = MV_TABLE_SPEC_INIT;
const mv_table_info tests_table_info = MV_TABLE_INFO_INIT;
