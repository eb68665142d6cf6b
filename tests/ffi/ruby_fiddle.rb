# Ruby: Fiddle, of its standard library.
# docs: begin
require "fiddle/import"; module MV extend Fiddle::Importer; dlload "libpolyverso.so.0"
  extern "int mv_init(void *)"; extern "const char *mv_last_error()"
  extern "int mv_table_create_text(int64_t, const char *, void *, uint64_t, int, void *)"
  %w[mv_table_add mv_table_get].each { |name| extern "int #{name}(int64_t, void *, uint64_t, int, void *)" } end
def check(status) = status.zero? || raise(MV.mv_last_error.to_s)
check MV.mv_init(nil); check MV.mv_table_create_text(0, "size=3 name=w", nil, 0, 1, place = "\0" * 8)
table, values = place.unpack1("q"), [1, 2, 3].pack("f*")
check MV.mv_table_add(table, values, 3, 1, nil); check MV.mv_table_get(table, values, 3, 1, nil)
# docs: end

module MV
  extern "int mv_barrier(int64_t, void *)"
  extern "int mv_shutdown(int64_t)"
  extern "const char *mv_status_name(int)"
  extern "int mv_event_fd(int64_t, void *)"
  extern "int mv_poll(int64_t, void *, uint64_t, void *, int64_t)"
  extern "int mv_request_wait(int64_t, int64_t)"
end

show = lambda do |label|
  check MV.mv_barrier(0, nil)
  check MV.mv_table_get(table, values, 3, 1, nil)
  puts "#{label}: #{values.unpack('f*').join(' ')}"
  check MV.mv_barrier(0, nil)
end
show.call("after one add")

delta = [1, 2, 3].pack("f*")
request, finished, count, fd = "\0" * 8, "\0" * 8, "\0" * 8, "\0" * 4
options = [32, 1, 1, 0, 0, Fiddle::Pointer[request].to_i].pack("L4qQ") # mv_call_options with MV_ASYNC
check MV.mv_event_fd(0, fd)
check MV.mv_table_add(table, delta, 3, 1, options)
readable = IO.select([IO.for_fd(fd.unpack1("i"), autoclose: false)], nil, nil, 10)
check MV.mv_poll(0, finished, 1, count, 0)
puts "event fd: #{readable ? 'readable' : 'silent'}, #{count.unpack1('Q')} finished"
raise "another request" if finished != request
check MV.mv_request_wait(request.unpack1("q"), 0)
show.call("after two adds")

# A store whose updater is a function of this program: mv_poll() runs it.
module MV
  extern "int mv_tensor_view(void *, uint64_t, int, void *, uint64_t, void *)"
  extern "int mv_tensor_axpy(double, int64_t, int64_t)"
  extern "int kv_create(int64_t, const char *, void *)"
  extern "int kv_init(int64_t, void *, void *)"
  %w[kv_push kv_pull].each { |name| extern "int #{name}(int64_t, void *, void *, void *)" }
  extern "int kv_set_updater(int64_t, void *, void *)"
  extern "int kv_free(int64_t)"
end
updated = []
updater = Fiddle::Closure::BlockCaller.new(
  Fiddle::TYPE_INT, [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG_LONG, Fiddle::TYPE_LONG_LONG]
) do |_, key, merged, stored|
  updated << key.to_s
  MV.mv_tensor_axpy(2.0, merged, stored)
end
store, tensor, three = "\0" * 8, "\0" * 8, [3].pack("q")
shared = Fiddle::Pointer.malloc(12, Fiddle::RUBY_FREE)
shared[0, 12] = [1, 2, 3].pack("f*")
check MV.mv_tensor_view(shared, 3, 1, three, 1, tensor)
check MV.kv_create(0, "local", store)
keys, tensors = [three, tensor].map { |place| [32, 1, 1, Fiddle::Pointer[place].to_i, 0].pack("L2Q3") } # kv_keys, kv_values
kv = store.unpack1("q")
check MV.kv_init(kv, keys, tensors)
check MV.kv_set_updater(kv, updater, nil)
check MV.kv_push(kv, keys, tensors, [32, 1, 2, 0, 0, 0].pack("L4qQ")) # MV_FORGET
raise "too early" unless updated.empty?
check MV.mv_poll(0, nil, 0, count, 0)
check MV.kv_pull(kv, keys, tensors, nil)
puts "update on key #{updated.join(' ')}: #{shared[0, 12].unpack('f*').join(' ')}"
check MV.kv_free(kv)

status = MV.mv_table_get(table, values, 2, 1, nil)
puts "#{MV.mv_status_name(status)}: #{MV.mv_last_error}"
check MV.mv_shutdown(0)
