"""The fixtures of the core's tests, which clear the environment and start clusters."""

import importlib.util
import pathlib

CORE = pathlib.Path(__file__).resolve().parents[3] / "tests" / "conftest.py"
specification = importlib.util.spec_from_file_location("core_conftest", CORE)
core = importlib.util.module_from_spec(specification)
specification.loader.exec_module(core)
cluster = core.cluster
