"""The context of a measurement, and the discovery of measurements."""

import importlib
import pkgutil

from . import machine, mxnet
from .compare import FULL, QUICK, compare
from .environments import Unavailable
from .parties import Parties

MEASUREMENTS = {}  # by name, in the order of the file names


def measurement(function):
    """Declares a measurement: a function that takes a Bench and yields Rows. Its docstring is its description."""
    MEASUREMENTS[function.__name__] = function
    return function


def find_measurements(package):
    """Imports every file of bench/rows. Returns MEASUREMENTS."""
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return MEASUREMENTS


class Bench:
    """The context of a run: the tree under test, the effort, and the data for plots."""

    def __init__(self, build, sources, environment, quick, progress):
        self.sources = sources
        self.quick = quick
        self.effort = QUICK if quick else FULL
        self.progress = progress
        self.parties = Parties(build, sources, machine.cpus(), environment)
        self.environment = environment
        self.output = build / "bench"
        self.curves = {}  # for plots: {file: (title, {label: [(bytes, bytes per second)]})}
        self.pictures = {}  # other plots: {file: function of its path and a caption}
        self._pythons = {}  # {Environment: its interpreter, or Unavailable}

    def compare(self, sides, cases, effort=None, figure="median"):
        """Calls compare.compare() with this run's effort. sides: {side: function without arguments that starts its
        Party}"""
        return compare(sides, cases, effort or self.effort, self.progress, figure)

    def python_of(self, environment):
        """The interpreter of an Environment. Raises Unavailable, and does not try again in this run."""
        if environment not in self._pythons:
            try:
                self._pythons[environment] = environment.interpreter(self.output, self.progress)
            except Unavailable as error:
                self._pythons[environment] = error
        found = self._pythons[environment]
        if isinstance(found, Unavailable):
            raise found
        return found

    def why_no(self, environment):
        """The reason why an Environment is unavailable; empty if it is available."""
        try:
            self.python_of(environment)
            return ""
        except Unavailable as error:
            return str(error)

    @property
    def mxnet_python(self):
        return self.python_of(mxnet.MXNET)

    def mxnet(self, pinning):
        return mxnet.cluster(self.mxnet_python, [self.sources / "programs" / "mxnet_worker.py"], pinning)

    def why_no_mxnet(self):
        return self.why_no(mxnet.MXNET)
