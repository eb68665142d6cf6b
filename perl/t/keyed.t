# Dtypes, sparse and key-value tables, updaters, staleness, checkpoints; with PDLs and with arrays.

use strict;
use warnings;

use File::Temp ();
use FindBin;
use lib "$FindBin::Bin/lib";
use Test::More;
use TestCluster ();

use Polyverso;

my $have_pdl = eval { require PDL::Lite; 1 };
my $node     = Polyverso->init(log_level => 'error');

sub refused {
    my ($status, $code) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    ok(!eval { $code->(); 1 } && ref $@ && $@->name eq "MV_$status", "MV_$status") or diag $@;
}

# The result of a scan, as a hash of key => value.
sub scanned {
    my ($table, %how) = @_;
    my ($next, %seen) = ($table->scan(as => 'array', %how));
    while (my ($keys, $values) = $next->()) { @seen{@$keys} = @$values }
    return \%seen;
}

subtest 'dtypes' => sub {
    for my $dtype (qw(f32 f64 i64 i32 u8 i8 f16 bf16 double byte)) {
        my $t = $node->matrix(rows => 2, cols => 2, dtype => $dtype, init => [[1, 2], [3, 4]]);
        $t->add([[10, 10]], rows => [1]);
        is_deeply($t->get(as => 'array'), [[1, 2], [13, 14]], $dtype);
    }
    my $large = $node->array(size => 2, dtype => 'i64', init => ['9223372036854775807', -9223372036854775807 - 1]);
    is_deeply($large->get(as => 'array'), ['9223372036854775807', -9223372036854775807 - 1], 'integers are exact');
    my $half = $node->array(size => 4, dtype => 'f16', init => [0.1, 65504, 6e-8, -0.5]);
    is_deeply([map { sprintf '%.6g', $_ } @{ $half->get(as => 'array') }], [qw(0.0999756 65504 5.96046e-08 -0.5)],
        'two bytes are rounded to the nearest');
    my $small = $node->array(size => 1, dtype => 'u8');
    for my $wrong (1.5, 256, -1, 'many', undef, '18446744073709551616') {
        refused(EDTYPE => sub { $small->add([$wrong]) });
    }
    my $signed = $node->array(size => 2, dtype => 'i8', init => [-128, 127]);
    $signed->add([-1, 1]);
    is_deeply($signed->get(as => 'array'), [127, -128], 'signed bytes wrap around');
    for my $wrong (128, -129) {
        refused(EDTYPE => sub { $signed->add([$wrong, 0]) });
    }
    refused(EDTYPE => sub { $node->array(size => 1, dtype => 'i16') });
};

subtest 'PDLs of every dtype' => sub {
    plan skip_all => 'PDL is not installed' unless $have_pdl;
    my %type = (
        f32 => 'float', f64 => 'double', i64 => 'longlong', i32 => 'long', u8 => 'byte', i8 => 'sbyte',
        f16 => 'float', bf16 => 'float'
    );
    for my $dtype (sort keys %type) {
        my $t = $node->matrix(rows => 2, cols => 3, dtype => $dtype, init => PDL->sequence(3, 2));
        $t->add(PDL->ones(3, 2));
        my $values = $t->get;
        is($values->type, $type{$dtype}, "$dtype is $type{$dtype}");
        ok(PDL::all($values == PDL->sequence(3, 2) + 1) && $values->ndims == 2, 'of the table\'s shape');
    }
    my $bits = $node->array(size => 2, dtype => 'bf16', init => PDL->can('ushort')->(PDL->new([0x3F80, 0xC000])));
    is_deeply($bits->get(as => 'array'), [1, -2], 'ushort PDLs are bits');
    my $small = $node->array(size => 1, dtype => 'u8');
    refused(EDTYPE => sub { $small->add(PDL->new([1.5])) });
    refused(EDTYPE => sub { $small->add(PDL->new([300])) });
};

subtest 'a sparse matrix' => sub {
    my $t = $node->sparse(rows => 1e9, cols => 2, name => 'words', initial => 0.5);
    is_deeply([$t->size, $t->info->{stored}], [1e9, 0], 'stores nothing at first');
    $t->add([[1, 2], [1, 1]], rows => [999_999_999, 999_999_999]);
    is_deeply($t->get(as => 'array', rows => [5, 999_999_999]), [[0.5, 0.5], [2.5, 3.5]], 'and then what was changed');
    $t->set([[7, 7]], rows => 5);
    is_deeply(scanned($t), { 5 => [7, 7], 999_999_999 => [2.5, 3.5] }, 'which a scan gives');
    $t->erase([5, 6]);
    is_deeply($t->peek(as => 'array', rows => 5), [[0.5, 0.5]], 'erased rows are as they began');
    is($t->info->{stored}, 1, 'and take no room');
    refused(ERANGE => sub { $t->get(as => 'array', rows => [1e9]) });
    my ($one, $other) = map { $node->sparse(rows => 9, cols => 3, initial_range => 0.25, seed => $_) } 1, 2;
    isnt("@{ $one->get(as => 'array')->[0] }", "@{ $other->get(as => 'array')->[0] }", 'random values differ by seed');
};

subtest 'keys' => sub {
    my $t    = $node->keyvalue(dtype => 'i64');
    my @keys = (0, -1, '9223372036854775807', -9223372036854775807 - 1, 12345678901234567);
    $t->add([1 .. 5], keys => \@keys);
    $t->add([10, 10], rows => [@keys[2, 2]], forget => 1);
    is_deeply($t->get(as => 'array', keys => \@keys), [1, 2, 23, 4, 5], 'are any integers of 64 bits');
    is($t->size, 5, 'are counted');
    my %expected;
    @expected{@keys} = (1, 2, 23, 4, 5);
    is_deeply(scanned($t, chunk => 2), \%expected, 'are scanned');
    $t->erase([@keys[0 .. 2]], forget => 1);
    $t->erase([$keys[3]], async => 1)->wait;
    is($t->size, 1, 'are erased');
    $t->set([7], keys => [$keys[4]], async => 1, timeout => 5)->wait;
    is_deeply($t->peek(async => 1, as => 'array', keys => [$keys[4]])->wait, [7], 'are set and peeked at');
    $t->set([5], keys => [$keys[4]]);
    is_deeply($t->get(async => 1, as => 'array', keys => [17, $keys[4]])->wait, [0, 5], 'asynchronously, too');
    for my $wrong ('9223372036854775808', '-9223372036854775809', 1.5, 'one', undef) {
        refused(EINVAL => sub { $t->get(as => 'array', keys => [$wrong]) });
    }
    $t->add([1, 2], keys => [2**62, -1e15]);
    is_deeply($t->get(as => 'array', keys => ['4611686018427387904', '-1000000000000000']), [1, 2], 'floats may be keys');
    for my $wrong (2**63, 1e300, 9**9**9, -sin 9**9**9) {
        refused(EINVAL => sub { $t->get(as => 'array', keys => [$wrong]) });
    }
    refused(EINVAL => sub { $t->get(as => 'array') });
    refused(EINVAL => sub { $t->get(as => 'array', rows => [1], keys => [1]) });
    refused(EINVAL => sub { $t->scan(size => 3) });
    refused(EINVAL => sub { $node->array(size => 1, name => "zero\0byte") });
    refused(EINVAL => sub { $t->set_updater("add\0sgd") });
    refused(EINVAL => sub { $node->array(size => 1)->scan->() });
    refused(EINVAL => sub { $node->array(size => 1)->erase([0]) });

    my $capped = $node->keyvalue(capacity => 10);
    $capped->add([1], keys => [$_]) for 1 .. 100;
    ok($capped->size <= 10, 'a capacity is kept');
    is_deeply($capped->get(as => 'array', keys => [100]), [1], 'by the newest');
};

subtest 'keys as PDLs' => sub {
    plan skip_all => 'PDL is not installed' unless $have_pdl;
    my $t    = $node->keyvalue(cols => 2, dtype => 'f16', initial => 0.25);
    my $keys = PDL->can('longlong')->(PDL->new([3, -4, 5]));
    $t->set(PDL->sequence(2, 3), keys => $keys);
    ok(PDL::all($t->get(keys => $keys) == PDL->sequence(2, 3)), 'name values');
    my ($next, $seen) = ($t->scan(chunk => 2), 0);
    while (my ($ids, $values) = $next->()) {
        is($ids->type, 'longlong', 'a scan gives longlong keys');
        is_deeply([$values->dims], [2, $ids->nelem], 'and a row for each');
        $seen += $values->sum;
    }
    is($seen, 15, 'all of them');
};

subtest 'updaters and clocks' => sub {
    my $t = $node->array(size => 2, init => [1, 2], updater => 'sgd rate=0.5', staleness => 1);
    $t->add([1, 1]);
    is_deeply($t->get(as => 'array'), [0.5, 1.5], 'an updater updates');
    $t->set_updater('sgd rate=0.25');
    $t->set_updater('assign', async => 1, timeout => 5)->wait;
    $t->add([7, 8]);
    is_deeply($t->get(as => 'array'), [7, 8], 'another one');
    $t->clock for 1 .. 3;
    is_deeply([@{ $t->info }{qw(updater staleness clock)}], ['assign', 1, 3], 'are told');
    refused(EINVAL => sub { $t->set_updater('sdg') });
    like($@->text, qr/sgd/, 'with the known ones');
    refused(EINVAL => sub { $node->array(size => 1, updater => 'sgd speed=1') });
    refused(EINVAL => sub { $node->keyvalue(initial => 'much') });
    refused(EINVAL => sub { $node->keyvalue(capacity => 1.5) });
};

subtest 'checkpoints' => sub {
    my $folder = File::Temp->newdir;
    my $first  = Polyverso->open_node;
    $first->keyvalue(name => 'kv', dtype => 'i64')->add([5], keys => [-9]);
    $first->save("$folder", keep => 2);
    $first->open('kv')->add([1], keys => [-9]);
    $first->save("$folder", keep => 2, async => 1)->wait(timeout => 30);
    $first->shutdown;
    my $told = Polyverso->inspect_checkpoint("$folder");
    ok(ref $told, 'can be looked at');
    my $second = Polyverso->open_node;
    $second->load("$folder");
    is_deeply($second->open('kv')->get(as => 'array', keys => [-9]), [6], 'bring tables back');
    $second->load("$folder", async => 1)->wait(timeout => 30);
    $second->shutdown;
    refused(ENOTFOUND => sub { $node->load("$folder/none") });
    refused(ENOTFOUND => sub { Polyverso->inspect_checkpoint("$folder/none") });
    refused(EINVAL => sub { $node->save("$folder", keep => -1) });
};

$node->shutdown;

done_testing;
