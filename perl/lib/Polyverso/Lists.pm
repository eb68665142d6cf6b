package Polyverso::Lists;

# Nested lists of numbers: their shape, and their numbers packed. What Perl would silently take for 0 is an error that
# names its index.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Scalar::Util ();

sub _refuse { my ($status, $text) = @_; Polyverso::Error->throw($status, $text) }

# A value as an error message shows it.
sub shown {
    my ($value) = @_;
    return !defined $value ? 'undef' : ref $value ? 'a reference to ' . lc Scalar::Util::reftype($value) : qq{"$value"};
}

sub _at { my (@path) = @_; return @path == 1 ? "index $path[0]" : 'index ' . join '', map { "[$_]" } @path }

# The elements of a list: an array reference, or a PDL or a tensor with dimensions. undef for anything else.
sub _elements {
    my ($value) = @_;
    return $value if ref $value eq 'ARRAY';
    return undef unless Scalar::Util::blessed($value);
    return $value->unpdl if $value->isa('PDL') && $value->ndims > 0;
    return $value->to_list if $value->isa('Polyverso::Tensor') && $value->dims > 0;
    return undef;
}

# A number without dimensions: plain, or an object that is one, such as a Math::BigInt or the only element of a PDL.
sub _number {
    my ($value) = @_;
    return $value unless Scalar::Util::blessed($value);
    return $value->sclr if $value->isa('PDL') && $value->nelem == 1;
    return $value->item if $value->isa('Polyverso::Tensor');
    require overload;
    return "$value" if overload::Method($value, '""') && Scalar::Util::looks_like_number("$value");    # all of its digits
    my $number = overload::Method($value, '0+') or return $value;
    return $number->($value, undef, '');
}

# Appends a list's numbers to $of->{flat}. All lists of a level have the length that $of->{shape} has for it, and lists of
# numbers are all at the level $of->{depth}.
sub _lay_out {
    my ($list, $of, @path) = @_;
    my $length = $of->{shape}[@path] //= @$list;
    _refuse($Polyverso::CAPI::MV_ESHAPE,
        "$of->{what}: the list at " . _at(@path) . ' has ' . @$list . " values, others at this level have $length")
        if @$list != $length;
    my $objects = grep { ref } @$list;
    my @inner = $objects ? map { _elements($_) // () } @$list : ();
    $of->{depth} //= @path if !@inner && @$list;
    _refuse($Polyverso::CAPI::MV_ESHAPE, "$of->{what}: the list" . (@path ? ' at ' . _at(@path) : '') . ' mixes numbers and lists')
        if @inner != (defined $of->{depth} && $of->{depth} == @path ? 0 : @$list);
    if (@inner) {
        _lay_out($inner[$_], $of, @path, $_) for 0 .. $#inner;
    }
    else {
        push @{ $of->{flat} }, @$list;
        $of->{objects} += $objects;
    }
    return;
}

# The shape of a list, or of a single number, and its numbers in one list.
sub flatten {
    my ($list, $what) = @_;
    return ([scalar @$list], $list) if ref $list eq 'ARRAY' && !grep { ref } @$list;
    my %of = (what => $what, shape => [], flat => [], objects => 0);
    if (ref $list eq 'ARRAY') { _lay_out($list, \%of) }
    else                      { @of{qw(flat objects)} = ([$list], 1) }
    if ($of{objects}) {
        $_ = _number($_) for @{ $of{flat} };
        check($of{flat}, $of{shape}, $what, 'a number', sub { !ref $_[0] });
    }
    return @of{qw(shape flat)};
}

# Refuses the first value that $is_fine does not accept.
sub check {
    my ($flat, $shape, $what, $needed, $is_fine) = @_;
    for my $i (0 .. $#$flat) {
        next if $is_fine->($flat->[$i]);
        my ($rest, @path) = ($i);
        for my $length (reverse @$shape) {
            unshift @path, $rest % $length;
            $rest = int($rest / $length);
        }
        my $where = @path ? ' at ' . _at(@path) : '';
        _refuse($Polyverso::CAPI::MV_EDTYPE, "$what: the value$where is " . shown($flat->[$i]) . ", not $needed");
    }
    return;
}

sub is_number { my ($value) = @_; return !ref $value && Scalar::Util::looks_like_number($value) }

# Packs numbers. The check of each value comes only after pack() has found a wrong one.
sub packed {
    my ($letters, $flat, $shape, $what) = @_;
    my ($bytes, $why);
    {
        use warnings FATAL => qw(numeric uninitialized);
        local ($@, $SIG{__DIE__});
        $bytes = eval { pack $letters, @$flat };
        $why = $@;
    }
    return $bytes if defined $bytes;
    die $why if ref $why || $why !~ / in pack at /;    # a signal handler has died, or a value's own code
    check($flat, $shape, $what, 'a number', \&is_number);
    _refuse($Polyverso::CAPI::MV_EDTYPE, "$what: a value is not a number");
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Lists - nested lists of numbers, checked and packed; internal

=cut
