"""The measurements. Each file adds some, each function yields rows; bench/run.py finds them by itself."""
