# SPDX-License-Identifier: BSD-3-Clause
"""What is no document of ours is refused in one sentence, with its place."""
import copy
import json
import os
import tempfile
import unittest

import needs
import samples
from report import reading, shapes


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="soda-test-report-")
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "results.json")

    def write(self, text):
        with open(self.path, "w", encoding="latin-1") as file:
            file.write(text)

    def refused(self, *words):
        with self.assertRaises(reading.Unreadable) as caught:
            shapes.read(self.path)
        for word in (self.path, *words):
            self.assertIn(word, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_reads_what_the_programs_write(self):
        for document in (samples.full_evaluation(), samples.program(), samples.program(0)):
            self.write(json.dumps(document))
            self.assertEqual(shapes.read(self.path), (document["format"], document))

    def test_refuses_what_is_no_json(self):
        self.refused("No such file")
        self.write("")
        self.refused("not JSON")
        self.write('{"format": ')
        self.refused("not JSON")
        self.write('{"format": "\xff"}')
        self.refused("not JSON")
        self.write('{"value": NaN}')
        self.refused("NaN")

    def test_refuses_what_is_of_something_else(self):
        for text in ("[]", "{}", "7"):
            self.write(text)
            self.refused("'format' is missing", "soda-eval")
        self.write('{"format": "other"}')
        self.refused("'other'")

    def test_refuses_another_version(self):
        self.write(json.dumps({**samples.program(), "version": 2}))
        self.refused("version 2", "soda-run")


class Shapes(unittest.TestCase):
    def refused(self, document, expected):
        with self.assertRaises(reading.Unreadable) as caught:
            shapes.check(document, "f")
        self.assertEqual(str(caught.exception), expected)

    def test_says_where(self):
        document = samples.evaluation([samples.eval_run("dram", 1.0), samples.eval_run("dram", 2.0, 1)])
        broken = copy.deepcopy(document)
        broken["runs"][1]["seconds"] = "2"
        self.refused(broken, "f.runs[1].seconds: expected a number, found a text")
        broken = copy.deepcopy(document)
        del broken["plan"]["threads"]
        self.refused(broken, "f.plan: 'threads' is missing")
        broken = copy.deepcopy(document)
        broken["runs"] = {}
        self.refused(broken, "f.runs: expected a list, found an object")
        broken = copy.deepcopy(document)
        broken["graphs"][0]["edges"] = -1
        self.refused(broken, "f.graphs[0].edges: expected a whole number, not below zero, found -1")
        broken = copy.deepcopy(document)
        broken["plan"]["shm"] = 1
        self.refused(broken, "f.plan.shm: expected true or false, found a whole number")
        broken = copy.deepcopy(document)
        broken["runs"][0]["repetition"] = True
        self.refused(broken, "f.runs[0].repetition: expected a whole number, found true or false")

    def test_a_valid_run_took_time(self):
        for left in ({}, {"seconds": 0}):
            run = samples.eval_run("dram", 1.0)
            del run["seconds"]
            self.refused(samples.evaluation([{**run, **left}]),
                         "f.runs[0]: valid, and has taken no time ('seconds')")
        shapes.check(samples.evaluation([{**run, "valid": False, "why_invalid": "killed"}]), "f")

    def test_samples_are_of_the_same_times(self):
        document = samples.program()
        document["samples"]["faults"].pop()
        self.refused(document, "f: samples: the lists differ in length")

    def test_takes_what_a_later_program_adds(self):
        shapes.check({**samples.program(), "more": 1}, "f")


if __name__ == "__main__":
    needs.run()
