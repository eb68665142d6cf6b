# Runs the program in the SYNOPSIS of each module.

use strict;
use warnings;

use File::Glob 'bsd_glob';
use FindBin;
use lib "$FindBin::Bin/lib";
use Test::More;
use TestCluster ();

my $have_pdl = eval { require PDL::Lite; 1 };

my $have_mouse = eval { require Mouse; 1 };
my @files = map { "$FindBin::Bin/../lib/$_" } qw(*.pm */*.pm */*/*.pm */*/*/*.pm);

for my $file (sort map { bsd_glob($_) } @files) {
    open my $lines, '<', $file or die "$file: $!";
    my $text = do { local $/; <$lines> };
    my ($synopsis) = $text =~ /^=head1 SYNOPSIS\n(.*?)^=/ms or next;
    my ($name) = $file =~ m{lib/(.*)\z};
SKIP: {
        skip "$name: PDL is not installed", 1 if $synopsis =~ /\b(?:PDL|AI::MXNet)\b/ && !$have_pdl;
        skip "$name: Function::Parameters is not installed", 1
            if $synopsis =~ /\bFunction::Parameters\b/ && !eval { require Function::Parameters; 1 };
        skip "$name: Mouse is not installed", 1 if $synopsis =~ /\bAI::MXNet\b/ && !$have_mouse;
        open my $perl, '|-', "$^X -w - >/dev/null" or die "perl: $!";
        print $perl "use strict;\n", grep { /\A(?: {4}|\s*\z)/ } $synopsis =~ /^.*\n/mg;    # only the code
        ok(close $perl, $name) or diag "status $?";
    }
}

done_testing;
