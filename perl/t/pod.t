# Each module's manual is well-formed, and each public function is in it.

use strict;
use warnings;

use File::Find ();
use FindBin;
use Pod::Checker;
use Test::More;

my $have_coverage = eval { require Pod::Coverage; 1 };
my %need = (AI => [qw(Mouse PDL)], Polyverso => []);

# Modules that are internal, or generated.
my %is_internal = map { ("Polyverso::$_" => 1) } qw(CAPI Callback Exit Handle KVStore::Stored KVStore::Values Lists Names Values);
$is_internal{"AI::MXNet::$_"} = 1 for qw(Function::Parameters NDArray::File NDArray::Operators NS Optimizer::Native);
# Functions that other modules of the distribution call, and those that Perl and Mouse call.
my %helpers = (
    'Polyverso::Error'     => [qw(new throw)],
    'Polyverso::Group'     => [qw(from_handle operation options)],
    'Polyverso::Table'     => ['milliseconds'],
    'AI::MXNet::Base'      => [qw(dtype_in dtype_out pdl_as refuse)],
    'AI::MXNet::NDArray'   => [qw(refuse stringify)],
    'AI::MXNet::Updater'   => ['slice'],
);
my @strategies = qw(AllReduceSGD AllReduceEA AsyncEA LocalSGD DiLoCo CompressedAllReduce);
my @called_by_perl = map { qr/\A$_\z/ } qw(BUILD STORABLE_freeze STORABLE_thaw);
my @of_handles = map { qr/\A$_\z/ } qw(closes_with has_peers rows);
my @of_c = (qr/\A[mk]v_/, qr/\A(?:MV|KV)_/);    # polyverso.h describes them

my $lib = "$FindBin::Bin/../lib";
my @files;
File::Find::find(sub { push @files, $File::Find::name if /\.pm\z/ }, $lib);
for my $file (sort @files) {
    my $module = $file =~ s{\A\Q$lib\E/(.*)\.pm\z}{$1 =~ s|/|::|gr}er;
    next if $module eq 'Polyverso::CAPI';
    my $checker = Pod::Checker->new(-warnings => 1, -quiet => 1);
    open my $report, '>', \my $complaints or die $!;
    $checker->parse_from_file($file, $report);
    is(($complaints // '') =~ s/^.*\bpod syntax OK\.?\n//mgr, '', "$module: the manual is well-formed") unless $module eq 'Polyverso::Handle';
    next if $is_internal{$module};
SKIP: {
        skip "$module: Pod::Coverage is not installed", 1 unless $have_coverage;
        my ($top) = $module =~ /\A(\w+)/;
        for my $needed (@{ $need{$top} }) { skip "$module: $needed is not installed", 1 unless eval "require $needed; 1" }
        eval "require $module; 1" or die $@;
        for my $package ($module eq 'Polyverso::DistLearn' ? map { "${module}::$_" } @strategies : $module) {
            local $INC{ $package =~ s{::}{/}gr . '.pm' } = $file;    # Pod::Coverage need not load it
            my $coverage = Pod::Coverage->new(
                package      => $package,
                pod_from     => $file,
                also_private => [@called_by_perl, @of_handles, @of_c, map { qr/\A$_\z/ } @{ $helpers{$package} // [] }],
            );
            is($coverage->coverage // $coverage->why_unrated, 1, "$package: every function is in the manual")
                or diag join ' ', $coverage->naked;
        }
    }
}

done_testing;
