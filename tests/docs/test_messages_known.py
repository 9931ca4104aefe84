# SPDX-License-Identifier: BSD-3-Clause
"""Each message that docs/troubleshooting.md explains is one that the sources have, word by word between its "...".

A message is code at the beginning of an entry, or in an entry and with "..." in it.
"""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
SHORTEST = 8  # characters of a piece between two "..." that say something


def literals():
    """All strings of the sources: pieces that the compiler joins are joined, and numbers and names are "...".

    A message that a condition makes of two strings is found by its pieces."""
    found = []
    for folder in ("src", "tools"):
        for path in sorted((SOURCE / folder).rglob("*.c")):
            text = re.sub(r'"\s*(?:PRI\w+\s*)?"', "", path.read_text(encoding="utf-8"))
            found += re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    return "\n".join(re.sub(r"%[-+0-9.*]*(?:l|ll|z|h|hh|j)?[a-zA-Z]", "...", one) for one in found)


def messages():
    page = (SOURCE / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    for entry in re.findall(r"^- (.*?)(?=^- |^#|\Z)", page, re.M | re.S):
        entry = re.sub(r"\s+", " ", entry)
        for found in re.finditer(r"`([^`]*)`", entry):
            code = found.group(1)
            begins = found.start() == 0 and entry.startswith(".", found.end())
            if " " in code and ("..." in code or begins):
                yield code


class Messages(unittest.TestCase):
    def test_each_is_in_the_sources(self):
        known, found = literals(), list(messages())
        self.assertGreater(len(found), 15)
        for message in found:
            for piece in re.split(r"\.\.\.", message):
                piece = piece.strip(" ,;:")
                if len(piece) >= SHORTEST:
                    self.assertIn(piece, known, f"of the message {message!r}")


if __name__ == "__main__":
    unittest.main()
