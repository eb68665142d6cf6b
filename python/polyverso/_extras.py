"""What a module says if the package that it is for is not installed."""

from __future__ import annotations


def advice(missing: ModuleNotFoundError, package: str) -> ModuleNotFoundError:
    """The error to raise: says how to install `package`, which is also the name of the extra. Other modules that are missing stay as they are."""
    if missing.name != package:
        return missing
    return ModuleNotFoundError(
        f"this module needs {package}, which is not installed: `python3 -m pip install 'polyverso[{package}]'` installs it", name=package)
