# SPDX-License-Identifier: BSD-3-Clause
"""Medians over the repetitions, and what figures are made of."""
import unittest

import needs
import samples
from report import evaluation, figures, spread, texts
from report.program import Program

RUN = samples.eval_run


def figure(name):
    return next(one for one in figures.FIGURES if one.id == name)


def found(*runs):
    return evaluation.Evaluation(samples.evaluation(list(runs)))


class Medians(unittest.TestCase):
    def test_of_two_the_mean(self):
        cell = found(RUN("dram", 3.0, 0, 30), RUN("dram", 1.0, 1, 10)).cell("g1", "bfs", "dram")
        self.assertEqual(cell.n, 2)
        self.assertEqual(cell.seconds, spread.Spread(2.0, 1.0, 3.0, 2))
        self.assertEqual(cell.traffic.median, 20)

    def test_of_three_the_middle_one(self):
        cell = found(*(RUN("dram", s, i) for i, s in enumerate((3.0, 1.0, 9.0)))).cell("g1", "bfs", "dram")
        self.assertEqual(cell.seconds, spread.Spread(3.0, 1.0, 9.0, 3))

    def test_the_last_try_counts(self):
        cell = found(RUN("base", 5.0, valid=False)).cell("g1", "bfs", "base")
        self.assertEqual((cell.n, cell.invalid, cell.state), (0, 1, evaluation.INVALID))
        cell = found(RUN("base", 5.0, valid=False), RUN("base", 7.0)).cell("g1", "bfs", "base")
        self.assertEqual((cell.seconds.median, cell.invalid), (7.0, 0))
        cell = found(RUN("base", 7.0), RUN("base", 5.0, valid=False)).cell("g1", "bfs", "base")
        self.assertEqual((cell.n, cell.invalid), (0, 1))

    def test_what_was_not_run_is_told_apart(self):
        self.assertEqual(found(RUN("base", 7.0)).cell("g1", "bfs", "all").state, evaluation.NOT_RUN)

    def test_hits_of_nothing_are_not_known(self):
        cell = found(RUN("all", 1.0, hits=0, late_hits=0, misses=0)).cell("g1", "bfs", "all")
        self.assertIsNone(cell.hit_rate)
        cell = found(RUN("all", 1.0, hits=6, late_hits=2, misses=2)).cell("g1", "bfs", "all")
        self.assertEqual(cell.hit_rate.median, 0.8)


class Values(unittest.TestCase):
    def value(self, of, name, mode):
        return of.value(figure(name), "g1", "bfs", mode)

    def test_time_and_traffic(self):
        of = found(RUN("base", 4.0, traffic=50), RUN("agg", 3.0, 0, 100), RUN("agg", 5.0, 1, 100))
        self.assertEqual(self.value(of, "figure-11", "agg").spread, spread.Spread(1.0, 0.75, 1.25, 2))
        self.assertTrue(of.has_values(figure("figure-11")))
        self.assertFalse(of.has_values(figure("figure-7")))

    def test_the_baselines_of_the_paper(self):
        """Figure 7: time without an agent. Figure 9: traffic of the server alone. Figure 11: time of the plain proxy."""
        of = found(RUN("memserver", 2.0, traffic=50), RUN("base", 4.0, traffic=80), RUN("static", 3.0, traffic=100),
                   RUN("dynamic-paper", 1.0, traffic=25))
        self.assertEqual(self.value(of, "figure-7", "base").spread.median, 2)
        self.assertEqual(self.value(of, "figure-9", "static").spread.median, 2)
        self.assertEqual(of.parts(figure("figure-9"), "g1", "bfs", "static"), [2, 0, 0, 0])
        self.assertEqual(self.value(of, "figure-9", "dynamic-paper").spread.median, 0.5)
        self.assertEqual(self.value(of, "figure-11", "dynamic-paper").spread.median, 0.25)
        self.assertEqual(of.series(figure("figure-11")), ["base", "static", "dynamic-paper"])

    def test_nothing_to_compare_with(self):
        of = found(RUN("base", 4.0))
        self.assertIsNone(self.value(of, "figure-6", "base").spread)
        self.assertFalse(of.has_values(figure("figure-6")))
        self.assertIsNone(of.extent(figure("figure-6"), "base"))

    def test_the_best_of_the_disk_is_the_reference(self):
        runs = [RUN("base", 4.0), RUN("ssd", 12.0)]
        self.assertEqual(self.value(found(*runs), "figure-6", "base").spread.median, 3)
        runs.append(RUN("ssd+readahead", 16.0))
        self.assertEqual(self.value(found(*runs), "figure-6", "base").spread.median, 3)
        runs.append(RUN("ssd+advice", 8.0))
        self.assertEqual(self.value(found(*runs), "figure-6", "base").spread.median, 2)
        self.assertEqual(self.value(found(*runs), "figure-6", "ssd").spread.median, 8 / 12)

    def test_the_slowest_run_is_the_least_speed_up(self):
        of = found(RUN("ssd", 12.0), RUN("all", 2.0, 0), RUN("all", 4.0, 1))
        self.assertEqual(self.value(of, "figure-6", "all").spread, spread.Spread(4.0, 3.0, 6.0, 2))

    def test_invalid_is_not_missing(self):
        of = found(RUN("memserver", 4.0), RUN("all", 4.0, valid=False), RUN("agg", 4.0))
        self.assertEqual(self.value(of, "figure-7", "all").state, evaluation.INVALID)
        self.assertEqual(self.value(of, "figure-11", "async").state, evaluation.NOT_RUN)

    def test_beside_another_process_is_apart(self):
        of = found(RUN("memserver", 4.0), RUN("memserver", 5.0, processes=2), RUN("all", 10.0, processes=2))
        self.assertEqual(self.value(of, "figure-8", "all").spread.median, 2)
        self.assertEqual(of.tried(2), ["memserver", "all"])
        self.assertEqual(of.tried(1), ["memserver"])


class OverTime(unittest.TestCase):
    def test_rates_are_of_the_step(self):
        steps = Program(samples.program(5)).steps()
        self.assertEqual(len(steps), 5)
        self.assertEqual((steps[0].seconds, steps[0].faults_per_s), (0.1, 0))
        self.assertAlmostEqual(steps[4].faults_per_s, 100)
        self.assertAlmostEqual(steps[4].fetched_mib_per_s, 10)
        self.assertAlmostEqual(steps[4].stalled_threads, 0.1)

    def test_a_table_is_short_and_has_the_end(self):
        program = Program(samples.program(1000))
        self.assertEqual(len(program.table()), 20)
        self.assertEqual(program.table()[-1].seconds, 100)
        self.assertAlmostEqual(program.table()[-1].faults_per_s, 100)

    def test_of_nothing_there_is_none(self):
        self.assertEqual(Program(samples.program(0)).steps(), [])
        self.assertEqual(len(Program(samples.program(1)).steps()), 1)


class Texts(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual([texts.significant(x) for x in (0, 0.01234, 1, 15.96, 99.96, 12345)],
                         ["0", "0.0123", "1.00", "16.0", "100", "12345"])
        self.assertEqual(texts.count(1234567), "1\u202f234\u202f567")
        self.assertEqual([texts.size(x) for x in (0, 1023, 65536, 3 << 29)],
                         ["0\u202fbytes", "1023\u202fbytes", "64\u202fKiB", "1.5\u202fGiB"])


if __name__ == "__main__":
    needs.run()
