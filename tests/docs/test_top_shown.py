# SPDX-License-Identifier: BSD-3-Clause
"""The page of soda top that a document shows is one that soda top prints: its heads, and the labels in their order.

test_top_shown.py PAGE
"""
import os
import re
import subprocess
import sys
import time
import unittest

LABEL = 19  # columns that a label and what is before it have, at most
LIMIT_S = 60
COMMAND = "$ soda top --once "


def shown(path):
    """The lines of the page, from the one below the command on."""
    with open(path, encoding="utf-8") as page:
        text = page.read()
    return text[text.index("\n", text.index(COMMAND)) + 1:].split("\n```", 1)[0].split("\n")


def sections(lines):
    """[table of all, and what each target has], without their titles' numbers."""
    return [part.split("\n") for part in "\n".join(lines).strip().split("\n\n")]


def label(line):
    """The name of a line; targets and clients have other names with each run."""
    return re.sub(r"^(\s*)(tcp://\S*|\d+ \S+).*", r"\1TARGET", line)[:LABEL].rstrip()


def page_of(*targets):
    done = subprocess.run(["soda", "top", "--once", "--all", "--interval", "200ms", *targets], check=False,
                          stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, env=dict(os.environ, LC_ALL="C"))
    return done.stdout.split("\n") if done.returncode == 0 else None


def await_page(process, *targets):
    """Once each of the targets is there."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        lines = page_of(*targets)
        if lines and not any(re.search(r"\bgone\b", line) for line in lines):
            return lines
        time.sleep(0.1)
    raise AssertionError("%s: no page within %d s" % (targets, LIMIT_S))


def child_of(process):
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="ascii") as children:
        return children.read().split()[:1]


class TopShown(unittest.TestCase):
    def setUp(self):
        self.server = subprocess.Popen(["soda-mem-server", "--listen", "tcp://127.0.0.1:0", "--capacity", "256M"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.server.stdout.readline().split()[1]
        self.bench = subprocess.Popen(["soda", "bench", "fault", "rand", "--size", "64M", "--buffer", "16M", "--rounds",
                                       "1000", "--passes", "1000", "--server", self.address], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)

    def tearDown(self):
        for process in (self.bench, self.server):
            process.terminate()
            process.wait(LIMIT_S)
        self.server.stdout.close()

    def program(self):
        """The id of the benchmark's process that uses SODA."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and self.bench.poll() is None:
            for pid in child_of(self.bench):
                if page_of(pid):
                    return pid
            time.sleep(0.1)
        raise AssertionError("the benchmark does not use SODA")

    def assert_in_order(self, said, printed):
        """Each label of the document is among those that are printed, in their order."""
        rest = iter([label(line) for line in printed])
        for line in said:
            self.assertTrue(any(label(line) == one for one in rest), "not there, or not in this order: %r" % line)

    def test_page(self):
        said = sections(shown(sys.argv[1]))
        self.assertEqual(len(said), 3)
        printed = sections(await_page(self.bench, self.program(), self.address))
        self.assertEqual(len(printed), 3)
        self.assertEqual(said[0][1], printed[0][1])  # heads of the columns
        self.assertEqual(re.sub(r"\d+", "#", said[0][0]).split("every")[0],
                         re.sub(r"\d+", "#", printed[0][0]).split("every")[0])
        for mine in said[1:]:
            kind = "memory server" if "memory server" in mine[0] else "program"
            target = next(part for part in printed[1:] if kind in part[0])
            still = [line for line in mine if line.startswith(" all 0: ")]
            self.assert_in_order([line for line in mine if line not in still], target)
            for name in ", ".join(still).replace(" all 0: ", "").split(", "):
                self.assertTrue(not name or " " + name in target, "no group " + name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
