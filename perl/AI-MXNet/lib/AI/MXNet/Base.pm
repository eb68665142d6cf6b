package AI::MXNet::Base;

# The helpers that scripts import from AI::MXNet::Base: PDL under its own names and under p..., lists, and dtypes.

use strict;
use warnings;

use Carp ();
use Exporter 'import';
use List::Util ();
use PDL;
use PDL::Types ();
use Polyverso::CAPI ();
use Polyverso::Error;

our @EXPORT = qw(product enumerate assert zip pdl cat dog bisect_left pdl_shuffle as_array
    DTYPE_STR_TO_MX DTYPE_MX_TO_STR DTYPE_MX_TO_PDL DTYPE_PDL_TO_MX DTYPE_MX_TO_PERL GRAD_REQ_MAP);
our @EXPORT_OK = qw(pzeros pones pceil svd);

# ------------------------------------------------------------------ dtypes

# MXNet's name; its number in files; Polyverso's name; PDL's type, by name, because its numbers differ between versions;
# pack's letter.
my @DTYPES;
BEGIN {
    @DTYPES = (
        [float32  => 0,  f32  => 'float',    'f'],
        [float64  => 1,  f64  => 'double',   'd'],
        [float16  => 2,  f16  => 'float',    'S'],
        [uint8    => 3,  u8   => 'byte',     'C'],
        [int32    => 4,  i32  => 'long',     'l'],
        [int8     => 5,  i8   => 'sbyte',    'c'],
        [int64    => 6,  i64  => 'longlong', 'q'],
        [bfloat16 => 12, bf16 => 'float',    'S'],
    );
}
my %ours  = map { $_->[0] => $_->[2] } @DTYPES;
my %names = map { $_->[2] => $_->[0] } @DTYPES;

use constant GRAD_REQ_MAP => { null => 0, write => 1, add => 3 };
use constant {
    DTYPE_STR_TO_MX  => { map { $_->[0] => $_->[1] } @DTYPES },
    DTYPE_MX_TO_STR  => { map { $_->[1] => $_->[0] } @DTYPES },
    DTYPE_MX_TO_PDL  => { map { $_->[0] => $_->[3], $_->[1] => $_->[3] } @DTYPES },
    DTYPE_PDL_TO_MX  => { map { $_->[3] => $_->[1] } reverse @DTYPES },
    DTYPE_MX_TO_PERL => { map { $_->[0] => $_->[4], $_->[1] => $_->[4] } @DTYPES },
};

sub refuse {
    my ($status, $text) = @_;
    Polyverso::Error->throw(${ $Polyverso::CAPI::{"MV_$status"} }, $text);
}

# Convert MXNet's name of a dtype to Polyverso's, and back.
sub dtype_in {
    my ($dtype) = @_;
    return $ours{ $dtype // 'float32' }
        // refuse(EINVAL => "dtype '$dtype': one of @{[map { $_->[0] } @DTYPES]} is needed");
}
sub dtype_out { my ($dtype) = @_; return $names{$dtype} }

# Converts a PDL to the type that holds numbers of a dtype.
sub pdl_as { my ($pdl, $dtype) = @_; return $pdl->convert(PDL::Type->new(DTYPE_MX_TO_PDL->{$dtype})) }

# ------------------------------------------------------------------ lists

# Python's zip. If the first argument is a function, calls it with each row; otherwise returns the rows.
sub zip {
    my $code = ref $_[0] eq 'CODE' ? shift : undef;
    my @lists = map { [@$_] } @_;    # evaluates an overloaded @{} once
    my $length = @lists ? List::Util::min(map { scalar @$_ } @lists) : 0;
    my @rows = map { my $i = $_; [map { $_->[$i] } @lists] } 0 .. $length - 1;
    return @rows unless $code;
    $code->(@$_) for @rows;
    return;
}

sub enumerate {
    my $code = ref $_[0] eq 'CODE' ? shift : undef;
    my $length = @{ $_[0] };
    return zip($code // (), [0 .. $length - 1], @_);
}

sub product { my $product = 1; $product *= $_ for @_; return $product }

sub as_array { return ref $_[0] eq 'ARRAY' ? $_[0] : [$_[0]] }

# The first position in a sorted list at which $x can be inserted.
sub bisect_left {
    my ($list, $x, $low, $high) = @_;
    $low  //= 0;
    $high //= @$list;
    Carp::confess('lo must be non-negative') if $low < 0;
    while ($low < $high) {
        my $middle = int(($low + $high) / 2);
        if   ($list->[$middle] < $x) { $low  = $middle + 1 }
        else                         { $high = $middle }
    }
    return $low;
}

sub assert {
    my ($true, $text) = @_;
    Carp::confess($text // 'AssertionError') unless $true;
    return;
}

# ------------------------------------------------------------------ PDL

sub pzeros { return PDL->zeroes(@_) }
sub pones  { return PDL->ones(@_) }
sub pceil  { my ($pdl) = @_; return $pdl->ceil }

# Shuffles along the last dimension, or arranges it in the order of @$order.
sub pdl_shuffle {
    my ($pdl, $order) = @_;
    my @order = $order ? @$order : List::Util::shuffle(0 .. $pdl->dim(-1) - 1);
    return $pdl->dice_axis($pdl->ndims - 1, \@order)->sever;
}

# AI::MXNet treats piddles as rows: a single index of a piddle with several dimensions applies to the last one, and len
# is that dimension's length.
{
    no warnings 'redefine';
    my $at = PDL->can('at');
    *PDL::at = sub {
        my ($self, @index) = @_;
        return $self->$at(@index) if @index != 1 || ref $index[0] || $self->ndims <= 1;
        return $self->slice(('X') x ($self->ndims - 1), $index[0])->squeeze;
    };
    *PDL::len   = sub { $_[0]->dim(-1) };
    *PDL::dtype = sub { DTYPE_MX_TO_STR->{ DTYPE_PDL_TO_MX->{ $_[0]->type } // -1 } };
}

# Prints arrays of any length.
$PDL::toolongtoprint = 1_000_000_000;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Base - lists, dtypes, and PDL with AI::MXNet's conventions

=head1 SYNOPSIS

    use AI::MXNet::Base qw(zip enumerate product pzeros pones pdl);

    zip(sub { my ($x, $y) = @_; print $x + $y, "\n" }, [1, 2], [10, 20]);    # 11, 22
    for (zip([1, 2], [10, 20])) { my ($x, $y) = @$_; print $x * $y, "\n" }   # 10, 40
    my $matrix = pdl([[1, 2, 3], [4, 5, 6]]);
    print $matrix->at(1), ' ', $matrix->at(2, 1), "\n";                      # [4 5 6] 6

=head1 FUNCTIONS

=head2 zip($code, @lists), zip(@lists), enumerate($code, @lists)

C<zip> calls the code with the first elements of all lists, then with the second ones, up to the end of the shortest;
without code it returns these rows as references to arrays. C<enumerate> is C<zip> with the positions from 0 as the
first list.

=head2 product(@numbers), as_array($value), bisect_left($list, $x, $low, $high), assert($true, $text)

C<product> of no numbers is 1. C<as_array> returns a reference to an array, which contains the value unless it is one.
C<bisect_left> is the first position in a sorted list at which C<$x> can be inserted. C<assert> dies with the text
unless C<$true>.

=head2 pzeros(@dims), pones(@dims), pceil($pdl), pdl_shuffle($pdl, $order)

C<pzeros> and C<pones> take PDL's dims, the reverse of MXNet's shape.

=head2 DTYPE_STR_TO_MX, DTYPE_MX_TO_STR, DTYPE_MX_TO_PDL, DTYPE_PDL_TO_MX, DTYPE_MX_TO_PERL

Hashes. PDL's types are names, because the numbers differ between versions of PDL.

=head1 PDL

Loading this module changes C<< $pdl->at($i) >>: for a piddle with two or more dimensions it returns the C<$i>-th piddle
along the last dimension, which is the first one of MXNet's shape. C<< $pdl->len >> is that dimension's length,
C<< $pdl->dtype >> is MXNet's name of the type.

=cut
