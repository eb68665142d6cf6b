"""The measuring harness: processes and the protocol with them, comparisons in interleaved pairs, results."""
