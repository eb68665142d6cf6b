# Runs the program in the SYNOPSIS of each module of this folder, as the core's test does with the core's modules.

use strict;
use warnings;

use FindBin;

do "$FindBin::Bin/../../t/synopsis.t" or die $@ || $!;
