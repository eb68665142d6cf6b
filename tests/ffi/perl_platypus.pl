# Perl without the module: FFI::Platypus.
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

# mv_call_options as pack() writes it: 32 bytes, MV_ASYNC, the request's place in memory that does not move.
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

my $status = mv_table_get($table, \@values, 2, 1, undef);
print mv_status_name($status), ": ", mv_last_error(), "\n";
check(mv_shutdown(0));
