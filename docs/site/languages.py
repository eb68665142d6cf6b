"""References of Python, Perl and Lua, from the docstrings, the POD and the comments in the sources.

A page holds `<!-- pod: FILE -->` or `<!-- lua: FILE -->`; the reference of that module takes its place.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"^<!-- (pod|lua): (\S+) -->$", re.MULTILINE)
PACKAGE = re.compile(r"\[([^\]]+)\]\(module:([\w%:]+)(#[^)]*)?\)")


def perl(path):
    """The POD of a module as Markdown, below a heading of the second level."""
    text = subprocess.run(
        ["perl", "-MPod::Markdown", "-e", 'Pod::Markdown->new(perldoc_url_prefix => "module:")->filter($ARGV[0])', ROOT / path],
        check=True, capture_output=True, text=True, encoding="utf-8").stdout

    def link(match):
        module = match[2].replace("%3A", ":")
        if not module.startswith(("Polyverso", "AI::MXNet")):
            return f"[{match[1]}](https://metacpan.org/pod/{module})"
        page = "perl-" + module.lower().replace("::", "-")
        return f"[{match[1]}]({page}.md)" if (ROOT / "docs/reference" / f"{page}.md").exists() else f"`{match[1]}`"

    text = re.sub(r"\A# NAME\n\n.*? - (.*\n)", lambda match: match[1][0].upper() + match[1][1:], text)
    text = re.sub(r"^#", "##", text, flags=re.MULTILINE)
    text = re.sub(r"^(## )([A-Z ]+)$", lambda match: match[1] + match[2].capitalize(), text, flags=re.MULTILINE)
    text = re.sub(r"^### (.*)$", lambda match: "### `" + re.sub(r"\\(.)|`", r"\1", match[1]) + "`", text, flags=re.MULTILINE)
    # Below an item of a list, indented text is the item's, and code is indented twice.
    text = re.sub(r"^- .*\n(?:\n|(?: {4}).*\n)+|(?:^ {4}.*\n(?:\n(?= {4}))?)+",
                  lambda match: match[0] if match[0].startswith("- ") else fenced_perl(match), text, flags=re.MULTILINE)
    return PACKAGE.sub(link, text)


def fenced_perl(match):
    return "```perl\n" + re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE) + "```\n"


COMMENTED = re.compile(r"^--- ?(?P<text>.*\n(?:--.*\n)*)(?P<code>.*)", re.MULTILINE)
FUNCTION = re.compile(r"function ([\w.:]+)(\(.*?\))|([\w]+\.[\w.]+) = function(\(.*?\))")
# What an object is called in the headings of its methods, where the source's table of methods has no name of its own.
OBJECTS = {"lua/polyverso/tensor.lua": "tensor", "lua/polyverso/distlearn.lua": "strategy"}
TAG = re.compile(r"^@(\w+) ?(.*)$")


def lua(path):
    """The comments of a module's public functions as Markdown, below headings of the second level."""
    source = (ROOT / path).read_text(encoding="utf-8")
    parts = []
    for match in COMMENTED.finditer(source):
        lines = [re.sub(r"^---? ?", "", line) for line in match["text"].splitlines()]
        function = FUNCTION.search(match["code"]) if not match["code"].lstrip().startswith("local function") else None
        opening = match.start() == 0
        if not (function or opening):
            continue
        name = function and (function[1] or function[3])
        if name and re.search(r"[.:]_|[.]new$", name) or "@private" in match["text"] or "@package" in match["text"]:
            continue
        if name and name.startswith("methods:"):
            name = f"{OBJECTS[path]}:{name.partition(':')[2]}"
        heading = f"\n## `{name}{function[2] or function[4]}`\n\n" if name else ""
        parts.append(heading + "\n".join(described(lines)) + "\n")
    return "\n".join(parts)


def described(lines):
    """Text and tags; a line that is indented under a tag continues it."""
    tagged = code = False
    for line in lines:
        tag = TAG.match(line)
        if tag:
            if not tagged:
                yield ""
            tagged = True
            yield from tag_line(tag[1], tag[2])
        elif tagged and line:
            yield "  " + line.strip()
        else:
            tagged = False
            indented = line.startswith("  ")
            if indented != code:
                yield "```text" if indented else "```"
                code = indented
            yield line if code else line.replace("*", r"\*").replace("<", r"\<")
    if code:
        yield "```"


def tag_line(tag, rest):
    if tag == "param" or tag == "field":
        name, _, text = rest.partition(" ")
        yield f"- `{name}`: {text}"
    elif tag == "return":
        yield f"- returns {rest}"
    elif tag not in ("class", "type", "private", "meta", "cast", "diagnostic", "alias", "overload", "nodiscard"):
        yield f"- {tag} {rest}"


def on_docstring(app, what, name, object, options, lines):
    """Docstrings are plain text: indented blocks are code, backticks are code, and there is no other markup."""
    text, code, before = [], False, ""
    for line in lines:
        indented = line.startswith("    ")
        if indented and not code and before == "":
            text += [".. code-block:: python", ""]
            code = True
        elif line and not indented:
            code = False
        text.append(line if code else "".join(part if part.startswith("`") else re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in re.split(r"(`[^`]*`)", line)))
        before = line
    lines[:] = text


def on_source(app, document, source):
    def fill(match):
        app.env.note_dependency(str(ROOT / match[2]))
        return {"pod": perl, "lua": lua}[match[1]](match[2])

    source[0] = MARK.sub(fill, source[0])


def setup(app):
    app.connect("source-read", on_source, priority=400)
    app.connect("autodoc-process-docstring", on_docstring)
    return {"version": "1", "parallel_read_safe": True}
