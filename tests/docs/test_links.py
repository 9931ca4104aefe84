# SPDX-License-Identifier: BSD-3-Clause
"""Each link of a Markdown document to a file of the tree finds it, and the heading in it; two of them are short."""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
LINES = {"README.md": 120, "ARCHITECTURE.md": 300}
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages():
    return [path for path in [*SOURCE.glob("*.md"), *SOURCE.glob("[a-z]*/**/*.md")]
            if not path.relative_to(SOURCE).parts[0].startswith("build")]


def anchors(path):
    """The names by which a page's headings can be linked to."""
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(other == name or re.fullmatch(re.escape(name) + r"-\d+", other) is not None for other in found)
        found.add(f"{name}-{number}" if name in found else name)
    return found


def broken(path):
    """Targets of a page's links that do not exist."""
    for target in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
            yield target


class Links(unittest.TestCase):
    def test_each_is_there(self):
        found = [f"{path.relative_to(SOURCE)}: {target}" for path in pages() for target in broken(path)]
        self.assertGreater(len(pages()), 20)
        self.assertEqual(found, [])

    def test_documents_can_be_reached(self):
        """From the README and from the index of docs/, by links."""
        todo, seen = [SOURCE / "README.md"], set()
        while todo:
            page = todo.pop()
            if page in seen or not page.exists():
                continue
            seen.add(page)
            for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
                name = target.partition("#")[0]
                if name.endswith(".md") and not re.match(r"[a-z]+:", name):
                    todo.append((page.parent / name).resolve())
        lost = [str(path.relative_to(SOURCE)) for path in pages() if path.parts[len(SOURCE.parts)] == "docs"
                and path not in seen and "notebook" not in path.parts]
        self.assertEqual(lost, [])

    def test_two_are_short(self):
        for name, lines in LINES.items():
            self.assertLessEqual(len((SOURCE / name).read_text(encoding="utf-8").splitlines()), lines, name)


if __name__ == "__main__":
    unittest.main()
