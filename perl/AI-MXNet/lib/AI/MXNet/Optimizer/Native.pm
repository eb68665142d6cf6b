package AI::MXNet::Optimizer::Native;

# MXNet's optimizers. The library computes the formulas: a class here makes the text for kv_set_optimizer() and
# kv_optimizer_step().

use Mouse;

use AI::MXNet::Base ();
use List::Util ();
use Polyverso::CAPI ();
use Polyverso::Tensor;
use Scalar::Util qw(looks_like_number);

extends 'AI::MXNet::Optimizer';

# The state that all tensors of the optimizer share: one f64 tensor, made with the first state.
has _shared => (is => 'rw', init_arg => undef);

# Class, name in texts, and parameters with their defaults; docs/optimizers.md describes them.
my @CLASSES = (
    ['SGD',    'mx.sgd',    learning_rate => 0.01, momentum => 0, lazy_update => 1, multi_precision => 0],
    ['NAG',    'mx.nag',    learning_rate => 0.01, momentum => 0, multi_precision => 0],
    ['Signum', 'mx.signum', learning_rate => 0.01, momentum => 0.9, wd_lh => 0],
    ['FTML',   'mx.ftml',   learning_rate => 0.01, beta1 => 0.6, beta2 => 0.999, epsilon => 1e-8],
    ['LBSGD',  'mx.lbsgd',  learning_rate => 0.01, momentum => 0, multi_precision => 0, warmup_strategy => 'linear', warmup_epochs => 5,
        batch_scale => 1, updates_per_epoch => 32, begin_epoch => 0, num_epochs => 60],
    ['DCASGD', 'mx.dcasgd', learning_rate => 0.01, momentum => 0, lamda => 0.04],
    ['SGLD',   'mx.sgld',   learning_rate => 0.01, seed => 0],
    ['Adam',   'mx.adam',   learning_rate => 0.001, beta1 => 0.9, beta2 => 0.999, epsilon => 1e-8, lazy_update => 1],
    ['AdaGrad', 'mx.adagrad', learning_rate => 0.01, eps => 1e-7],
    ['RMSProp', 'mx.rmsprop', learning_rate => 0.001, gamma1 => 0.9, gamma2 => 0.9, epsilon => 1e-8, centered => 0, clip_weights => 0],
    ['AdaDelta', 'mx.adadelta', rho => 0.9, epsilon => 1e-5],
    ['Test',   'mx.test'],
    ['Ftrl',   'mx.ftrl',   learning_rate => 0.1, lamda1 => 0.01, beta => 1],
    ['Adamax', 'mx.adamax', learning_rate => 0.002, beta1 => 0.9, beta2 => 0.999],
    ['Nadam',  'mx.nadam',  learning_rate => 0.001, beta1 => 0.9, beta2 => 0.999, epsilon => 1e-8, schedule_decay => 0.004],
    ['AdamW',  'mx.adamw',  learning_rate => 0.001, beta1 => 0.9, beta2 => 0.999, epsilon => 1e-8],
    ['LAMB',   'mx.lamb',   learning_rate => 0.001, beta1 => 0.9, beta2 => 0.999, epsilon => 1e-6, lower_bound => 0, upper_bound => 0,
        bias_correction => 1],
    ['Lion',   'mx.lion',   learning_rate => 0.0001, beta1 => 0.9, beta2 => 0.99],
);
# Other spellings of parameters.
my %ALIAS = (warmup_startegy => 'warmup_strategy', float_stable_eps => 'eps', lambda => 'lamda', lambda1 => 'lamda1');

# Parameters that AI::MXNet's classes have, but do not use.
my %UNUSED = (LBSGD => [beta2 => 0.999, epsilon => 1e-8]);

my (%TEXT, %OWN);

around BUILDARGS => sub {
    my ($build, $class, @given) = @_;
    my %given = @given == 1 && ref $given[0] eq 'HASH' ? %{ $given[0] } : @given;
    my $meta = $class->meta;
    for my $alias (grep { exists $given{$_} && $class->can($ALIAS{$_}) && !$meta->find_attribute_by_name($_) } keys %ALIAS) {
        $given{ $ALIAS{$alias} } = delete $given{$alias};
    }
    return $class->$build(%given);
};

for (@CLASSES) {
    my ($name, $text, @parameters) = @$_;
    my $class = "AI::MXNet::$name";
    my $meta = Mouse->init_meta(for_class => $class);
    $meta->superclasses($name eq 'NAG' ? 'AI::MXNet::SGD' : __PACKAGE__);
    $TEXT{$class} = $text;
    while (my ($parameter, $default) = splice @parameters, 0, 2) {
        push @{ $OWN{$class} }, $parameter;
        next if $parameter eq 'learning_rate' and $default == 0.01;
        my $is_word = $default =~ /\A[a-z]/;
        $meta->add_attribute($parameter => is => 'rw', isa => $is_word ? 'Str' : 'Num', default => $default,
            $parameter eq 'learning_rate' ? (trigger => sub { $_[0]{lr} = $_[1] }) : ());
    }
    my %unused = @{ $UNUSED{$name} // [] };
    $meta->add_attribute($_ => is => 'rw', isa => 'Num', default => $unused{$_}) for keys %unused;
    for my $alias (grep { $class->can($ALIAS{$_}) } keys %ALIAS) {
        my $parameter = $ALIAS{$alias};
        no strict 'refs';
        *{"${class}::$alias"} = sub { my $self = shift; return $self->$parameter(@_) };
    }
    $meta->make_immutable;
    $class->register;
}

sub _kind { my ($self) = @_; return List::Util::first { $TEXT{$_} } $self->meta->linearized_isa }

# "mx.adam learning_rate=0.001 ..."; %of_tensor overrides parameters for one tensor: its multipliers, and the rate of a
# scheduler that only this process knows.
sub _text {
    my ($self, %of_tensor) = @_;
    my $kind = $self->_kind;
    my %all = map { $_ => $self->$_ } @{ $OWN{$kind} // [] }, qw(wd rescale_grad begin_num_update);
    $all{clip_gradient} = $self->clip_gradient if ($self->clip_gradient // 0) > 0;
    my $scheduler = $self->lr_scheduler;
    my $schedule = $scheduler ? $scheduler->text : '';
    $all{learning_rate} = $self->lr if exists $all{learning_rate} && !$scheduler;
    %all = (%all, %of_tensor);
    my @words = map { "$_=" . (looks_like_number($all{$_}) ? sprintf '%.17g', $all{$_} : $all{$_}) } sort keys %all;
    return join ' ', $TEXT{$kind}, @words, length($schedule // '') ? $schedule : ();
}

# The values of all parameters in the text, as a string to compare. Every push computes it, so it must be cheap.
my %SAID;
sub _settings {
    my ($self) = @_;
    my $names = $SAID{ ref $self } //= [@{ $OWN{ $self->_kind } // [] }, qw(wd rescale_grad begin_num_update clip_gradient lr lr_scheduler)];
    return join ',', map { $_ // '' } @$self{@$names};
}

sub text {
    my ($self) = @_;
    return undef if $self->lr_scheduler && !defined $self->lr_scheduler->text;
    return $self->_text;
}

# ------------------------------------------------------------------ steps in this process

# The dtype in which steps are computed: f32 for 16-bit floats.
sub _wide { my ($tensor) = @_; return $tensor->dtype eq 'f64' ? 'f64' : 'f32' }

# Whether 16-bit floats have an f32 master copy (multi_precision). Without it, updates below 16-bit precision would be
# lost.
sub _keeps_floats {
    my ($self, $weight) = @_;
    return $self->can('multi_precision') && $self->multi_precision && $weight->dtype =~ /16\z/;
}

# The state: undef, an array, or a list of several. The f32 master copy of 16-bit floats is the last one.
sub create_state {
    my ($self, $index, $weight) = @_;
    my ($states, $shared) = Polyverso::CAPI::kv_optimizer_states($self->_text);
    $self->_shared($self->_shared // Polyverso::Tensor->zeros([$shared], 'f64')) if $shared;
    my $dtype = AI::MXNet::Base::dtype_out(_wide($weight->tensor));
    my @states = map { AI::MXNet::NDArray->zeros($weight->shape, ctx => $weight->context, dtype => $dtype) } 1 .. $states;
    push @states, $weight->tostype('default')->astype($dtype) if $self->_keeps_floats($weight);
    return @states > 1 ? \@states : $states[0];
}

sub update {
    my ($self, $index, $weight, $grad, $state) = @_;
    my $before = $self->num_update - $self->begin_num_update;
    my $count = $self->_update_count($index) - $self->begin_num_update;
    my %tensor = (lr_mult => $self->_factor(lr_mult => $index), wd_mult => $self->_factor(wd_mult => $index));
    $tensor{learning_rate} = $self->_rate if $self->lr_scheduler && !defined $self->lr_scheduler->text;
    my $tensor = $weight->tostype('default')->tensor;
    my $wide = _wide($tensor);
    my @states = map { $_->tensor } !defined $state ? () : ref $state eq 'ARRAY' ? @$state : $state;
    my $value = $tensor->dtype eq $wide ? $tensor : $self->_keeps_floats($weight) ? pop @states : $tensor->cast($wide);
    push @states, $self->_shared if $self->_shared;
    Polyverso::CAPI::kv_optimizer_step($self->_text(%tensor), $count, $before, $value, _gradient($grad, $wide), @states ? \@states : undef);
    $weight->_take_over($weight->_wrap($value)) if $value->handle != $weight->tensor->handle;
    return;
}

sub _gradient {
    my ($grad, $wide) = @_;
    my $dtype = AI::MXNet::Base::dtype_in($grad->dtype);
    my $fits = $dtype eq $wide || $wide eq 'f32' && $dtype =~ /\Ab?f16\z/;
    return $fits ? $grad->tensor : $grad->astype(AI::MXNet::Base::dtype_out($wide))->tensor;
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Optimizer::Native - MXNet's optimizers

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $lion = AI::MXNet::Lion->new(learning_rate => 0.1, wd => 0.5);
    my $weight = mx->nd->ones([2]);
    my $state = $lion->create_state('w', $weight);
    $lion->update('w', $weight, mx->nd->array([3, -3]), $state);
    print $weight->aspdl, "\n";          # [0.85 1.05]

=head1 DESCRIPTION

The base class of C<AI::MXNet::SGD> and so on: it converts parameters to a text, and has the library make the steps.
L<AI::MXNet::Optimizer> describes their use.

=cut
