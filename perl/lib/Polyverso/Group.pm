package Polyverso::Group;

# Workers that reduce arrays together. Thin methods over mv_group_* and mv_allreduce*, which do the work.

use strict;
use warnings;

use parent 'Polyverso::Handle';

use Polyverso::CAPI ();
use Polyverso::Callback ();
use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Node ();
use Polyverso::Request ();
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
    return $OPERATIONS{$op} // Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL,
        qq{unknown op "$op"; known: } . CORE::join ', ', sort keys %OPERATIONS);
}

# Options with the label of unnamed arrays, whose shapes the ranks compare.
sub _of_arrays { my ($options, @arrays) = @_; return Polyverso::Values::labelled($options, [], @arrays) }

# The options of a call that takes @known and timeout. A misspelt name is an error, not ignored.
sub options {
    my ($named, @known) = @_;
    Polyverso::Values::check_options($named, { map { $_ => 1 } timeout => @known });
    return Polyverso::Table::_options($named->{async} ? $Polyverso::CAPI::MV_ASYNC : 0, $named);
}

# The same for a call that also takes async.
sub _async_options { my ($named, @known) = @_; return options($named, async => @known) }

# The result of a call: $result->(), or the request whose result it is. $made is what the C function has returned.
sub _finished {
    my ($named, $made, $result) = @_;
    return $named->{async} ? Polyverso::Request->_new($made, $result) : $result->();
}

sub from_handle {
    my ($class, $handle, $node) = @_;
    my $self = bless { handle => $handle, node => $node }, $class;
    @$self{qw(rank size transport)} = @{ $self->info }{qw(rank ranks transport)};
    return $self->_adopt;
}

sub _instead { return 'the other process opens the group itself' }
sub _details { my ($self) = @_; return "rank $self->{rank} of $self->{size}, $self->{transport}" }


# open($node, $worker, ...): a group of these workers; without ids, of all workers.
sub open {
    my ($class, $node, @workers) = @_;
    @workers = @{ $workers[0] } if @workers == 1 && ref $workers[0] eq 'ARRAY';
    my $number = Polyverso::Node::_number($node);
    return $class->from_handle(Polyverso::CAPI::mv_group_open($number, @workers ? Polyverso::Values::rows(\@workers) : undef), $number);
}

# A group of the workers on this machine.
sub of_host {
    my ($class, $node) = @_;
    my $number = Polyverso::Node::_number($node);
    return $class->from_handle(Polyverso::CAPI::mv_group_open_host($number), $number);
}

# join($node, name => ..., timeout => ...): joins the group of other workers when they call grow by this name.
sub join {
    my ($class, $node, @named) = @_;
    my %named  = Polyverso::Values::pairs(@named);
    my $number = Polyverso::Node::_number($node);
    return $class->from_handle(Polyverso::CAPI::mv_group_join($number, $named{name} // '', options(\%named, 'name')), $number);
}

sub rank   { $_[0]{rank} }
sub size   { $_[0]{size} }

# A hash of rank, ranks, hosts, transport, bytes_sent, bytes_received, operations, and the reason if the group is
# broken.
sub info { return Polyverso::CAPI::mv_group_describe($_[0]{handle}) }

sub members {
    my ($self) = @_;
    my $ids = "\0" x (8 * $self->{size});
    Polyverso::CAPI::mv_group_members($self->{handle}, $ids);
    return unpack 'q*', $ids;
}

# array = the reduction of all ranks' arrays, the same bits on every rank.
sub allreduce {
    my ($self, undef, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_packed($_[1]) unless defined $named{dtype};
    return _in_place(\%named,
        sub { Polyverso::CAPI::mv_allreduce($self->{handle}, $_[0], operation(\%named), _of_arrays(_async_options(\%named, 'op'), $_[0])) }, $_[1]);
}

# Reduces several arrays in one operation; returns the number of contributors. A draining rank takes part without
# contributing.
sub allreduce_many {
    my ($self, $arrays, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my $flags = $named{draining} ? $Polyverso::CAPI::MV_DRAINING : 0;
    _check_list($arrays);
    my $options = _of_arrays(_async_options(\%named, 'op', 'draining'), ref $arrays eq 'ARRAY' && !$flags ? @$arrays : ());
    my $made = Polyverso::CAPI::mv_allreduce_many($self->{handle}, $arrays, operation(\%named), $flags, $options);
    return _finished(\%named, $made, sub { $named{async} ? $arrays : $made });
}

sub _is_array { my ($value) = @_; return Scalar::Util::blessed($value) && ($value->isa('PDL') || $value->isa('Polyverso::Tensor')) }

sub _check_arrays {
    Polyverso::Values::check_pdls(@_);
    for my $value (@_) {
        next if _is_array($value);
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_EDTYPE,
            'a PDL or a tensor is needed, not ' . (!ref $value && defined $value ? $value : Polyverso::Lists::shown($value)));
    }
    return;
}

# A reference to an array of arrays, which may also be packed bytes.
sub _check_list {
    my ($arrays) = @_;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL,
        'a reference to an array of PDLs or tensors is needed, not ' . Polyverso::Lists::shown($arrays)) if ref $arrays ne 'ARRAY';
    _check_arrays(grep { ref || !defined } @$arrays);
    return;
}

# Only a string with a dtype holds numbers.
sub _check_packed {
    my ($array) = @_;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EDTYPE, q{bytes can't be reduced: pass the dtype of a packed string, such as dtype => 'f32'})
        if defined $array && !ref $array;
    return;
}

sub _root { my ($named) = @_; return Polyverso::Values::integer('root', $named->{root} // 0) }

# Calls $code with an array that C can use in place: a PDL or a tensor, or a tensor with the numbers of a packed string,
# which then receives the result. Without a dtype a string is bytes, which can be broadcast but not reduced. Returns the
# array, or a request of it.
sub _in_place {
    my ($named, $code) = @_;    # and the array, not copied
    my $place = \$_[2];
    my $dtype = delete $named->{dtype};
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'dtype is for packed strings: a PDL and a tensor have their own')
        if defined $dtype && ref $$place;
    if (!ref $$place && defined $$place && defined $dtype) {
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'the result needs a variable in place of a constant') if Scalar::Util::readonly($$place);
        my $size = Polyverso::Values::bytes(Polyverso::Values::dtype($dtype), 1);
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_ESHAPE, 'a string of ' . length($$place) . " bytes is not a whole number of $dtype values")
            if length($$place) % $size;
        my $tensor = Polyverso::Tensor->_of_packed($$place, [length($$place) / $size], $dtype);
        my $made   = $code->($tensor);
        return _finished($named, $made, sub { return $$place = $tensor->_packed });
    }
    _check_arrays($$place) if ref $$place || !defined $$place;
    my $made = $code->($$place);
    return _finished($named, $made, sub { return $$place });
}

sub _assign {
    my ($to, $from) = @_;
    if   (Polyverso::Values::is_pdl($to)) { $to .= $from }
    else                                  { $to->assign($from) }
    return;
}

sub _is_equal { my ($one, $other) = @_; return Polyverso::Values::is_pdl($one) ? !PDL::any($one != $other) : $one->equal($other) }

# One step of a custom reduction: mine = function(mine, theirs). The function may change the arrays of `mine` in place,
# replace elements of the list, or return replacements. Perl also returns the value of the last statement: what is no
# array is an error only if the function has not changed anything. The first step shows that.
sub _reduce {
    my ($function, $is_list, $mine, $theirs, $is_first) = @_;
    my @made   = @$mine;
    my @before = $is_first ? map { $_->copy } @$mine : ();
    my $result = $is_list ? $function->(\@made, [@$theirs]) : $function->($made[0], $theirs->[0]);
    if    ($is_list  && ref $result eq 'ARRAY') { @made = @$result }
    elsif (!$is_list && _is_array($result))     { @made = ($result) }
    elsif (@before && defined $result && length $result && !grep { !_is_equal($made[$_], $before[$_]) } 0 .. $#before) {
        Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, '$group->allreduce_custom: the function returned '
            . Polyverso::Lists::shown($result) . ' and changed nothing: it must return ' . ($is_list ? 'a list of arrays' : 'a PDL or a tensor')
            . ', or change its first argument in place');
    }
    Polyverso::Error->throw($Polyverso::CAPI::MV_ESHAPE,
        '$group->allreduce_custom: the function returned ' . @made . ' values, needed ' . @$mine) if @made != @$mine;
    _assign($mine->[$_], $made[$_]) for 0 .. $#made;
    return 1;
}

# The array itself, or a copy on the host of one on a device.
sub _on_host { my ($array) = @_; return Polyverso::Values::is_pdl($array) || $array->device eq 'cpu' ? $array : $array->to('cpu') }

# Copies between devices and the host, unless place and value are the same array.
sub _copy_to {
    my ($places, $values) = @_;
    Scalar::Util::refaddr($places->[$_]) == Scalar::Util::refaddr($values->[$_]) or _assign($places->[$_], $values->[$_]) for 0 .. $#$places;
    return;
}

# All steps of a custom reduction, manually, because C must not call a function that may die. The group sends $sent and
# writes $received, which are copies on the host of arrays that are on devices.
sub _reduce_all {
    my ($custom, $function, $is_list, $mine, $theirs, $sent, $received) = @_;
    for (my $step = 0; Polyverso::CAPI::mv_custom_next($custom, $received); $step++) {
        my $reduce = sub {
            _copy_to($theirs, $received);
            _reduce($function, $is_list, $mine, $theirs, $step == 0);
            _copy_to($sent, $mine);
        };
        if (!Polyverso::Callback::run('$group->allreduce_custom: the function', $reduce)) {
            my $failure = $@;
            Polyverso::Error::_report($failure);
            # Fails the operation and waits for its end: before the end, mv_custom_end() would withdraw it.
            eval { Polyverso::CAPI::mv_custom_done($custom, $Polyverso::CAPI::MV_ECANCELED); Polyverso::CAPI::mv_custom_next($custom, $received) };
            die $failure;
        }
        Polyverso::CAPI::mv_custom_done($custom, $Polyverso::CAPI::MV_OK);
    }
    return 1;
}

# Reduces all ranks' values pairwise by a function; returns the number of contributors.
sub allreduce_custom {
    my ($self, $values, $function, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'a code reference is needed, not ' . Polyverso::Lists::shown($function))
        unless Polyverso::Values::is_code($function);
    my $is_list = ref $values eq 'ARRAY';
    my @given   = $is_list ? @$values : $values;
    _check_arrays(@given);
    my @mine   = map { $_->copy } @given;    # for a slice, the function and C would see different memory
    my @theirs = map { $_->copy } @mine;
    my @sent   = map { _on_host($_) } @mine;
    my @received = map { _on_host($_) } @theirs;
    my $flags  = $named{draining} ? $Polyverso::CAPI::MV_DRAINING : 0;
    my $options = _of_arrays(options(\%named, 'draining'), $flags ? () : @mine);
    my $custom  = Polyverso::CAPI::mv_custom_begin($self->{handle}, \@sent, $flags, $options);
    my $end     = Polyverso::Callback->at_end(sub { Polyverso::CAPI::mv_custom_end($custom) });
    if (!eval { _reduce_all($custom, $function, $is_list, \@mine, \@theirs, \@sent, \@received) }) {
        my $failure = $@;
        eval { $end->now };
        die $failure;
    }
    my $contributors = $end->now;
    _assign($given[$_], $sent[$_]) for 0 .. $#given;
    return $contributors;
}

# Waits for the next operation of the other ranks and describes it; nothing if all ranks drain.
sub drain {
    my ($self, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my $next = Polyverso::CAPI::mv_allreduce_drain($self->{handle}, options(\%named));
    return if $next->{finished};
    my @arrays = map { { count => $_->{count}, dtype => Polyverso::Tensor::_name($_->{dtype}) } } @{ $next->{arrays} };
    return { op => $NAMES{ $next->{reduction} }, arrays => \@arrays };
}

# Takes part in the other ranks' all-reduces, with zeros, until all ranks have called it.
sub allreduce_zeros {
    my ($self, @named) = @_;
    Polyverso::CAPI::mv_allreduce_zeros($self->{handle}, options({ Polyverso::Values::pairs(@named) }));
    return;
}

# Like allreduce, but only the root gets the result.
sub reduce {
    my ($self, undef, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_packed($_[1]) unless defined $named{dtype};
    my $root = _root(\%named);
    return _in_place(\%named, sub {
        Polyverso::CAPI::mv_reduce($self->{handle}, $_[0], operation(\%named), $root, _of_arrays(_async_options(\%named, 'op', 'root'), $_[0]));
    }, $_[1]);
}

# array = the root's array, on all ranks.
sub broadcast {
    my ($self, undef, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my $root = _root(\%named);
    return _in_place(\%named,
        sub { Polyverso::CAPI::mv_broadcast($self->{handle}, $_[0], $root, _of_arrays(_async_options(\%named, 'root'), $_[0])) }, $_[1]);
}

sub broadcast_many {
    my ($self, $arrays, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_list($arrays);
    my $made = Polyverso::CAPI::mv_broadcast_many($self->{handle}, $arrays, _root(\%named),
        _of_arrays(_async_options(\%named, 'root'), @$arrays));
    return _finished(\%named, $made, sub { return $named{async} ? $arrays : () });
}

# An array for those of all ranks, with this rank's own in its place.
sub _with_own {
    my ($self, $array) = @_;
    my ($rank, $size) = @$self{qw(rank size)};
    return $array->dummy($array->ndims, $size)->copy if Polyverso::Values::is_pdl($array);
    my $all = Polyverso::Tensor->zeros([$size, @{ $array->shape }], $array->dtype, $array->device);
    $all->slice($rank, $rank + 1)->assign($array->reshape([1, @{ $array->shape }]));
    return $all;
}

# All ranks' arrays in one array with an additional dimension: a PDL's last, a tensor's first.
sub allgather {
    my ($self, $array, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_arrays($array);
    my $all  = $self->_with_own($array);
    my $made = Polyverso::CAPI::mv_allgather($self->{handle}, $all, _of_arrays(_async_options(\%named), $array));
    return _finished(\%named, $made, sub { return $all });
}

# Like allgather, but only the root gets the result.
sub gather {
    my ($self, $array, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my $root = _root(\%named);
    _check_arrays($array);
    my $options = _of_arrays(_async_options(\%named, 'root'), $array);
    my $is_root = $self->{rank} == $root;
    my $all     = $is_root ? $self->_with_own($array) : $array;
    my $made    = Polyverso::CAPI::mv_gather($self->{handle}, $all, $root, $options);
    return _finished(\%named, $made, sub { return $is_root ? $all : () });
}

# The rows from $first to before $after: a PDL's last dimension, a tensor's first.
sub _rows {
    my ($array, $first, $after) = @_;
    return $array->slice($first, $after) unless Polyverso::Values::is_pdl($array);
    return $array->slice(CORE::join ',', (':') x ($array->ndims - 1), "$first:" . ($after - 1));
}

sub _row_count { my ($array) = @_; return Polyverso::Values::is_pdl($array) ? $array->dim(-1) : $array->shape->[0] }
sub _elements  { my ($array) = @_; return Polyverso::Values::is_pdl($array) ? $array->nelem : $array->count }

# A part in the form of $array, of as many elements: a PDL or a tensor.
sub _like {
    my ($part, $array) = @_;
    my $is_pdl = Polyverso::Values::is_pdl($part);
    return ($is_pdl ? $part : _on_host($part)->pdl)->reshape($array->dims) if Polyverso::Values::is_pdl($array);
    return ($is_pdl ? Polyverso::Tensor->copy_of($part) : $part)->reshape($array->shape);
}

# array = this rank's part of the root's $parts.
sub scatter {
    my ($self, $array, $parts, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my ($rank, $size) = @$self{qw(rank size)};
    my $root = _root(\%named);
    _check_arrays($array);
    my $options = _of_arrays(_async_options(\%named, 'root'), $array);
    if ($rank == $root) {
        _check_arrays($parts);
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_ESHAPE,
            'parts has ' . _elements($parts) . " elements: $size rows of " . _elements($array) . ' elements are needed')
            if _row_count($parts) != $size || _elements($parts) != $size * _elements($array);
        my $own = _rows($parts, $rank, $rank + 1);
        _assign($array, _like($own, $array));
    }
    my $made = Polyverso::CAPI::mv_scatter($self->{handle}, $rank == $root ? $parts : $array, $root, $options);
    return _finished(\%named, $made, sub { return $array });
}

# Every rank sends some rows of its array to every rank, and receives theirs. Returns a new array.
sub alltoall {
    my ($self, $array, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_arrays($array);
    my $options = _async_options(\%named, qw(send_rows receive_rows));
    my ($sends, $receives) = @named{qw(send_rows receive_rows)};
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'send_rows and receive_rows are needed both, or none of them')
        if !defined $sends != !defined $receives;
    my $is_pdl = Polyverso::Values::is_pdl($array);
    my $rows   = _row_count($array);
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_ESHAPE, 'an array with rows is needed, not a single value') unless defined $rows;
    my $result_rows = $rows;
    if ($receives) { $result_rows = 0; $result_rows += $_ for @$receives }
    my $result = $is_pdl
        ? PDL->zeroes($array->type, ($array->dims)[0 .. $array->ndims - 2], $result_rows)
        : Polyverso::Tensor->zeros([$result_rows, @{ $array->shape }[1 .. $#{ $array->shape }]], $array->dtype, $array->device);
    my $made;
    if ($sends) {
        my $each   = $rows ? _elements($array) / $rows : 0;
        my @counts = map { Polyverso::Tensor->copy_of([map { $_ * $each } @$_], 'i64') } $sends, $receives;
        $made = Polyverso::CAPI::mv_alltoall_counts($self->{handle}, [$array, $counts[0], $result, $counts[1]],
            $rows ? _of_arrays($options, _rows($array, 0, 1)) : $options);
    }
    else { $made = Polyverso::CAPI::mv_alltoall($self->{handle}, [$array, $result], _of_arrays($options, $array)) }
    return _finished(\%named, $made, sub { return $result });
}

# Sends the array to rank $to, which calls recv with the same tag.
sub send {
    my ($self, $array, $to, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_arrays($array);
    my $options = _of_arrays(_async_options(\%named, 'tag'), $array);
    my $made = Polyverso::CAPI::mv_send($self->{handle}, $array, $to, $named{tag} // 0, $options);
    return _finished(\%named, $made, sub { return });
}

# array = the next one that rank $source (undef: any rank) has sent with this tag. Returns the sender's rank.
sub recv {
    my ($self, $array, $source, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    _check_arrays($array);
    my $options = _of_arrays(_async_options(\%named, 'tag'), $array);
    my $sender = Polyverso::Tensor->zeros([1], 'i64');
    my $made = Polyverso::CAPI::mv_recv($self->{handle}, $array, $source // $Polyverso::CAPI::MV_ANY_RANK, $named{tag} // 0, $sender, $options);
    return _finished(\%named, $made, sub { return $sender->item });
}

# Like allreduce, but each rank gets only its own part of the result; returns that part of the array.
sub reduce_scatter {
    my ($self, $array, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my ($rank, $size) = @$self{qw(rank size)};
    _check_arrays($array);
    my $rows = _row_count($array);
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_ESHAPE, "$rows rows can't be divided evenly among $size ranks") if $rows % $size;
    my ($first, $after) = map { $_ * $rows / $size } $rank, $rank + 1;
    my $made = Polyverso::CAPI::mv_reduce_scatter($self->{handle}, $array, operation(\%named), _of_arrays(_async_options(\%named, 'op'), $array));
    return _finished(\%named, $made, sub { return _rows($array, $first, $after) });
}

sub barrier {
    my ($self, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my $made = Polyverso::CAPI::mv_group_barrier($self->{handle}, _async_options(\%named));
    return _finished(\%named, $made, sub { return });
}

# After the loss of a rank: makes a new group of the survivors, all of which call this.
sub shrink {
    my ($self, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    return ref($self)->from_handle(Polyverso::CAPI::mv_group_shrink($self->{handle}, options(\%named)), $self->{node});
}

# Makes a new group of the ranks that are not lost and of workers that join by the name, of at least so many ranks.
# Returns nothing if this group continues.
sub grow {
    my ($self, @named) = @_;
    my %named = Polyverso::Values::pairs(@named);
    my $grown = Polyverso::CAPI::mv_group_grow($self->{handle}, $named{name} // '', $named{ranks} // 0, options(\%named, qw(name ranks)));
    return $grown ? ref($self)->from_handle($grown, $self->{node}) : undef;
}

# Closes the group because this rank has failed.
sub abort {
    my ($self, $reason) = @_;
    return if $self->_state;
    $self->_has_ended('closed');
    Polyverso::CAPI::mv_group_abort($self->{handle}, defined $reason ? "$reason" =~ s/\s+\z//r : undef);
    return;
}

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
    $group->allreduce($gradient);                        # the sum over all ranks, in place
    $group->allreduce($loss, op => 'avg');
    $group->broadcast($gradient, root => 0);
    my $losses = $group->allgather($loss);               # one from each rank

    my $best = pdl(0.25, 7);                             # all ranks get the pair with the greatest first number
    my $contributors = $group->allreduce_custom($best, sub { my ($mine, $theirs) = @_; $theirs->at(0) > $mine->at(0) ? $theirs : $mine });

    while (my $next = $group->drain) {                   # this rank has run out of data: takes part until all drain
        my @nothing = map { Polyverso::Tensor->zeros($_->{count}, $_->{dtype}) } @{ $next->{arrays} };
        $group->allreduce_many(\@nothing, op => $next->{op}, draining => 1);
    }
    $group->close;
    $node->shutdown;

=head1 DESCRIPTION

Arrays are PDLs or L<tensors|Polyverso::Tensor>, and are changed in place. C<allreduce>, C<reduce> and C<broadcast> also
take a packed string with its dtype: C<< $group->allreduce($packed, dtype => 'f32') >>. PDLs of ushort are refused: C<<
Polyverso::Tensor->view($pdl) >> makes one an array of bf16. All ranks make the same calls in the same order; only
C<send> and C<recv> are between two ranks. Arrays of several dimensions must have the same ones on all ranks, otherwise
the operation fails on all of them; C<reduce>, C<broadcast>, C<gather> and C<scatter> compare only the numbers of
elements. Every call takes C<< timeout => $seconds >>. F<docs/groups.md> has the details.

With C<< async => 1 >> an operation returns a L<Polyverso::Request> at once. The C<wait> of the request returns the
operation's result; for C<allreduce_many>, C<broadcast_many> and C<recv> it returns the arrays. The arrays must not be
used until then. Several requests may be unfinished; the operations are made in the order of the calls.

=head1 METHODS

=head2 open($node, @workers), of_host($node)

C<open> opens a group of the workers with these ids, a list or a reference to an array, or of all workers. C<of_host>
opens a group of the workers on this machine. All members call it.

=head2 rank, size, members, info, handle

This process's rank in the group, the number of ranks, the worker ids in the order of ranks. C<info> is a hash of rank,
ranks, hosts, transport, bytes_sent, bytes_received, operations, and why the group is broken, if it is.

=head2 allreduce($array, op => 'sum' | 'prod' | 'min' | 'max' | 'avg')

Replaces the array by the reduction of all ranks' arrays, the same bits on every rank. Returns it.

=head2 allreduce_many(\@arrays, op => ..., draining => 1)

Reduces several arrays in one operation; returns the number of contributors. A draining rank takes part without
contributing.

=head2 allreduce_custom($values, $function, draining => 1)

Reduces all ranks' values pairwise by a function. The values are a PDL, a tensor, or a reference to an array of them.
C<< $function->($mine, $theirs) >> changes C<$mine> in place, or returns the PDL, tensor or list that replaces it. For
several values it gets and returns references to arrays. Any other return value is ignored. Returns the number of
contributors. If the function dies, the operation fails on all ranks.

=head2 reduce($array, op => ..., root => 0), broadcast($array, root => 0), broadcast_many(\@arrays, root => 0)

C<reduce> gives the result to the root only. C<broadcast> gives the root's array to all ranks. Both return the array;
C<broadcast_many> returns nothing.

=head2 allgather($array)

Returns all ranks' arrays, which have the same shape, in the order of ranks: a new PDL or tensor with an additional
dimension, a PDL's last or a tensor's first.

=head2 reduce_scatter($array, op => ...)

Like C<allreduce>, but each rank gets only its own part of the result; all parts have the same number of rows. Returns
that part of the array, the rest of which is unchanged. Rows are a PDL's last dimension, a tensor's first.

=head2 gather($array, root => 0)

Like C<allgather>, but only the root gets the result; nothing on the other ranks.

=head2 scatter($array, $parts, root => 0)

Replaces the array by this rank's part of the root's C<$parts>, which has as many rows as there are ranks. The other
ranks pass C<undef>. Returns the array.

=head2 alltoall($array, send_rows => \@rows, receive_rows => \@rows)

Every rank sends some rows of its array to every rank, and receives theirs, in the order of ranks. Returns a new array.
The options are the numbers of rows for and from each rank; by default the rows are divided evenly.

=head2 send($array, $rank, tag => 0), recv($array, $rank, tag => 0)

C<send> sends the array to a rank, which calls C<recv> with the same tag. C<recv> writes the next array of that rank, or
with C<undef> of any rank, into C<$array>, and returns the sender's rank. The other ranks do not take part. An array of
another shape or dtype is an error of C<recv>, and is lost. A small array is sent before it is received; C<send> of a
large one returns when it has been received.

=head2 drain

For a rank that has run out of data: waits for the next operation of the other ranks, in which this rank must take part
with C<< draining => 1 >>. Returns a hash of C<op>, which is undef for C<allreduce_custom>, and C<arrays>, each with
C<count> and C<dtype>; nothing if all ranks drain.

=head2 allreduce_zeros

Takes part in the other ranks' all-reduces, with zeros, until all ranks have called it.

=head2 barrier

Returns when all ranks have called it.

=head2 shrink

After the loss of a rank: makes a new group of the survivors, all of which call this.

=head2 grow(ranks => 4, name => 'training')

Makes a new group of the ranks that are not lost and of workers that call C<join> with this name, once it has at least
C<ranks> ranks. All ranks call it. Returns nothing if the group is not broken, has that many ranks, and no worker joins:
the group continues. The rank C<< info->{elder} >> of the new group was a member before and has the state of the
training, which newcomers lack.

=head2 join($node, name => 'training')

A class method: joins the group of other workers when they call C<grow> with this name. For a new process that replaces
a lost one.

=head2 close

Closes the group; so does dropping its last reference.

=head2 abort($reason)

Closes the group because this rank has failed. The operations of the other ranks, running and later ones, die with
C<MV_EPEERLOST> and the reason. They can continue without this rank: C<shrink>. The node continues.

=cut
