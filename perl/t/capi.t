# The C functions: arguments, results, errors.

use strict;
use warnings;

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster ();

use Polyverso qw(:all);

my $have_pdl = eval { require PDL::Lite; 1 };

sub failure_of {
    my ($code) = @_;
    return eval { $code->(); 1 } ? 'none' : ref $@ ? $@ : "not an object: $@";
}

mv_init(undef);
my $t = mv_table_create(0, { kind => 'matrix', rows => 4, cols => 3 }, undef);
my $zeroes = pack 'f*', (0) x 12;

subtest 'packed strings' => sub {
    mv_table_add($t, pack 'f*', 1 .. 12);
    my $out   = $zeroes;
    my $other = $out;    # copy-on-write: shares the memory until one of them is written to
    mv_table_get($t, $out);
    is_deeply([unpack 'f*', $out], [1 .. 12], 'a get writes into the string');
    is($other, $zeroes, 'and into no other');
    mv_table_add_rows($t, pack('q*', 2, 2), pack('f*', (10) x 6));
    my $some = "\0" x 12;
    mv_table_get_rows($t, pack('q*', 2), $some);
    is_deeply([unpack 'f*', $some], [27, 28, 29], 'row ids are packed, too');
    mv_table_set($t, $zeroes);
    is(failure_of(sub { mv_table_get($t, ${ \'constant' }) })->name, 'MV_EINVAL', 'a constant takes no result');
    my $wide = "\x{263a}" . 'x' x 47;
    is(failure_of(sub { mv_table_add($t, $wide) })->name, 'MV_EDTYPE', 'characters are no bytes');
    my $upgraded = $zeroes;
    utf8::upgrade($upgraded);
    is(failure_of(sub { mv_table_add($t, $upgraded) }), 'none', 'bytes are bytes, however Perl stores them');
    is(failure_of(sub { mv_table_add($t, 'short') })->name, 'MV_ESHAPE', 'of the right number');
    is(failure_of(sub { mv_table_add_rows($t, 'odd', $zeroes) })->name, 'MV_EDTYPE', 'ids have eight');
};

subtest 'other data' => sub {
    for my $data ([1 .. 12], {}, \1, sub { 1 }, 12, 1.5) {
        my $failure = failure_of(sub { mv_table_add($t, $data) });
        is(ref $failure && $failure->name, 'MV_EDTYPE', (ref $data || $data) . ' is refused');
    }
};

subtest 'PDLs' => sub {
    plan skip_all => 'PDL is not installed' unless $have_pdl;
    mv_table_set($t, $zeroes);
    my $data = PDL->sequence(PDL::float(), 3, 4);
    mv_table_add($t, $data);
    my $out = PDL->zeroes(PDL::float(), 3, 4);
    mv_table_get($t, $out);
    ok(PDL::all($out == $data), 'go in and are written to');

    my $big = PDL->zeroes(PDL::float(), 6, 4);
    mv_table_get($t, $big->slice('0:-1:2'));
    ok(PDL::all($big->slice('0:-1:2') == $data) && PDL::all($big->slice('1:-1:2') == 0), 'a slice is written through');

    mv_table_add($t, $big->slice('0:-1:2')->slice('-1:0'));
    mv_table_get($t, $out);
    ok(PDL::all($out == $data + $data->slice('-1:0')), 'a slice is read as it looks');

    for my $type (qw(long double byte)) {
        my $failure = failure_of(sub { mv_table_add($t, PDL->can($type)->(PDL->ones(3, 4))) });
        is($failure->name, 'MV_EDTYPE', "$type is refused");
    }
    for my $type (qw(longlong indx)) {
        my $some = PDL->zeroes(PDL::float(), 3, 1);
        mv_table_get_rows($t, PDL->can($type)->(PDL->new([1])), $some);
        ok(PDL::all($some == 2 * 4), "$type row ids");
    }
    is(failure_of(sub { mv_table_get_rows($t, PDL->new([1]), $out) })->name, 'MV_EDTYPE', 'row ids are no doubles');
};

subtest 'unfinished gets hold their memory' => sub {
    mv_table_set($t, pack 'f*', (5) x 12);
    my $out     = $zeroes;
    my $request = mv_table_get($t, $out, MV_ASYNC);
    ok(!eval { $out = 'short'; 1 }, 'a string can not be changed meanwhile');
    is_deeply(mv_poll(0, 8, 5000), [$request], 'poll tells of it');
    is(mv_request_test($request), 1, 'test releases it');
    is_deeply([unpack 'f*', $out], [(5) x 12], 'it is written');
    ok(eval { $out = 'short'; 1 }, 'and free again');

    my @requests = map { my $gone = $zeroes; mv_table_get($t, $gone, MV_ASYNC) } 1 .. 100;
    mv_request_wait($_, 0) for @requests;
    pass('memory that nobody else holds lives long enough');

    if ($have_pdl) {
        my $pdl = PDL->zeroes(PDL::float(), 3, 4);
        mv_request_wait(mv_table_get($t, $pdl, MV_ASYNC), 0);
        ok(PDL::all($pdl == 5), 'a PDL is written');
        $request = mv_table_get($t, $pdl, MV_ASYNC);
        ok(!eval { $pdl->reshape(3000); 1 }, 'it can not be reallocated meanwhile');
        mv_request_wait($request, 0);
        ok(eval { $pdl->reshape(3000); 1 }, 'and is free again');
        my $parent = PDL->zeroes(PDL::float(), 6, 4);
        my $slice  = $parent->slice('0:-1:2');
        mv_request_wait(mv_table_get($t, $slice, MV_ASYNC), 0);
        is($parent->sum, 60, 'a slice is written through in the end');
    }
    no warnings 'once';
    is_deeply([keys %Polyverso::CAPI::held], [], 'nothing is kept');
};

subtest 'numbers' => sub {
    is(mv_rank('0'), 0, 'numeric strings are numbers');
    is(mv_rank(0.0), 0, 'so are whole floats');
    for my $wrong ('zero', '', undef, 0.5, 1e300, [], 9**9**9, -sin 9**9**9) {
        my $failure = failure_of(sub { mv_rank($wrong) });
        is(ref $failure && $failure->name, 'MV_EINVAL', ($wrong // 'undef') . ' is refused');
    }
    is(failure_of(sub { mv_log_level_set(1 << 40) })->name, 'MV_EINVAL', 'too large');
    like($@, qr/32 bits/, 'says so');
    ok(!eval { mv_rank(); 1 } && $@ =~ /Usage/, 'too few arguments');
};

subtest 'options' => sub {
    for my $options (undef, 0, {}, { timeout_ms => 1000 }, { flags => undef }) {
        is(failure_of(sub { mv_table_add($t, $zeroes, $options) }), 'none', defined $options ? "$options" : 'undef');
    }
    for my $options ('async', -1, [], { flag => 1 }, { flags => 'async' }, { flags => [] }, { timeout_ms => 'soon' }) {
        my $failure = failure_of(sub { mv_table_add($t, $zeroes, $options) });
        is(ref $failure && $failure->name, 'MV_EINVAL', 'wrong options');
    }
};

mv_shutdown(0);

is($Polyverso::VERSION, mv_version_text(), 'the module is of the library\'s version');

subtest 'arguments' => sub {
    my @arguments = ('train.pl', '-sync=true', 'data.txt', '--lr=0.1');
    is_deeply(mv_init_args(\@arguments), ['train.pl', 'data.txt', '--lr=0.1'], 'what is not ours stays');
    is(mv_is_sync(0), 1, 'what is ours counts');
    mv_shutdown(0);
    is(failure_of(sub { mv_init_args('train.pl') })->name, 'MV_EINVAL', 'an array is needed');
};

subtest 'errors' => sub {
    my $failure = failure_of(sub { mv_rank(0) });
    isa_ok($failure, 'Polyverso::Error');
    is_deeply([$failure->status, $failure->name, $failure->family], [MV_ESTATE, 'MV_ESTATE', 'state'], 'fields');
    like("$failure", qr/\AMV_ESTATE: .+ at \S+capi\.t line \d+\.\n\z/, 'as a string');
    ok($failure, 'true');
    my $line = __LINE__ + 1;
    $failure = failure_of(sub { Polyverso->init(no_such => 1) });
    like("$failure", qr/no_such.* line $line\./s, 'the line is the caller\'s');
};

done_testing;
