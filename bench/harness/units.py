"""From seconds to what a row shows."""


def microseconds(seconds):
    return seconds * 1e6


def per_second(seconds):
    return 1 / seconds


def gigabytes_per_second(moved):
    """A function: the speed at which `moved` bytes take so many seconds."""
    return lambda seconds: moved / seconds / 1e9
