# SPDX-License-Identifier: BSD-3-Clause
"""Documents are in plain language: short sentences, plain words, the subject first.

Held are README, CHANGELOG, SECURITY and the pages of docs/, but for docs/notebook/, docs/internals/ and the pages that NOT_YET
names.  A new page is held.  Code, cells of tables, headings and targets of links are left out; a piece of code is one word.
"""
import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["SODA_SOURCE_DIR"])
MOST_WORDS = 30
# Pages whose sentences are still too long. A page leaves this list, and none comes to it.
NOT_YET = "docs/evaluation/README.md docs/performance.md docs/reliability.md".split()
APART = re.compile(r"docs/(notebook|internals)/")
# Words that have a plainer one, by which most of these sentences become shorter.
WORDS = re.compile(r"\b(?:" + "|".join("""
    whoever whomever whosoever whatsoever utili[sz]e[sd]? utili[sz]ing utili[sz]ation leverag(?:e[sd]?|ing)
    facilitat(?:e[sd]?|ing) commence[sd]? endeavou?r ascertain aforementioned hereby herein hereinafter thereof therein thereby whereby wherein hence
    henceforth thus notwithstanding whilst amongst albeit respectively seamless(?:ly)? obviously basically simply
    in.order.to prior.to subsequent.to with.respect.to with.regard.to in.terms.of due.to.the.fact for.the.purpose.of
    in.the.event at.this.point.in.time it.should.be.noted please.note""".split()) + r")\b", re.I)
OPENING = re.compile(r"(?:Of|What (?:is|are|was|were)|Who|Whom|Whose|To whom?)\b")
# Lines of comments that begin so; a repaired one lowers MOST_COMMENTS, and a new one fails.
COMMENT = re.compile(r"^[ \t]*(?:/\*+|\*|#|//)[ \t]+(?:Of|What|Who|Whom|To whom?)[ ,]", re.M)
MOST_COMMENTS = 792
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"\s*(?:[-*] (?:\[ \] )?|\d+\. )(.*)")
END = re.compile(r"""(?<=[.?!])(?<!\.\.\.)(?<!e\.g\.)[)"]*\s+""")


def blocks(text):
    """Paragraphs and items, each in one line."""
    lines, fenced = [], False
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.S).split("\n"):
        item = ITEM.match(line)
        if FENCE.match(line):
            fenced = not fenced
        if fenced or item or not line.strip() or line.startswith(("|", "#")) or FENCE.match(line):
            if lines:
                yield " ".join(lines)
            lines = [item[1]] if item and not fenced else []
        else:
            lines.append(line.strip())
    if lines:
        yield " ".join(lines)


def sentences(text):
    for block in blocks(text):
        block = re.sub(r"`[^`]*`", "code", block)
        block = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block).replace("*", "")
        yield from END.split(block)


def faults(text):
    """(what is not plain, the sentence)."""
    for sentence in sentences(text):
        words = len(re.findall(r"\w[\w'./:-]*", sentence))
        if words > MOST_WORDS:
            yield f"{words} words", sentence
        for word in WORDS.findall(sentence):
            yield word, sentence
        if OPENING.match(sentence) and not sentence.endswith("?"):
            yield "begins so", sentence


def pages():
    paths = [SOURCE / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")] + sorted(SOURCE.glob("docs/**/*.md"))
    names = {str(path.relative_to(SOURCE)): path for path in paths}
    return {name: path for name, path in names.items() if not APART.match(name)}


class Plain(unittest.TestCase):
    def test_pages(self):
        held = {name: path for name, path in pages().items() if name not in NOT_YET}
        self.assertGreater(len(held), 20)
        found = [(name, *fault) for name, path in held.items() for fault in faults(path.read_text(encoding="utf-8"))]
        self.maxDiff = None
        self.assertEqual(found, [], "see MOST_WORDS, WORDS and OPENING of test_plain.py")

    def test_pages_that_are_left_out(self):
        """Each is there, and is not plain yet."""
        for name in NOT_YET:
            self.assertTrue(list(faults(pages()[name].read_text(encoding="utf-8"))), f"{name} is plain: take it off the list")

    def test_sources(self):
        """Comments, help and lines of the log name who does something."""
        sources = [path for folder in ("apps", "include", "src", "tools") for path in SOURCE.glob(f"{folder}/**/*.[ch]")]
        self.assertGreater(len(sources), 500)
        self.assertEqual([str(path) for path in sources if re.search(r"\bwhoever\b", path.read_text(encoding="utf-8"), re.I)], [])

    def test_comments_begin_with_their_subject(self):
        ends = ("c", "h", "hpp", "py")
        sources = [path for folder in ("apps", "include", "python", "src", "tests", "tools") for end in ends
                   for path in SOURCE.glob(f"{folder}/**/*.{end}")]
        found = sum(len(COMMENT.findall(path.read_text(encoding="utf-8"))) for path in sources)
        self.assertLessEqual(found, MOST_COMMENTS, f"{found} lines begin with Of, What or Who, and {MOST_COMMENTS} did")

    def test_faults_are_found(self):
        long = "word " * MOST_WORDS + "end."
        for text in long, f"- {long}", f"Short. {long}", f"> {long}", f"1. a\n   {long}", "Whoever comes.", \
                "In order to\nread.", "Of these one goes.", "It goes. What is here stays.", "**Whom it names** comes.", long.replace("word", "`a b`"):
            self.assertEqual(len(list(faults(text))), 1, text)

    def test_other_text_is_left_alone(self):
        long = "word " * MOST_WORDS
        for text in long, f"{long}. {long}", f"```\n{long}{long}\n```", f"| {long} | {long} |", f"# Of {long}{long}", \
                "What is it?", f"`{long}{long}`", f"[one]({long.replace(' ', '-')}#whoever)", f"- {long}\n- {long}", f"{long}\n\n{long}", \
                "`utilize` is a word.", f"<!-- {long}\n{long} -->", "It reads in order.":
            self.assertEqual(list(faults(text)), [], text)


if __name__ == "__main__":
    unittest.main()
