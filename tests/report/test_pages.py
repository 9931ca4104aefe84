# SPDX-License-Identifier: BSD-3-Clause
"""Pages and tables, as files: one file each, all numbers in them, nothing taken for HTML that is none."""
import contextlib
import io
import json
import os
import re
import tempfile
import unittest
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import needs
import samples
from report import command, pages, palette

VOID = ("meta", "link", "br", "img", "input", "hr", "use")


class Parsed(HTMLParser):
    """Elements with their attributes; that all are closed; the visible text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(page)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self.open and self.open[-1] in ("p", "li") and tag not in ("p", "li"):
            self.open.pop()
        assert self.open and self.open.pop() == tag, f"</{tag}> where none is open"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "title"):
            self.text += " ".join(data.split()) + "\n"

    def count(self, tag):
        return sum(found == tag for found, _ in self.found)


class Pages(unittest.TestCase):
    def check_stands_alone(self, page):
        parsed = Parsed(page)
        for tag, attributes in parsed.found:
            self.assertNotEqual(tag, "script")
            for name in ("src", "href", "xlink:href"):
                self.assertRegex(attributes.get(name, "#"), r"^(#|data:)", f"{tag} {name}")
        self.assertNotIn("@import", page)
        ids = [attributes["id"] for _, attributes in parsed.found if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)), "an id twice")
        for used in re.findall(r'(?:href="|url\()#([^")]+)', page):
            self.assertIn(used, ids)
        for used in re.findall(r"var\((--[a-z-]+)\)", page):
            self.assertIn(f"{used}:", palette.css())
        return parsed

    def test_an_evaluation(self):
        page, drawn = pages.evaluation_page(samples.full_evaluation())
        parsed = self.check_stands_alone(page)
        self.assertEqual(parsed.count("svg"), 8)
        self.assertEqual(sorted(drawn), ["figure-10", "figure-11", "figure-6", "figure-7", "figure-8",
                                         "figure-8-traffic", "figure-9", "slow-down"])
        for told in ("A CPU <fast>", "soda eval --out '<DIR>'", "by <nothing>", "it was <killed>", "none valid",
                     "2 threads", "in 232 runs: 1.009 to 1.010"):
            self.assertIn(told, parsed.text)
        self.assertEqual(parsed.text.count("it was <killed>"), 4)

    def test_the_numbers_of_a_figure_are_in_its_table(self):
        runs = [samples.eval_run("base", 4.0), samples.eval_run("agg", 3.0), samples.eval_run("agg", 5.0, 1),
                samples.eval_run("static", 1.0, valid=False, why_invalid="killed")]
        page, drawn = pages.evaluation_page(samples.evaluation(runs))
        text = page[page.index('<h2 id="figure-11"'):]
        self.assertIn("<td>1.00<small>0.75–1.25</small></td>", text)
        self.assertIn("none valid", text)
        self.assertIn("✕", drawn["figure-11"])
        self.assertIn("bfs, agg: 1.00 (0.75–1.25)", drawn["figure-11"])
        self.assertNotIn("figure-6", drawn)
        self.assertIn("Not measured here.", page)

    def test_tried_in_vain_is_not_untried(self):
        page, _ = pages.evaluation_page(samples.evaluation(
            [samples.eval_run("dram", 1.0), samples.eval_run("base", 4.0, valid=False)]))
        self.check_stands_alone(page)
        parts = {name: page[page.index(f'<h2 id="{name}"'):].split("<h2", 2)[1] for name in ("slow-down", "figure-9")}
        self.assertIn("Tried, and there is no valid run to show", parts["slow-down"])
        self.assertIn("Not measured here.", parts["figure-9"])

    def test_an_evaluation_of_nothing(self):
        page, drawn = pages.evaluation_page({**samples.evaluation([]), "machine": None, "commands": []})
        self.check_stands_alone(page)
        self.assertEqual(drawn, {})

    def test_a_program(self):
        for n in (1, 50, 1000):
            parsed = self.check_stands_alone(pages.program_page(samples.program(n)))
            self.assertEqual(parsed.count("svg"), 1)
            self.assertIn("sort '</title><script>alert(1)</script>'", parsed.text)
            self.assertIn("resident", parsed.text)

    def test_a_program_without_fabric_memory(self):
        parsed = self.check_stands_alone(pages.program_page({**samples.program(0), "status": 3}))
        self.assertEqual(parsed.count("svg"), 0)
        self.assertIn("Exit status 3. The program used no fabric memory.", parsed.text)

    def test_figures_are_files_of_their_own(self):
        _, drawn = pages.evaluation_page(samples.full_evaluation())
        for text in drawn.values():
            root = ET.fromstring(text)
            self.assertTrue(root.tag.endswith("svg"))
            for used in re.findall(r"var\((--[a-z-]+)\)", text):
                self.assertRegex(text, f"{used}:#.*\n.*prefers-color-scheme:dark.*{used}:#")
            labels = [" ".join(found.itertext()).strip() for found in root.iter() if found.tag.endswith("}text")]
            for label in ("bfs", "pagerank", "g1", "g2"):
                self.assertIn(label, labels)
            self.assertNotRegex(text.split("</style>")[1], r"#[0-9a-f]{6}\b", "a colour that does not follow the scheme")

    def test_the_same_numbers_make_the_same_page(self):
        self.assertEqual(pages.evaluation_page(samples.full_evaluation()),
                         pages.evaluation_page(samples.full_evaluation()))


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="soda-test-report-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, document):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)
        return path

    def run_command(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command.run(list(words))
        return status, out.getvalue(), err.getvalue()

    def test_a_page_beside_its_results(self):
        path = self.write("results.json", samples.full_evaluation())
        page = os.path.join(self.folder, "report.html")
        self.assertEqual(self.run_command(path), (0, page + "\n", ""))
        self.assertEqual(sorted(os.listdir(self.folder)), ["figures", "report.html", "results.json"])
        self.assertEqual(len(os.listdir(os.path.join(self.folder, "figures"))), 8)

    def test_a_page_elsewhere(self):
        path, page = self.write("run.json", samples.program()), os.path.join(self.folder, "other.html")
        self.assertEqual(self.run_command(path, "--out", page)[0], 0)
        self.assertTrue(os.path.getsize(page))
        self.assertEqual(self.run_command(path)[1], os.path.join(self.folder, "run.html") + "\n")

    def test_says_what_is_wrong(self):
        path = self.write("run.json", {"format": "soda-run", "version": 9})
        status, out, err = self.run_command(path)
        self.assertEqual((status, out, err.count("\n")), (1, "", 1))
        self.assertIn("version 9", err)
        path = self.write("run.json", samples.program())
        status, _, err = self.run_command(path, "--out", os.path.join(self.folder, "none", "page.html"))
        self.assertEqual((status, err.count("\n")), (1, 1))
        self.assertIn("No such file", err)
        self.assertIn("several", self.run_command(path, path)[2])

    def test_tables_of_benchmarks(self):
        fault = {"format": "soda-bench-fault", "version": 1, "pattern": "rand", "threads": 2, "size": 1, "chunk": 1,
                 "buffer": 1, "rounds": 3, "gb_per_s": 1.25, "gb_per_s_min": 1.0, "gb_per_s_max": 1.5,
                 "us_per_fault_p50": None}
        mode = {"mode": "base", "pattern": "seq", "rounds": 3, "seconds": 1.0, "gb_per_s": None, "hit_rate": 0.5,
                "traffic": {"on_demand": 1, "prefetch": 0, "write_back": 0, "preload": 0, "total": 12345678}}
        turn = {"mode": "store", "pattern": "zipf", "processes": 4, "seconds": 1.0, "net_bytes": 3000000,
                "memory_bytes": None, "cpu_s": 2.0, "fault_us_p50": 10.0, "fault_us_p99": None, "verified": True}
        turns = [turn, {**turn, "seconds": 4.0}, {**turn, "seconds": 2.0}]
        paths = [self.write("a.json", fault), self.write("b.json", {**fault, "gb_per_s": 2.0}),
                 self.write("c.json", {"format": "soda-bench-dpu", "version": 1, "runs": [mode]}),
                 self.write("d.json", {"format": "soda-bench-node", "version": 1, "runs": turns})]
        status, out, _ = self.run_command(*paths)
        self.assertEqual(status, 0)
        lines = out.splitlines()
        self.assertEqual(len(lines), 4 + 1 + 3 + 1 + 3)
        self.assertIn("| a.json | rand | 2 | 1.250 (1.000-1.500) | - |", lines[2])
        self.assertIn("| b.json | rand | 2 | 2.000", lines[3])
        self.assertIn("| c.json | seq | base | - |", lines[7])
        self.assertIn("| 12.3 | 0.50 |", lines[7])
        self.assertIn("| d.json | zipf | 4 | store | 2.000 | 3.0 | - | 2.000 | 10.0 | - |", lines[11])
        self.assertEqual({line.count("|") for line in lines[:4]}, {lines[0].count("|")})

    def test_movement(self):
        way = {"transport": "shm", "way": "reads", "columns": 4, "bytes": 1 << 20, "strategy": "stream", "host_us": 12.5,
               "gb_per_s": 2.0, "plain_gb_per_s": 2.5, "ratio": 0.8, "agent_cpu_s_per_gb": None}
        document = {"format": "soda-bench-move", "version": 1, "host_correlation": None, "throughput": [], "host": [
            {"transport": "shm", "way": "reads", "bytes": 128, "median_us": 3.0, "max_us": 4.0, "cpu_us": 5.0}],
            "arrow": [way, {**way, "strategy": "host", "host_us": 5000.0}, {**way, "transport": "tcp"}]}
        path, page = self.write("m.json", document), os.path.join(self.folder, "m.md")
        status, out, _ = self.run_command(path)
        self.assertEqual(status, 0)
        self.assertIn("| m.json | shm | 1\u202fMiB | 4 | stream | 12.5 | 2.000 | 2.500 | 0.80 | - |", out)
        self.assertEqual(self.run_command(path, "--out", page)[0], 0)
        with open(page, encoding="utf-8") as file:
            self.assertIn("![movement-host](movement-host.svg)", file.read())
        for name, told in (("movement-rate", "placed: stream: 2.00 GB/s"), ("movement-host", "5000 us")):
            with open(os.path.join(self.folder, name + ".svg"), encoding="utf-8") as file:
                self.assertIn(told, file.read())
        none = self.write("n.json", {**document, "arrow": []})
        self.assertEqual(self.run_command(none, "--out", page)[0], 0)
        with open(page, encoding="utf-8") as file:
            self.assertNotIn(".svg", file.read())

    def test_tables_of_messages(self):
        rate = {"transport": "shm", "bytes": 8, "ranks": 4, "agents": 2, "messages_per_s": 5e6, "agent_ns": 12.4,
                "mpi_messages_per_s": 1e6, "mpi": "openmpi", "ratio": 5.0, "gathered_messages_per_s": None,
                "gathered_ratio": None, "alltoallv_messages_per_s": None, "alltoallv_ratio": None}
        app = {"app": "sssp", "mode": "shared", "ranks": 4, "seconds": 3.0, "messages": 7, "bytes": 56, "mc_ratio": 2.0,
               "verified": True}
        document = {"format": "soda-bench-messages", "version": 1, "rates": [rate],
                    "apps": [app, {**app, "mode": "own", "seconds": 2.5}, {**app, "mode": "process", "seconds": 3.5}],
                    "sweeps": [{"sweep": "flush_us", "value": 50, "messages_per_s": 2.5e6}]}
        status, out, _ = self.run_command(self.write("m.json", document))
        self.assertEqual(status, 0)
        self.assertIn("| m.json | shm | 4 | 2 | 8 | 5.00 | 12 | 1.00 | 5.00 | - | - | - | - |\n", out)
        self.assertIn("| m.json | sssp | 4 | 3.500 | 3.000 | 2.500 | 2.00 | 1.50 | 1.20 | yes |\n", out)
        self.assertIn("| m.json | flush_us | 50 | 2.50 |\n", out)
        document["apps"][1]["verified"] = False
        self.assertIn("| **no** |", self.run_command(self.write("m.json", document))[1])
        del rate["agent_ns"]
        self.assertEqual(self.run_command(self.write("m.json", document))[0], 1)


if __name__ == "__main__":
    needs.run()
