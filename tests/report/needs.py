# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests of a module, or says why they are skipped."""
import sys
import unittest

SKIPPED = 77


def skip(reason):
    print(f"SKIP: {reason}", flush=True)
    sys.exit(SKIPPED)


def run():
    try:
        import jinja2  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        import matplotlib  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    except ImportError as error:
        skip(f"no {error.name} for {sys.executable}")
    unittest.main(verbosity=2)
