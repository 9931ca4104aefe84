# SPDX-License-Identifier: BSD-3-Clause
"""No line of a Markdown document has more than 100 columns, but for tables, code and addresses."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
COLUMNS = 100
FENCE = re.compile(r"\s*(```|~~~)")
UNBROKEN = re.compile(r"\s*([-*] |\d+\. )?\S+$")  # one word, or one address
CODE = re.compile(r"`[^`]*`")  # what is between these stays on its line


def long_lines(path):
    """Numbers of the lines that could be shorter."""
    fenced = False
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and len(line) > COLUMNS and not line.startswith(("|", "    ")):
            if not UNBROKEN.match(CODE.sub("c", line)):
                yield number


class Columns(unittest.TestCase):
    def test_documents(self):
        pages = [path for path in [*SOURCE.glob("*.md"), *SOURCE.glob("[a-z]*/**/*.md")]
                 if not path.relative_to(SOURCE).parts[0].startswith("build")]
        self.assertGreater(len(pages), 20)
        found = [f"{path.relative_to(SOURCE)}:{number}" for path in pages for number in long_lines(path)]
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
