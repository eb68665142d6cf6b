"""Public modules list their names, and document them."""

import inspect
import pathlib
import subprocess
import sys
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


def test_a_module_of_another_python_says_so(tmp_path):
    package = tmp_path / "polyverso"
    package.mkdir()
    for file in pathlib.Path(polyverso.__file__).parent.iterdir():
        if not file.name.startswith(("_capi", "__pycache__")):
            (package / file.name).symlink_to(file)
    (package / "_capi.cpython-35m-x86_64-linux-gnu.so").touch()
    done = subprocess.run([sys.executable, "-c", "import polyverso"], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "_capi.cpython-35m-x86_64-linux-gnu.so was compiled for another Python than this one" in done.stderr


def test_the_wheels_command_does_not_start_itself(tmp_path):
    package = tmp_path / "polyverso"
    package.mkdir()
    for file in pathlib.Path(polyverso.__file__).parent.iterdir():
        if file.name not in ("__pycache__", "bin"):
            (package / file.name).symlink_to(file)
    own = package / "bin" / "polyverso"
    own.parent.mkdir()
    own.touch(mode=0o644)
    script = tmp_path / "polyverso.sh" / "polyverso"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom polyverso.__main__ import main\nmain()\n")
    script.chmod(0o755)
    library = next(line.split(maxsplit=5)[5] for line in open("/proc/self/maps") if "/libpolyverso.so" in line)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": str(script.parent), "LD_LIBRARY_PATH": str(pathlib.Path(library).parent)}
    done = subprocess.run([script, "--version"], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"{own} can't be executed" in done.stderr
