package Polyverso::Table;

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Request;
use Polyverso::Values;

sub _new {
    my ($class, $handle) = @_;
    my $info = Polyverso::CAPI::mv_table_describe($handle);
    return bless {
        handle => $handle,
        matrix => $info->{kind} == $Polyverso::CAPI::MV_MATRIX,
        map { $_ => $info->{$_} } qw(name dtype rows cols)
    }, $class;
}

sub handle { $_[0]{handle} }
sub name   { $_[0]{name} }
sub rows   { $_[0]{rows} }
sub cols   { $_[0]{cols} }
sub info   { Polyverso::CAPI::mv_table_describe($_[0]{handle}) }

# Seconds as the C API counts: undef = the node's default, negative or infinite = for ever.
sub milliseconds {
    my ($seconds) = @_;
    return 0 unless defined $seconds;
    return $Polyverso::CAPI::MV_FOREVER if $seconds < 0 || $seconds == 9**9**9;
    my $milliseconds = int($seconds * 1000);
    return $milliseconds < 1 ? 1 : $milliseconds;
}

# mv_call_options in its shortest form.
sub _options {
    my ($flags, $how) = @_;
    return $flags unless defined $how->{timeout};
    return { flags => $flags, timeout_ms => milliseconds($how->{timeout}) };
}

# A misspelt option must not pass for none: add($data, row => 3) would add to every row.
my %KNOWN = map { $_ => 1 } qw(rows as out timeout async forget);

sub _check {
    for my $name (keys %{ $_[0] }) {
        next if $KNOWN{$name};
        Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, "unknown option '$name'; known: @{[sort keys %KNOWN]}");
    }
    return;
}

sub _flags { $_[0]{async} ? $Polyverso::CAPI::MV_ASYNC : $_[0]{forget} ? $Polyverso::CAPI::MV_FORGET : 0 }

sub _read {
    my ($self, $how, $whole, $some) = @_;
    _check($how);
    my $ids    = defined $how->{rows} ? Polyverso::Values::rows($how->{rows}) : undef;
    my $rows   = defined $ids ? Polyverso::Values::row_count($ids) : $self->{rows};
    my @layout = (@$self{qw(dtype matrix)}, $rows, $self->{cols});
    my $memory = $how->{out} // Polyverso::Values::room(@layout, $how->{as});
    my $options = _options(_flags($how), $how);
    my $handle =
        defined $ids
        ? $some->($self->{handle}, $ids, $memory, $options)
        : $whole->($self->{handle}, $memory, $options);
    return Polyverso::Values::result(@layout, $memory) unless $how->{async};
    # The closure holds the memory until the request has written it.
    return Polyverso::Request->_new($handle, sub { Polyverso::Values::result(@layout, $memory) });
}

sub get {
    my ($self, %how) = @_;
    return $self->_read(\%how, \&Polyverso::CAPI::mv_table_get, \&Polyverso::CAPI::mv_table_get_rows);
}

sub peek {
    my ($self, %how) = @_;
    return $self->_read(\%how, \&Polyverso::CAPI::mv_table_peek, \&Polyverso::CAPI::mv_table_peek_rows);
}

sub _write {
    my ($self, $how, $whole, $some, $data) = @_;
    _check($how);
    my $values  = Polyverso::Values::data($data, $self->{dtype});
    my $options = _options(_flags($how), $how);
    my $handle =
        defined $how->{rows}
        ? $some->($self->{handle}, Polyverso::Values::rows($how->{rows}), $values, $options)
        : $whole->($self->{handle}, $values, $options);
    return $how->{async} ? Polyverso::Request->_new($handle) : ();
}

sub add {
    my ($self, $data, %how) = @_;
    return $self->_write(\%how, \&Polyverso::CAPI::mv_table_add, \&Polyverso::CAPI::mv_table_add_rows, $data);
}

sub set {
    my ($self, $data, %how) = @_;
    return $self->_write(\%how, \&Polyverso::CAPI::mv_table_set, \&Polyverso::CAPI::mv_table_set_rows, $data);
}

sub close   { Polyverso::CAPI::mv_table_close($_[0]{handle}) }
sub destroy { Polyverso::CAPI::mv_table_destroy($_[0]{handle}) }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Table - an array or matrix shared by all workers

=head1 SYNOPSIS

    my $table = $node->matrix(rows => 10, cols => 64);
    $table->add($pdl);                                # a PDL of dims (64, 10)
    $table->add([[(1) x 64]], rows => [3]);           # array references do as well
    my $values = $table->get;                         # a PDL of dims (64, 10)
    my $three  = $table->get(rows => [1, 2, 3], as => 'array');

=head1 METHODS

PDL's first dimension is the one that runs fastest: a table of 10 rows and 64 columns is a PDL of dims (64, 10), or an
array of 10 references to arrays of 64. An array table is one-dimensional. Data of a wrong size, and row ids outside the
table, throw an error of the family C<argument>, and nothing is sent. All options are optional:

=over

=item rows

Row ids (of an array: element ids), as an array reference, a PDL or one number; in any order, repeats allowed. Without
it the call is about the whole table.

=item timeout

Seconds; default: the node's.

=item async

Return a L<Polyverso::Request> at once.

=back

=head2 get(as => 'pdl' | 'array', out => $pdl, ...)

The table's values, with all earlier adds of this worker; in sync mode the same bits on all workers. A fresh PDL if PDL
is installed, else an array reference; C<as> decides otherwise. C<out> receives them in place: a PDL of the table's type
and size.

=head2 peek(...)

C<get> past sync mode's rounds: what the servers hold now. One worker alone may call it.

=head2 add($data, forget => 1, ...)

Adds element by element; repeated rows add up. Returns when every server has applied it; with C<forget> at once, its
error, if any, comes from the next call on the table, C<barrier> or C<shutdown>. A PDL of the table's type goes in
without a copy.

=head2 set($data, ...)

Assigns values, past updater and sync mode's rounds: for loading a model, between two barriers.

=head2 info, name, rows, cols, handle

A hash of mv_table_info's fields; some of them; and the C<mv_table> for the C functions.

=head2 close, destroy

Gives this handle back; frees the table on all servers, which one worker does, when nobody uses it any more.

=cut
