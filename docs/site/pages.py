"""Makes pages of the site from documents that are written for GitHub, too.

Consecutive code blocks in different languages become tabs. A page of the references of a module ends with the same example in
all languages, from the document about it. Links to source files lead to pages with these files. The sidebar comes
from `contents` in conf.py. The README is also the front page.
"""

import posixpath
import re
import shutil
import textwrap
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"python": "Python", "perl": "Perl", "lua": "Lua", "cpp": "C++", "c": "C"}
BLOCK = r"```(?:python|perl|lua|cpp|c)(?: fragment)?\n(?:(?!```).*\n)*```\n"
BETWEEN = r"\s*(?:(?:The same in|In) [^\n]{1,40}:\s*)?"  # words that tabs make superfluous
BLOCKS = re.compile(rf"^(?:<!-- file: \S+ -->\n)?{BLOCK}(?:{BETWEEN}{BLOCK})+", re.MULTILINE)
FENCED = re.compile(r"^```(\w+)(?: fragment)?\n((?:(?!```).*\n)*)```\n", re.MULTILINE)
DETAILS = re.compile(r"^</?details>\n|^<summary>.*</summary>\n", re.MULTILINE)
HEADERS = {f"capi/include/polyverso/{name}.h": f"docs/reference/c-{name}"
           for name in ("polyverso", "kvstore", "group", "distlearn", "gossip", "membership", "tensor")}
LEXERS = {".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".pyi": "python", ".pm": "perl", ".pl": "perl", ".t": "perl",
          ".lua": "lua", ".sh": "sh", ".md": "markdown", ".json": "json", ".yaml": "yaml", ".cmake": "cmake"}


# Where the example of a module's reference comes from: the first tabs of that document.
EXAMPLES = {"polyverso": "tables", "node": "tables", "table": "tables", "kvstore": "kvstore", "group": "groups", "gossip": "tutorial-gossip",
            "tensor": "tensors"}
REFERENCE = re.compile(r"docs/reference/(?:c|python|perl|lua)-(?:polyverso-)?(\w+)")


def tabs(match):
    """Blocks in different languages, as tabs; blocks of one language twice stay as they are."""
    blocks = FENCED.findall(match[0])
    if len({language for language, _ in blocks}) < len(blocks):
        return match[0]
    items = [f":::{{tab-item}} {NAMES[language]}\n:sync: {language}\n\n```{language}\n{text}```\n:::\n" for language, text in blocks]
    return "::::{tab-set}\n:sync-group: language\n\n" + "".join(items) + "::::\n"


def with_example(document, text):
    """The text of a page of the reference with its example at the end."""
    page = REFERENCE.fullmatch(document)
    if not page or page[1] not in EXAMPLES:
        return text
    source = f"docs/{EXAMPLES[page[1]]}"
    found = BLOCKS.search((ROOT / f"{source}.md").read_text(encoding="utf-8"))
    blocks = FENCED.findall(found[0])
    if (ROOT / f"{document}.rst").exists():
        items = [f".. tab-item:: {NAMES[language]}\n   :sync: {language}\n\n   .. code-block:: {language}\n\n" + textwrap.indent(code, " " * 6)
                 for language, code in blocks]
        example = ".. tab-set::\n   :sync-group: language\n\n" + textwrap.indent("\n".join(items), " " * 3)
        return f"{text}\nExample\n-------\n\n{example}\n:doc:`More about it </{source}>`.\n"
    return f"{text}\n## Example\n\n{tabs(found)}\n[More about it](/{source}.md).\n"


def hidden_contents(contents):
    for caption, documents in contents.items():
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "".join(f"/{name}\n" for name in documents) + "```\n"


def on_source(app, document, source):
    source[0] = with_example(document, source[0])
    if not str(app.env.doc2path(document)).endswith(".md"):
        return
    text = DETAILS.sub("", source[0]) if document == "README" else source[0]
    text = re.sub(r"^The same in (?:Perl|Lua|C)\n\n", "", text, flags=re.MULTILINE)
    text = BLOCKS.sub(tabs, text)
    text = re.sub(r"^(```\w+) fragment$", r"\1", text, flags=re.MULTILINE)
    if document == app.config.root_doc:
        text += "".join(hidden_contents(app.config.contents))
    source[0] = text


def source_page(app, path):
    """The name of the page that shows a file, or None for folders and files outside of the repository."""
    file = (ROOT / path).resolve()
    if not file.is_file() or not file.is_relative_to(ROOT):
        return None
    shown = getattr(app.env, "shown_sources", None)
    if shown is None:
        shown = app.env.shown_sources = set()
    shown.add(path)
    return f"source/{path}"


def document_of(app, path):
    """The document for a path in the repository: a header's reference, or a folder's README."""
    for name in (HEADERS.get(path), posixpath.join(path, "README")):
        if name in app.env.found_docs:
            return name
    return None


class SourceLinks(SphinxPostTransform):
    """Links to files and folders of the repository that are no documents. Folders without a README become plain text."""

    default_priority = 5  # before MyST's and Sphinx's resolvers

    def run(self, **_):
        for node in list(self.document.findall(addnodes.download_reference)):
            self.replace(node)
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node["reftype"] == "myst" and "#" not in node["reftarget"] and (ROOT / self.path(node)).is_dir():
                self.replace(node)

    def path(self, node):
        given = node["reftarget"]
        return given[1:] if given.startswith("/") else posixpath.normpath(posixpath.join(posixpath.dirname(self.env.docname), given))

    def replace(self, node):
        path = self.path(node)
        name = document_of(self.app, path) or source_page(self.app, path)
        if name:
            uri = self.app.builder.get_relative_uri(self.env.docname, name)
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))
        else:
            node.replace_self(node.children)


def source_pages(app):
    for path in sorted(getattr(app.env, "shown_sources", ())):
        file = ROOT / path
        text = file.read_text(encoding="utf-8", errors="replace")
        body = app.builder.highlighter.highlight_block(text, LEXERS.get(file.suffix, "text"), force=True)
        yield f"source/{path}", {"title": path, "body": f"<h1>{path}</h1>{body}"}, "page.html"



def on_finished(app, error):
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app):
    app.add_config_value("contents", {}, "env", dict)
    app.add_post_transform(SourceLinks)
    app.connect("source-read", on_source)
    app.connect("html-collect-pages", source_pages)
    app.connect("build-finished", on_finished)
    return {"version": "1", "parallel_read_safe": False}
