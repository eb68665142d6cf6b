<?php
// PHP's FFI, which its command line allows by default.
// docs: begin
$mv = FFI::cdef('int mv_init(void *); const char *mv_last_error(void);
  int mv_table_create_text(int64_t, const char *, const float *, uint64_t, int, int64_t *);
  int mv_table_add(int64_t, float *, uint64_t, int, void *); int mv_table_get(int64_t, float *, uint64_t, int, void *);
  ', 'libpolyverso.so.0');
function check($status) { global $mv; if ($status) throw new Exception($mv->mv_last_error()); }
$table = $mv->new('int64_t[1]'); $values = $mv->new('float[3]'); foreach ([1, 2, 3] as $i => $value) $values[$i] = $value;
check($mv->mv_init(null)); check($mv->mv_table_create_text(0, 'size=3 name=w', null, 0, 1, $table));
check($mv->mv_table_add($table[0], $values, 3, 1, null)); check($mv->mv_table_get($table[0], $values, 3, 1, null));
// docs: end

$more = FFI::cdef('
  typedef struct { uint32_t size, version, flags, reserved; int64_t timeout_ms; int64_t *request; } mv_call_options;
  int mv_barrier(int64_t, void *); int mv_shutdown(int64_t); const char *mv_status_name(int);
  int mv_event_fd(int64_t, int *); int mv_poll(int64_t, int64_t *, uint64_t, uint64_t *, int64_t);
  int mv_request_wait(int64_t, int64_t);', 'libpolyverso.so.0');

function show($label) {
    global $mv, $more, $table, $values;
    check($more->mv_barrier(0, null));
    check($mv->mv_table_get($table[0], $values, 3, 1, null));
    echo "$label: $values[0] $values[1] $values[2]\n";
    check($more->mv_barrier(0, null));
}
show('after one add');

$delta = $mv->new('float[3]');
foreach ([1, 2, 3] as $i => $value) $delta[$i] = $value;
$request = $more->new('int64_t[1]');
$finished = $more->new('int64_t[1]');
$count = $more->new('uint64_t[1]');
$fd = $more->new('int[1]');
$options = $more->new('mv_call_options');
[$options->size, $options->version, $options->flags] = [32, 1, 1];
$options->request = FFI::cast('int64_t *', FFI::addr($request));
check($more->mv_event_fd(0, $fd));
check($mv->mv_table_add($table[0], $delta, 3, 1, FFI::addr($options)));
$reading = [fopen("php://fd/$fd[0]", 'r')];
$nothing = null;
$readable = stream_select($reading, $nothing, $nothing, 10) === 1;
check($more->mv_poll(0, $finished, 1, $count, 0));
echo 'event fd: ', $readable ? 'readable' : 'silent', ", $count[0] finished\n";
if ($finished[0] !== $request[0]) throw new Exception('another request');
check($more->mv_request_wait($request[0], 0));
show('after two adds');

$status = $mv->mv_table_get($table[0], $values, 2, 1, null);
echo $more->mv_status_name($status), ': ', $mv->mv_last_error(), "\n";
check($more->mv_shutdown(0));
