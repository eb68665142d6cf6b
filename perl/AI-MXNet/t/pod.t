# The manuals of this folder's modules, as the core's test checks those of the core.

use strict;
use warnings;

use FindBin;

do "$FindBin::Bin/../../t/pod.t" or die $@ || $!;
