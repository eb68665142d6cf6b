"""dpwa's interface ("distributed pair-wise averaging", github.com/loudinthecloud/dpwa) on Polyverso's gossip.

For scripts on machines without dpwa: the same names, arguments and results. What travels is arrays and bytes, never pickles;
dpwa's own nodes can't talk to these."""
