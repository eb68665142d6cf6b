"""polyverso-compat finds its modules where there are no real ones, and hides no real one: neither one on the search path
nor one of a finder that is added later, as editable installations add theirs."""

import importlib.machinery
import pathlib
import subprocess
import sys
import tempfile

WHERE = "import {0}; print({0}.__file__)"
LATER = """
import importlib.machinery, sys
class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.machinery.PathFinder.find_spec(name, [sys.argv[1]]) if name in ("multiverso", "dpwa") else None
sys.meta_path.append(Editable)
"""


def prints(program, *arguments, path=""):
    """What a program prints in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


for name in ("multiverso", "dpwa"):
    assert f"_polyverso_compat/modules/{name}/" in prints(WHERE.format(name)), name
    with tempfile.TemporaryDirectory() as folder:
        real = pathlib.Path(folder) / name / "__init__.py"
        real.parent.mkdir()
        real.write_text("")
        assert prints(WHERE.format(name), path=folder) == str(real)
        assert prints(LATER + WHERE.format(name), folder) == str(real)
prints("import multiverso as mv; mv.init(); t = mv.ArrayTableHandler(2); t.add([1, 2], sync=True); assert t.get().tolist() == [1, 2]; mv.shutdown()")
assert importlib.machinery.PathFinder.find_spec("multiverso") is None  # of the search path itself
print("both modules")
