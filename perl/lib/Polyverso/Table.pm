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
    my $is_map = $info->{kind} == $Polyverso::CAPI::MV_KEYVALUE;
    return bless {
        handle => $handle,
        is_map => $is_map,
        flat   => $info->{kind} == $Polyverso::CAPI::MV_ARRAY || ($is_map && $info->{cols} == 1) ? 1 : 0,
        map { $_ => $info->{$_} } qw(name dtype rows cols)
    }, $class;
}

sub handle { $_[0]{handle} }
sub name   { $_[0]{name} }
sub rows   { $_[0]{rows} }
sub cols   { $_[0]{cols} }
sub info   { Polyverso::CAPI::mv_table_describe($_[0]{handle}) }
sub size   { $_[0]{is_map} ? $_[0]->info->{stored} : $_[0]{rows} }

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
my %KNOWN = map { $_ => 1 } qw(rows keys as out timeout async forget);
my %KNOWN_TO_SCAN = map { $_ => 1 } qw(as chunk);

sub _check {
    my ($how, $known) = @_;
    for my $name (keys %$how) {
        next if $known->{$name};
        Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL,
            "unknown option '$name'; known: @{[sort keys %$known]}");
    }
    return;
}

# The ids of a call, packed; undef for the whole table. Two names for one thing: a key-value table has keys.
sub _ids {
    my ($how) = @_;
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, 'rows and keys are the same: give one of them')
        if defined $how->{rows} && defined $how->{keys};
    my $rows = $how->{rows} // $how->{keys};
    return defined $rows ? Polyverso::Values::rows($rows) : undef;
}

sub _flags { $_[0]{async} ? $Polyverso::CAPI::MV_ASYNC : $_[0]{forget} ? $Polyverso::CAPI::MV_FORGET : 0 }

sub _read {
    my ($self, $how, $whole, $some) = @_;
    my ($handle, $dtype, $flat, $rows, $cols) = @$self{qw(handle dtype flat rows cols)};
    my ($ids, $options) = (undef, 0);
    if (%$how) {    # most calls say nothing, and are short enough for it to count
        _check($how, \%KNOWN);
        $ids     = _ids($how);
        $rows    = Polyverso::Values::row_count($ids) if defined $ids;
        $options = _options(_flags($how), $how);
    }
    my $as      = Polyverso::Values::look($how->{as});
    my $memory  = $how->{out} // Polyverso::Values::room($dtype, $flat, $rows, $cols, $as);
    my $request = defined $ids ? $some->($handle, $ids, $memory, $options) : $whole->($handle, $memory, $options);
    return ref $memory ? $memory : Polyverso::Values::result($dtype, $flat, $rows, $cols, $as, $memory)
        unless $how->{async};
    # The closure holds the memory until the request has written it.
    return Polyverso::Request->_new($request,
        sub { Polyverso::Values::result($dtype, $flat, $rows, $cols, $as, $memory) });
}

sub get {
    my ($self, %how) = @_;
    return $self->_read(\%how, \&Polyverso::CAPI::mv_table_get, \&Polyverso::CAPI::mv_table_get_rows);
}

sub peek {
    my ($self, %how) = @_;
    return $self->_read(\%how, \&Polyverso::CAPI::mv_table_peek, \&Polyverso::CAPI::mv_table_peek_rows);
}

sub scan {
    my ($self, %how) = @_;
    _check(\%how, \%KNOWN_TO_SCAN);
    my $as     = Polyverso::Values::look($how{as});
    my $chunk  = $how{chunk} // 16384;
    my $ids    = "\0" x ($chunk * 8);
    my $values = "\0" x Polyverso::Values::bytes($self->{dtype}, $chunk * $self->{cols});
    my $cursor = 0;
    return sub {
        my $found = 0;
        until ($found || $cursor == -1) {
            ($cursor, $found) = Polyverso::CAPI::mv_table_scan($self->{handle}, $cursor, $ids, $values);
        }
        return unless $found;
        my $bytes = Polyverso::Values::bytes($self->{dtype}, $found * $self->{cols});
        return (
            Polyverso::Values::ids($found, $as, substr $ids, 0, $found * 8),
            Polyverso::Values::result(@$self{qw(dtype flat)}, $found, $self->{cols}, $as, substr $values, 0, $bytes),
        );
    };
}

sub _write {
    my ($self, $how, $whole, $some, $data) = @_;
    _check($how, \%KNOWN);
    my $values  = Polyverso::Values::data($data, $self->{dtype});
    my $ids     = _ids($how);
    my $options = _options(_flags($how), $how);
    my $handle =
        defined $ids
        ? $some->($self->{handle}, $ids, $values, $options)
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

sub erase {
    my ($self, $rows, %how) = @_;
    _check(\%how, \%KNOWN);
    my $ids = Polyverso::Values::rows($rows);
    my $handle = Polyverso::CAPI::mv_table_erase_rows($self->{handle}, $ids, _options(_flags(\%how), \%how));
    return $how{async} ? Polyverso::Request->_new($handle) : ();
}

sub set_updater {
    my ($self, $updater, %how) = @_;
    _check(\%how, \%KNOWN);
    my $handle = Polyverso::CAPI::mv_table_set_updater($self->{handle}, $updater, _options(_flags(\%how), \%how));
    return $how{async} ? Polyverso::Request->_new($handle) : ();
}

sub clock   { Polyverso::CAPI::mv_table_clock($_[0]{handle}) }
sub close   { Polyverso::CAPI::mv_table_close($_[0]{handle}) }
sub destroy { Polyverso::CAPI::mv_table_destroy($_[0]{handle}) }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Table - an array, a matrix, a sparse matrix or a key-value table, shared by all workers

=head1 SYNOPSIS

    use PDL;
    use Polyverso;

    my $node  = Polyverso->init;
    my $table = $node->matrix(rows => 10, cols => 64, updater => 'adagrad rate=0.1');
    $table->add(ones(64, 10));                        # a PDL of dims (64, 10)
    $table->add([[(1) x 64]], rows => [3]);           # array references do as well
    my $values = $table->get;                         # a PDL of dims (64, 10)
    my $three  = $table->get(rows => [1, 2, 3], as => 'array');

    my $counts = $node->keyvalue(dtype => 'i64');     # a number under each of any 64-bit keys
    $counts->add([1, 1, 1], keys => [17, -4, 17]);
    my $next = $counts->scan(as => 'array');
    while (my ($keys, $values) = $next->()) {
        print "$keys->[$_]: $values->[$_]\n" for 0 .. $#$keys;
    }
    $counts->erase([-4]);
    $node->shutdown;

=head1 METHODS

PDL's first dimension is the one that runs fastest: a table of 10 rows and 64 columns is a PDL of dims (64, 10), or an
array of 10 references to arrays of 64. An array table is one-dimensional, and so are the values of a key-value table
with one column. Data of a wrong size or type, and row ids outside the table, throw an error of the family C<argument>,
and nothing is sent. All options are optional:

=over

=item rows, keys

Row ids (of an array: element ids; of a key-value table any integers of 64 bits), as an array reference, a PDL or one
number; in any order, repeats allowed. The two names mean the same. Without them the call is about the whole table,
which a key-value table does not have.

=item timeout

Seconds; default: the node's.

=item async

Return a L<Polyverso::Request> at once.

=back

Tables of C<f32>, C<f64>, C<i64>, C<i32>, C<u8> and C<i8> are PDLs of the types float, double, longlong, long, byte and sbyte; others
are converted, but nothing is cut on the way to integers. PDL has no floats of two bytes: those of C<f16> and C<bf16>
tables become float PDLs, are rounded when they go in, and PDLs of the type ushort go in as their bits.

=head2 get(as => 'pdl' | 'array', out => $pdl, ...)

The table's values, with all earlier adds of this worker; in sync mode the same bits on all workers; with a staleness at
most so many clocks of any worker behind. Rows and keys that are not stored have their initial value. A fresh PDL if PDL
is installed, else an array reference; C<as> decides otherwise. C<out> receives them in place: a PDL of the table's type
and size.

=head2 peek(...)

C<get> past sync mode's rounds and staleness: what the servers hold now. One worker alone may call it.

=head2 add($data, forget => 1, ...)

Adds element by element, through the table's updater; repeated rows are summed up first. Returns when every server has
applied it; with C<forget> at once, its error, if any, comes from the next call on the table, C<barrier> or C<shutdown>.
A PDL of the table's type goes in without a copy.

=head2 set($data, ...)

Assigns values, past updater and sync mode's rounds: for loading a model, between two barriers. Of repeated rows the
last one stays.

=head2 erase($rows, forget => 1, ...)

Forgets rows of a sparse table, or keys of a key-value table, with their updater's state: they read as their initial
value again. What is not stored is skipped.

=head2 scan(chunk => 16384, as => 'pdl' | 'array')

What a sparse or key-value table stores: an iterator, a code reference that returns (ids, values) of at most C<chunk>
rows each time, and nothing at the end. What is stored all the while comes exactly once, what comes or goes meanwhile at
most once; in no order that means anything.

=head2 set_updater('adagrad rate=0.05', ...)

Sets what adds do from here on, or new parameters for it; C<mv_table_set_updater> in F<polyverso.h> has the list. One
worker calls it.

=head2 clock

Ends one of this worker's iterations on a table that has a staleness. Never waits.

=head2 info, name, rows, cols, size, handle

A hash of mv_table_info's fields, for which the servers are asked; some of them; the rows, of a key-value table the keys
that are stored; and the C<mv_table> for the C functions.

=head2 close, destroy

Gives this handle back; frees the table on all servers, which one worker does, when nobody uses it any more.

=cut
