# Row-sparse keys of AI::MXNet's stores, and compressed gradients.

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);
use AI::MXNet::TestUtils qw(almost_equal randint rand_ndarray);
use FindBin;
use lib "$FindBin::Bin/lib";
use TestStores;

sub sentence { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->text : "$@" }

subtest 'row-sparse keys' => sub {
    my $shape = [4, 4];
    my $kv = mx->kv->create('row_sparse');
    is($kv->type, 'row_sparse', 'a type of its own');
    $kv->init('e', mx->nd->ones($shape)->tostype('row_sparse'));
    for my $count (1, 4) {
        my (@out, @ids);
        for (1 .. $count) {
            push @out, mx->nd->zeros($shape)->tostype('row_sparse');
            push @ids, mx->nd->array([map { randint(0, 4) } 1 .. 4])->reshape([2, 4 / 2]);    # floats, 2-D
        }
        $kv->row_sparse_pull('e', out => $count == 1 ? $out[0] : \@out, row_ids => $count == 1 ? $ids[0] : \@ids);
        for my $i (0 .. $#out) {
            my %wanted = map { $_ => 1 } $ids[$i]->aspdl->list;
            is_deeply($out[$i]->aspdl->unpdl, [map { [($wanted{$_} // 0) x 4] } 0 .. 3], 'the rows that were asked for');
            is_deeply($out[$i]->indices->aspdl->unpdl, [sort keys %wanted], 'sorted, each once');
        }
    }
    my @shared = map { $kv->init("s$_", mx->nd->ones($shape)->tostype('row_sparse')); mx->nd->sparse->zeros('row_sparse', $shape) } 0, 1;
    $kv->row_sparse_pull('s0', out => \@shared, row_ids => [mx->nd->array([3])]);
    is_deeply($_->indices->aspdl->unpdl, [3], 'one list of ids for all outputs') for @shared;
    $kv->row_sparse_pull(['s0', 's1'], out => \@shared, row_ids => mx->nd->array([1, 1], dtype => 'int32'));
    is_deeply($_->indices->aspdl->unpdl, [1], 'or of all keys') for @shared;

    my @gradients = map { $_->copyto(mx->cpu(1)) } map { rand_ndarray($shape, 'row_sparse') } 1 .. 4;
    my $sum = mx->nd->zeros($shape)->aspdl;
    $sum += $_->aspdl for @gradients;
    $kv->init('g', mx->nd->zeros($shape, stype => 'row_sparse'));
    $kv->push('g', \@gradients);
    my $all = mx->nd->arange(stop => 4);
    $kv->row_sparse_pull('g', out => \@gradients, row_ids => [($all) x 4]);
    ok(almost_equal($_->aspdl, $sum), 'devices are summed up by row') for @gradients;

    my $out = mx->nd->sparse->zeros('row_sparse', $shape);
    $kv->pull('g', out => $out);
    is($out->indices->size, 0, 'a pull into a sparse array is nothing');
    $kv->pull('g', out => $out, ignore_sparse => 0);
    ok(almost_equal($out->aspdl, $sum), 'unless it shall not be');
    $kv->pull('g', out => my $dense = mx->nd->zeros($shape));
    ok(almost_equal($dense->aspdl, $sum), 'into a dense one it is all rows');
    $kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 1));
    $kv->push('e', mx->nd->sparse->row_sparse_array([[[1, 2, 3, 4]], [2]], shape => $shape));
    is_deeply(pulled($kv, 'e', $shape), [[(1) x 4], [(1) x 4], [0, -1, -2, -3], [(1) x 4]], 'an optimizer steps these rows');

    is(failure(sub { $kv->row_sparse_pull('e', out => $dense, row_ids => $all) }), 'MV_EINVAL', 'dense outputs');
    is(failure(sub { $kv->row_sparse_pull('e', out => $out, row_ids => mx->nd->array([4])) }), 'MV_ERANGE', 'ids outside');
    is(failure(sub { $kv->row_sparse_pull('e', out => $out) }), 'MV_EINVAL', 'no ids');
    my $plain = store_of(w => [1, 2]);
    is(failure(sub { $plain->row_sparse_pull('w', out => $out, row_ids => $all) }), 'MV_EINVAL', 'dense keys');
};

subtest compression => sub {
    my $kv = store_of(w => [0, 0]);
    $kv->set_gradient_compression({ type => '2bit', threshold => 0.25 });
    my (@sent, $given);
    for my $gradient ([0.3, 0.1], [0.3, 0.1], [-0.7, 0.1]) {
        $kv->push('w', mx->nd->array($gradient));
        push @sent, pulled($kv, 'w');
    }
    is_deeply(\@sent, [[0.25, 0], [0.25, 0], [-0.25, 0.25]], 'two bits, and what is left');
    like(sentence(sub { store_of->set_gradient_compression({ type => '3bit' }) }), qr/3bit.*2bit/, 'unknown types');
    is(failure(sub { store_of->set_gradient_compression({ type => '2bit', treshold => 1 }) }), 'MV_EINVAL', 'unknown parameters');
    is(failure(sub { store_of->set_gradient_compression({ threshold => 1 }) }), 'MV_EINVAL', 'no type');
    is(failure(sub { store_of->set_gradient_compression('2bit') }), 'MV_EINVAL', 'no hash');
};

done_testing;
