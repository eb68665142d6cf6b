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

// A store whose updater is a function of this program: mv_poll() runs it.
$kv = FFI::cdef('
  typedef struct { uint32_t size, version; uint64_t count; int64_t *numbers; const char **names; } kv_keys;
  typedef struct { uint32_t size, version; uint64_t count; int64_t *tensors; const uint64_t *per_key; } kv_values;
  typedef int (*kv_updater)(void *, const char *, int64_t, int64_t);
  int mv_tensor_view(void *, uint64_t, int, const int64_t *, uint64_t, int64_t *); int mv_tensor_axpy(double, int64_t, int64_t);
  int kv_create(int64_t, const char *, int64_t *); int kv_free(int64_t); int kv_set_updater(int64_t, kv_updater, void *);
  int kv_init(int64_t, const kv_keys *, const kv_values *); int kv_pull(int64_t, const kv_keys *, const kv_values *, void *);
  int kv_push(int64_t, const kv_keys *, const kv_values *, void *);', 'libpolyverso.so.0');
[$store, $tensor, $three] = [$kv->new('int64_t[1]'), $kv->new('int64_t[1]'), $kv->new('int64_t[1]')];
$three[0] = 3;
$shared = $kv->new('float[3]');
foreach ([1, 2, 3] as $i => $value) $shared[$i] = $value;
[$keys, $tensors] = [$kv->new('kv_keys'), $kv->new('kv_values')];
[$keys->size, $keys->version, $keys->count] = [$tensors->size, $tensors->version, $tensors->count] = [32, 1, 1];
$keys->numbers = FFI::cast('int64_t *', FFI::addr($three));
$tensors->tensors = FFI::cast('int64_t *', FFI::addr($tensor));
$updated = 'no key';
$updater = function ($user, $key, $merged, $stored) use ($kv, &$updated) {
    $updated = $key;
    return $kv->mv_tensor_axpy(2, $merged, $stored);
};
check($kv->mv_tensor_view($shared, 3, 1, $three, 1, $tensor));
check($kv->kv_create(0, 'local', $store));
check($kv->kv_init($store[0], FFI::addr($keys), FFI::addr($tensors)));
check($kv->kv_set_updater($store[0], $updater, null));
[$options->flags, $options->request] = [2, null];
check($kv->kv_push($store[0], FFI::addr($keys), FFI::addr($tensors), FFI::addr($options)));
if ($updated !== 'no key') throw new Exception('too early');
check($more->mv_poll(0, null, 0, $count, 0));
check($kv->kv_pull($store[0], FFI::addr($keys), FFI::addr($tensors), null));
echo "update on key $updated: $shared[0] $shared[1] $shared[2]\n";
check($kv->kv_free($store[0]));

$status = $mv->mv_table_get($table[0], $values, 2, 1, null);
echo $more->mv_status_name($status), ': ', $mv->mv_last_error(), "\n";
check($more->mv_shutdown(0));
