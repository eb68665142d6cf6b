# Sphinx's configuration of the site. `make site` runs it; the root of the sources is the repository.

import re
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).resolve().parents[2]

project = "Polyverso"
author = "the Polyverso authors"
copyright = author
_header = (ROOT / "capi/include/polyverso/polyverso.h").read_text(encoding="utf-8")
release = version = ".".join(re.search(rf"#define MV_VERSION_{part} (\d+)", _header)[1] for part in ("MAJOR", "MINOR", "PATCH"))

extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx_design", "sphinx_copybutton", "languages", "pages"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "README"
include_patterns = [
    "*.md", "docs/*.md", "docs/reference/*", "examples/*/README.md", "data/README.md", "docs/site/README.md",
    "capi/**/README.md", "perl/**README.md", "python/**README.md", "lua/**README.md",
]
exclude_patterns = ["build", ".git"]

# The sidebar. Every document is in one of these lists; `pages` puts them below the README as hidden tables of contents.
contents = {
    "Start": ["docs/installing", "docs/tutorial-tables", "docs/tutorial-kvstore", "docs/tutorial-allreduce", "docs/tutorial-gossip"],
    "Ways of sharing": ["docs/tables", "docs/kvstore", "docs/groups", "docs/gossip"],
    "On top of them": [
        "docs/distlearn", "docs/pytorch", "docs/keras", "docs/jax", "docs/optimizers", "docs/checkpoints", "docs/tensors", "docs/cuda", "docs/benchmarks-cuda",
        "docs/cuda-costs",
    ],
    "Languages": ["docs/python", "docs/perl", "docs/lua", "docs/cpp", "docs/asyncio", "docs/torch", "docs/ffi"],
    "Coming from": [
        "docs/coming-from-multiverso", "docs/coming-from-mxnet", "docs/coming-from-distlearn", "docs/coming-from-dpwa",
        "capi/multiverso/README", "lua/compat/ipc/README", "lua/compat/multiverso/README", "lua/compat/torch/README",
        "perl/AI-MXNet/README", "python/compat/README", "python/compat/dpwa/README", "python/compat/multiverso/README",
    ],
    "Reference": ["docs/reference/c", "docs/reference/python", "docs/reference/perl", "docs/reference/lua"],
    "Operation": ["docs/operations", "docs/launchers", "docs/transports", "docs/failures", "docs/security", "docs/benchmarks", "docs/allreduce"],
    "Examples": [
        f"examples/{name}/README"
        for name in ("digits", "lm", "logreg", "kvstore", "survive", "mxnet-kvstore", "distlearn", "multiverso", "torch", "keras", "jax", "gossip-cifar")
    ] + ["data/README"],
    "Development": [
        "docs/design", "CONTRIBUTING", "docs/adding-a-function", "docs/glossary", "docs/releasing", "docs/large-classes", "perl/README",
        "python/README", "lua/README", "SECURITY", "CHANGELOG", "docs/index", "docs/site/README",
    ],
}

myst_heading_anchors = 5  # with GitHub's names, so that links with anchors work in both places
myst_enable_extensions = ["colon_fence"]
# READMEs may begin at any level, fragments need not parse, and a struct and its typedef share a name.
suppress_warnings = ["myst.header", "misc.highlighting_failure", "duplicate_declaration.c"]

breathe_projects = {"polyverso": str(ROOT / "build/site-tools/xml")}
breathe_default_project = "polyverso"
breathe_default_members = ()
breathe_domain_by_extension = {"h": "c"}

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_mock_imports = ["torch", "keras", "jax", "tensorflow", "yaml"]
# The package registers itself with PyTorch when it is imported; its modules suffice here.
import polyverso  # noqa: E402

_torch = types.ModuleType("polyverso.torch")
_torch.__path__ = [str(Path(polyverso.__file__).parent / "torch")]
sys.modules[_torch.__name__] = _torch

python_use_unqualified_type_names = True
python_maximum_signature_line_length = c_maximum_signature_line_length = 90
toc_object_entries = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Polyverso {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
copybutton_prompt_text = "$ "
