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

status = MV.mv_table_get(table, values, 2, 1, nil)
puts "#{MV.mv_status_name(status)}: #{MV.mv_last_error}"
check MV.mv_shutdown(0)
