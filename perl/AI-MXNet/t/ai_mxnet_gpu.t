# Arrays of mx->gpu(i), which an emulation of the plug-in has: the results of the CPU, bit by bit.

use strict;
use warnings;

use Test::More;

BEGIN {
    plan skip_all => 'DEVICE_EMULATION names no plug-in: run this test through ctest' unless $ENV{DEVICE_EMULATION};
    $ENV{POLYVERSO_DEVICE_PLUGIN} = $ENV{DEVICE_EMULATION};
}

use AI::MXNet qw(mx);
use PDL;
use Storable ();

my ($cpu, $gpu) = (mx->cpu, mx->gpu(0));

sub bits { my ($array) = @_; return unpack 'H*', AI::MXNet::NDArray::File::to_bytes($array) }
sub device { my ($array) = @_; return $array->tensor->device }
sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : $@->name . ': ' . $@->text }

# $compute gives in the GPU's memory what it gives in the CPU's.
sub same {
    my ($name, $compute, @operands) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $host = $compute->($cpu, map { $_->copyto($cpu) } @operands);
    my $made = $compute->($gpu, map { $_->copyto($gpu) } @operands);
    return is($made, $host, $name) unless ref $host && $host->isa('AI::MXNet::NDArray');
    return is($made->context, 'gpu(0)', "$name: its context") && is(device($made), 'cuda:0', 'its memory') && is(bits($made), bits($host), $name);
}

is(mx->num_gpus, 2, 'two devices');
is(mx->nd->ones([2], ctx => mx->gpu(1))->context, 'gpu(1)', 'a context');
is(device(mx->nd->ones([2], ctx => mx->gpu(1))), 'cuda:1', 'and its memory');

my %creates = (
    zeros => sub { mx->nd->zeros([2, 3], ctx => $_[0]) }, empty => sub { mx->nd->empty([2, 3], $_[0])->set(1) },
    ones => sub { mx->nd->ones([2, 3], $_[0], dtype => 'float64') }, full => sub { mx->nd->full([2, 3], 7, ctx => $_[0]) },
    array => sub { mx->nd->array([[1, 2], [3, 4]], ctx => $_[0], dtype => 'int32') }, pdl => sub { mx->nd->array(sequence(3, 4), ctx => $_[0]) },
    arange => sub { mx->nd->arange(start => 0, stop => 9, repeat => 2, ctx => $_[0]) },
    uniform => sub { mx->random->seed(3); mx->random->uniform(0, 1, [50], ctx => $_[0]) },
    normal => sub { mx->random->seed(3); mx->nd->random->normal(0, 1, shape => [50], ctx => $_[0], dtype => 'float16') },
    randint => sub { mx->random->seed(3); mx->random->randint(0, 9, shape => [50], ctx => $_[0]) },
    'a row-sparse one' => sub { mx->nd->sparse->row_sparse_array([[[1, 2], [3, 4]], [3, 1]], shape => [5, 2], ctx => $_[0]) },
    'zeros of rows' => sub { mx->nd->sparse->zeros('row_sparse', [5, 2], ctx => $_[0]) },
);
same($_, $creates{$_}) for sort keys %creates;

my ($x, $y) = map { mx->random->uniform(1, 9, [4, 6]) } 0, 1;
my $rows = mx->nd->sparse->row_sparse_array([[[1, 2], [3, 4]], [3, 1]], shape => [5, 2]);
my %computes = (
    sum => sub { $_[1] + $_[2] }, difference => sub { $_[1] - $_[2] }, product => sub { $_[1] * $_[2] }, quotient => sub { $_[1] / $_[2] },
    modulo => sub { $_[1] % $_[2] }, power => sub { $_[1]**2 }, swapped => sub { 3 / $_[1] }, negated => sub { -$_[1] },
    equal => sub { $_[1] == $_[2] }, greater => sub { $_[1] > $_[2] }, 'in place' => sub { my $sum = $_[1]; $sum += $_[2]; return $sum },
    'a PDL' => sub { $_[1] + sequence(6, 4) }, sqrt => sub { $_[1]->sqrt }, exp => sub { mx->nd->exp($_[1]) }, log => sub { mx->nd->log($_[1]) },
    clip => sub { mx->nd->clip($_[1], 2, 5) }, sign => sub { mx->nd->sign($_[1] - 4) }, total => sub { $_[1]->sum },
    'along an axis' => sub { mx->nd->mean($_[1], axis => 1) }, argmax => sub { mx->nd->argmax($_[1], axis => 0) }, norm => sub { mx->nd->norm($_[1]) },
    dot => sub { mx->nd->dot($_[1], $_[2]->T) }, transposed => sub { $_[1]->T }, reshaped => sub { $_[1]->reshape([3, -1]) },
    row => sub { $_[1]->at(1) }, rows => sub { $_[1]->slice([1, 2]) }, box => sub { $_[1]->slice([1, 2], [0, 3])->sever },
    'a written row' => sub { my $array = $_[1]; $array->at(1) .= 7; return $array },
    'a written box' => sub { my $array = $_[1]; $array->slice([1, 2], [0, 3]) .= 7; return $array },
    set => sub { $_[1]->set([[1 .. 6], [1 .. 6], [1 .. 6], [1 .. 6]]) }, copy => sub { $_[1]->copy }, astype => sub { $_[1]->astype('int32') },
    half => sub { $_[1]->astype('float16') + 1 }, sparse => sub { $_[1]->tostype('row_sparse') }, zeros_like => sub { mx->nd->zeros_like($_[1]) },
    ones_like => sub { mx->nd->ones_like($_[1]) }, concatenated => sub { mx->nd->concatenate([$_[1], $_[2]], axis => 1) },
    stacked => sub { mx->nd->concatenate([$_[1], $_[2]]) }, scalar => sub { $_[1]->sum->asscalar }, pdl => sub { $_[1]->aspdl->unpdl->[2][3] },
    cloned => sub { Storable::dclone($_[1]) }, 'to an array' => sub { $_[1]->copyto($_[2]) }, 'to the context' => sub { $_[1]->as_in_context($_[0]) },
);
same($_, $computes{$_}, $x, $y) for sort keys %computes;
my %of_rows = (
    dense => sub { $_[1]->tostype('default') }, data => sub { $_[1]->data }, indices => sub { $_[1]->indices }, retain => sub { mx->nd->sparse->retain($_[1], [1]) },
    'of rows: sum' => sub { $_[1] + $_[1] }, 'of rows: product' => sub { $_[1] * 3 }, 'of rows: type' => sub { $_[1]->astype('float64') },
    'of rows: copy' => sub { $_[1]->copy },
);
same($_, $of_rows{$_}, $rows) for sort keys %of_rows;

my $there = $x->as_in_context($gpu);
is($there->as_in_context($gpu)->handle, $there->handle, 'as_in_context copies only what is elsewhere');
is(bits($there->copyto(mx->gpu(1))->copyto($cpu)), bits($x), 'from device to device and back');
is(bits($there->copyto(mx->nd->zeros([4, 6], ctx => mx->gpu(1)))), bits($x), 'into an array of another device');
is("$there", '<AI::MXNet::NDArray 4x6 @gpu(0)>', 'as text');
like(failure(sub { $there + $x }), qr/MV_EINVAL: .*cuda:0.*host: copy one of them/, 'two places');
like(failure(sub { mx->nd->ones([2], ctx => mx->gpu(2)) }), qr/MV_ENOTFOUND: .*there is no cuda:2/, 'no such device');
like(failure(sub { $there->aspdl_view }), qr/MV_EINVAL: .*cuda:0/, 'no view');

subtest 'an optimizer of a device' => sub {
    same(sgd => sub {
        my ($ctx, $weight, $gradient) = @_;
        my $update = mx->optimizer->get_updater(mx->optimizer->create('sgd', learning_rate => 0.1, momentum => 0.9));
        $update->(0, $gradient, $weight) for 1 .. 3;
        return $weight;
    }, $x, $y);
};

# Data parallel training as MXNet's module does it: a part of the batch on each device, gradients pushed as a list, weights pulled to all.
for my $type (qw(local device)) {
    my $kv      = mx->kv->create($type);
    my @places  = map { mx->gpu($_) } 0, 1;
    my @weights = map { mx->nd->zeros([3], ctx => $_) } @places;
    $kv->init(0, $weights[0]);
    $kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 0.5, momentum => 0.5, rescale_grad => 0.5));
    my $truth = mx->nd->array([1, -2, 3]);
    for (1 .. 60) {
        my @gradients = map { $_ - $truth->as_in_context($_->context) } @weights;
        $kv->push(0, \@gradients, priority => 0);
        $kv->pull(0, out => \@weights, priority => 0);
    }
    is(device($weights[1]), 'cuda:1', "$type: weights stay on their device");
    is_deeply([map { sprintf '%.3f', $_ } $_->aspdl->list], ['1.000', '-2.000', '3.000'], "$type: trained on two devices") for @weights;
}

# An updater of the program's own changes the stored array in place, on its device.
for my $type (qw(local device nccl)) {
    my $kv = mx->kv->create($type);
    $kv->init(3, mx->nd->ones([2, 3], ctx => mx->gpu(1)));
    my $context;
    $kv->_set_updater(sub { my ($key, $input, $stored) = @_; $context = $stored->context; $stored += $input * 2 });
    $kv->push(3, mx->nd->ones([2, 3], ctx => mx->gpu(1)));
    $kv->pull(3, out => my $out = mx->nd->zeros([2, 3]));
    is_deeply([$out->aspdl->list], [(3) x 6], "$type: an updater in Perl");
    is("$context", $type eq 'local' ? 'cpu(0)' : 'gpu(1)', "$type: it gets arrays where the key is");
}

# Numbers that are not on the device yet.
my $array = mx->nd->ones([2], ctx => $gpu);
$array += pdl(1, 2);
$array *= [2, 3];
is_deeply([$array->aspdl->list], [4, 9], 'in place with a PDL and a list');

done_testing;
