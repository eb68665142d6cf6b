# Updates of a store by pushes: updaters, optimizers with multipliers, their states.

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);
use AI::MXNet::TestUtils qw(almost_equal);
use File::Temp qw(tempdir);
use FindBin;
use PDL;
use lib "$FindBin::Bin/lib";
use TestCluster;
use TestStores;

my $folder = tempdir(CLEANUP => 1);

subtest updaters => sub {
    my $kv = store_of(a => [1, 2], 9 => [3, 4]);
    my @seen;
    $kv->_set_updater(sub { my ($key, $merged, $stored) = @_; push @seen, $key; $stored += $merged * 10 });
    $kv->push(['a', 9], [[map { mx->nd->ones([2]) } 1 .. 3], [mx->nd->ones([2])]]);
    is_deeply(\@seen, ['a', '9'], 'called with the keys');
    is_deeply([pulled($kv, 'a'), pulled($kv, 9)], [[31, 32], [13, 14]], 'and the sums');

    my @kept;
    $kv->_set_updater(sub { @kept = @_; $_[2] .= 5 });
    $kv->push('a', mx->nd->ones([2]));
    is_deeply(pulled($kv, 'a'), [5, 5], 'another one');
    is_deeply([map { $_->aspdl->unpdl } @kept[1, 2]], [[1, 1], [5, 5]], 'what it keeps are copies');
    $kept[2] += 1;
    is_deeply([pulled($kv, 'a'), $kept[2]->aspdl->unpdl], [[5, 5], [6, 6]], 'of its own');

    $kv->_set_updater(sub { my ($key, $merged, $stored) = @_; die "not $key\n" if $key eq 'a'; $stored .= 8 });
    is(failure(sub { $kv->push(['a', 9], [mx->nd->ones([2]), mx->nd->ones([2])]) }), "not a\n", 'one that dies');
    is_deeply([pulled($kv, 'a'), pulled($kv, 9)], [[5, 5], [8, 8]], 'leaves its key alone, and does the others');
    is(failure(sub { $kv->save_optimizer_states("$folder/x") }), 'MV_ESTATE', 'functions keep no states');
    my $inner = '';
    $kv->_set_updater(sub { $inner = failure(sub { $kv->pull('a', out => mx->nd->zeros([2])) }); $_[2] .= $_[1] });
    $kv->push('a', mx->nd->ones([2]));
    isnt($inner, 'nothing', 'the store can not be pulled from inside');
    $kv->_set_updater(undef);
    $kv->push('a', mx->nd->ones([2]) * 6);
    is_deeply(pulled($kv, 'a'), [6, 6], 'none again');
};

subtest 'updaters of row-sparse keys' => sub {
    my $kv = mx->kv->create('local');
    $kv->init('w', mx->nd->zeros([3, 2], stype => 'row_sparse'));
    my @seen;
    $kv->_set_updater(sub {
        my ($key, $merged, $stored) = @_;
        push @seen, join ' ', map { $_->stype, @{ $_->indices->aspdl->unpdl } } $merged, $stored;
        $stored += $merged * 2;
    });
    $kv->push('w', mx->nd->sparse->row_sparse_array([[[1, 1]], [$_]], shape => [3, 2])) for 2, 0;
    is_deeply(\@seen, ['row_sparse 2 row_sparse', 'row_sparse 0 row_sparse 2'], 'are given rows');
    $kv->pull('w', out => my $w = mx->nd->zeros([3, 2]));
    is_deeply($w->aspdl->unpdl, [[2, 2], [0, 0], [2, 2]], 'and bring rows');
    $kv->_set_updater(mx->optimizer->get_updater(mx->optimizer->create('sgd', learning_rate => 1)));
    $kv->push('w', mx->nd->sparse->row_sparse_array([[[1, 1]], [1]], shape => [3, 2]));
    $kv->pull('w', out => $w);
    is_deeply($w->aspdl->unpdl, [[2, 2], [-1, -1], [2, 2]], 'an optimizer steps them');
};

subtest "an optimizer of one's own" => sub {
    package Halve {
        use Mouse;
        extends 'AI::MXNet::Optimizer';
        sub create_state { my ($self, $index, $weight) = @_; return mx->nd->zeros($weight->shape) }

        sub update {
            my ($self, $index, $weight, $grad, $state) = @_;
            $self->_update_count($index);
            $state += $grad;
            $weight *= 0.5;
            $weight += $state;
        }
        __PACKAGE__->register;
    }
    my ($kv, $twin) = map { store_of(w => [4, 8]) } 1, 2;
    $_->set_optimizer(mx->optimizer->create('halve')) for $kv, $twin;
    $kv->push('w', mx->nd->ones([2])) for 1 .. 2;
    is_deeply(pulled($kv, 'w'), [3.5, 4.5], 'steps in a local store');
    $kv->save_optimizer_states("$folder/own", dump_optimizer => 1);
    $twin->load_optimizer_states("$folder/own");
    $twin->push('w', mx->nd->zeros([2]));
    is_deeply(pulled($twin, 'w'), [4, 6], 'with its states');
    is($twin->_updater->optimizer->num_update, 3, 'and its count');
};

subtest multipliers => sub {
    my $kv = store_of(0 => [1, 1], 1 => [1, 1], 2 => [1, 1]);
    my $sgd = mx->optimizer->create('sgd', learning_rate => 0.5, wd => 0.1, param_idx2name => { 0 => 'fc_weight', 1 => 'fc_bias' });
    $sgd->set_lr_mult({ fc_bias => 0.5, late => 0 });
    $kv->set_optimizer($sgd);
    $kv->init('late', mx->nd->ones([2]));
    $kv->push([0, 1, 2, 'late'], [map { mx->nd->ones([2]) } 1 .. 4]);
    my @first = map { pulled($kv, $_)->[0] } 0, 1, 2, 'late';
    my $expected = pdl(1 - 0.5 * 1.1, 1 - 0.25, 1 - 0.5 * 1.1, 1);
    ok(almost_equal(pdl(@first), $expected), 'by index and by name, of keys that come later, too') or diag "@first";
};

subtest 'a local store goes by the object' => sub {
    my $kv = store_of(a => [1, 1], b => [1, 1]);
    my $sgd = mx->optimizer->create('sgd', learning_rate => 0.5, momentum => 0.5);
    $kv->set_optimizer($sgd);
    my $step = sub { $kv->push('a', mx->nd->ones([2])); return pulled($kv, 'a')->[0] };
    is($step->(), 0.5, 'a step');
    $sgd->lr(0);
    is($step->(), 0.25, 'another rate: the momentum is still there');
    $sgd->learning_rate(0.5);
    $sgd->rescale_grad(0);
    is($step->(), 0.125, 'another scale');
    $sgd->rescale_grad(1);
    $sgd->set_lr_mult({ a => 0 });
    is($step->(), 0.0625, 'multipliers');
    $sgd->set_lr_mult({});
    is($step->(), -0.46875, 'none');
    is($sgd->num_update, 5, 'the count');
    $kv->push([qw(a b)], [map { mx->nd->ones([2]) } 1, 2]);
    is_deeply([$sgd->num_update, $sgd->_index_update_count], [6, { a => 6, b => 1 }], 'by key');
    is(failure(sub { $kv->push('b', mx->nd->ones([3])) }), 'MV_ESHAPE', 'a push that fails');
    is_deeply([$sgd->num_update, $sgd->_index_update_count], [6, { a => 6, b => 1 }], 'does not count');
};

subtest 'what is not finite' => sub {
    my $infinite = mx->nd->ones([2]) * 9**9**9;
    my ($told, @made) = (mx->kv->create, mx->kv->create('local', reject_nonfinite => 1), mx->kv->create(reject_nonfinite => 1));
    $told->set_reject_nonfinite;
    for my $kv ($told, @made) {
        $kv->init('a', mx->nd->ones([2]));
        is(failure(sub { $kv->push('a', $infinite) }), 'MV_ENONFINITE', 'is refused');
    }
    is(failure(sub { mx->kv->create('local', reject => 1) }), 'MV_EINVAL', 'an unknown option');
};

subtest states => sub {
    my %adam = (learning_rate => 0.1, wd => 0.01);
    my ($kv, $other) = map { store_of(w => [1, 2], b => [3, 4]) } 1, 2;
    $kv->set_optimizer(mx->optimizer->create('adam', %adam));
    $kv->push(['w', 'b'], [map { mx->nd->array([$_, -1]) } 1 .. 2]) for 1 .. 3;
    $kv->save_optimizer_states("$folder/adam", dump_optimizer => 1);    # with the counts, on which Adam depends
    open my $file, '<:raw', "$folder/adam" or die;
    read $file, my $begin, 8;
    ok(unpack('Q<', $begin) < -s $file, 'a safetensors file');
    my $resumed = store_of(w => pulled($kv, 'w'), b => pulled($kv, 'b'));
    $resumed->set_optimizer(mx->optimizer->create('adam', %adam));
    $resumed->load_optimizer_states("$folder/adam");
    $_->push('w', mx->nd->array([5, 5])) for $kv, $resumed;
    is_deeply(pulled($resumed, 'w'), pulled($kv, 'w'), 'the same bits as without a break');
    $other->set_optimizer(mx->optimizer->create('ftrl'));
    isnt(failure(sub { $other->load_optimizer_states("$folder/adam") }), 'nothing', "not another optimizer's");
    require Storable;
    Storable::store({ w => 1 }, "$folder/storable");
    isnt(failure(sub { $resumed->load_optimizer_states("$folder/storable") }), 'nothing', "not Storable's");
    truncate "$folder/adam", 40;
    isnt(failure(sub { $resumed->load_optimizer_states("$folder/adam") }), 'nothing', 'not half of them');
    is(failure(sub { $resumed->load_optimizer_states("$folder/none") }), 'MV_ENOTFOUND', 'nor none');
    $resumed->push('w', mx->nd->ones([2]));
    pass('and the store goes on');
};

subtest 'two workers' => sub {
    my $script = '
        use AI::MXNet qw(mx);
        my $kv = mx->kv->create("dist_sync");
        $kv->init("w", mx->nd->zeros([4, 2], stype => "row_sparse"));
        $kv->init("d", mx->nd->zeros([2]));
        $kv->set_optimizer(mx->optimizer->create("sgd", learning_rate => 1, momentum => 0.5)) if $kv->rank == 0;
        $kv->_barrier;
        $kv->push("w", mx->nd->sparse->row_sparse_array([[[1, 1]], [$kv->rank]], shape => [4, 2]), priority => 1);
        $kv->row_sparse_pull("w", out => my $rows = mx->nd->sparse->zeros("row_sparse", [4, 2]), row_ids => mx->nd->array([0, 1, 3]));
        my $d = mx->nd->zeros([2]);
        my $view = $d->reshape([1, 2]);
        $kv->push("d", mx->nd->ones([2]) * ($kv->rank + 1));
        $kv->pull("d", out => $d);
        printf "rank %d: %s %s %s\n", $kv->rank, $view->aspdl, $rows->indices->aspdl, $rows->aspdl->sum;
        eval { $kv->_set_updater(sub {}) };
        print $@->name, "\n";
        $kv->_barrier;
        if ($kv->rank == 0) { $kv->save_optimizer_states("FOLDER/dist", dump_optimizer => 1); $kv->load_optimizer_states("FOLDER/dist") }
        $kv->_barrier;
        $kv->push("d", mx->nd->zeros([2]));
        $kv->pull("d", out => $d);
        $d->wait_to_read;
        print $d->aspdl, "\n";
    ' =~ s/FOLDER/$folder/gr;
    my $cluster = TestCluster->new(2);
    my @started = map { [$cluster->start($script)] } 0, 1;
    for my $rank (0, 1) {
        my ($pid, $output) = @{ $started[$rank] };
        is($cluster->finish($pid, 60), 0, "worker $rank ends well");
        is(TestCluster::text($output) =~ s/\s+/ /gr, "rank $rank: [ [-3 -3] ] [0 1 3] -4 MV_ESTATE [-4.5 -4.5] ", 'rounds, rows, states');
    }
};

done_testing;
