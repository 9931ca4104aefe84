# SPDX-License-Identifier: BSD-3-Clause
"""The simulation of a large pool, on small ones whose answers are known."""
import json
import math
import os
import subprocess
import sys
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/pool-sim")
sys.path.insert(0, TOOL)
try:
    import numpy
except ImportError:
    numpy = None
else:
    import cluster as pool
    import placement
    import runs

SMALL = {"servers": 120, "domains": 12, "slots": 60, "clients": 50, "fill": 0.7, "lag": 50}


@unittest.skipIf(numpy is None, "python3-numpy is not installed")
class Simulation(unittest.TestCase):
    def setUp(self):
        self.rng = numpy.random.default_rng(7)
        self.shape = pool.Shape(**SMALL)

    def every(self):
        for redundancy in (pool.MIRROR, pool.EC):
            for name in placement.WAYS:
                with self.subTest(redundancy=redundancy.name, placement=name):
                    yield redundancy, name, *runs.filled(self.shape, name, redundancy, self.rng)

    def domains_apart(self, cluster, rows):
        return all(len(set(cluster.domain[members])) == len(members) for members in rows)

    def test_members_are_others(self):
        for redundancy, name, cluster, rows, clients, _ in self.every():
            self.assertTrue(all(len(set(members)) == redundancy.members for members in rows.tolist()))
            self.assertEqual(self.domains_apart(cluster, rows), name != "random")
            self.assertEqual(cluster.used.sum(), rows.size)
            self.assertEqual(numpy.bincount(rows.ravel(), minlength=120).tolist(), cluster.used.tolist())
            self.assertLessEqual(cluster.used.max(), self.shape.slots)
            self.assertEqual(len(clients), len(rows))

    def test_two_choices_are_more_even(self):
        even = {name: runs.imbalance(cluster.used)["max_by_mean"] for _, name, cluster, _, _, _ in self.every()}
        self.assertLess(even["two choices, domains"], even["random, domains"])

    def test_a_slab_lies_in_one_group(self):
        _, rows, _, way = runs.filled(self.shape, "copysets, domains", pool.EC, self.rng)
        groups = [set(group) for group in way.groups]
        self.assertTrue(all(any(set(members) <= group for group in groups) for members in rows.tolist()))

    def test_stale_news_cost_balance(self):
        used = []
        for lag in (0, 2000):
            shape = pool.Shape(**{**SMALL, "lag": lag})
            used.append(runs.filled(shape, "two choices, domains", pool.MIRROR, self.rng)[0].used)
        self.assertLess(runs.imbalance(used[0])["max_by_mean"], runs.imbalance(used[1])["max_by_mean"])

    def test_loss_as_computed(self):
        """Two of the servers fail: lost is something if a slab lies on just these two."""
        cluster, rows, clients, _ = runs.filled(pool.Shape(**{**SMALL, "fill": 0.2}), "random", pool.MIRROR, self.rng)
        pairs = len({tuple(sorted(members)) for members in rows.tolist()})
        p = pairs / math.comb(120, 2)
        trials = 4000
        told = runs.loss(cluster.domain, rows, clients, pool.MIRROR, runs.scattered(2), trials, self.rng)
        self.assertAlmostEqual(told["any"], p, delta=4 * math.sqrt(p * (1 - p) / trials))
        self.assertGreater(told["client"], 0)

    def test_a_domain_is_survived(self):
        for redundancy, name, cluster, rows, clients, _ in self.every():
            told = runs.loss(cluster.domain, rows, clients, redundancy, runs.racks(1), 50, self.rng)
            self.assertEqual(told["any"] > 0, name == "random")

    def test_more_failures_than_pieces_may_go(self):
        cluster, rows, clients, _ = runs.filled(self.shape, "two choices, domains", pool.EC, self.rng)
        self.assertEqual(runs.loss(cluster.domain, rows, clients, pool.EC, runs.racks(2), 50, self.rng)["any"], 0)
        self.assertEqual(runs.loss(cluster.domain, rows, clients, pool.EC, runs.racks(8), 50, self.rng)["any"], 1)

    def test_rebalance(self):
        for redundancy, name, cluster, rows, _, way in self.every():
            total = cluster.used.sum()
            cluster.join(24)
            way.joined(cluster, 120, self.rng)
            moved = runs.rebalance(cluster, rows, way, 0.05)
            self.assertEqual(cluster.used.sum(), total)
            self.assertEqual(numpy.bincount(rows.ravel(), minlength=144).tolist(), cluster.used.tolist())
            self.assertGreaterEqual(moved, total * 24 / 144 * 0.6)
            self.assertTrue(all(len(set(members)) == redundancy.members for members in rows.tolist()))
            if name != "random":
                self.assertTrue(self.domains_apart(cluster, rows))
            if not name.startswith("copysets"):
                self.assertLessEqual(cluster.used.max(), cluster.used.mean() * 1.06)
            else:
                groups = [set(group) for group in way.groups]
                self.assertTrue(all(any(set(m) <= group for group in groups) for m in rows.tolist()))


@unittest.skipIf(numpy is None, "python3-numpy is not installed")
class Command(unittest.TestCase):
    def run_tool(self, *words):
        return subprocess.run([sys.executable, os.path.join(TOOL, "pool-sim"), "--servers", "60", "--domains", "10",
                               "--slots", "20", "--clients", "20", "--trials", "20", *words],
                              capture_output=True, text=True, timeout=60, check=False)

    def test_json(self):
        answer = json.loads(self.run_tool("--json").stdout)
        self.assertEqual(len(answer["runs"]), 2 * len(placement.WAYS))
        self.assertEqual(answer["shape"]["servers"], 60)
        for run in answer["runs"]:
            self.assertEqual(set(run["loss"]), set(runs.EVENTS))

    def test_same_seed_same_answer(self):
        self.assertEqual(self.run_tool("--json", "--seed", "3").stdout, self.run_tool("--json", "--seed", "3").stdout)

    def test_tables(self):
        lines = self.run_tool().stdout.splitlines()
        self.assertEqual(sum(line.startswith("| mirror:2 |") for line in lines), 2 * len(placement.WAYS))

    def test_bad_input(self):
        for words in (["--servers", "0"], ["--fill", "1.5"], ["--domains", "3"], ["--trials", "x"], ["--lag", "-1"]):
            with self.subTest(words=words):
                ended = self.run_tool(*words)
                self.assertEqual(ended.returncode, 2)
                self.assertIn("error:", ended.stderr)


if __name__ == "__main__":
    unittest.main()
