# SPDX-License-Identifier: BSD-3-Clause
"""No line of a document, of a manual page or of a public header has more than 100 columns.

In documents this leaves out lines that are one word, an address or code.
"""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
COLUMNS = 100
TAB = 8
FENCE = re.compile(r"\s*(```|~~~)")
UNBROKEN = re.compile(r"\s*([-*] |\d+\. )?\S+$")  # one word, or one address
CODE = re.compile(r"`[^`]*`")  # what is between these stays on its line


def is_long(line):
    return len(line.expandtabs(TAB)) > COLUMNS


def long_lines_of_document(text):
    """Numbers of the lines that could be shorter: commands, programs and pictures among them."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif is_long(line):
            verbatim = fenced or line.startswith("    ")
            if verbatim or not UNBROKEN.match(CODE.sub("c", line)):
                yield number


def long_lines(text):
    return (number for number, line in enumerate(text.split("\n"), 1) if is_long(line))


class Columns(unittest.TestCase):
    def assert_short(self, paths, least, find):
        self.assertGreater(len(paths), least)
        self.assertEqual([f"{path.relative_to(SOURCE)}:{number}" for path in paths
                          for number in find(path.read_text(encoding="utf-8"))], [])

    def test_documents(self):
        pages = [path for path in [*SOURCE.glob("*.md"), *SOURCE.glob("[a-z]*/**/*.md")]
                 if not path.relative_to(SOURCE).parts[0].startswith("build")]
        self.assert_short(pages, 20, long_lines_of_document)

    def test_manual_pages(self):
        self.assert_short([*SOURCE.glob("man/*.[1-9]")], 10, long_lines)

    def test_headers(self):
        self.assert_short([*SOURCE.glob("include/*.h*")], 5, long_lines)

    def test_what_is_long(self):
        word, row = "w" * (COLUMNS + 1), "| cell " * COLUMNS
        for line in word, f"- {word}", f"- `{row}`", "l" * COLUMNS, "\t" + "l" * (COLUMNS - TAB):
            self.assertEqual(list(long_lines_of_document(line)), [], line)
        for text in row, "word " * COLUMNS, f"```\n{row}\n```", f"    {word}", f"~~~\n\t{'l' * (COLUMNS - TAB + 1)}\n~~~":
            self.assertEqual(len(list(long_lines_of_document(text))), 1, text)


if __name__ == "__main__":
    unittest.main()
