package Polyverso::DistLearn;

# Strategies of distributed training. Thin classes over mv_sgd_*, mv_ea_* and the like, which do the work.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Handle ();
use Polyverso::Lists ();
use Polyverso::Table ();
use Polyverso::Values ();
use Scalar::Util ();

# Sorts keys as all languages do: numbers before texts, each in ascending order. Perl's keys are all texts; those that
# look like numbers count as numbers.
sub sorted_keys {
    my ($hash) = @_;
    my %is_number = map { $_ => Scalar::Util::looks_like_number($_) && /\d/ ? 1 : 0 } keys %$hash;
    return sort { $is_number{$b} <=> $is_number{$a} || ($is_number{$a} && $a <=> $b) || $a cmp $b } keys %$hash;
}

# The arrays of nested arrays and hashes, each as [the keys of the hashes that it is in, joined by dots, the array].
sub named_leaves {
    my ($values, $name) = @_;
    return map { named_leaves($_, $name) } @$values if ref $values eq 'ARRAY';
    return [$name, $values] unless ref $values eq 'HASH';
    return map { named_leaves($values->{$_}, _name_below($name, $_)) } sorted_keys($values);
}

# An integer adds nothing to the name: in Lua, a list is a table with integers for keys.
sub _name_below {
    my ($name, $key) = @_;
    return $name if $key =~ /\A-?[0-9]+\z/;
    return length $name ? "$name.$key" : $key;
}

# tau and alpha, in this order or as pairs.
sub _elastic {
    my (@given) = @_;
    @given = (tau => $given[0], alpha => $given[1]) if @given == 2 && $given[0] !~ /\A(?:tau|alpha)\z/;
    my %named = %{ Polyverso::Values::options([qw(tau alpha)], @given) };
    return (Polyverso::Values::integer('tau', $named{tau}), Polyverso::Values::number('alpha', $named{alpha}));
}

# Settings as pairs or in a hash, after an optional value of inner_steps.
sub _settings {
    my (@given) = map { ref eq 'HASH' ? %$_ : $_ } @_;
    unshift @given, 'inner_steps' if @given % 2 && Polyverso::Lists::is_number($given[0]);
    return Polyverso::Values::pairs(@given);
}

sub leaves { my ($values) = @_; return map { $_->[1] } named_leaves($values, '') }

package Polyverso::DistLearn::Strategy;
our @ISA = ('Polyverso::Handle');

# Groups and tables may be given as objects or as handles.
sub handle_of { return ref $_[0] ? $_[0]{handle} : $_[0] }

# A strategy of the handle that $open returns. It ends with the node of its group or table.
sub _open {
    my ($class, $upon, $open, @more) = @_;
    my $needed = $open eq 'mv_async_ea_open' ? 'Polyverso::Table' : 'Polyverso::Group';
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, "$class->new: a $needed is needed, not "
            . (Scalar::Util::blessed($upon) ? "a @{[ref $upon]}" : Polyverso::Lists::shown($upon)))
        unless ref $upon ? UNIVERSAL::isa($upon, $needed) : Polyverso::Values::is_integer($upon);
    my $handle = Polyverso::CAPI->can($open)->(handle_of($upon), @more);
    return (bless { handle => $handle, node => ref $upon ? $upon->{node} : undef }, $class)->_adopt;
}

sub has_peers { return 1 }    # which compare the names and shapes of the arrays

sub _label   { return 'the strategy' }
sub _instead { return 'the other process makes its own, of its group' }

sub call {
    my ($self, $function, $values, $how, @more) = @_;
    my $timeout = @$how == 1 ? $how->[0] : Polyverso::Values::options(['timeout'], @$how)->{timeout};
    my @named   = Polyverso::DistLearn::named_leaves($values, '');
    my $arrays  = [map { $_->[1] } @named];
    Polyverso::Values::check_pdls(@$arrays);
    my $options = Polyverso::Table::_options(0, { timeout => $timeout });
    $options = Polyverso::Values::labelled($options, [map { $_->[0] } @named], @$arrays) if $self->has_peers;
    my @result;
    my $went_well = eval { @result = Polyverso::CAPI->can($function)->($self->{handle}, $arrays, @more, $options); 1 };
    return $result[0] if $went_well;
    my $error = $@;
    # A signal handler has died. The call must not continue: its memory may soon be freed.
    Polyverso::CAPI::mv_strategy_cancel($self->{handle}) if !(Scalar::Util::blessed($error) && $error->isa('Polyverso::Error'));
    die $error;
}

# A hash of steps, operations, payload_bytes and dense_bytes.
sub meter {
    my ($self) = @_;
    my %meter;
    @meter{qw(steps operations payload_bytes dense_bytes)} = Polyverso::CAPI::mv_strategy_meter($self->{handle});
    return \%meter;
}

package Polyverso::DistLearn::AllReduceSGD;
our @ISA = ('Polyverso::DistLearn::Strategy');

sub new {
    my ($class, $group) = @_;
    return $class->_open($group, 'mv_sgd_open');
}
sub closes_with { 'mv_sgd_close' }

# Return the number of contributors.
sub sum_gradients               { my ($self, $g, @how) = @_; return $self->call('mv_sgd_sum_gradients',     $g, \@how) }
sub sum_and_normalize_gradients { my ($self, $g, @how) = @_; return $self->call('mv_sgd_sum_and_normalize', $g, \@how) }

sub synchronize_parameters { my ($self, $p, @how) = @_; $self->call('mv_sgd_synchronize', $p, \@how); return }

package Polyverso::DistLearn::AllReduceEA;
our @ISA = ('Polyverso::DistLearn::Strategy');

sub new {
    my ($class, $group, @given) = @_;
    return $class->_open($group, 'mv_ea_open', Polyverso::DistLearn::_elastic(@given));
}
sub closes_with { 'mv_ea_close' }

sub average_parameters     { my ($self, $p, @how) = @_; $self->call('mv_ea_average',                $p, \@how); return }
sub synchronize_center     { my ($self, $p, @how) = @_; $self->call('mv_ea_synchronize_center',     $p, \@how); return }
sub synchronize_parameters { my ($self, $p, @how) = @_; $self->call('mv_ea_synchronize_parameters', $p, \@how); return }

# Copies the centre into the parameters.
sub read_center { my ($self, $p) = @_; Polyverso::CAPI::mv_ea_read_center($self->{handle}, [Polyverso::DistLearn::leaves($p)]); return }

package Polyverso::DistLearn::AsyncEA;
our @ISA = ('Polyverso::DistLearn::Strategy');

sub new {
    my ($class, $table, @given) = @_;
    return $class->_open($table, 'mv_async_ea_open', Polyverso::DistLearn::_elastic(@given));
}
sub closes_with { 'mv_async_ea_close' }
sub has_peers   { return 0 }    # only a table

sub average_parameters { my ($self, $p, @how) = @_; $self->call('mv_async_ea_average', $p, \@how); return }
sub read_center        { my ($self, $p, @how) = @_; $self->call('mv_async_ea_read',    $p, \@how); return }

package Polyverso::DistLearn::LocalSGD;
our @ISA = ('Polyverso::DistLearn::Strategy');

# new($group, inner_steps => 100, outer_rate => 0.7, outer_momentum => 0.9, fragments => 1, overlap => 0, mixing => 0)
sub new {
    my ($class, $group, @given) = @_;
    my $text = Polyverso::Values::with_parameters("$class->new", '', Polyverso::DistLearn::_settings(@given));
    return $class->_open($group, 'mv_local_sgd_open', $text =~ s/\A //r);
}
sub closes_with { 'mv_local_sgd_close' }

sub step                   { my ($self, $p, @how) = @_; $self->call('mv_local_sgd_step',        $p, \@how); return }
sub synchronize_parameters { my ($self, $p, @how) = @_; $self->call('mv_local_sgd_synchronize', $p, \@how); return }

package Polyverso::DistLearn::DiLoCo;
our @ISA = ('Polyverso::DistLearn::LocalSGD');

sub new {
    my ($class, $group, @given) = @_;
    return $class->SUPER::new($group, outer_rate => 0.7, outer_momentum => 0.9, Polyverso::DistLearn::_settings(@given));
}

package Polyverso::DistLearn::CompressedAllReduce;
our @ISA = ('Polyverso::DistLearn::Strategy');

# $how: "int8", "topk ratio=0.01", "powersgd rank=4"
sub new {
    my ($class, $group, $how, @parameters) = @_;
    return $class->_open($group, 'mv_compressed_open', Polyverso::Values::with_parameters("$class->new", $how, @parameters));
}
sub closes_with { 'mv_compressed_close' }

# For each array its number of rows as a matrix, packed; 0 = a vector. A PDL's slowest dimension is its last.
sub rows {
    my ($values) = @_;
    return pack 'q*', map { Scalar::Util::blessed($_) && $_->isa('PDL') && $_->ndims > 1 ? $_->dim(-1) : 0 } Polyverso::DistLearn::leaves($values);
}

sub average_gradients { my ($self, $g, @how) = @_; return $self->call('mv_compressed_average', $g, \@how, rows($g)) }
sub finish            { my ($self, $g, @how) = @_; $self->call('mv_compressed_finish', $g, \@how, rows($g)); return }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::DistLearn - distributed training on the ranks of a group, for any training loop

=head1 SYNOPSIS

    use PDL;
    use Polyverso;
    use Polyverso::DistLearn;
    use Polyverso::Group;

    my $node  = Polyverso->init;
    my $group = Polyverso::Group->open($node);
    my $sgd   = Polyverso::DistLearn::AllReduceSGD->new($group);

    my $params = { weights => ones(2, 3), bias => zeroes(2) };
    $sgd->synchronize_parameters($params);               # all ranks begin with the same values
    for my $batch (1 .. 5) {                             # ranks may have different numbers of batches
        my $grads = { weights => ones(2, 3), bias => ones(2) };
        $sgd->sum_and_normalize_gradients($grads);
        $params->{$_} -= 0.1 * $grads->{$_} for keys %$params;
    }
    $sgd->synchronize_parameters($params);               # waits for the other ranks; all get the same bits
    $sgd->close;
    $group->close;
    $node->shutdown;

=head1 DESCRIPTION

torch-distlearn's AllReduceSGD and AllReduceEA, and strategies that send less. Parameters and gradients are PDLs or
L<tensors|Polyverso::Tensor>, or references to arrays and hashes of them, and are changed in place. Hashes are processed
in the order of their sorted keys, numbers first, in numerical order. The ranks compare the keys and the shapes. A group
is a L<Polyverso::Group>. The calls below take C<< timeout => $seconds >> after their other arguments. F<docs/distlearn.md> has
the details.

=head1 CLASSES

Each also has these methods:

=over

=item meter

A hash of steps, operations, payload_bytes (bytes sent by this rank) and dense_bytes (what full arrays would have
taken).

=item handle

The C<mv_strategy> for the C functions.

=item close

Closes the strategy; so does dropping its last reference.

=back

=head2 Polyverso::DistLearn::AllReduceSGD->new($group)

Data-parallel SGD: one mini-batch divided among the ranks.

=over

=item sum_gradients($gradients), sum_and_normalize_gradients($gradients)

Replaces the gradients by their sum over all ranks, or by this sum divided by the number of contributors. Returns the
number of contributors.

=item synchronize_parameters($parameters)

Waits for ranks that still make steps. Then all ranks get the parameters of the rank that made the most steps; of
several, the lowest.

=back

=head2 Polyverso::DistLearn::AllReduceEA->new($group, tau => $tau, alpha => $alpha)

Elastic averaging; C<< new($group, $tau, $alpha) >> is the same.

=over

=item average_parameters($parameters)

Call it after each step: every C<$tau> steps it moves the parameters towards a common centre, by C<$alpha> times their
difference from it.

=item synchronize_center($parameters), synchronize_parameters($parameters)

Both wait for ranks that still make steps. Then all ranks have the same centre, and after the latter also the lowest
rank's parameters.

=item read_center($parameters)

Copies the centre into the parameters.

=back

=head2 Polyverso::DistLearn::AsyncEA->new($table, tau => $tau, alpha => $alpha)

Elastic averaging with a L<table|Polyverso::Table> as centre, to which each worker synchronizes independently:
C<average_parameters> and C<read_center> as above.

=head2 Polyverso::DistLearn::LocalSGD->new($group, inner_steps => 100, ...), Polyverso::DistLearn::DiLoCo->new(...)

Ranks train by themselves and exchange every C<inner_steps> steps. Further settings are outer_rate and outer_momentum,
whose defaults are 0.7 and 0.9 for DiLoCo, and fragments, overlap and mixing for Streaming DiLoCo. They may be in a
hash, and C<inner_steps> may come first without its name: C<< DiLoCo->new($group, 100, {fragments => 2}) >>.

=over

=item step($parameters)

Call it after each step.

=item synchronize_parameters($parameters)

Call it at the end: waits for ranks that still make steps. Then all ranks have the same bits.

=back

=head2 Polyverso::DistLearn::CompressedAllReduce->new($group, $how)

Averages of gradients that are transferred compressed: C<'int8'>, C<'topk ratio=0.01'>, C<'powersgd rank=4'>, or with
the parameters as pairs: C<< 'topk', ratio => 0.01 >>.

=over

=item average_gradients($gradients)

Replaces the gradients by their mean over the contributors, and returns the number of these.

=item finish($gradients)

Waits for ranks that still make steps, and ignores the gradients' values.

=back

=cut
