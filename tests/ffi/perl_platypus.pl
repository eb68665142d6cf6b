# Perl without the Polyverso module: FFI::Platypus.
use strict;
use warnings;
# docs: begin
use FFI::Platypus 2.00;
my $mv = FFI::Platypus->new(api => 2, lib => "libpolyverso.so.0");
$mv->attach(mv_init => ["opaque"] => "int"); $mv->attach(mv_last_error => [] => "string");
$mv->attach(mv_table_create_text => ["sint64", "string", "opaque", "uint64", "int", "sint64*"] => "int");
$mv->attach($_ => ["sint64", "float[3]", "uint64", "int", "opaque"] => "int") for "mv_table_add", "mv_table_get";
sub check { $_[0] == 0 or die mv_last_error() }
check(mv_init(undef)); check(mv_table_create_text(0, "size=3 name=w", undef, 0, 1, \my $table));
my @values = 1 .. 3; check(mv_table_add($table, \@values, 3, 1, undef)); check(mv_table_get($table, \@values, 3, 1, undef));
# docs: end

use FFI::Platypus::Memory qw(free malloc);
$mv->attach(mv_barrier      => ["sint64", "opaque"]                                      => "int");
$mv->attach(mv_shutdown     => ["sint64"]                                                => "int");
$mv->attach(mv_status_name  => ["int"]                                                   => "string");
$mv->attach(mv_event_fd     => ["sint64", "int*"]                                        => "int");
$mv->attach(mv_poll         => ["sint64", "sint64*", "uint64", "uint64*", "sint64"]      => "int");
$mv->attach(mv_request_wait => ["sint64", "sint64"]                                      => "int");
$mv->attach([mv_table_add => "add_async"] => ["sint64", "float[3]", "uint64", "int", "string"] => "int");

sub show {
    check(mv_barrier(0, undef));
    check(mv_table_get($table, \@values, 3, 1, undef));
    print "$_[0]: @values\n";
    check(mv_barrier(0, undef));
}
show("after one add");

# mv_call_options, packed: 32 bytes, MV_ASYNC, the request's address in memory that does not move.
my $place   = malloc(8);
my $options = pack("L4 q Q", 32, 1, 1, 0, 0, $place);
check(mv_event_fd(0, \my $fd));
check(add_async($table, [1, 2, 3], 3, 1, $options));
my $request = unpack("q", $mv->cast("opaque" => "record(8)*", $place));
free($place);
vec(my $wanted = "", $fd, 1) = 1;
my $readable = select(my $ready = $wanted, undef, undef, 10) == 1;
check(mv_poll(0, \my $finished, 1, \my $count, 0));
print "event fd: ", ($readable ? "readable" : "silent"), ", $count finished\n";
die "another request" if $finished != $request;
check(mv_request_wait($request, 0));
show("after two adds");

# A store whose updater is a function of this program: mv_poll() calls it.
$mv->type("(opaque, string, sint64, sint64)->int" => "kv_updater");
$mv->attach(mv_tensor_view => ["opaque", "uint64", "int", "sint64*", "uint64", "sint64*"] => "int");
$mv->attach(mv_tensor_axpy => ["double", "sint64", "sint64"]                              => "int");
$mv->attach(kv_create      => ["sint64", "string", "sint64*"]                             => "int");
$mv->attach(kv_init        => ["sint64", "string", "string"]                              => "int");
$mv->attach(kv_push        => ["sint64", "string", "string", "string"]                    => "int");
$mv->attach(kv_pull        => ["sint64", "string", "string", "opaque"]                    => "int");
$mv->attach(kv_set_updater => ["sint64", "kv_updater", "opaque"]                          => "int");
$mv->attach(kv_free        => ["sint64"]                                                  => "int");
$mv->attach([mv_poll => "run_callbacks"] => ["sint64", "opaque", "uint64", "uint64*", "sint64"] => "int");
my $updated = "no key";
my $updater = $mv->closure(sub {
    my (undef, $key, $merged, $stored) = @_;
    $updated = $key;
    return mv_tensor_axpy(2, $merged, $stored);
});
my ($floats, $number, $handle) = map { malloc(16) } 1 .. 3;    # memory that does not move
my $poke = sub { my ($to, $bytes) = @_; FFI::Platypus::Memory::memcpy($to, $mv->cast(string => opaque => $bytes), length $bytes) };
$poke->($floats, pack "f3", 1, 2, 3);
$poke->($number, pack "q", 3);
check(mv_tensor_view($floats, 3, 1, \3, 1, \my $tensor));
$poke->($handle, pack "q", $tensor);
my ($keys, $tensors) = (pack("L2 Q3 Q", 32, 1, 1, $number, 0, 0), pack("L2 Q3 Q", 32, 1, 1, $handle, 0, 0));
check(kv_create(0, "local", \my $store));
check(kv_init($store, $keys, $tensors));
check(kv_set_updater($store, $updater, undef));
check(kv_push($store, $keys, $tensors, pack("L4 q Q", 32, 1, 2, 0, 0, 0)));
die "too early" if $updated ne "no key";
check(run_callbacks(0, undef, 0, \$count, 0));
check(kv_pull($store, $keys, $tensors, undef));
print "update on key $updated: @{[unpack 'f3', $mv->cast('opaque' => 'record(12)*', $floats)]}\n";
check(kv_free($store));

my $status = mv_table_get($table, \@values, 2, 1, undef);
print mv_status_name($status), ": ", mv_last_error(), "\n";
check(mv_shutdown(0));
