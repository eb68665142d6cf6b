package Polyverso::Table;

use strict;
use warnings;

use parent 'Polyverso::Handle';

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Request;
use Polyverso::Values;

my %open;    # node => { handle => name } of its open tables

# The number of a node's open tables.
sub _count { my ($node) = @_; my %names = reverse %{ $open{$node} // {} }; return scalar keys %names }

# The node has ended.
sub _forget_all { my ($node) = @_; delete $open{$node}; return }

sub _new {
    my ($class, $handle, $node) = @_;
    my $info = Polyverso::CAPI::mv_table_describe($handle);
    my $is_map = $info->{kind} == $Polyverso::CAPI::MV_KEYVALUE;
    $open{$node}{$handle} = $info->{name};
    my $flat   = $info->{kind} == $Polyverso::CAPI::MV_ARRAY || ($is_map && $info->{cols} == 1) ? 1 : 0;
    return (bless {
        handle => $handle,
        node   => $node,
        is_map => $is_map,
        flat   => $flat,
        is_array => $info->{kind} == $Polyverso::CAPI::MV_ARRAY,
        label  => qq{table "$info->{name}"},
        # What data is compared with; undef where that has no rows, or rows have no columns.
        dense_rows => $is_map ? undef : $info->{rows},
        row_size   => $flat   ? undef : $info->{cols},
        map { $_ => $info->{$_} } qw(name dtype rows cols)
    }, $class)->_adopt;
}

sub _label   { return $_[0]{label} }
sub _instead { my ($self) = @_; return qq{the other process opens the table by its name: \$node->open("$self->{name}")} }

sub _details {
    my ($self) = @_;
    my ($rows, $cols) = ($self->{is_map} ? 'keys' : $self->{rows}, $self->{cols});
    return qq{"$self->{name}", } . ($self->{flat} ? $rows : "$rows x $cols") . ' ' . Polyverso::Values::dtype_name($self->{dtype});
}

sub name   { $_[0]{name} }
sub rows   { $_[0]{rows} }
sub cols   { $_[0]{cols} }
sub info   { Polyverso::CAPI::mv_table_describe($_[0]{handle}) }
sub size   { $_[0]{is_map} ? $_[0]->info->{stored} : $_[0]{rows} }

# Converts seconds to a time-out of the C API: undef = the node's default, infinite or -1 (MV_FOREVER) = no limit.
sub milliseconds {
    my ($seconds) = @_;
    return 0 unless defined $seconds;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'timeout is ' . Polyverso::Lists::shown($seconds) . ', not a number of seconds')
        unless Polyverso::Lists::is_number($seconds);
    return $Polyverso::CAPI::MV_FOREVER if $seconds == $Polyverso::CAPI::MV_FOREVER || $seconds == 9**9**9;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL,
        "timeout is $seconds: a number of seconds is needed, 0 or more; 'inf' means no limit, undef the node's default") unless $seconds >= 0;
    my $milliseconds = int($seconds * 1000);
    return $milliseconds < 1 ? 1 : $milliseconds;
}

# mv_call_options in its shortest form.
sub _options {
    my ($flags, $how) = @_;
    return $flags unless defined $how->{timeout};
    return { flags => $flags, timeout_ms => milliseconds($how->{timeout}) };
}

# The options of methods that read, and of those that write.
my %READS  = map { $_ => 1 } qw(rows keys as out timeout async);
my %WRITES = map { $_ => 1 } qw(rows keys timeout async forget);
my @WAITS  = qw(timeout async forget);

# The ids of a call, packed; undef for the whole table. `rows` and `keys` mean the same; the latter suits key-value
# tables.
sub _ids {
    my ($how) = @_;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'rows and keys mean the same: pass only one of them')
        if defined $how->{rows} && defined $how->{keys};
    my $rows = $how->{rows} // $how->{keys};
    return defined $rows ? Polyverso::Values::rows($rows) : undef;
}

sub _flags {
    my ($how) = @_;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'async returns a request to wait for, forget returns nothing: pass only one of them')
        if $how->{async} && $how->{forget};
    return $how->{async} ? $Polyverso::CAPI::MV_ASYNC : $how->{forget} ? $Polyverso::CAPI::MV_FORGET : 0;
}

sub _read {
    my ($self, $how, $whole, $some) = @_;
    my ($handle, $dtype, $flat, $rows, $cols) = @$self{qw(handle dtype flat rows cols)};
    my ($ids, $options) = (undef, 0);
    my $out = $how->{out};
    if (keys %$how > (defined $out)) {    # most calls have no other options, and are short enough that this check pays
        Polyverso::Values::check_options($how, \%READS);
        $ids     = _ids($how);
        $rows    = Polyverso::Values::row_count($ids) if defined $ids;
        $options = _options(_flags($how), $how);
    }
    my $as = Polyverso::Values::look($how->{as});
    Polyverso::Values::check_out($out, $self->{label}, $dtype, $rows, $self->{row_size}) if defined $out;
    my $memory  = $out // Polyverso::Values::room($dtype, $flat, $rows, $cols, $as);
    my $place   = ref $out eq 'SCALAR' ? $out : \$memory;
    my $request = defined $ids ? $some->($handle, $ids, $$place, $options) : $whole->($handle, $$place, $options);
    return ref $memory ? $memory : Polyverso::Values::result($dtype, $flat, $rows, $cols, $as, $memory)
        unless $how->{async};
    # The closure holds the memory until the request has written it.
    return Polyverso::Request->_new($request,
        sub { Polyverso::Values::result($dtype, $flat, $rows, $cols, $as, $memory) });
}

my %NAMES_IDS = (rows => 1, keys => 1);

# get() and add() begin with the most frequent calls, which are short enough that the checks of others would dominate them.

sub get {
    if (@_ == 3 && $_[0]{is_array} && ref $_[2] eq 'PDL' && $_[1] eq 'out') {
        Polyverso::CAPI::mv_table_get($_[0]{handle}, $_[2], 0);
        return $_[2];
    }
    if (@_ == 5 && ref $_[4] eq 'PDL' && $_[3] eq 'out' && $NAMES_IDS{ $_[1] }
        && Polyverso::CAPI::are_plain_rows($_[2], $_[4], $_[0]{dtype}, $_[0]{row_size} // 0))
    {
        Polyverso::CAPI::mv_table_get_rows($_[0]{handle}, $_[2], $_[4], 0);
        return $_[4];
    }
    Polyverso::Values::named('$table->get', @_[1 .. $#_]) unless @_ % 2;    # throws
    my ($self, %how) = @_;
    return $self->_read(\%how, \&Polyverso::CAPI::mv_table_get, \&Polyverso::CAPI::mv_table_get_rows);
}

sub peek {
    Polyverso::Values::named('$table->peek', @_[1 .. $#_]) unless @_ % 2;    # throws
    my ($self, %how) = @_;
    return $self->_read(\%how, \&Polyverso::CAPI::mv_table_peek, \&Polyverso::CAPI::mv_table_peek_rows);
}

sub scan {
    my ($self, @how) = @_;
    my $how    = Polyverso::Values::options([qw(as chunk)], @how);
    my $as     = Polyverso::Values::look($how->{as});
    my $chunk  = $how->{chunk} // 16384;
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
    my ($handle, $ids, $rows, $options) = ($self->{handle}, undef, $self->{dense_rows}, 0);
    if (%$how) {
        Polyverso::Values::check_options($how, \%WRITES);
        $ids     = _ids($how);
        $rows    = Polyverso::Values::row_count($ids) if defined $ids;
        $options = _options(_flags($how), $how);
    }
    my $values = Polyverso::Values::data($data, $self->{dtype}, $self->{label}, $rows, $self->{row_size});
    my $request = defined $ids ? $some->($handle, $ids, $values, $options) : $whole->($handle, $values, $options);
    return $how->{async} ? Polyverso::Request->_new($request) : ();
}

sub add {
    if (@_ == 2 && $_[0]{is_array} && ref $_[1] eq 'PDL' && Polyverso::CAPI::is_plain_pdl($_[1], $_[0]{dtype})) {
        Polyverso::CAPI::mv_table_add($_[0]{handle}, $_[1], 0);
        return;
    }
    if (@_ == 4 && $NAMES_IDS{ $_[2] } && Polyverso::CAPI::are_plain_rows($_[3], $_[1], $_[0]{dtype}, $_[0]{row_size} // 0)) {
        Polyverso::CAPI::mv_table_add_rows($_[0]{handle}, $_[3], $_[1], 0);
        return;
    }
    Polyverso::Values::named('$table->add', @_[2 .. $#_]) if @_ % 2;    # throws
    my ($self, $data, %how) = @_;
    return $self->_write(\%how, \&Polyverso::CAPI::mv_table_add, \&Polyverso::CAPI::mv_table_add_rows, $data);
}

sub set {
    Polyverso::Values::named('$table->set', @_[2 .. $#_]) if @_ % 2;    # throws
    my ($self, $data, %how) = @_;
    return $self->_write(\%how, \&Polyverso::CAPI::mv_table_set, \&Polyverso::CAPI::mv_table_set_rows, $data);
}

sub erase {
    my ($self, $rows, @how) = @_;
    my $how = Polyverso::Values::options(\@WAITS, @how);
    my $ids = Polyverso::Values::rows($rows);
    my $handle = Polyverso::CAPI::mv_table_erase_rows($self->{handle}, $ids, _options(_flags($how), $how));
    return $how->{async} ? Polyverso::Request->_new($handle) : ();
}

sub set_updater {
    my ($self, $updater, @more) = @_;
    my %how = Polyverso::Values::named('$table->set_updater', @more);
    my %waits = map { $_ => 1 } @WAITS;
    my %parameters = map { $_ => delete $how{$_} } grep { !$waits{$_} } keys %how;
    $updater = Polyverso::Values::with_parameters('$table->set_updater', $updater, %parameters);
    my $handle = Polyverso::CAPI::mv_table_set_updater($self->{handle}, $updater, _options(_flags(\%how), \%how));
    return $how{async} ? Polyverso::Request->_new($handle) : ();
}

sub clock   { Polyverso::CAPI::mv_table_clock($_[0]{handle}) }

# A dropped table stays open: requests of it may be unfinished.
sub DESTROY { $_[0]->_forget; return }

sub close {
    my ($self) = @_;
    return if $self->_state;
    Polyverso::CAPI::mv_table_close($self->{handle});
    return $self->_is_gone('closed');
}

sub destroy {
    my ($self) = @_;
    Polyverso::CAPI::mv_table_destroy($self->{handle});
    return $self->_is_gone('destroyed');
}

sub _is_gone {
    my ($self, $state) = @_;
    delete $open{ $self->{node} }{ $self->{handle} };
    $self->_has_ended($state);
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Table - an array, matrix, sparse matrix or key-value table that all workers share

=head1 SYNOPSIS

    use PDL;
    use Polyverso;

    my $node  = Polyverso->init;
    my $table = $node->matrix(rows => 10, cols => 64, updater => 'adagrad rate=0.1');
    $table->add(ones(64, 10));                        # a PDL of dims (64, 10)
    $table->add([[(1) x 64]], rows => [3]);           # or array references
    my $values = $table->get;                         # a PDL of dims (64, 10)
    my $three  = $table->get(rows => [1, 2, 3], as => 'array');

    my $counts = $node->keyvalue(dtype => 'i64');     # one number for each 64-bit key
    $counts->add([1, 1, 1], keys => [17, -4, 17]);
    my $next = $counts->scan(as => 'array');
    while (my ($keys, $values) = $next->()) {
        print "$keys->[$_]: $values->[$_]\n" for 0 .. $#$keys;
    }
    $counts->erase([-4]);
    $node->shutdown;

=head1 METHODS

PDL's first dimension varies fastest: a table of 10 rows and 64 columns is a PDL of dims (64, 10), or an array of 10
references to arrays of 64. An array table is one-dimensional, and so are the values of a key-value table with one
column.

Data is a PDL, a L<tensor|Polyverso::Tensor>, a reference to a (nested) array of numbers, or a packed string such as
C<pack 'f*', @numbers>. Data with several dimensions must have the table's rows and columns; further dimensions may
divide the columns, so that a table of 8 rows and 27 columns takes 8 x 3 x 3 x 3 values. One dimension with the right
number of values fits every table, in the order of its rows, and everything of the right size fits a one-dimensional
table. Texts of numbers such as C<"3.5"> are numbers; any other text, C<undef> and references are errors that name the
index. Data of a wrong size or type, and row ids outside the table, throw an error of the family C<argument>, and
nothing is sent.

The table has a text, C<"$table"> is C<Polyverso::Table("weights", 10 x 64 f32)>, and C<==> and C<eq> compare two
objects by identity. Storable refuses it, and a new thread gets a reference to C<undef> in its place.

All options are optional:

=over

=item rows, keys

Row ids (array: element ids; key-value table: any 64-bit integers), as an array reference, a PDL or one number; in any
order, repeats allowed. The two names mean the same. Without them the call applies to the whole table; calls on a
key-value table need them.

=item timeout

Seconds; default: the node's.

=item async

Returns a L<Polyverso::Request> at once.

=back

Tables of C<f32>, C<f64>, C<i64>, C<i32>, C<u8> and C<i8> correspond to PDLs of the types float, double, longlong, long,
byte and sbyte. PDLs of other types are converted, but a value that is not exact as an integer is an error. PDL has no
16-bit floats: values of C<f16> and C<bf16> tables are read as float PDLs, and rounded when written. A PDL of the type
ushort is written as the bits of such floats.

=head2 get(as => 'pdl' | 'array', out => $pdl, ...)

Returns the table's values, which include all earlier adds of this worker. In sync mode all workers get the same bits.
With a staleness, at most that many of the latest clocks of any worker are missing. Rows and keys that are not stored
have their initial value. The result is a new PDL if PDL is installed, otherwise an array reference; C<as> overrides
this. C<out> receives the values in place, and is the result: a PDL or tensor of the table's type and size, or a
reference to a packed string of the right length.

=head2 peek(...)

C<get> without waiting for sync mode's rounds or staleness: the values on the servers at this moment. One worker alone
may call it.

=head2 add($data, forget => 1, ...)

Adds element by element, through the table's updater; values of repeated rows are summed first. Returns when every
server has applied it. With C<forget> (one-way) it returns at once, and an error is thrown by the next call on the
table, C<barrier> or C<shutdown>. A blocking add of a PDL of the table's type makes no copy.

=head2 set($data, ...)

Assigns values, without the updater and sync mode's rounds: for loading a model, between two barriers. Of repeated rows
the last one wins.

=head2 erase($rows, forget => 1, ...)

Removes rows of a sparse table, or keys of a key-value table, with their updater state: they read as their initial value
again. Ids that are not stored are skipped.

=head2 scan(chunk => 16384, as => 'pdl' | 'array')

Returns an iterator over the stored rows of a sparse or key-value table: a code reference that returns (ids, values) of
at most C<chunk> rows on each call, and nothing at the end. A row that is stored during the whole scan is returned
exactly once; one that is added or removed meanwhile, at most once. The order has no meaning.

=head2 set_updater('adagrad', rate => 0.05, ...)

Sets the updater, given with its parameters or as one text (C<'adagrad rate=0.05'>), by which the servers apply adds
from now on, or new parameters for it; C<mv_table_set_updater> in F<polyverso.h> has the list. One worker calls it.

=head2 clock

Ends one of this worker's iterations on a table with staleness. Never waits.

=head2 info, name, rows, cols, size, handle

C<info> is a hash of the fields of mv_table_info, and asks the servers. C<name>, C<rows> and C<cols> are some of these
fields. C<size> is the number of rows, or of a key-value table's stored keys. C<handle> is the C<mv_table> for the C
functions.

=head2 close, destroy

C<close> closes this handle. C<destroy> frees the table on all servers; one worker calls it, when no worker uses the
table any more.

=cut
