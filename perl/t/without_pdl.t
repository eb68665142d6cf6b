# Without PDL, everything except PDLs works.

use strict;
use warnings;

# Makes require() of PDL fail as for a missing module.
BEGIN { unshift @INC, sub { die "Can't locate $_[1]\n" if $_[1] =~ m{\APDL\b} } }

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster ();

use Polyverso;

my $node = Polyverso->init;
my $t = $node->matrix(rows => 2, cols => 2, init => [[1, 2], [3, 4]]);
$t->add([[1, 1]], rows => [1]);
is_deeply($t->get, [[1, 2], [4, 5]], 'results are arrays');
is_deeply($t->get(async => 1)->wait, [[1, 2], [4, 5]], 'asynchronously, too');
ok(!eval { $t->get(as => 'pdl'); 1 } && $@->text =~ /install/, 'a PDL can not be had, and what to do is said');
$node->shutdown;

done_testing;
