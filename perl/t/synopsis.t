# The programs that the documentation begins with run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use Test::More;
use TestCluster ();

my $have_pdl = eval { require PDL::Lite; 1 };

for my $file (sort glob "$FindBin::Bin/../lib/Polyverso.pm $FindBin::Bin/../lib/Polyverso/*.pm") {
    open my $lines, '<', $file or die "$file: $!";
    my $text = do { local $/; <$lines> };
    my ($synopsis) = $text =~ /^=head1 SYNOPSIS\n(.*?)^=/ms or next;
    my ($name) = $file =~ m{lib/(.*)\z};
SKIP: {
        skip "$name: PDL is not installed", 1 if $synopsis =~ /\bPDL\b/ && !$have_pdl;
        open my $perl, '|-', "$^X -w - >/dev/null" or die "perl: $!";
        print $perl "use strict;\n", grep { /\A(?: {4}|\s*\z)/ } $synopsis =~ /^.*\n/mg;    # not the words between
        ok(close $perl, $name) or diag "status $?";
    }
}

done_testing;
