# SPDX-License-Identifier: BSD-3-Clause
"""Each command of soda whose output is a result answers --json, for scripts; the others are named here, with the reason.

The commands are those that `soda --help` names, and those that the help of one of these names.
"""
import re
import subprocess
import unittest

WITHOUT = {
    "eval": "its results are results.json and results.csv, in its folder",
    "msg run": "what is printed is the program's",
    "pool events": "it prints lines of JSON in any case",
    "report": "it makes pages and tables of JSON",
    "seal cat": "what is printed is the content of a file",
    "top": "it is for a terminal: soda stat --json has the numbers",
}


def help_of(*words):
    return subprocess.run(["soda", *words, "--help"], check=True, stdout=subprocess.PIPE, text=True, timeout=50).stdout


def commands(*words):
    """The commands without commands of their own, as words."""
    text = help_of(*words)
    listed = re.search(r"^(?:Commands|Benchmarks):\n((?:  .*\n)+)", text, re.M)
    if not listed:
        return [words]
    names = re.findall(r"^  (\w+) ", listed[1], re.M)
    assert names, text
    return [found for name in names for found in commands(*words, name)]


class JsonOptions(unittest.TestCase):
    def test_results(self):
        all_of_them = commands()
        self.assertGreater(len(all_of_them), 25)
        for words in all_of_them:
            name = " ".join(words)
            with self.subTest(name):
                has = re.search(r"^ +(-\w, )?--json\b", help_of(*words), re.M) is not None
                self.assertNotEqual(has, name in WITHOUT, "soda %s: --json is %sthere" % (name, "" if has else "not "))
        self.assertLessEqual(set(WITHOUT), {" ".join(words) for words in all_of_them})


if __name__ == "__main__":
    unittest.main()
