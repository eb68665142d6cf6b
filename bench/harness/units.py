"""Conversions from seconds to the units of a row."""


def microseconds(seconds):
    return seconds * 1e6


def milliseconds(seconds):
    return seconds * 1e3


def per_second(seconds):
    return 1 / seconds


def gigabytes_per_second(moved):
    """Returns a function from seconds to speed, for `moved` bytes."""
    return lambda seconds: moved / seconds / 1e9
