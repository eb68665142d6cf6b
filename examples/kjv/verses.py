"""The King James Bible of 1611, verse by verse, from Debian's package bible-kjv-text: real text, free and easy to
install. examples/lm learns word vectors from it; examples/logreg learns to tell its two testaments apart."""

import pathlib
import re
import struct
import subprocess

PACKAGE = "bible-kjv-text"
MAGIC = b"EC02Compressed Data File"
COMPRESS = b"\x1f\x9d\x90"  # the header of a 16-bit compress(1) file, which the package's data omits
VERSE = re.compile(r"^(\w+?)(\d+):(\d+) (.*)$")
FIRST_OF_THE_NEW_TESTAMENT = "Mat"
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


class Missing(Exception):
    """The text is not available. The message says how to get it."""


def verses() -> list[tuple[str, str]]:
    """Returns [(book, text)], in order. Raises Missing."""
    found = [VERSE.match(line) for line in whole_text().splitlines()]
    return [(match[1], match[4]) for match in found if match]


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


def whole_text() -> str:
    path = data_file()
    data = path.read_bytes()
    # The header: 80 bytes of title; then, big-endian: a zero, the window size, the number of windows, the start of each
    # window, and the end.
    if not data.startswith(MAGIC):
        raise Missing(f"{path} does not have the format known from {PACKAGE}: its first bytes are {data[:24]!r}")
    (windows,) = struct.unpack_from(">I", data, 88)
    offsets = struct.unpack_from(f">{windows + 1}I", data, 92)
    return b"".join(unpacked(data[begin:end]) for begin, end in zip(offsets, offsets[1:])).decode("latin-1")


def unpacked(window: bytes) -> bytes:
    return subprocess.run(["gzip", "-dc"], input=COMPRESS + window, stdout=subprocess.PIPE, check=True).stdout


def data_file() -> pathlib.Path:
    """The path according to dpkg, or the package's usual path if there is no dpkg."""
    try:
        listed = subprocess.run(["dpkg", "-L", PACKAGE], capture_output=True, text=True).stdout.split("\n")
    except FileNotFoundError:
        listed = []
    for name in [*listed, "/usr/lib/bible.data"]:
        if name.endswith("/bible.data") and pathlib.Path(name).is_file():
            return pathlib.Path(name)
    raise Missing(f"the package {PACKAGE}, which holds the text, is not installed: run `make deps`")
