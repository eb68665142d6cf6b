# Every example of AI::MXNet::KVStore's manual page, in its order. The tests compare values, not PDL's formatting.
#
# Each example sets its own starting values; the page leaves them open where it continues an earlier example. Cards are
# devices of this machine: mx->cpu(0..3) for mx->gpu(0..3), which ai_mxnet_gpu_seed.t has. Corrected errors of the page:
#   init             $kv->init(keys, ...)                   -> $keys
#   push             [map { ... } 0..@$keys-1)              -> ]
#                    mx->nd->zeros(shape)                   -> $shape
#                    map { ... } @$keys-1                   -> 0..@$keys-1
#   pull             mx->nd->ones($shape, $_)               -> ctx => $_; the original works too
#                    [[ 2. ... from stores of ones          -> the starting values are twos
#   _set_updater     my ($key, input, stored) = @_          -> $input, $stored
#   set_gradient_compression  {'type': '2bit', ...}         -> type => '2bit'

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);

my $shape = [2, 3];
my $keys  = [5, 7, 9];
our $CARDS;    # ai_mxnet_gpu_seed.t sets it
my $gpus = [map { $CARDS ? mx->gpu($_) : mx->cpu($_) } 0 .. 3];

sub is_all {
    my ($array, $value, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is_deeply($array->aspdl->unpdl, [map { [($value) x 3] } 1 .. 2], $name);
}
sub is_rows {
    my ($array, $rows, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is_deeply($array->aspdl->unpdl, [map { [($_) x 3] } @$rows], $name);
}

# A store whose keys 3, 5, 7 and 9 hold a number.
sub store_of {
    my ($value) = @_;
    my $kv = mx->kv->create('local');
    $kv->init(3, mx->nd->ones($shape) * $value);
    $kv->init($keys, [map { mx->nd->ones($shape) * $value } 0 .. @$keys - 1]);
    return $kv;
}

subtest init => sub {
    my $kv = mx->kv->create('local');
    $kv->init(3, mx->nd->ones($shape) * 2);
    my $a = mx->nd->zeros($shape);
    $kv->pull(3, out => $a);
    is_all($a, 2, 'a single pair');

    $kv->init($keys, [map { mx->nd->ones($shape) } 0 .. @$keys - 1]);
    $kv->pull(7, out => $a);
    is_all($a, 1, 'a list of pairs');
};

subtest push => sub {
    my $kv = store_of(2);
    my $a = mx->nd->zeros($shape);
    $kv->push(3, mx->nd->ones($shape) * 8);
    $kv->pull(3, out => $a);
    is_all($a, 8, 'a single pair');

    my $b = [map { mx->nd->ones($shape, ctx => $_) } @$gpus];
    $kv->push(3, $b);
    $kv->pull(3, out => $a);
    is_all($a, 4, 'aggregated');

    $kv->push($keys, [map { mx->nd->ones($shape) } 0 .. @$keys - 1]);
    $b = [map { mx->nd->zeros($shape) } 0 .. @$keys - 1];
    $kv->pull($keys, out => $b);
    is_all($b->[1], 1, 'a list of keys, one device');

    $b = [map { [map { mx->nd->ones($shape, ctx => $_) } @$gpus] } 0 .. @$keys - 1];
    $kv->push($keys, $b);
    $kv->pull($keys, out => $b);
    is_all($b->[1][1], 4, 'several devices');
};

subtest pull => sub {
    my $kv = store_of(2);
    my $a = mx->nd->zeros($shape);
    $kv->pull(3, out => $a);
    is_all($a, 2, 'a single pair');

    my $b = [map { mx->nd->ones($shape, ctx => $_) } @$gpus];
    $kv->pull(3, out => $b);
    is_all($b->[1], 2, 'into several devices');
    $b = [map { mx->nd->ones($shape, $_) } @$gpus];
    $kv->pull(3, out => $b);
    is_all($b->[3], 2, 'whose contexts come by position');
    is($b->[3]->context, $gpus->[3], 'and count');

    $b = [map { mx->nd->zeros($shape) } 0 .. @$keys - 1];
    $kv->pull($keys, out => $b);
    is_all($b->[1], 2, 'a list of pairs, one device');

    $b = [map { [map { mx->nd->ones($shape, ctx => $_) } @$gpus] } 0 .. @$keys - 1];
    $kv->pull($keys, out => $b);
    is_all($b->[1][1], 2, 'several devices');
};

subtest row_sparse_pull => sub {
    my $kv = mx->kv->create('local');
    my $shape = [3, 3];
    $kv->init('3', mx->nd->ones($shape)->tostype('row_sparse'));
    my $a = mx->nd->sparse->zeros('row_sparse', $shape);
    my $row_ids = mx->nd->array([0, 2], dtype => 'int64');
    $kv->row_sparse_pull('3', out => $a, row_ids => $row_ids);
    is_rows($a, [1, 0, 1], 'two rows');

    my $duplicate_row_ids = mx->nd->array([2, 2], dtype => 'int64');
    $kv->row_sparse_pull('3', out => $a, row_ids => $duplicate_row_ids);
    is_rows($a, [0, 0, 1], 'one of them twice');

    my $unsorted_row_ids = mx->nd->array([1, 0], dtype => 'int64');
    $kv->row_sparse_pull('3', out => $a, row_ids => $unsorted_row_ids);
    is_rows($a, [1, 1, 0], 'unsorted');
};

subtest set_gradient_compression => sub {
    my $kv = store_of(0);
    $kv->set_gradient_compression({ type => '2bit' });    # threshold 0.5
    my $a = mx->nd->zeros($shape);
    $kv->push(3, mx->nd->array([[0.7, -0.7, 0.3], [0, 0.5, -0.2]]));
    $kv->pull(3, out => $a);
    is_deeply($a->aspdl->unpdl, [[0.5, -0.5, 0], [0, 0.5, 0]], 'three states');
    $kv->push(3, mx->nd->array([[0.3, -0.3, 0.3], [0, 0.5, -0.3]]));
    $kv->pull(3, out => $a);
    is_deeply($a->aspdl->unpdl, [[0.5, -0.5, 0.5], [0, 0.5, -0.5]], 'what was left is added to the next gradient');

    $kv = store_of(0);
    $kv->set_gradient_compression({ type => '2bit', threshold => 2 });
    $kv->push(3, mx->nd->ones($shape) * 3);
    $kv->pull(3, out => $a);
    is_all($a, 2, 'with a threshold');
};

subtest set_optimizer => sub {
    my $kv = store_of(4);
    $kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 0.5));
    $kv->push(3, mx->nd->ones($shape) * 2);
    my $a = mx->nd->zeros($shape);
    $kv->pull(3, out => $a);
    is_all($a, 3, 'a step');
};

subtest 'type, rank, num_workers' => sub {
    my $kv = mx->kv->create;    # 'local'
    is($kv->type,        'local', 'type');
    is($kv->rank,        0,       'rank');
    is($kv->num_workers, 1,       'num_workers');
};

subtest 'save_optimizer_states, load_optimizer_states' => sub {
    my $fname = "/tmp/ai-mxnet-states-$$";
    my $kv = store_of(1);
    $kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 1, momentum => 0.5));
    $kv->push(3, mx->nd->ones($shape) * 8);               # 1 - 8, momentum -8
    $kv->save_optimizer_states($fname);
    my $other = store_of(1);
    $other->set_optimizer(mx->optimizer->create('sgd', learning_rate => 1, momentum => 0.5));
    $other->load_optimizer_states($fname);
    $other->push(3, mx->nd->zeros($shape));                # 1 - 4
    my $a = mx->nd->zeros($shape);
    $other->pull(3, out => $a);
    is_all($a, -3, 'the momentum goes on');
    $kv->save_optimizer_states($fname, dump_optimizer => 1);
    my $third = store_of(1);
    $third->set_optimizer(mx->optimizer->create('sgd', learning_rate => 0.1));
    $third->load_optimizer_states($fname);
    $third->push(3, mx->nd->zeros($shape));
    $third->pull(3, out => $a);
    is_all($a, -3, 'with the optimizer itself');
    unlink $fname;
};

subtest _set_updater => sub {
    my $kv = store_of(4);
    my $printed = '';
    my $update = sub { my ($key, $input, $stored) = @_;
        $printed .= "update on key: $key\n";
        $stored += $input * 2; };
    $kv->_set_updater($update);
    my $a = mx->nd->zeros($shape);
    $kv->pull(3, out => $a);
    is_all($a, 4, 'before');
    $kv->push(3, mx->nd->ones($shape));
    is($printed, "update on key: 3\n", "the updater sees the user's key");
    $kv->pull(3, out => $a);
    is_all($a, 6, 'after');
};

subtest '_barrier, _send_command_to_servers, create' => sub {
    my $kv = mx->kv->create('local');
    $kv->_barrier;
    pass('a barrier of one');
    ok(!eval { $kv->_send_command_to_servers(1, 'body'); 1 } && $@->name eq 'MV_ESTATE', 'a local store has no servers');
    isa_ok($kv, 'AI::MXNet::KVStore');
};

done_testing;
