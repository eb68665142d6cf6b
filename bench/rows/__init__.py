"""The measurements. Each file adds some, each function yields rows; bench/run.py discovers them."""
