# SPDX-License-Identifier: BSD-3-Clause
"""numpy's own tests of its arrays, with all that they allocate from 1 KiB on in fabric memory."""
import importlib.util
import sys
import unittest

import servers

# Those that hand arrays to the C library's stdio, which the page of documentation says is for local memory.
TO_THE_KERNEL = "test_largish_file or test_read_shorter_than_count_subarray"
# A gigabyte of zeros, of which nothing is touched: the server promises what is asked for.
LARGE = "test_zeros_big"


@unittest.skipUnless(all(map(importlib.util.find_spec, ["pytest", "hypothesis"])), "python3-pytest or python3-hypothesis "
                     "is not installed")
class Numpy(unittest.TestCase):
    def passes(self, *names):
        modules = [f"numpy.core.tests.test_{name}" for name in names]
        with servers.Server() as server:
            result = servers.run(f"""
                import sys
                import pytest
                import soda
                soda.init(buffer="16M")
                with soda.array(threshold=1024):
                    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-k",
                                          "not ({TO_THE_KERNEL} or {LARGE})", "--pyargs", *{modules}])
                assert soda.stats()["zero_fills"] > 100, "hardly anything was in fabric memory"
                sys.exit(int(status))""", server.address, seconds=900, NPY_AVAILABLE_MEM="64 MB")
        self.assertEqual(result.returncode, 0, result.stdout[-4000:] + result.stderr[-2000:])
        self.assertRegex(result.stdout, r"\d\d+ passed")

    def test_arrays(self):
        self.passes("multiarray")

    def test_functions(self):
        self.passes("numeric", "shape_base", "indexing", "mem_overlap", "einsum", "nditer", "ufunc")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print("SKIP:", reason)
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
