package AI::MXNet::Optimizer;

# The base class of all optimizers: rates, multipliers, update counts, and a registry. MXNet's optimizers are in
# Optimizer/Native.pm.

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::LRScheduler;
use AI::MXNet::NDArray;
use AI::MXNet::NS;
use List::Util ();

has rescale_grad        => (is => 'rw', isa => 'Num', default => 1);
has learning_rate       => (is => 'rw', isa => 'Num', default => 0.01, trigger => sub { $_[0]{lr} = $_[1] });
has lr                  => (is => 'rw', isa => 'Num');
has lr_scheduler        => (is => 'rw', isa => 'Maybe[AI::MXNet::LRScheduler]');
has wd                  => (is => 'rw', isa => 'Num', default => 0);
has clip_gradient       => (is => 'rw', isa => 'Maybe[Num]');
has lr_mult             => (is => 'rw', isa => 'HashRef', default => sub { +{} });
has wd_mult             => (is => 'rw', isa => 'HashRef', default => sub { +{} });
has begin_num_update    => (is => 'rw', isa => 'Int', default => 0);
has num_update          => (is => 'rw', isa => 'Int');
has _index_update_count => (is => 'rw', isa => 'HashRef', default => sub { +{} });
has param_idx2name      => (is => 'rw', isa => 'HashRef', default => sub { +{} });
has idx2name            => (is => 'rw', isa => 'HashRef');
has sym                 => (is => 'rw');    # unused; MXNet reads multipliers from it
has param_dict          => (is => 'rw', isa => 'HashRef', default => sub { +{} });

my %REGISTRY;

sub get_opt_registry { return \%REGISTRY }

# Registers a class under the last part of its name, case-insensitive: create('sgd'), and mx->optimizer->SGD(...).
sub register {
    my ($class) = @_;
    my ($name) = $class =~ /(\w+)\z/;
    warn "optimizer $name: $class replaces $REGISTRY{lc $name}\n" if ($REGISTRY{ lc $name } // $class) ne $class;
    $REGISTRY{ lc $name } = $class;
    no strict 'refs';
    no warnings 'redefine';
    *{ __PACKAGE__ . "::$name" } = sub { shift; return $class->new(@_) };
    return;
}

sub create_optimizer {
    my ($class, $name, %parameters) = @_;
    my $found = $REGISTRY{ lc $name }
        // AI::MXNet::Base::refuse(EINVAL => "unknown optimizer '$name'; known: @{[sort keys %REGISTRY]}");
    return $found->new(%parameters);
}
*create = \&create_optimizer;

# Reports a value of a wrong type as a Polyverso::Error, instead of Mouse's error.
around BUILDARGS => sub {
    my ($build, $class, @given) = @_;
    my $given = $class->$build(@given);
    for my $attribute ($class->meta->get_all_attributes) {
        my $name = $attribute->init_arg // next;
        my $kind = $attribute->type_constraint;
        next if !$kind || !exists $given->{$name} || $kind->check($given->{$name});
        AI::MXNet::Base::refuse(EINVAL => "$class: $name is " . ($given->{$name} // 'undef') . ", but must be @{[$kind->name]}");
    }
    return $given;
};

# Rejects parameters that are not attributes, which Mouse would ignore.
sub BUILD {
    my ($self, $given) = @_;
    my %known = map { ($_->init_arg // $_->name) => 1 } $self->meta->get_all_attributes;
    my ($unknown) = grep { !$known{$_} } sort keys %$given;
    AI::MXNet::Base::refuse(EINVAL => ref($self) . " has no parameter '$unknown'; known: @{[grep { !/\A_/ } sort keys %known]}")
        if defined $unknown;
    if (my $scheduler = $self->lr_scheduler) {
        if   (exists $given->{learning_rate}) { $scheduler->base_lr($self->learning_rate) }
        else                                  { $self->learning_rate($scheduler->base_lr) }
    }
    $self->lr($self->learning_rate) unless exists $given->{lr};
    $self->num_update($self->begin_num_update);
    $self->idx2name({ %{ $self->param_idx2name } });
    my %given_mult = (lr => $self->lr_mult, wd => $self->wd_mult);
    $self->set_lr_mult($given_mult{lr});
    $self->set_wd_mult($given_mult{wd});
    return;
}

# ------------------------------------------------------------------ for subclasses of the program to override

sub create_state { return undef }
sub update { my ($self) = @_; AI::MXNet::Base::refuse(ENOSYS => ref($self) . ' has no update') }

# ------------------------------------------------------------------ rates

sub set_lr_mult { my ($self, $mult) = @_; $self->lr_mult({%$mult}); return }

# Among parameters with names, only weights and gammas decay.
sub set_wd_mult {
    my ($self, $mult) = @_;
    my %none = map { $_ => 0 } grep { !/(?:_weight|_gamma)\z/ } values %{ $self->idx2name };
    $self->wd_mult({ %none, %$mult });
    return;
}

sub set_learning_rate {
    my ($self, $rate) = @_;
    AI::MXNet::Base::refuse(ESTATE => 'the lr_scheduler sets the learning rate: it can\'t be set directly') if $self->lr_scheduler;
    $self->learning_rate($rate);
    return;
}

sub _update_count {
    my ($self, $index) = @_;
    my $counts = $self->_index_update_count;
    $counts->{$index} = ($counts->{$index} // $self->begin_num_update) + 1;
    $self->num_update(List::Util::max($counts->{$index}, $self->num_update));
    return $counts->{$index};
}

# A multiplier, found by the parameter's object, its index or its name.
sub _factor {
    my ($self, $which, $index) = @_;
    my $parameter = $self->param_dict->{$index};
    return $parameter->$which if $parameter;
    my $name = $self->idx2name->{$index};
    return $self->$which->{$index} // (defined $name ? $self->$which->{$name} : undef) // 1;
}

sub _rate   { my ($self) = @_; return $self->lr_scheduler ? $self->lr_scheduler->call($self->num_update) : $self->lr }
sub _get_lr { my ($self, $index) = @_; return $self->_rate * $self->_factor(lr_mult => $index) }
sub _get_wd { my ($self, $index) = @_; return $self->wd * $self->_factor(wd_mult => $index) }

# The text from which servers make the optimizer; undef for classes that only this process knows.
sub text { return undef }

sub _settings { my ($self) = @_; return $self->text }

sub get_updater {
    my ($class, $optimizer) = @_;
    require AI::MXNet::Updater;
    return AI::MXNet::Updater->new(optimizer => $optimizer // $class);
}

__PACKAGE__->meta->make_immutable;

require AI::MXNet::Optimizer::Native;
require AI::MXNet::Updater;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Optimizer - updates parameters from gradients

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $adam = mx->optimizer->create('adam', learning_rate => 0.1, wd => 0.01);
    my $sgd  = AI::MXNet::SGD->new(momentum => 0.9, param_idx2name => { 0 => 'fc_weight', 1 => 'fc_bias' });
    print $adam->text, "\n";                                   # mx.adam learning_rate=0.1 ...

    my $kv = mx->kv->create('local');                          # in a store
    $kv->init('w', mx->nd->ones([2]));
    $kv->set_optimizer($adam);
    $kv->push('w', mx->nd->ones([2]));

    my $weight  = mx->nd->ones([2]);                           # updated directly
    my $updater = mx->optimizer->get_updater($sgd);
    $updater->(0, mx->nd->ones([2]), $weight);
    print $weight->aspdl, "\n";                                # [0.99 0.99]

    package Halve;                                             # a class of the program's own
    use Mouse;
    extends 'AI::MXNet::Optimizer';
    sub create_state { undef }
    sub update { my ($self, $index, $weight, $grad, $state) = @_; $weight *= 0.5; $weight -= $self->_get_lr($index) * $grad }
    __PACKAGE__->register;

=head1 DESCRIPTION

MXNet's optimizers, with its names and defaults: SGD, Signum, FTML, LBSGD, DCASGD, NAG, SGLD, Adam, AdaGrad, RMSProp,
AdaDelta, Test, Ftrl, Adamax, Nadam, AdamW, LAMB and Lion, as C<AI::MXNet::SGD> and so on. F<docs/optimizers.md> has
their parameters and formulas. They are sent to servers as text. In this process they make the same steps, by the same C
function. The program's own classes work in this process only: in local stores and updaters, and in a server that runs
Perl.

=head1 ATTRIBUTES

C<learning_rate>, C<lr_scheduler>, C<wd>, C<rescale_grad>, C<clip_gradient>, C<begin_num_update>, C<param_idx2name>
(names of indices; wd is 0 for names that end neither in C<_weight> nor in C<_gamma>), C<lr_mult> and C<wd_mult> (by
index or name), C<num_update>, and those of the class. An unknown attribute is an error.

=head1 METHODS

=head2 create($name, %parameters), create_optimizer, register, get_opt_registry, get_updater($optimizer)

C<create> (or C<create_optimizer>) returns the optimizer of that name, in any case. C<register> makes a class of the
script's own known by the last part of its name. C<get_updater> returns an L<AI::MXNet::Updater> of the optimizer.
C<get_opt_registry> is a reference to a hash of the classes by their names.

=head2 create_state($index, $weight), update($index, $weight, $grad, $state)

C<create_state> returns the state that C<update> needs for a tensor, or undef. C<update> changes the weight and the
state in place, by a gradient of the weight's shape. Classes of the script's own define both.

=head2 set_lr_mult(\%mult), set_wd_mult(\%mult), set_learning_rate($rate), _get_lr($index), _get_wd($index), _update_count($index)

Factors of the rate and of the weight decay by index or name; the rate itself, which is an error with an
C<lr_scheduler>. The methods with an underscore are for classes of the script's own: the rate and the weight decay of a
tensor now, and the count of its updates.

=head2 text

The optimizer as the text that is sent to the servers, F<docs/optimizers.md>; undef for classes of the script's own,
which work only in the script's process.

=head2 SGD, NAG, SGLD, DCASGD, Signum, FTML, LBSGD, Adam, AdamW, Adamax, Nadam, AdaGrad, AdaDelta, RMSProp, Ftrl, LAMB, Lion, Test

The classes below C<AI::MXNet>, as C<< mx->optimizer->SGD(learning_rate => 0.1) >> makes their objects.

=cut
