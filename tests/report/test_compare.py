# SPDX-License-Identifier: BSD-3-Clause
"""tools/bench-compare's verdicts on two builds: the same of a gain and of a loss of one size."""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/bench-compare")


def load():
    loader = importlib.machinery.SourceFileLoader("bench_compare", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_compare", loader))
    loader.exec_module(module)
    return module


class Verdicts(unittest.TestCase):
    OPPOSITE = {"faster": "**slower**", "**slower**": "faster", "same": "same", "not shown": "not shown"}

    def test_a_loss_is_told_as_a_gain_is(self):
        verdict = load().verdict
        for low, high, expected in ((1.005, 1.060, "faster"), (1.05, 1.10, "faster"), (0.945, 0.975, "**slower**"),
                                    (0.90, 0.95, "**slower**"), (0.985, 0.999, "same"), (1.001, 1.02, "same"),
                                    (0.975, 1.06, "not shown"), (0.94, 1.02, "not shown"), (0.8, 1.3, "not shown")):
            with self.subTest(low=low, high=high):
                self.assertEqual(verdict(low, high, 0.03, True), expected)
                self.assertEqual(verdict(low, high, 0.03, False), self.OPPOSITE[expected])
                self.assertEqual(verdict(1 / high, 1 / low, 0.03, True), self.OPPOSITE[expected])

    def builds(self, *figures):
        """Directories of programs that print these."""
        for speed, cpu in figures:
            folder = tempfile.TemporaryDirectory(prefix="soda-test-report-")
            self.addCleanup(folder.cleanup)
            program = os.path.join(folder.name, "tools/soda/soda")
            os.makedirs(os.path.dirname(program))
            with open(program, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho '{json.dumps({'touched_gb_per_s': speed, 'cpu_s_per_gb': cpu})}'\n")
            os.chmod(program, 0o755)
            yield folder.name

    def test_rows_say_it_either_way_round(self):
        one, other = self.builds((2.0, 0.5), (2.061, 0.5))
        for pair, expected in (((one, other), "faster"), ((other, one), "**slower**")):
            done = subprocess.run([sys.executable, TOOL, *pair, "--rows", "rand", "--starts", "2"],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            speed, cpu = done.stdout.splitlines()[2:]
            self.assertTrue(speed.endswith(f"| {expected} |"), speed)
            self.assertTrue(cpu.endswith("| same |"), cpu)


if __name__ == "__main__":
    unittest.main(verbosity=2)
