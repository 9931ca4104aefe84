# SPDX-License-Identifier: BSD-3-Clause
"""scripts/docs makes a page of each document and manual page, whose links lead to pages and headings, and a search."""
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["SODA_BUILD_DIR"])
LIMIT_S = 380


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.names.add(attrs.get("id"))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])


class Html(unittest.TestCase):
    def test_each_document_is_a_page(self):
        pages = [path.relative_to(SOURCE) for path in [SOURCE / "README.md", *SOURCE.glob("docs/**/*.md")] if "notebook" not in path.parts]
        self.assertGreater(len(pages), 30)
        self.assertEqual([page for page in pages if not (OUT / page.with_suffix(".html")).exists()], [])

    def test_each_manual_page_is_one(self):
        names = [path.name for path in [*SOURCE.glob("man/*.[1-9]"), *BUILD.glob("man/*.[1-9]")]]
        self.assertGreater(len(names), 15)
        for name in names:
            text = (OUT / "man" / f"{name}.html").read_text(encoding="utf-8")
            self.assertIn("NAME", text)
            self.assertNotIn("\b", text)

    def test_links_lead_somewhere(self):
        pages = {path: Page(path) for path in OUT.rglob("*.html")}
        lost = []
        for path, page in pages.items():
            for link in page.links:
                url = urllib.parse.urlsplit(link)
                other = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
                if not url.scheme and (not other.exists() or (url.fragment and url.fragment not in pages[other].names)):
                    lost.append(f"{path.relative_to(OUT)}: {link}")
        self.assertEqual(lost, [])

    def test_doors(self):
        text = (OUT / "index.html").read_text(encoding="utf-8")
        for heading in re.findall(r"^## (.*)$", (SOURCE / "docs/README.md").read_text(encoding="utf-8"), re.M):
            self.assertIn(heading, text)

    def test_search(self):
        self.assertIn("searchindex.js", (OUT / "search.html").read_text(encoding="utf-8"))
        index = (OUT / "searchindex.js").read_text(encoding="utf-8")
        for name in "docs/glossary", "docs/internals/pool", "man/soda_alloc.3":
            self.assertIn(f'"{name}"', index)
        self.assertIn("userfaultfd", index)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="soda-html-") as folder:
        OUT = pathlib.Path(folder, "html").resolve()
        done = subprocess.run([SOURCE / "scripts/docs", "--build", BUILD, OUT], capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode == 77:
            print(f"SKIP: {done.stderr.strip()}")
            sys.exit(77)
        if done.returncode:
            sys.exit(f"scripts/docs: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        unittest.main()
