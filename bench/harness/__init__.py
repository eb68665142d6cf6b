"""What measures: processes and their dialogue, comparisons in interleaved pairs, results."""
