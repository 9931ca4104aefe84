# SPDX-License-Identifier: BSD-3-Clause
"""docs/tracing.md against the tracepoints that the ELF files have.

test_tracing.py LIBSODA AGENT SERVER
"""
import os
import re
import subprocess
import sys
import unittest

FILES = dict(zip(("libsoda", "agent", "server"), sys.argv[1:4]))
WORDS = {"LIB": "libsoda", "AGENT": "agent", "SERVER": "server"}


def notes(path):
    """{name: set of how many arguments} of the provider soda, in one file."""
    text = subprocess.run(["readelf", "-nW", path], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    found = {}
    for provider, name, arguments in re.findall(
            r"Provider: (\S+)\s+Name: (\S+)\s+Location:[^\n]*\n\s+Arguments:([^\n]*)", text):
        if provider == "soda":
            found.setdefault(name, set()).add(len(arguments.split()))
    return found


class Tracing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(os.environ["SODA_SOURCE_DIR"], "docs", "tracing.md"), encoding="utf-8") as page:
            cls.text = page.read()
        items = re.findall(r"^- `(\w+)` \(([^)]+)\), in ([\w, ]+):", cls.text, re.M)
        cls.table = {name: (where.split(", "), arguments.split(", ")) for name, arguments, where in items}

    def test_each_tracepoint_is_where_the_page_says(self):
        for word, path in FILES.items():
            said = {name: {len(arguments)} for name, (where, arguments) in self.table.items() if word in where}
            self.assertTrue(said, word)
            self.assertEqual(said, notes(path), word)

    def test_each_argument_is_explained(self):
        explained = set()
        for item in re.findall(r"^- \*\*([a-z, ]+)\*\*: ", self.text, re.M):
            explained.update(item.split(", "))
        used = {a for _, arguments in self.table.values() for a in arguments}
        self.assertEqual(used, explained)

    def test_each_line_uses_what_is_there(self):
        uses = re.findall(r"usdt:(\w+):soda:(\w+)", self.text)
        self.assertGreater(len(uses), 10)
        for word, name in uses:
            self.assertIn(WORDS[word], self.table[name][0], name)
        for name in re.findall(r"sdt_soda:(\w+)", self.text):
            self.assertIn(name, self.table)

    def test_no_line_asks_for_more_arguments(self):
        lines = re.findall(r"^bpftrace -e '([^']*)'$", self.text, re.M)
        self.assertEqual(len(lines), self.text.count("bpftrace -e '"))
        for line in lines:
            for probe in re.findall(r"usdt:\w+:soda:(\w+)([^}]*)}", line):
                most = max((int(n) for n in re.findall(r"\barg(\d)", probe[1])), default=-1)
                self.assertLess(most, len(self.table[probe[0]][1]), line)


if __name__ == "__main__":
    if os.environ["SODA_TRACEPOINTS"] != "1":
        print("SKIP: this build has no tracepoints (sys/sdt.h)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
