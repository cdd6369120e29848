"""The encoding of a text file: as given, by its first bytes, UTF-8, or Western European.

A file that is not UTF-8 is read as cp1252 (what Windows calls ANSI, a superset of latin-1) only if
the encodings of Central Europe agree about every word in it; otherwise the user has to tell.
"""

import codecs
import re
from pathlib import Path

from fedeas.errors import InputError
from fedeas.tables.arguments import argument

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_WESTERN = "cp1252"
_OTHERS = ("iso8859-15", "cp1250", "iso8859-2")
# What else a text may be in, most likely first, to show how its words would read.
_SUGGESTED = (_WESTERN, "cp1250", "cp1251", "mac_roman", "cp850")
_WORD = re.compile(rb"[A-Za-z\x80-\xff]+")
_BLOCK = 1 << 20
_SHOWN = 40  # letters of a word


def find_encoding(path: Path, given: str | None) -> str:
    """Return the encoding of a file, or refuse one that may be in several."""
    if given is not None:
        return _checked(given)
    with path.open("rb") as file:
        start = file.read(4)
        for mark, encoding in _MARKS.items():
            if start.startswith(mark):
                return encoding
        if b"\0" in start[:2]:
            encoding = "utf-16-le" if start[1:2] == b"\0" else "utf-16-be"
            raise InputError(
                f"{path} is not text, or UTF-16 without a mark",
                fix=f"pass {argument('encoding', encoding)} if it is text, or save it as UTF-8",
            )
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := file.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            file.seek(0)
            for number, line in enumerate(file, start=1):
                _check_western(f"{path} line {number}", line)
            return _WESTERN
    return "utf-8-sig"


def assumption(encoding: str) -> str:
    """Say how a file is read that is not UTF-8; nothing for one that is."""
    return "" if encoding.lower().replace("_", "-").startswith("utf-8") else f"in {encoding}"


def _checked(given: str) -> str:
    try:
        if not codecs.lookup(given)._is_text_encoding:
            raise LookupError
    except LookupError:
        raise InputError(
            "unknown encoding", got=given, allowed="utf-8, utf-16, cp1252, latin-1, ..."
        ) from None
    return "utf-8-sig" if codecs.lookup(given).name == "utf-8" else given


def _check_western(where: str, line: bytes) -> None:
    """Refuse a line whose words differ between encodings, or are hardly words in any of them."""
    for word in _WORD.findall(line):
        if word.isascii():
            continue
        western = _decoded(word, _WESTERN)
        letters = sum(byte < 0x80 for byte in word)
        agreed = western is not None and all(_decoded(word, e) == western for e in _OTHERS)
        if agreed and 2 * letters > len(word):
            continue
        found = {text: e for e in reversed(_SUGGESTED) if (text := _decoded(word, e))}
        either = ", ".join(
            f"{argument('encoding', e)} if it is {text[:_SHOWN]!r}"
            for text, e in reversed(found.items())
        )
        raise InputError(
            f"{where} is not UTF-8",
            got=word.decode("latin-1"),
            fix=f"pass {either}, or save the file as UTF-8" if either else "save it as UTF-8",
        )


def _decoded(word: bytes, encoding: str) -> str | None:
    """Return a word in an encoding, None if it is not a word there: 'SŸd' is not one."""
    try:
        text = word.decode(encoding)
    except UnicodeDecodeError:
        return None
    natural = text.islower() or text.isupper() or text[1:].islower()
    return text if text.isalpha() and natural else None
