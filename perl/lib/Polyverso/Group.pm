package Polyverso::Group;

# Names only: the work is in the C functions.

use strict;
use warnings;

use parent 'Polyverso::Handle';

use Carp ();
use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Table ();
use Polyverso::Tensor ();
use Polyverso::Values ();
use Scalar::Util ();

my %OPERATIONS = (
    sum  => $Polyverso::CAPI::MV_REDUCE_SUM,
    prod => $Polyverso::CAPI::MV_REDUCE_PROD,
    min  => $Polyverso::CAPI::MV_REDUCE_MIN,
    max  => $Polyverso::CAPI::MV_REDUCE_MAX,
    avg  => $Polyverso::CAPI::MV_REDUCE_AVG,
);

my %NAMES = reverse %OPERATIONS;

sub operation {
    my ($named) = @_;
    my $op = $named->{op} // 'sum';
    return $OPERATIONS{$op} // Carp::croak("op is $op: expected one of " . join ', ', sort keys %OPERATIONS);
}

# The options of a call that takes @known and timeout: a misspelt one must not pass for none.
sub options {
    my ($named, @known) = @_;
    Polyverso::Table::_check($named, { map { $_ => 1 } timeout => @known });
    return Polyverso::Table::_options(0, $named);
}

sub from_handle {
    my ($class, $handle) = @_;
    my $self = bless { handle => $handle }, $class;
    @$self{qw(rank size)} = @{ $self->info }{qw(rank ranks)};
    return $self;
}

# open($node, $worker, ...): these workers, or all.
sub open {
    my ($class, $node, @workers) = @_;
    return $class->from_handle(Polyverso::CAPI::mv_group_open($node ? $node->handle : 0, @workers ? pack('q*', @workers) : undef));
}

# The workers of this machine.
sub of_host { my ($class, $node) = @_; return $class->from_handle(Polyverso::CAPI::mv_group_open_host($node ? $node->handle : 0)) }

sub rank   { $_[0]{rank} }
sub size   { $_[0]{size} }

# A hash of rank, ranks, hosts, transport, bytes_sent, bytes_received, operations, and what broke the group, if anything did.
sub info { return Polyverso::CAPI::mv_group_describe($_[0]{handle}) }

sub members {
    my ($self) = @_;
    my $ids = "\0" x (8 * $self->{size});
    Polyverso::CAPI::mv_group_members($self->{handle}, $ids);
    return unpack 'q*', $ids;
}

# array = all ranks' reduced, with the same bits on all.
sub allreduce {
    my ($self, $array, %named) = @_;
    Polyverso::CAPI::mv_allreduce($self->{handle}, $array, operation(\%named), options(\%named, 'op'));
    return $array;
}

# Several arrays in one operation; how many ranks contributed. A draining rank only takes part.
sub allreduce_many {
    my ($self, $arrays, %named) = @_;
    my $flags = $named{draining} ? $Polyverso::CAPI::MV_DRAINING : 0;
    return Polyverso::CAPI::mv_allreduce_many($self->{handle}, $arrays, operation(\%named), $flags, options(\%named, 'op', 'draining'));
}

sub _is_array { my ($value) = @_; return Scalar::Util::blessed($value) && ($value->isa('PDL') || $value->isa('Polyverso::Tensor')) }

sub _check_arrays {
    for my $value (@_) {
        Polyverso::Error->throw($Polyverso::CAPI::MV_EDTYPE, 'a PDL or a tensor is needed, not ' . ($value // 'undef')) unless _is_array($value);
    }
    return;
}

sub _assign {
    my ($to, $from) = @_;
    if   (Polyverso::Values::is_pdl($to)) { $to .= $from }
    else                                  { $to->assign($from) }
    return;
}

# One step: the function may change mine, put others into their list, or return what is to be in their place.
sub _reduce {
    my ($function, $is_list, $mine, $theirs) = @_;
    my @made   = @$mine;
    my $result = $is_list ? $function->(\@made, [@$theirs]) : $function->($made[0], $theirs->[0]);
    @made = @$result  if $is_list  && ref $result eq 'ARRAY';
    @made = ($result) if !$is_list && _is_array($result);
    Carp::croak(@made . ' values for ' . @$mine) if @made != @$mine;
    _assign($mine->[$_], $made[$_]) for 0 .. $#made;
    return 1;
}

# All steps, by hand, for C can't call what may die.
sub _reduce_all {
    my ($custom, $function, $is_list, $mine, $theirs) = @_;
    while (Polyverso::CAPI::mv_custom_next($custom, $theirs)) {
        if (!eval { _reduce($function, $is_list, $mine, $theirs) }) {
            my $failure = $@;
            # The operation fails: waited for, so that it is not withdrawn.
            eval { Polyverso::CAPI::mv_custom_done($custom, $Polyverso::CAPI::MV_ECANCELED); Polyverso::CAPI::mv_custom_next($custom, $theirs) };
            die $failure;
        }
        Polyverso::CAPI::mv_custom_done($custom, $Polyverso::CAPI::MV_OK);
    }
    return 1;
}

# All ranks' values, reduced two by two by a function; how many ranks contributed.
sub allreduce_custom {
    my ($self, $values, $function, %named) = @_;
    my $is_list = ref $values eq 'ARRAY';
    my @given   = $is_list ? @$values : $values;
    _check_arrays(@given);
    my @mine   = map { $_->copy } @given;    # of a slice the function and C would see different memory
    my @theirs = map { $_->copy } @mine;
    my $flags  = $named{draining} ? $Polyverso::CAPI::MV_DRAINING : 0;
    my $custom = Polyverso::CAPI::mv_custom_begin($self->{handle}, \@mine, $flags, options(\%named, 'draining'));
    if (!eval { _reduce_all($custom, $function, $is_list, \@mine, \@theirs) }) {
        my $failure = $@;
        eval { Polyverso::CAPI::mv_custom_end($custom) };
        die $failure;
    }
    my $contributors = Polyverso::CAPI::mv_custom_end($custom);
    _assign($given[$_], $mine[$_]) for 0 .. $#given;
    return $contributors;
}

# What the others reduce next; nothing if all are through.
sub drain {
    my ($self, %named) = @_;
    my $next = Polyverso::CAPI::mv_allreduce_drain($self->{handle}, options(\%named));
    return if $next->{finished};
    my @arrays = map { { count => $_->{count}, dtype => Polyverso::Tensor::_name($_->{dtype}) } } @{ $next->{arrays} };
    return { op => $NAMES{ $next->{reduction} }, arrays => \@arrays };
}

# Takes part in the others' all-reduces, with zeros, until all ranks have come here.
sub allreduce_zeros { my ($self, %named) = @_; Polyverso::CAPI::mv_allreduce_zeros($self->{handle}, options(\%named)); return }

# As allreduce, but only the root has the result.
sub reduce {
    my ($self, $array, %named) = @_;
    Polyverso::CAPI::mv_reduce($self->{handle}, $array, operation(\%named), $named{root} // 0, options(\%named, 'op', 'root'));
    return $array;
}

# array = the root's, on all ranks.
sub broadcast {
    my ($self, $array, %named) = @_;
    Polyverso::CAPI::mv_broadcast($self->{handle}, $array, $named{root} // 0, options(\%named, 'root'));
    return $array;
}

sub broadcast_many {
    my ($self, $arrays, %named) = @_;
    Polyverso::CAPI::mv_broadcast_many($self->{handle}, $arrays, $named{root} // 0, options(\%named, 'root'));
    return;
}

# All ranks' arrays, with a dimension more: PDL's last, a tensor's first.
sub allgather {
    my ($self, $array, %named) = @_;
    my ($rank, $size) = @$self{qw(rank size)};
    _check_arrays($array);
    my $all;
    if (Polyverso::Values::is_pdl($array)) { $all = $array->dummy($array->ndims, $size)->copy }
    else {
        $all = Polyverso::Tensor->zeros([$size, @{ $array->shape }], $array->dtype);
        $all->slice($rank, $rank + 1)->assign($array->reshape([1, @{ $array->shape }]));
    }
    Polyverso::CAPI::mv_allgather($self->{handle}, $all, options(\%named));
    return $all;
}

# As allreduce, but each rank has only its own part of the result; returns it, of the array.
sub reduce_scatter {
    my ($self, $array, %named) = @_;
    my ($rank, $size) = @$self{qw(rank size)};
    _check_arrays($array);
    my $is_pdl = Polyverso::Values::is_pdl($array);
    my $rows   = $is_pdl ? $array->dim(-1) : $array->shape->[0];
    Carp::croak("$rows rows can't be as many for each of $size ranks") if $rows % $size;
    my ($first, $after) = map { $_ * $rows / $size } $rank, $rank + 1;
    Polyverso::CAPI::mv_reduce_scatter($self->{handle}, $array, operation(\%named), options(\%named, 'op'));
    return $array->slice($first, $after) unless $is_pdl;
    return $array->slice(join ',', (':') x ($array->ndims - 1), "$first:" . ($after - 1));
}

sub barrier { my ($self, %named) = @_; Polyverso::CAPI::mv_group_barrier($self->{handle}, options(\%named)); return }

# After a rank was lost: a group of the survivors, who all call this.
sub shrink { my ($self, %named) = @_; return ref($self)->from_handle(Polyverso::CAPI::mv_group_shrink($self->{handle}, options(\%named))) }

sub closes_with { 'mv_group_close' }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Group - workers that reduce arrays together

=head1 SYNOPSIS

    use PDL;
    use Polyverso;
    use Polyverso::Group;

    my $node  = Polyverso->init;
    my $group = Polyverso::Group->open($node);           # all workers

    my ($gradient, $loss) = (sequence(3), pdl(0.5));
    $group->allreduce($gradient);                        # its sum over all ranks, in place
    $group->allreduce($loss, op => 'avg');
    $group->broadcast($gradient, root => 0);
    my $losses = $group->allgather($loss);               # one of each rank

    my $best = pdl(0.25, 7);                             # whoever has the greater first number keeps both
    my $contributors = $group->allreduce_custom($best, sub { my ($mine, $theirs) = @_; $theirs->at(0) > $mine->at(0) ? $theirs : $mine });

    while (my $next = $group->drain) {                   # this rank is through: takes part until all are
        my @nothing = map { Polyverso::Tensor->zeros($_->{count}, $_->{dtype}) } @{ $next->{arrays} };
        $group->allreduce_many(\@nothing, op => $next->{op}, draining => 1);
    }
    $group->close;
    $node->shutdown;

=head1 DESCRIPTION

Arrays are PDLs or L<tensors|Polyverso::Tensor>, and are changed in place. All ranks make the same calls in the same order. Every call takes
C<< timeout => $seconds >>. F<docs/groups.md> tells more.

=head1 METHODS

=head2 open($node, @workers), of_host($node)

A group of these workers, by their ids, of all, or of those of this machine. All of them open it together.

=head2 rank, size, members, info, handle

This process's rank, how many there are, the worker ids of all ranks. C<info> is a hash of rank, ranks, hosts, transport, bytes_sent, bytes_received,
operations, and what broke the group, if anything did.

=head2 allreduce($array, op => 'sum' | 'prod' | 'min' | 'max' | 'avg')

The array becomes all ranks' reduced, with the same bits on all. Returns it.

=head2 allreduce_many(\@arrays, op => ..., draining => 1)

Several arrays in one operation; returns how many ranks contributed. A draining rank only takes part.

=head2 allreduce_custom($values, $function, draining => 1)

The values, a PDL, a tensor, or a reference to an array of them, become all ranks', reduced two by two: C<< $function->($mine, $theirs) >> changes
mine in place, or returns the PDL, tensor or list that is to be in its place; of several values it gets and returns references to arrays. Anything else that
it returns is no value. Returns how many ranks contributed. Where the function dies the operation fails on all ranks.

=head2 reduce($array, op => ..., root => 0), broadcast($array, root => 0), broadcast_many(\@arrays, root => 0)

C<reduce> leaves the result with the root only. After C<broadcast> all have what the root has. They return the array.

=head2 allgather($array)

All ranks' arrays, which have the same shape, in the order of ranks: a new PDL with one dimension more, its last; of a tensor it is the first.

=head2 reduce_scatter($array, op => ...)

As C<allreduce>, but each rank has only its own part of the result, of as many rows for each: what it returns is that part of the array, whose rest
stays what it is. Rows are PDL's last dimension, a tensor's first.

=head2 drain

For a rank that is through: waits for what the others reduce next, in which this one is to take part with C<< draining => 1 >>. A hash of C<op>, which
is undef where they reduce by a function of their own, and C<arrays>, each with C<count> and C<dtype>; nothing if all are through.

=head2 allreduce_zeros

Takes part in the others' all-reduces, with zeros, until all ranks have come here.

=head2 barrier

Returns when all ranks have called it.

=head2 shrink

After a rank was lost: a group of the survivors, who all call this.

=head2 close

Gives the group back; so does its last reference.

=cut
