# SPDX-License-Identifier: BSD-3-Clause
"""Promises with numbers: each test that an item of the lists names says the number, and no other test does."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
PAGES = "docs/reliability.md", "docs/security.md"
# - **R1.** text. Tests: a/b, c/d.    over as many lines as it takes
ITEM = re.compile(r"^- \*\*([RS]\d+)\.\*\* (?:(?!\n- |\n\n).)*?\sTests:\s+(\w+/\w+(?:,\s+\w+/\w+)*)\.$", re.M | re.S)
BEGINS = re.compile(r"^- \*\*[RS]\d+", re.M)
# the comment above a test's function, or above one more comment
SAYS = re.compile(r"Promises? ((?:[RS]\d+(?:, | and )?)+)\.[ \n]*\*/\n+(?:/\*(?:(?!\*/).)*\*/\n)?"
                  r"(static void |PASSES\()(\w+)", re.S)
NUMBER = re.compile(r"[RS]\d+")


def promised():
    """(number, test), as the pages say."""
    return [(number, test) for page in PAGES for number, tests in ITEM.findall((SOURCE / page).read_text())
            for test in re.split(r",\s+", tests)]


def held():
    """The same, as the tests say."""
    return {(number, f"{path.stem.removeprefix('test_')}/{'test_' * ('PASSES' in way) + function}")
            for path in (SOURCE / "tests").rglob("test_*.c")
            for numbers, way, function in SAYS.findall(path.read_text())
            for number in NUMBER.findall(numbers)}


class Promises(unittest.TestCase):
    def test_each_is_held(self):
        self.assertGreater(len(promised()), 40)
        self.assertEqual(sorted(set(promised()) - held()), [], "no such test, or it does not name the number")

    def test_each_that_is_held_is_promised(self):
        self.assertEqual(sorted(held() - set(promised())), [])

    def test_numbers_are_used_once(self):
        for page in PAGES:
            text = (SOURCE / page).read_text()
            numbers = [number for number, _ in ITEM.findall(text)]
            self.assertEqual(len(numbers), len(BEGINS.findall(text)), "an item without tests")
            self.assertEqual(len(numbers), len(set(numbers)))
            self.assertEqual([int(number[1:]) for number in numbers], list(range(1, len(numbers) + 1)))


if __name__ == "__main__":
    unittest.main()
