#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The table of tests/draw is complete, and its configurations cover what they say.

  test_draw.py SETTINGS_C MEM_SERVER DPU_AGENT

Each option of the daemons (by their --help) and each setting of libsoda stands in table.py: with the parameter that
draws it, or with the reason why none does.
"""

import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True

import covering  # noqa: E402
import table  # noqa: E402

PROGRAMS = {}


def options_of(program):
    """The long options that its --help names."""
    text = subprocess.run([program, '--help'], capture_output=True, text=True, check=True, timeout=30).stdout
    return set(re.findall(r'^ +(?:-\w, )?--([a-z][a-z-]*)', text, re.M)) - {'help', 'version'}


def settings_of(source):
    """The environment variables of libsoda's option table."""
    with open(source, encoding='utf-8') as f:
        return set(re.findall(r'^\t\{ "[a-z-]+", 0, "SODA_(\w+)"', f.read(), re.M))


def known():
    return {name for names in [*table.OPTIONS.values(), *table.EXCUSED.values()] for name in names}


class Table(unittest.TestCase):
    def test_every_option_is_known(self):
        there = settings_of(PROGRAMS['settings'])
        for daemon in ('server', 'agent'):
            there |= {f'{daemon}:{option}' for option in options_of(PROGRAMS[daemon])}
        self.assertEqual(sorted(there - known()), [], 'in no parameter of tests/draw/table.py, and not excused')
        self.assertEqual(sorted(known() - there), [], 'in tests/draw/table.py, and no option any more')

    def test_parameters_of_options(self):
        self.assertEqual(set(table.OPTIONS) - set(table.PARAMETERS), set())

    def test_rules_name_values_that_exist(self):
        """Each rule forbids something: a misspelt value would forbid nothing."""
        import itertools
        for names, forbids, why in table.EXCLUDED:
            cases = itertools.product(*(table.PARAMETERS[n] for n in names))
            self.assertTrue(any(forbids(*case) for case in cases), why)


class Covering(unittest.TestCase):
    def test_all_pairs(self):
        space = covering.Space()
        rows, n = covering.array(space)
        self.assertEqual(covering.uncovered(space, rows, 2), [])
        self.assertGreater(n, 1000)
        for row in rows:
            self.assertEqual(set(row), set(table.PARAMETERS))
            self.assertTrue(all(space.allows(row, name) for name in row))

    def test_missing_pairs_are_found(self):
        """Without one of the rows something is uncovered: the count is not of the generator's own making."""
        space = covering.Space({'a': '01', 'b': '01', 'c': '01'}, ())
        rows, _ = covering.array(space)
        self.assertTrue(any(covering.uncovered(space, rows[:i] + rows[i + 1:], 2) for i in range(len(rows))))

    def test_what_rules_forbid_together(self):
        """A pair that two rules exclude by way of a third parameter is not legal."""
        rules = ((('a', 'c'), lambda a, c: a == '1' and c == '0', ''), (('b', 'c'), lambda b, c: b == '1' and c == '1', ''))
        space = covering.Space({'a': '01', 'b': '01', 'c': '01'}, rules)
        self.assertNotIn((('a', '1'), ('b', '1')), space.combinations(2))
        self.assertIn((('a', '1'), ('b', '0')), space.combinations(2))

    def test_numbers_are_the_same_again(self):
        space = covering.Space({'a': '012', 'b': '012', 'c': '012', 'd': '01'}, ())
        self.assertEqual(covering.array(space)[0], covering.array(covering.Space(space.parameters, ()))[0])


if __name__ == '__main__':
    PROGRAMS.update(zip(('settings', 'server', 'agent'), sys.argv[1:4]))
    unittest.main(argv=sys.argv[:1])
