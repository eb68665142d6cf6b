# Polyverso::Tensor on a device, by the emulation of a plug-in that DEVICE_EMULATION names: the results of the host, bit by bit.

use strict;
use warnings;

use Test::More;

BEGIN {
    plan skip_all => 'DEVICE_EMULATION names no plug-in: run this test through ctest' unless $ENV{DEVICE_EMULATION};
    $ENV{POLYVERSO_DEVICE_PLUGIN} = $ENV{DEVICE_EMULATION};
}

use PDL::Lite;
use Polyverso;
use Polyverso::Gossip;
use Polyverso::Group;
use Polyverso::KVStore;
use Polyverso::Tensor;

my $class = 'Polyverso::Tensor';

sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : "$@" }

# What a value holds, wherever it is.
sub held {
    my ($value) = @_;
    return $value unless ref $value && $value->isa($class);
    return [map { held($_) } $value->parts] if $value->row_sparse;
    my $here = $value->to('cpu');
    return [$here->dtype, "@{ $here->shape }", unpack 'H*', $here->_packed];
}

# $compute gives on the device what it gives on the host.
sub same {
    my ($name, $compute, @operands) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $host   = $compute->(map { $_->copy } @operands);
    my $device = $compute->(map { $_->to('cuda:0') } @operands);
    return is($device->device, 'cuda:0', "$name: where") && is_deeply(held($device), held($host), $name) if ref $host;
    return is($device, $host, $name);
}

sub numbers { my ($dtype, $seed, $shape) = @_; return $class->uniform($shape // [9, 70], $seed, 1, 100, $dtype) }

for my $dtype (qw(f32 f64 i64 i32 u8 i8 f16 bf16)) {
    my ($x, $y) = (numbers($dtype, 1), numbers($dtype, 2));
    my %computes = (
        sum => sub { $_[0] + $_[1] }, difference => sub { $_[0] - $_[1] }, product => sub { $_[0] * $_[1] }, quotient => sub { $_[0] / $_[1] },
        equal => sub { $_[0] == $_[1] }, less => sub { $_[0] < $_[1] }, most => sub { $_[0]->maximum($_[1]) },
        least => sub { $_[0]->minimum($_[1]) }, axpy => sub { $_[0]->axpy(3, $_[1]) }, assign => sub { $_[0]->assign($_[1]) },
        dot => sub { $_[0]->dot($_[1]) }, close => sub { $_[0]->close($_[1]) ? 1 : 0 }, swapped => sub { 3 - $_[0] },
        power => sub { $_[0]**2 }, negated => sub { -$_[0] }, absolute => sub { abs $_[0] }, root => sub { sqrt $_[0] }, exp => sub { exp $_[0] },
        log => sub { log $_[0] }, transpose => sub { $_[0]->transpose }, reshape => sub { $_[0]->reshape([-1, 7]) },
        row => sub { $_[0]->row(2) }, slice => sub { $_[0]->slice(1, 4) }, take => sub { $_[0]->take([8, 0, 0]) }, copy => sub { $_[0]->copy },
        fill => sub { $_[0]->fill(5) }, cast => sub { $_[0]->cast('f64') }, get => sub { $_[0]->get(3, 4) },
        'in place' => sub { my $sum = $_[0]; $sum += $_[1]; return $sum },
        list => sub { $_[0] + [(2) x 70] }, sparse => sub { $class->sparse([5, 1, 5], $_[0]->slice(0, 3), 8) },
        'to sparse' => sub { $_[0]->to_sparse }, dense => sub { $class->sparse([5, 1, 5], $_[0]->slice(0, 3), 8)->to_dense },
        rows => sub { $class->sparse([5, 1], $_[0]->slice(0, 2), 8) + $class->sparse([1], $_[1]->slice(0, 1), 8) },
        matmul => sub { $_[0]->cast('i32')->cast('f64')->matmul($_[1]->cast('i32')->cast('f64'), transpose_b => 1) },
        item => sub { $_[0]->sum->item },
    );
    for my $op (qw(sum mean min max argmin argmax norm)) {
        $computes{"$op along $_"} = do { my $axis = $_; sub { $_[0]->$op($axis) } } for 0, 1;
        $computes{"$op of all"} = sub { $_[0]->$op };
    }
    subtest $dtype => sub { same($_, $computes{$_}, $x, $y) for sort keys %computes };
}

my %made = (
    zeros => sub { $class->zeros([2, 3], 'f64', $_[0]) }, ones => sub { $class->ones(4, undef, $_[0]) },
    full => sub { $class->full([2, 2], 7, 'i32', $_[0]) }, range => sub { $class->range(9, 1, 2, undef, $_[0]) },
    uniform => sub { $class->uniform([5, 5], 42, 0, 1, undef, $_[0]) }, normal => sub { $class->normal(50, 42, 3, 2, 'f16', $_[0]) },
    copy_of => sub { $class->copy_of([[1, 2], [3, 4]], undef, $_[0]) },
);
for my $name (sort keys %made) {
    my $there = $made{$name}->('cuda:1');
    is($there->device, 'cuda:1', "$name on a device");
    is_deeply(held($there), held($made{$name}->()), 'with its values');
    is($made{$name}->('cpu')->device, 'cpu', 'or on the host');
}

my $there = $class->range(3, 0, 1, undef, 'cuda:0');
is("$there", "f32 (3,) on cuda:0\n[0, 1, 2]", 'as text');
is_deeply($there->to('cuda:1')->to('cpu')->to_list, [0, 1, 2], 'moved');
like(failure(sub { $there + $there->to('cuda:1') }), qr/f32 \(3,\) is on cuda:0, f32 \(3,\) on cuda:1: copy one of them/, 'two places');
like(failure(sub { $there->pdl }), qr/is on cuda:0/, 'no PDL');
like(failure(sub { $there->to('cuda:9') }), qr/there is no cuda:9/, 'no such device');
like(failure(sub { $there->to('tpu') }), qr/"tpu" is not a device/, 'no name of a device');

for my $type (qw(local device)) {
    my $kv = Polyverso::KVStore->create($type);
    my @values = map { $class->ones([2, 2], undef, "cuda:$_") } 0, 1;
    $kv->init(w => $class->zeros([2, 2], undef, 'cuda:1'));
    $kv->push(w => \@values);
    $kv->pull(w => \@values);
    is_deeply($_->to_list, [[2, 2], [2, 2]], "from a $type store, with the sum of both devices") for @values;
}

sub node_of_gossip { my ($name) = @_; my $text = "nodes: [{name: $name, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\n"; return Polyverso::Gossip->open(\$text, $name) }

# Nodes average and read tensors on a device as those on the host.
my %averaged;
for my $place (qw(cpu cuda:0)) {
    my ($one, $two) = map { node_of_gossip($_) } qw(one two);
    $one->add_peer('two', '127.0.0.1', $two->state->{address} =~ /:(\d+)$/);
    my ($own, $other) = map { numbers('f32', $_)->to($place) } 1, 2;
    $two->publish([$other], 1);
    $one->update_send([$own], 1);
    is($one->update_wait([$own], 1), 0.5, "averaged: $place");
    $averaged{$place} = held($own);
    $one->update_send($own, 1);
    $one->fetch_wait(1);
    my $read = $class->zeros($own->shape, 'f32', $place);
    $one->read($read);
    is_deeply(held($read), held($other), "read: $place");
    like(failure(sub { $one->publish([$class->full([2], 'nan', 'f32', $place)], 1) }), qr/NaN/, "NaN is refused: $place");
    $_->close for $one, $two;
}
is_deeply($averaged{'cuda:0'}, $averaged{cpu}, 'gossip on a device has the bits of the host');

my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);
my @parts = (PDL->sequence(2, 1), map { $class->range(2, 0, 1, 'f64', $_)->reshape([1, 2]) } qw(cpu cuda:0 cuda:1));
for my $parts (@parts) {
    for my $own (PDL->zeroes(2), map { $class->zeros([2], 'f64', $_) } qw(cpu cuda:0 cuda:1)) {
        $group->scatter($own, $parts);
        is_deeply(Polyverso::Values::is_pdl($own) ? $own->unpdl : $own->to_list, [0, 1], 'parts and places of a scatter may be anywhere');
    }
}
for my $place (qw(cpu cuda:0)) {
    my $sum = $class->full([3], 1.5, 'bf16', $place);
    $group->allreduce_custom($sum, sub { $_[0] + $_[1] });
    is_deeply($sum->to_list, [(1.5) x 3], 'a custom reduction of tensors');
}
$group->close;

my $table = $node->matrix(rows => 3, cols => 2, device => 'cuda:1', updater => 'sgd rate=1');
$table->add([[1, 2], [3, 4]], rows => [2, 0]);
is_deeply($table->get(as => 'array'), [[-3, -4], [0, 0], [-1, -2]], 'a table on a device');
like(failure(sub { $node->array(size => 2, device => 'cuda:9') }), qr/no cuda:9/, 'no such device for a table');
$node->shutdown;

done_testing;
