# SPDX-License-Identifier: BSD-3-Clause
"""The pages in a browser: no complaint, nothing asked for, figures to be seen, light and dark, narrow and on paper."""
import os
import re
import tempfile
import unittest

import browser
import needs
import samples

# Width, height and the fill of a mark of each figure.
FIGURES = """[...document.querySelectorAll('figure svg')].map(svg => {
    const box = svg.getBoundingClientRect(), mark = svg.querySelector('.mark path');
    const style = getComputedStyle(mark), mine = mark.getBoundingClientRect();
    return {width: box.width, height: box.height, mark: mine.width + mine.height,
            colour: style.fill === 'none' ? style.stroke : style.fill};
})"""
# Of all that has text of its own: its colour, and what that is on.
TEXTS = """[...document.querySelectorAll('main *')].filter(e => e.closest('svg') === null || e.tagName === 'text').filter(
    e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
    let behind = e;
    while (behind.parentElement && /, 0\\)$|transparent/.test(getComputedStyle(behind).backgroundColor))
        behind = behind.parentElement;
    const style = getComputedStyle(e);
    return {text: e.textContent.trim().slice(0, 30), colour: e.tagName === 'text' ? style.fill : style.color,
            behind: getComputedStyle(behind).backgroundColor};
})"""
BACKGROUND = "getComputedStyle(document.documentElement).backgroundColor"


def luminance(colour):
    """Relative, as WCAG 2 has it, of rgb(r, g, b)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class InABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from report import pages  # pylint: disable=import-outside-toplevel

        folder = tempfile.TemporaryDirectory(prefix="soda-test-report-")
        cls.addClassCleanup(folder.cleanup)
        cls.pages = {"evaluation": pages.evaluation_page(samples.full_evaluation())[0],
                     "program": pages.program_page(samples.program()),
                     "program-of-nothing": pages.program_page(samples.program(0))}
        cls.folder = folder.name
        for name, page in cls.pages.items():
            with open(cls.path(name), "w", encoding="utf-8") as file:
                file.write(page)
        cls.browser = browser.Browser(browser.find(), folder.name)
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, f"{name}.html")

    def each(self):
        for name in self.pages:
            self.browser.open(self.path(name))
            yield name

    def test_nothing_to_complain_of(self):
        for name in self.each():
            self.assertEqual(self.browser.complaints, [])
            self.assertEqual([url for url in self.browser.asked_for if not url.startswith("data:")],
                             [f"file://{self.path(name)}"])

    def test_complaints_are_heard(self):
        path = self.path("wrong")
        with open(path, "w", encoding="utf-8") as file:
            file.write("<script>none()</script>")
        self.browser.open(path)
        self.assertEqual(len(self.browser.complaints), 1)

    def test_figures_are_seen_and_follow_the_scheme(self):
        for name in self.each():
            seen = {}
            for scheme in ("light", "dark"):
                self.browser.look(scheme)
                seen[scheme] = self.browser.ask(FIGURES)
                self.assertEqual(len(seen[scheme]), {"evaluation": 7, "program": 1}.get(name, 0))
                for figure in seen[scheme]:
                    self.assertGreater(figure["width"], 600)
                    self.assertGreater(figure["height"], 200)
                    self.assertGreater(figure["mark"], 0)
            for light, dark in zip(seen["light"], seen["dark"]):
                self.assertRegex(light["colour"], r"^rgb\(")
                self.assertTrue(name == "program" or light["colour"] != dark["colour"])

    def test_text_is_readable(self):
        for _ in self.each():
            for scheme in ("light", "dark"):
                self.browser.look(scheme)
                dark = luminance(self.browser.ask(BACKGROUND)) < 0.2
                self.assertEqual(dark, scheme == "dark")
                texts = self.browser.ask(TEXTS)
                self.assertGreater(len(texts), 3)
                for found in texts:
                    self.assertGreater(contrast(found["colour"], found["behind"]), 4.5, (scheme, found))

    def test_nothing_is_wider_than_the_window(self):
        for _ in self.each():
            for width in (1200, 800, 380):
                self.browser.look(width=width)
                self.assertLessEqual(self.browser.ask("document.documentElement.scrollWidth"), width)

    def test_on_paper_it_is_light_and_whole(self):
        for name in self.each():
            self.browser.look("dark", "print", 700)
            self.assertEqual(self.browser.ask(BACKGROUND), "rgb(255, 255, 255)")
            self.browser.look()
            pdf = self.browser.pdf()
            self.assertTrue(pdf.startswith(b"%PDF"))
            sheets = len(re.findall(rb"/Type\s*/Page\b", pdf))
            self.assertGreaterEqual(sheets, {"evaluation": 4, "program": 1}.get(name, 1))
            self.assertGreater(len(pdf), 10000)


if __name__ == "__main__":
    if not browser.find():
        needs.skip("no Chromium (" + ", ".join(browser.NAMES) + ")")
    needs.run()
