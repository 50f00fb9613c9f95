"""Files of text, compressed or not, in whatever encoding."""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from charset_normalizer import from_bytes

from onefit.cli.errors import TableError

UTF8 = "utf-8-sig"  # with or without a byte order mark
MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
WESTERN = "cp1252"  # by far the commonest of the encodings that cannot be told apart on a short sample
CHUNK = 2**20  # bytes


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed, by its first bytes."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _bytes(path: Path) -> Iterator[bytes]:
    with opened(path) as file:
        yield from iter(lambda: file.read(CHUNK), b"")


def opened(path: Path, encoding: str | None = None) -> IO[Any]:
    """A file whether compressed or not: its text, or its bytes where no encoding is given."""
    opener: Any = gzip.open if is_gzip(path) else open
    return opener(path, "rb") if encoding is None else opener(path, "rt", encoding=encoding, newline="")


def known_encoding(asked: str) -> str:
    """An encoding of text by the name that Python has for it."""
    try:
        " ".encode(asked)  # of a codec that is not of text, such as hex, this is a LookupError too
        name = codecs.lookup(asked).name
    except (LookupError, ValueError) as error:
        raise TableError(f"there is no encoding {asked!r} of text; try utf-8, cp1252 or latin-1") from error
    return UTF8 if name == "utf-8" else name


def encoding_of(path: Path, asked: str | None) -> tuple[str, list[str]]:
    """The encoding of a file, and a word on it where it is not UTF-8."""
    if asked:
        return known_encoding(asked), []
    decoder, chunk = codecs.getincrementaldecoder("utf-8")(), b""
    try:
        for chunk in _bytes(path):
            if chunk[:2] in MARKS:
                return MARKS[chunk[:2]], ["the text is in UTF-16"]
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return _guessed_encoding(path, chunk, error)
    return UTF8, []


def _guessed_encoding(path: Path, chunk: bytes, error: UnicodeDecodeError) -> tuple[str, list[str]]:
    """Guess by the lines around the first byte that is not UTF-8."""
    start = max(chunk.rfind(b"\n", 0, max(error.start - CHUNK // 8, 0)) + 1, 0)
    sample = chunk[start : start + CHUNK // 4]
    best = None if b"\0" in sample or sample[:1] == b"\x89" else from_bytes(sample).best()
    if best is None:
        raise TableError(f"{path} is not a table of text: save it as CSV UTF-8, or as Parquet")
    guess = WESTERN if _is_western(sample) else best.encoding
    return guess, [f"the text is not UTF-8 and was read as {guess} (--encoding says otherwise)"]


def _is_western(sample: bytes) -> bool:
    """Whether letters beyond ASCII stand alone or in pairs between others, as accents do."""
    try:
        text = sample.decode(WESTERN)
    except UnicodeDecodeError:
        return False
    runs = re.findall(r"[^\x00-\x7f]+", text)
    return sum(map(len, runs)) <= 1.5 * len(runs)
