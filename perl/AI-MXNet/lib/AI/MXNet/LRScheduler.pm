package AI::MXNet::LRScheduler;

# The learning rate as a function of the number of updates. Subclasses define the rate after the warm-up: rate(updates).

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::NS;
use Polyverso::Values ();

has base_lr         => (is => 'rw', isa => 'Num', default => 0.01);
has warmup_steps    => (is => 'ro', isa => 'Int', default => 0);
has warmup_begin_lr => (is => 'ro', isa => 'Num', default => 0);
has warmup_mode     => (is => 'ro', isa => 'Str', default => 'linear');
# The rate at which the warm-up ends, and poly and cosine begin: the initial base_lr.
has warmup_final_lr => (is => 'rw', isa => 'Num', init_arg => undef);

use overload '&{}' => sub { my ($self) = @_; return sub { $self->call(@_) } }, bool => sub { 1 }, fallback => 1;

my %CLASS;

# Makes a class available under its short name: mx->lr_scheduler->FactorScheduler(step => 10).
sub _register {
    my ($class, $text) = @_;
    $CLASS{$class} = $text;
    my ($name) = $class =~ /(\w+)\z/;
    no strict 'refs';
    *{ __PACKAGE__ . "::$name" } = sub { shift; return $class->new(@_) };
    return;
}

sub _wrong { my ($text) = @_; AI::MXNet::Base::refuse(EINVAL => $text) }

sub BUILD {
    my ($self) = @_;
    $self->warmup_final_lr($self->base_lr);
    _wrong('warmup_mode ' . $self->warmup_mode . ': must be linear or constant') if $self->warmup_mode !~ /\A(?:linear|constant)\z/;
    _wrong('warmup_steps ' . $self->warmup_steps . ' is negative') if $self->warmup_steps < 0;
    _wrong('warmup_begin_lr ' . $self->warmup_begin_lr . ' is above base_lr ' . $self->base_lr)
        if $self->warmup_begin_lr > $self->warmup_final_lr;
    return;
}

sub get_warmup_lr {
    my ($self, $updates) = @_;
    my ($from, $to) = ($self->warmup_begin_lr, $self->warmup_final_lr);
    return $self->warmup_mode eq 'constant' ? $from : $from + ($to - $from) * $updates / $self->warmup_steps;
}

sub call {
    my ($self, $updates) = @_;
    return $updates < $self->warmup_steps ? $self->get_warmup_lr($updates) : $self->rate($updates);
}

sub rate { my ($self) = @_; return $self->base_lr }

# The schedule's parameters as part of an optimizer's text; undef for classes that only this process knows.
sub text {
    my ($self) = @_;
    my $name = $CLASS{ ref $self } // return undef;
    my %own = $self->_own;
    my %all = (lr_scheduler => $name, base_lr => $self->warmup_final_lr, %own,
        map { $_ => $self->$_ } qw(warmup_steps warmup_begin_lr warmup_mode));
    return join ' ', map { "$_=" . Polyverso::Values::exact($all{$_}) } sort keys %all;
}

sub _rate_check {
    my ($self) = @_;
    _wrong('factor ' . $self->factor . ': must be 1 or less, so that the rate does not grow') if $self->factor > 1;
    return;
}

__PACKAGE__->meta->make_immutable;

package AI::MXNet::FactorScheduler;

use Mouse;

extends 'AI::MXNet::LRScheduler';

has step           => (is => 'ro', isa => 'Int', required => 1);
has factor         => (is => 'ro', isa => 'Num', default => 1);
has stop_factor_lr => (is => 'ro', isa => 'Num', default => 1e-8);
has count          => (is => 'rw', isa => 'Int', default => 0);

sub BUILD {
    my ($self) = @_;
    AI::MXNet::LRScheduler::_wrong('step ' . $self->step . ': must be at least 1') if $self->step < 1;
    return $self->_rate_check;
}

sub rate {
    my ($self, $updates) = @_;
    while ($updates > $self->count + $self->step) {
        $self->count($self->count + $self->step);
        my $rate = $self->base_lr * $self->factor;
        $self->base_lr($rate < $self->stop_factor_lr ? $self->stop_factor_lr : $rate);
    }
    return $self->base_lr;
}

sub _own { my ($self) = @_; return map { $_ => $self->$_ } qw(step factor stop_factor_lr) }

AI::MXNet::LRScheduler::_register(__PACKAGE__, 'factor');
__PACKAGE__->meta->make_immutable;

package AI::MXNet::MultiFactorScheduler;

use Mouse;

extends 'AI::MXNet::LRScheduler';

has step         => (is => 'ro', isa => 'ArrayRef[Int]', required => 1);
has factor       => (is => 'ro', isa => 'Num', default => 1);
has cur_step_ind => (is => 'rw', isa => 'Int', default => 0);

sub BUILD {
    my ($self) = @_;
    my @step = @{ $self->step };
    my $sorted = @step && $step[0] >= 1 && !grep { $step[$_] <= $step[ $_ - 1 ] } 1 .. $#step;
    AI::MXNet::LRScheduler::_wrong("step [@step]: update numbers must be ascending and at least 1") unless $sorted;
    return $self->_rate_check;
}

sub rate {
    my ($self, $updates) = @_;
    while ($self->cur_step_ind < @{ $self->step } && $updates > $self->step->[$self->cur_step_ind]) {
        $self->cur_step_ind($self->cur_step_ind + 1);
        $self->base_lr($self->base_lr * $self->factor);
    }
    return $self->base_lr;
}

sub _own { my ($self) = @_; return (step => join(':', @{ $self->step }), factor => $self->factor) }

AI::MXNet::LRScheduler::_register(__PACKAGE__, 'multifactor');
__PACKAGE__->meta->make_immutable;

package AI::MXNet::PolyScheduler;

use Mouse;

extends 'AI::MXNet::LRScheduler';

has max_update => (is => 'ro', isa => 'Int', required => 1);
has final_lr   => (is => 'ro', isa => 'Num', default => 0);
has pwr        => (is => 'ro', isa => 'Num', default => 2);

sub BUILD {
    my ($self) = @_;
    AI::MXNet::LRScheduler::_wrong('max_update ' . $self->max_update . ' must be larger than warmup_steps ' . $self->warmup_steps)
        if $self->max_update <= $self->warmup_steps;
    return;
}

# The remaining fraction of the decay, 1 at the start.
sub left { my ($self, $part) = @_; return (1 - $part)**$self->pwr }

sub rate {
    my ($self, $updates) = @_;
    my $part = ($updates - $self->warmup_steps) / ($self->max_update - $self->warmup_steps);
    $part = 1 if $part > 1;
    $self->base_lr($self->final_lr + ($self->warmup_final_lr - $self->final_lr) * $self->left($part));
    return $self->base_lr;
}

sub _own { my ($self) = @_; return map { $_ => $self->$_ } qw(max_update final_lr pwr) }

AI::MXNet::LRScheduler::_register(__PACKAGE__, 'poly');
__PACKAGE__->meta->make_immutable;

package AI::MXNet::CosineScheduler;

use Mouse;

extends 'AI::MXNet::PolyScheduler';

sub left { my ($self, $part) = @_; return (1 + cos(3.14159265358979323846 * $part)) / 2 }
sub _own { my ($self) = @_; return map { $_ => $self->$_ } qw(max_update final_lr) }

AI::MXNet::LRScheduler::_register(__PACKAGE__, 'cosine');
__PACKAGE__->meta->make_immutable;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::LRScheduler - schedules of the learning rate

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $falls = AI::MXNet::FactorScheduler->new(step => 100, factor => 0.9);
    my $steps = AI::MXNet::MultiFactorScheduler->new(step => [100, 200], factor => 0.1, warmup_steps => 10);
    my $poly  = mx->lr_scheduler->PolyScheduler(max_update => 1000, base_lr => 0.1);
    my $wave  = mx->lr_scheduler->CosineScheduler(max_update => 1000, base_lr => 0.1, final_lr => 0.001);
    my $adam  = mx->optimizer->Adam(learning_rate => 0.1, lr_scheduler => $falls);
    printf "%g %g %g\n", $poly->(500), $wave->(500), $falls->(101);      # 0.025 0.0505 0.09

=head1 CLASSES

All classes take C<base_lr> (0.01), C<warmup_steps> (0), C<warmup_begin_lr> (0) and C<warmup_mode> (C<linear> or
C<constant>). An optimizer's C<learning_rate> becomes the C<base_lr> of its scheduler.

=head2 AI::MXNet::FactorScheduler

Multiplies the rate by C<factor> (1) every C<step> updates, down to C<stop_factor_lr> (1e-8).

=head2 AI::MXNet::MultiFactorScheduler

Multiplies the rate by C<factor> (1) after each of the updates in the list C<step>.

=head2 AI::MXNet::PolyScheduler, AI::MXNet::CosineScheduler

Decay to C<final_lr> (0) at C<max_update>; C<pwr> (2) is the exponent of the polynomial.

=head1 METHODS

=head2 call($num_update), $scheduler->($num_update)

Returns the rate. The number of updates must not decrease from call to call.

=head2 rate($num_update), get_warmup_lr($num_update)

What C<call> returns after the warm-up, and during it. Classes of the program's own may override them.

=head2 text

The schedule as part of an optimizer's text, F<docs/optimizers.md>; C<undef> for the program's own classes. Those
override C<call>, and work only if this process executes the optimizer.

=cut
