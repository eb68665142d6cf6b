"""dpwa's interface ("distributed pair-wise averaging", github.com/loudinthecloud/dpwa) on Polyverso's gossip.

For scripts on machines without dpwa: the same names, arguments and results. Nodes exchange arrays and bytes, never
pickles, and can't exchange them with dpwa's own nodes."""
