# Optimizers and schedules: parameters, texts, and steps compared with formulas and with tables.

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);
use AI::MXNet::TestUtils qw(almost_equal reldiff);
use PDL;
use Polyverso;

sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }
sub sentence { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->text : "$@" }

# ------------------------------------------------------------------ schedules

my $factor = AI::MXNet::FactorScheduler->new(step => 2, factor => 0.5, base_lr => 1, stop_factor_lr => 0.2);
is_deeply([map { $factor->($_) } 0 .. 7], [1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.2], 'factor');
my $multi = mx->lr_scheduler->MultiFactorScheduler(step => [2, 4], factor => 0.1, base_lr => 1, warmup_steps => 2, warmup_begin_lr => 0.5);
is_deeply([map { sprintf '%g', $multi->($_) } 0 .. 5], [0.5, 0.75, 1, 0.1, 0.1, 0.01], 'several, and a warm-up');
my $poly = AI::MXNet::PolyScheduler->new(max_update => 10, base_lr => 1);
is_deeply([map { sprintf '%g', $poly->($_) } 0, 5, 10, 20], [1, 0.25, 0, 0], 'poly');
my $cosine = AI::MXNet::CosineScheduler->new(max_update => 10, base_lr => 1, final_lr => 0.5);
is_deeply([map { sprintf '%g', $cosine->($_) } 0, 5, 10], [1, 0.75, 0.5], 'cosine');
is($cosine->text, 'base_lr=1 final_lr=0.5 lr_scheduler=cosine max_update=10 warmup_begin_lr=0 warmup_mode=linear warmup_steps=0', 'text');
is(failure(sub { AI::MXNet::FactorScheduler->new(step => 0) }), 'MV_EINVAL', 'steps');
is(failure(sub { AI::MXNet::MultiFactorScheduler->new(step => [2, 2]) }), 'MV_EINVAL', 'that do not rise');
is(failure(sub { AI::MXNet::FactorScheduler->new(step => 1, factor => 2) }), 'MV_EINVAL', 'factors');

# ------------------------------------------------------------------ classes

for my $name (qw(SGD NAG Signum FTML LBSGD DCASGD SGLD Adam AdamW Adamax Nadam AdaGrad AdaDelta RMSProp Ftrl LAMB Lion Test)) {
    my ($kind, @words) = split ' ', mx->optimizer->create($name)->text;
    # The library's error message lists all parameters, the optimizer's own before the common ones.
    my ($listed) = sentence(sub { Polyverso::CAPI::kv_optimizer_rate("$kind no_such_parameter=1", 1) }) =~ /it has (.*?) wd=/;
    my %library = $listed =~ /(\w+)=(\S+) \(/g;
    my %own = map { /(\w+)=(.*)/ ? ($1 => $2) : () } @words;
    delete @own{qw(wd rescale_grad begin_num_update)};
    $own{learning_rate} //= 0.01;
    my %plain = map { $_ => $own{$_} =~ /\A[a-z]/ ? $own{$_} : $own{$_} + 0 } keys %own;
    is_deeply(\%plain, { map { $_ => $library{$_} =~ /\A[a-z]/ ? $library{$_} : $library{$_} + 0 } keys %library }, "$name has the library's parameters");
}

# ------------------------------------------------------------------ classes

my @names = qw(SGD Signum FTML LBSGD DCASGD NAG SGLD Adam AdaGrad RMSProp AdaDelta Test Ftrl Adamax Nadam AdamW LAMB Lion);
for my $name (@names) {
    my $optimizer = mx->optimizer->create(lc $name, wd => 0.01);
    isa_ok($optimizer, "AI::MXNet::$name");
    like($optimizer->text, qr/\Amx\.\L$name\E /, $optimizer->text);
    is(ref mx->opt->$name, "AI::MXNet::$name", 'by its name');
}
my $adam = mx->optimizer->create('Adam', beta1 => 0.8, clip_gradient => 2, rescale_grad => 0.5);
is_deeply([map { $adam->$_ } qw(learning_rate lr beta1 beta2 epsilon)], [0.001, 0.001, 0.8, 0.999, 1e-8], "MXNet's defaults");
like($adam->text, qr/beta1=0\.8\d* .*clip_gradient=2 .*rescale_grad=0\.5/, 'parameters travel');
is(AI::MXNet::LBSGD->new(warmup_startegy => 'sqrt')->warmup_strategy, 'sqrt', "AI::MXNet's spelling");
is(AI::MXNet::AdaGrad->new(float_stable_eps => 0.5)->eps, 0.5, 'an older name');
like(sentence(sub { AI::MXNet::SGD->new(momentun => 1) }), qr/no parameter 'momentun'.* momentum/, 'unknown parameters');
like(sentence(sub { mx->optimizer->create('sdg') }), qr/'sdg'; known: .*sgd/, 'unknown optimizers');

my $schedule = AI::MXNet::FactorScheduler->new(step => 1, factor => 0.5, base_lr => 8);
is(AI::MXNet::SGD->new(lr_scheduler => $schedule)->learning_rate, 8, "without a rate the schedule's counts");
is(AI::MXNet::SGD->new(lr_scheduler => $schedule, learning_rate => 4)->lr_scheduler->base_lr, 4, 'with one, this');
like(AI::MXNet::SGD->new(lr_scheduler => $schedule)->text, qr/lr_scheduler=factor .*step=1/, 'and travels');

my $named = AI::MXNet::SGD->new(wd => 0.5, param_idx2name => { 0 => 'fc_weight', 1 => 'fc_bias', 2 => 'bn_gamma' });
is_deeply([map { $named->_get_wd($_) } 0 .. 3], [0.5, 0, 0.5, 0.5], 'only weights and gammas decay');
$named->set_wd_mult({ fc_bias => 2 });
$named->set_lr_mult({ fc_weight => 0.1, 7 => 3 });
is_deeply([$named->_get_wd(1), map { sprintf '%g', $named->_get_lr($_) } 0, 1, 7], [1, 0.001, 0.01, 0.03], 'multipliers');

# ------------------------------------------------------------------ steps

# The weight after each step of an optimizer, with gradients that depend on the number of the step.
sub steps {
    my ($optimizer, $count, $dtype) = @_;
    my $weight = mx->nd->array([1, -2, 3], dtype => $dtype // 'float64');
    my $updater = mx->optimizer->get_updater($optimizer);
    return map { $updater->('w', mx->nd->array([0.5 * $_, 1, -$_], dtype => $weight->dtype), $weight); $weight->aspdl } 1 .. $count;
}

# The same steps in a table, which counts its updates itself.
sub table_steps {
    my ($node, $text, $count) = @_;
    my $table = $node->array(size => 3, dtype => 'f64', updater => $text, init => [1, -2, 3]);
    return map { $table->add(pdl(0.5 * $_, 1, -$_)); $table->get } 1 .. $count;
}

my $node = Polyverso->init;
my %given = (SGD => { momentum => 0.9, wd => 0.1 }, NAG => { momentum => 0.9 }, DCASGD => { momentum => 0.5 },
    RMSProp => { centered => 1, clip_gradient => 1 }, LBSGD => { batch_scale => 2, momentum => 0.5 }, AdaGrad => { wd => 0.1 });
for my $name (@names) {
    next if $name eq 'LAMB' || $name eq 'SGLD';
    my %parameters = (%{ $given{$name} // {} }, rescale_grad => 0.5);
    my @mine  = steps("AI::MXNet::$name"->new(%parameters), 5);
    my @table = table_steps($node, "AI::MXNet::$name"->new(%parameters)->text, 5);
    ok(!(grep { reldiff($mine[$_], $table[$_]) > 1e-15 } 0 .. 4), "$name steps as a table does") or diag "$mine[4] $table[4]";
}
my @scheduled = steps(AI::MXNet::SGD->new(learning_rate => 1, lr_scheduler => AI::MXNet::FactorScheduler->new(step => 2, factor => 0.1)), 3);
ok(almost_equal($scheduled[2], pdl(1 - 0.5 - 1 - 0.15, -2 - 1 - 1 - 0.1, 3 + 1 + 2 + 0.3), 1e-12), 'a schedule');
$node->shutdown;

# Adam, from its paper.
my ($w, $m, $v) = (pdl(1, -2, 3), pdl(0, 0, 0), pdl(0, 0, 0));
for my $t (1 .. 4) {
    my $g = pdl(0.5 * $t, 1, -$t);
    $m = 0.9 * $m + 0.1 * $g;
    $v = 0.999 * $v + 0.001 * $g**2;
    $w = $w - 0.1 * sqrt(1 - 0.999**$t) / (1 - 0.9**$t) * $m / (sqrt($v) + 1e-8);
}
ok(almost_equal((steps(AI::MXNet::Adam->new(learning_rate => 0.1), 4))[3], $w, 1e-12), "Adam's formula");
ok(almost_equal((steps(AI::MXNet::Adam->new(learning_rate => 0.1), 4, 'float16'))[3], $w, 2e-3), 'of halves');
is((steps(AI::MXNet::LAMB->new, 2))[1]->nelem, 3, 'LAMB measures whole tensors');

my $sparse = mx->nd->ones([4, 2]);
my $sgd = AI::MXNet::SGD->new(learning_rate => 1, momentum => 0.5);
my $momentum = $sgd->create_state(0, $sparse);
$sgd->update(0, $sparse, mx->nd->sparse->row_sparse_array([[[1, 2]], [2]], shape => [4, 2]), $momentum) for 1 .. 2;
is_deeply($sparse->aspdl->unpdl, [[1, 1], [1, 1], [-1.5, -4], [1, 1]], 'rows alone are stepped');
is_deeply($momentum->aspdl->unpdl, [[0, 0], [0, 0], [-1.5, -3], [0, 0]], 'with their states');
is(ref $adam->create_state(0, $sparse), 'ARRAY', 'several states');
is(mx->optimizer->SGD->create_state(0, $sparse), undef, 'none');
is(failure(sub { $sgd->update(0, $sparse, mx->nd->ones([3, 2]), $momentum) }), 'MV_ESHAPE', 'shapes');
is(failure(sub { $sgd->update(0, $sparse, mx->nd->ones([4, 2]), undef) }), 'MV_ESHAPE', 'states');

# ------------------------------------------------------------------ an optimizer of the program's own

{
    package Scaled;
    use Mouse;
    extends 'AI::MXNet::Optimizer';
    has scale => (is => 'rw', default => 2);
    sub create_state { my ($self, $index, $weight) = @_; return [mx->nd->zeros($weight->shape), 0] }

    sub update {
        my ($self, $index, $weight, $grad, $state) = @_;
        $self->_update_count($index);
        $state->[0] += $grad;
        $state->[1]++;
        $weight -= $self->_get_lr($index) * $self->scale * $state->[0];
    }
    __PACKAGE__->register;
}
my $own = mx->optimizer->create('scaled', learning_rate => 0.5, scale => 1);
is($own->text, undef, 'only this process knows it');
my $weight = mx->nd->ones([2]);
my $updater = mx->optimizer->get_updater($own);
$updater->(3, mx->nd->ones([2]), $weight) for 1 .. 2;
is_deeply($weight->aspdl->unpdl, [-0.5, -0.5], 'its steps');
is_deeply($updater->states->{3}[0]->aspdl->unpdl, [2, 2], 'its states');
is($own->num_update, 2, 'its count');

# ------------------------------------------------------------------ states as bytes

sub is_continued {
    my ($from, $to, $name) = @_;
    my ($x, $y) = (mx->nd->array([1, 2]), mx->nd->array([1, 2]));
    $_->[0]->('w', mx->nd->array([3, 4]), $_->[1]) for [$from, $x], [$to, $y];
    return is_deeply($x->aspdl->unpdl, $y->aspdl->unpdl, $name);
}
for my $case (['nadam'], ['adam'], ['sgd', momentum => 0.9], ['scaled']) {
    my ($name, @parameters) = @$case;
    my ($first, $second) = map { mx->optimizer->get_updater(mx->optimizer->create($name, learning_rate => 0.1, @parameters)) } 1, 2;
    $first->('w', mx->nd->array([1, $_]), mx->nd->ones([2])) for 1 .. 3;
    $second->set_states($first->get_states);
    is_continued($first, $second, "$name goes on where it was");
    my $third = mx->optimizer->get_updater(AI::MXNet::Ftrl->new);
    $third->set_states($first->get_states(1));
    is_continued($first, $third, 'with its parameters');
    is(failure(sub { mx->optimizer->get_updater(AI::MXNet::Ftrl->new)->set_states($first->get_states) }), 'MV_EDISAGREE', "not as another's");
}
my $with = mx->optimizer->get_updater(AI::MXNet::SGD->new(lr_scheduler => AI::MXNet::MultiFactorScheduler->new(step => [5, 9], factor => 0.5)));
my $blank = mx->optimizer->get_updater(AI::MXNet::SGD->new);
$blank->set_states($with->get_states(1));
is_deeply($blank->optimizer->lr_scheduler->step, [5, 9], 'its schedule, too');
for my $name ('scaled', 'sgd') {
    for my $make (
        sub { AI::MXNet::PolyScheduler->new(max_update => 10, base_lr => 1, pwr => 1) },
        sub { AI::MXNet::FactorScheduler->new(step => 2, factor => 0.5, base_lr => 1, warmup_steps => 4, warmup_begin_lr => 0.5) },
        sub { AI::MXNet::MultiFactorScheduler->new(step => [2, 4, 6, 8], factor => 0.5, base_lr => 1) },
    ) {
        my ($first, $second) = map { mx->optimizer->get_updater(mx->optimizer->create($name, @$_)) } [lr_scheduler => $make->()], [];
        $first->('w', mx->nd->array([1, $_]), mx->nd->ones([2])) for 1 .. 5;
        $second->set_states($first->get_states(1));
        is_continued($first, $second, "$name goes on in its schedule");
    }
}
{
    my $third = 1 / 3;
    my %rates = (learning_rate => $third, lr_mult => { w => $third }, wd => $third);
    my $exact = mx->optimizer->get_updater(AI::MXNet::SGD->new(%rates,
        lr_scheduler => AI::MXNet::FactorScheduler->new(step => 1, factor => $third, stop_factor_lr => $third / 1e9)));
    $blank->set_states($exact->get_states(1));
    my $read = $blank->optimizer;
    ok($read->learning_rate == $third && $read->wd == $third && $read->lr_mult->{w} == $third, 'all digits of its numbers');
    is($read->text, $exact->optimizer->text, 'and of its schedule');
    like($read->text, qr/factor=0\.33333333333333331 /, 'which go to servers, too');
}
require Storable;
my $states = mx->optimizer->get_updater($adam)->get_states;
like(sentence(sub { $blank->set_states(Storable::freeze({ a => 1 })) }),  qr/Storable/, "Storable's are refused");
like(sentence(sub { $blank->set_states(Storable::nfreeze([1])) }),        qr/Storable/, 'in network order, too');
like(sentence(sub { $blank->set_states("\x80\x04\x95abc") }),             qr/pickled/,  'pickled ones are');
is(failure(sub { $blank->set_states(substr $states, 0, $_) }), 'MV_EINVAL', "cut after $_ bytes") for 0, 5, 40, length($states) - 60;

my $good = $with->get_states(1);
my $moving = mx->optimizer->get_updater(AI::MXNet::SGD->new(momentum => 0.9));
$moving->('w', mx->nd->array([1, 2]), mx->nd->ones([2]));
my $stateful = $moving->get_states(1);
my $broken = $good;
substr($broken, -1, 1) = chr(ord(substr $good, -1) ^ 1);
like(sentence(sub { $blank->set_states($good =~ s/"step/"stop/r, 'a.states') }), qr/\Aa\.states: .*checksum/, 'another byte, in a file');
like(sentence(sub { $blank->set_states("(dp0\nS'w'\np1\nI1\ns.") }), qr/pickled/, 'pickled by protocol 0');
# Files that others may have written.
sub as_file { my ($text, $data) = @_; return pack('Q<', length $text) . $text . $data }
sub with_header {    # the header changed, and its checksum as it was
    my ($bytes, $change) = @_;
    my $length = unpack 'Q<', $bytes;
    my $header = JSON::PP->new->utf8->decode(substr $bytes, 8, $length);
    $change->($header, $header->{__metadata__});
    return as_file(JSON::PP->new->canonical->utf8->encode($header), substr $bytes, 8 + $length);
}
sub with_about {    # another description, with the checksum that it has
    my ($bytes, $change) = @_;
    my ($text, $handles) = Polyverso::CAPI::kv_decode_states('polyverso-updater-1', $bytes);
    my $about = JSON::PP->new->decode($text);
    $change->($about);
    my @tensors = map { Polyverso::Tensor->_new($_) } @$handles;
    my $file = Polyverso::CAPI::kv_encode_states('polyverso-updater-1', JSON::PP->new->allow_nonref->encode($about), \@tensors);
    return AI::MXNet::NDArray::File::_bytes(Polyverso::Tensor->_new($file));
}
for my $length (1 .. 160) {    # a header's length may begin with the same bytes as a pickle
    my ($from, $to) = map { mx->optimizer->get_updater(AI::MXNet::SGD->new) } 1, 2;
    $from->states->{w} = 'x' x (8 * $length);
    $to->set_states($from->get_states);
    is($to->states->{w}, $from->states->{w}, 'a header of another length') if $to->states->{w} ne $from->states->{w};
}
my $before = $blank->get_states(1);
for my $change (
    sub { $_[0]{class} = 'POSIX' }, sub { $_[0]{class} = 'AI::MXNet::NDArray' }, sub { $_[0]{states} = '[' }, sub { $_[0]{states} = [] },
    sub { $_[0]{counts} = 3 },      sub { $_[0]{counts} = { index => { w => 'x' }, num_update => 1 } }, sub { $_[0]{optimizer} = [1] },
    sub { $_[0]{optimizer} = { lr_scheduler => { class => 'IO::File' } } }, sub { $_[0]{optimizer} = { momentum => 'x' } },
    sub { $_[0]{states} = { w => { array => 7 } } }, sub { $_[0]{states} = { w => { array => -1 } } },
    sub { $_[0]{states} = { w => {} } }, sub { $_[0] = 3 },
) {
    my $bytes = with_about($stateful, $change);
    like(failure(sub { $blank->set_states($bytes) }), qr/\AMV_E(?:INVAL|DTYPE)\z/, 'an invalid description');
}
my $small = { data_offsets => [0, 8], shape => [2], dtype => 'F32' };
for my $change (
    sub { delete $_[1]{sha256} }, sub { $_[1]{format} = 'polyverso-updater-3' }, sub { delete $_[1]{about} }, sub { delete $_[0]{__metadata__} },
    sub { $_[0]{'state.0'} = 3 }, sub { $_[0]{'state.1'} = $small }, sub { delete $_[0]{'state.0'} },
    map({ my $part = $_; sub { $_[0]{'state.0'} = { %$small, %$part } } } { data_offsets => [0] }, { data_offsets => [0, 400] }, { shape => 'x' },
        { shape => [2, 1] }, { shape => [1, 2] }, { shape => [4], dtype => 'F16' }, { dtype => 'I32' }, { dtype => 'X' }),
) {
    my $bytes = with_header($stateful, $change);
    is(failure(sub { $blank->set_states($bytes) }), 'MV_EINVAL', 'a changed header');
}
is($blank->get_states(1), $before, 'nothing has changed');
# The layout of early files: each part of the description is text of its own, and the checksum does not cover the tensors' descriptions.
require Digest::SHA;
my $early = do {
    my $canonical = JSON::PP->new->canonical->utf8;
    my $data      = pack 'f<2', 0.25, 0.5;
    my $metadata  = {
        format => 'polyverso-updater-1', class => 'AI::MXNet::SGD', optimizer => '{"momentum":0.9}',
        states => '{"w\u00e9":{"array":0,"stype":"default"}}', counts => '{"index":{"w\u00e9":3},"num_update":3}',
    };
    $metadata->{sha256} = Digest::SHA::sha256_hex($canonical->encode($metadata), $data);
    my $text = $canonical->encode({ __metadata__ => $metadata, 'state.0' => $small });
    as_file($text . ' ' x (-length($text) % 8), $data);
};
$blank->set_states($early);
is_deeply([map { $_->aspdl->unpdl } $blank->states->{"w\x{e9}"}], [[0.25, 0.5]], 'an early file: its state');
is($blank->optimizer->num_update, 3, 'its count');
$early =~ s/num_update\\":3/num_update\\":4/ or die;
like(sentence(sub { $blank->set_states($early) }), qr/checksum/, 'a damaged early file');

# ------------------------------------------------------------------ 16-bit floats, names, values that are not numbers

for my $multi (0, 1) {
    my $half = mx->nd->ones([2], dtype => 'float16');
    my $manual = mx->optimizer->get_updater(mx->optimizer->create('sgd', learning_rate => 1e-4, multi_precision => $multi));
    $manual->('w', mx->nd->ones([2], dtype => 'float16'), $half) for 1 .. 10;
    my $expected = $multi ? 0.999 : 1;
    ok(almost_equal($half->aspdl, pdl($expected, $expected), 1e-3 * 0.5), "halves, multi_precision $multi") or diag $half->aspdl;
}
is(AI::MXNet::LBSGD->new(warmup_startegy => 'sqrt', beta2 => 0.9, epsilon => 1, sym => undef)->warmup_startegy, 'sqrt', "AI::MXNet's names");
is(AI::MXNet::DCASGD->new(lambda => 0.5)->lambda, 0.5, 'lambda');
is(AI::MXNet::AdaGrad->new(float_stable_eps => 0.25)->float_stable_eps, 0.25, 'float_stable_eps');
is(failure(sub { mx->optimizer->create('sgd', momentum => 'abc') }), 'MV_EINVAL', 'a parameter that is no number');
is(failure(sub { AI::MXNet::Adam->new(lr_scheduler => 3) }), 'MV_EINVAL', 'a schedule that is none');
is(failure(sub { mx->nd->array(['a']) }), 'MV_EDTYPE', 'an array of text');

done_testing;
