#!/usr/bin/env python3
"""Writes man pages and shell completions of `polyverso` from what its --help says.

    commands.py COMMAND FOLDER     FOLDER/man/man1, /bash-completion/completions, /zsh/site-functions, /fish/vendor_completions.d
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ENTRY = re.compile(r"^  (\S.*?)(?:  +(\S.*))?$")
FILES = ("FILE", "DIR", "FILE|DIR")


@dataclass
class Item:
    """An option, a positional or a subcommand."""

    names: list
    value: str  # such as FILE; "" for none
    optional: bool  # the value may be left out
    text: str


@dataclass
class Command:
    path: tuple  # ("checkpoint", "inspect")
    text: str = ""
    usage: str = ""
    sections: dict = field(default_factory=lambda: {"Positionals": [], "Options": [], "Subcommands": []})
    footer: list = field(default_factory=list)

    @property
    def name(self):
        return "-".join(("polyverso", *self.path))


def item(section, left, text):
    names, _, value = left.partition(" ")
    optional = "=" in value and ":FLOAT" in value  # an option with a default that may stand alone
    value = re.sub(r":(?:INT|FLOAT|UINT|TEXT).*| REQUIRED| Needs:.*| Excludes:.*| \.\.\.|=\S+$", "", value).strip()
    value = re.sub(r"^(?:KEY)$", "KEY=VALUE", value)
    return Item(names.split(","), "" if section == "Subcommands" else value, optional, text or "")


def parsed(path, help_text):
    command, section = Command(path), None
    lines = help_text.rstrip("\n").split("\n")
    command.text = lines[0].rstrip(".")
    for number, line in enumerate(lines[1:], 1):
        if line.startswith("Usage: "):
            command.usage = line[len("Usage: "):]
        elif line.rstrip(":") in command.sections and line.endswith(":"):
            section = line[:-1]
        elif line == "examples:":
            command.footer = lines[number:]
            break
        elif section and line.startswith(" " * 20):
            last = command.sections[section][-1]
            last.text = f"{last.text} {line.strip()}".strip()
        elif section and (match := ENTRY.match(line)):
            command.sections[section].append(item(section, match[1], match[2]))
    return command


def read(program, path=()):
    """The command and all below it. `help` is no command with options of its own."""
    text = subprocess.run([program, *path, "--help"], check=True, capture_output=True, text=True).stdout
    command = parsed(path, text)
    yield command
    for sub in command.sections["Subcommands"]:
        if sub.names[0] != "help":
            yield from read(program, (*path, sub.names[0]))


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text.startswith((".", "\\(aq")) else text


def man(command, commands, version):
    yield f'.TH {command.name.upper()} 1 "" "polyverso {version}" "User Commands"'
    yield f".SH NAME\n{command.name} \\- {roff(command.text[0].lower() + command.text[1:])}"
    yield f".SH SYNOPSIS\n.B {roff(command.usage)}"
    for title, items in command.sections.items():
        if items:
            yield f".SH {'ARGUMENTS' if title == 'Positionals' else title.upper().replace('SUBCOMMANDS', 'COMMANDS')}"
        for one in items:
            names = ", ".join(f"\\fB{roff(name)}\\fR" for name in one.names)
            value = f" \\fI{roff(one.value)}\\fR" if one.value else ""
            yield f".TP\n{names}{value}\n{roff(one.text)}"
    if command.footer:
        text = "\n".join(command.footer[1:]).strip("\n")
        examples, _, notes = text.partition("\n\n")
        yield ".SH EXAMPLES\n.nf\n" + "\n".join(roff(line[2:]) for line in examples.split("\n")) + "\n.fi"
        if notes:
            yield ".SH NOTES\n" + "\n.PP\n".join("\n".join(roff(line) for line in part.split("\n")) for part in notes.split("\n\n"))
    others = [other for other in commands if other is not command]
    yield ".SH SEE ALSO\n" + ",\n".join(f"\\fB{roff(other.name)}\\fR(1)" for other in others)


def options_of(command):
    return [name for one in command.sections["Options"] for name in one.names]


def subcommands_of(command):
    return [one.names[0] for one in command.sections["Subcommands"]]


def with_values(command, kinds=None):
    return [name for one in command.sections["Options"] if one.value and not one.optional and (kinds is None or one.value in kinds) for name in one.names]


def takes_files(command):
    return any(one.value in FILES for one in command.sections["Positionals"])


def bash(commands):
    yield """# Completion of polyverso for bash, made from its --help.
_polyverso() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --)
        if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); else COMPREPLY=($(compgen -c -f -- "$word")); fi
        return ;;
    esac
    case "$path ${COMP_WORDS[i]}" in"""
    known = [command.path for command in commands[1:]]
    yield "      " + " | ".join('"' + " " + " ".join(path) + '"' for path in known) + ') path="$path ${COMP_WORDS[i]}" ;;'
    yield "    esac\n  done\n  case $path in"
    for command in commands:
        path = "".join(" " + part for part in command.path)
        yield f'    "{path}")'
        files, others = with_values(command, FILES), [name for name in with_values(command) if name not in with_values(command, FILES)]
        if files or others:
            yield "      case $before in"
            if files:
                yield f'        {" | ".join(files)}) COMPREPLY=($(compgen -f -- "$word")); return ;;'
            if others:
                yield f'        {" | ".join(others)}) return ;;'
            yield "      esac"
        words = " ".join(subcommands_of(command) + options_of(command) + (["--"] if command.path == ("run",) else []))
        yield f'      COMPREPLY=($(compgen -W "{words}" -- "$word"))'
        if takes_files(command):
            yield '      [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"))'
        yield "      ;;"
    yield "  esac\n}\ncomplete -o filenames -F _polyverso polyverso"


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh(commands):
    yield "#compdef polyverso\n# Completion of polyverso for zsh, made from its --help.\n"
    for command in commands:
        yield f"_{command.name.replace('-', '_')}() {{"
        specs = []
        for one in command.sections["Options"]:
            text = re.sub(r"([\[\]:\\])", r"\\\1", one.text)
            value = f":{':' if one.optional else ''}{one.value.replace(':', chr(92) + ':')}:{'_files' if one.value in FILES else ' '}" if one.value else ""
            if one.optional:
                value = "::" + value.lstrip(":")
            specs += [quoted(f"*{name}[{text}]{value}") for name in one.names]
        specs += [quoted(f":{one.value.replace(':', chr(92) + ':')}:{'_files' if one.value in FILES else ' '}") for one in command.sections["Positionals"]]
        subs = command.sections["Subcommands"]
        if subs:
            yield "  local state line commands=(" + " ".join(quoted(f"{one.names[0]}:{one.text.replace(':', chr(92) + ':')}") for one in subs) + ")"
            specs += ["'1:command:->command'", "'*::arguments:->arguments'"]
        if command.path == ("run",):
            specs.append("'*::command:_normal'")
        yield "  _arguments " + ("-C " if subs else "") + " \\\n    ".join(specs)
        if subs:
            yield "  case $state in\n    command) _describe command commands ;;\n    arguments)\n      case $words[1] in"
            for sub in commands:
                if sub.path[:-1] == command.path and sub.path:
                    yield f"        {sub.path[-1]}) _{sub.name.replace('-', '_')} ;;"
            yield "      esac ;;\n  esac"
        yield "}\n"
    yield '_polyverso "$@"'


def fish(commands):
    yield "# Completion of polyverso for fish, made from its --help.\ncomplete -c polyverso -f"
    for command in commands:
        below = [sub.path[-1] for sub in commands if sub.path and sub.path[:-1] == command.path]
        here = "".join(f"; and __fish_seen_subcommand_from {part}" for part in command.path)
        not_below = f"; and not __fish_seen_subcommand_from {' '.join(below)}" if below else ""
        condition = quoted((here + not_below)[len("; and "):]) if here + not_below else "true"
        for one in command.sections["Subcommands"]:
            yield f"complete -c polyverso -n {condition} -a {one.names[0]} -d {quoted(one.text)}"
        for one in command.sections["Options"]:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in one.names)
            value = "" if not one.value or one.optional else " -r -F" if one.value in FILES else " -x"
            yield f"complete -c polyverso -n {condition} {names}{value} -d {quoted(one.text)}"
        if takes_files(command) or command.path == ("run",):
            yield f"complete -c polyverso -n {condition} -F"


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    commands = list(read(program))
    files = {f"man/man1/{command.name}.1": man(command, commands, version) for command in commands}
    files["bash-completion/completions/polyverso"] = bash(commands)
    files["zsh/site-functions/_polyverso"] = zsh(commands)
    files["fish/vendor_completions.d/polyverso.fish"] = fish(commands)
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
