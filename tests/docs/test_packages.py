# SPDX-License-Identifier: BSD-3-Clause
"""The packages in docs/install.md, held against debian/: each node is told of packages that are made, by patterns that take
no other one's file; and a package brings no more than its node needs.

test_packages.py SOURCE
"""
import fnmatch
import os
import re
import sys
import unittest

SOURCE = sys.argv.pop() if len(sys.argv) > 1 else "."


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def packages():
    """{name: {field: text}} of debian/control, without the source."""
    out = {}
    for paragraph in read("debian", "control").split("\n\n")[1:]:
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \n]*((?:.*(?:\n[ \t].*)*))", paragraph, re.M))
        out[fields["Package"]] = fields
    return out


def names(text):
    return {re.split(r"[ (|:$]", part.strip())[0] for part in text.split(",") if part.strip()}


class Packages(unittest.TestCase):
    def test_patterns_take_one_file_each(self):
        made = [f"{name}{kind}_0.1.0_amd64.deb" for name in packages() for kind in ("", "-dbgsym")]
        patterns = re.findall(r"\.\./([^ `]+\.deb)", read("docs", "install.md"))
        taken = [fnmatch.filter(made, pattern) for pattern in patterns]
        for pattern, files in zip(patterns, taken):
            self.assertEqual(len(files), 1, f"{pattern} of docs/install.md takes {files}")
        self.assertEqual({files[0].split("_")[0] for files in taken}, set(packages()), "docs/install.md does not name each package")

    def test_one_version(self):
        version = re.search(r"version: '([^']+)'", read("meson.build")).group(1)
        self.assertIn(f"soda ({version})", read("debian", "changelog").split("\n", 1)[0])
        self.assertIn(f"\nversion: {version}\n", read("CITATION.cff"))
        self.assertIn(f"## {version},", read("CHANGELOG.md"))

    def test_nothing_that_draws_comes_by_itself(self):
        for name, fields in packages().items():
            brought = names(fields.get("Depends", "")) | names(fields.get("Recommends", ""))
            self.assertFalse(brought & {"python3-matplotlib", "python3-jinja2"}, name)

    def test_pages_that_units_name_come_with_them(self):
        for unit in ("soda-mem-server",):
            pages = re.findall(r"man:([\w-]+)\((\d)\)", read("debian", unit + ".service"))
            self.assertTrue(pages)
            installed = read("debian", unit + ".install")
            for page, section in pages:
                self.assertTrue(f"man{section}/{page}.{section}" in installed or f"man{section}\n" in installed,
                                f"{page}({section}) is not in {unit}")

    def test_documents_that_configurations_name_are_there(self):
        for name in ("debian/soda-dpu-agent.ini", "docs/soda-mem-server.ini"):
            self.assertNotIn("docs/", read(name), f"{name} points to a document that no node with it has")
        self.assertIn("docs", read("debian", "soda-tools.docs").split())


if __name__ == "__main__":
    unittest.main()
