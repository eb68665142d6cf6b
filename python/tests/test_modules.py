"""Public modules list their names, and document them."""

import inspect
import types

import pytest

import multiverso
import polyverso
from polyverso import updater_states

MODULES = {module.__name__: module for module in (getattr(polyverso, name) for name in polyverso.__all__) if isinstance(module, types.ModuleType)}
MODULES |= {module.__name__: module for module in (polyverso, updater_states, multiverso)}


def documented(value, name):
    """Yields the names of functions, classes, methods and properties with what may document them."""
    if not inspect.isclass(value):
        if callable(value):
            yield name, value
        return
    yield name, value
    for base in value.__mro__:
        if not base.__module__.startswith(("polyverso", "multiverso")):
            continue
        for key, member in vars(base).items():
            if not key.startswith("_") and isinstance(member, (types.FunctionType, classmethod, staticmethod, property)):
                yield f"{base.__module__}.{base.__qualname__}.{key}", member


def test_all_public_modules_are_found():
    names = "capi distlearn errors gossip group kvstore kvstore_server lr_scheduler optimizer updater_states"
    assert {"polyverso", "multiverso", *(f"polyverso.{name}" for name in names.split())} == set(MODULES)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_lists_its_names_and_documents_them(name):
    module = MODULES[name]
    listed = {one for one in dir(module) if not one.startswith("__")}
    assert listed == set(module.__all__) and len(listed) == len(module.__all__)
    assert module.__doc__
    assert [one for name in module.__all__ for one, value in documented(getattr(module, name), name) if not (value.__doc__ or "").strip()] == []
