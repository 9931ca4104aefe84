# SPDX-License-Identifier: BSD-3-Clause
"""The package's C files compile against each numpy's headers that are here: without a warning, a function that is not
declared among them.

SODA_TEST_NUMPY: folders with other headers, joined by colons, as numpy.get_include() names them.  Debian's package
python3-numpy-dev of another release has them: `apt-get download` and `dpkg-deb -x` fetch and unpack it.
"""
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
import unittest

import numpy

SOURCE = os.environ["SODA_SOURCE_DIR"]


def version(folder):
    """The version that the headers say by default: the oldest numpy that a module runs on."""
    with open(folder + "/numpy/numpyconfig.h") as file:
        return "2" if "NPY_2_0_API_VERSION" in file.read() else "1"


class Headers(unittest.TestCase):
    def compiles(self, folder, *options):
        files = [f"{SOURCE}/python/soda/{name}" for name in sorted(os.listdir(SOURCE + "/python/soda")) if name.endswith(".c")]
        self.assertGreater(len(files), 3)
        with tempfile.TemporaryDirectory() as out:
            for file in files:
                result = subprocess.run(
                    [*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-Wall", "-Werror=implicit-function-declaration",
                     "-Werror", "-D_GNU_SOURCE", "-c", "-I", SOURCE + "/include", "-isystem", folder, "-isystem",
                     sysconfig.get_path("include"), *options, file, "-o", out + "/x.o"],
                    capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stderr), (0, ""), (folder, file))

    def test_of_this_machine(self):
        self.compiles(numpy.get_include())

    def test_asks_for_what_it_uses(self):
        """The hook came with numpy 1.22: headers of 1.25 to 2.2 hide it from who does not ask for that version."""
        for name in "array.c", "hook.c":
            with open(f"{SOURCE}/python/soda/{name}") as file:
                text = file.read()
            before = text[:re.search(r"#include <numpy/", text).start()]
            self.assertIn("#define NPY_TARGET_VERSION NPY_1_22_API_VERSION\n", before, name)

    def test_of_others(self):
        others = [folder for folder in os.environ.get("SODA_TEST_NUMPY", "").split(":") if folder]
        if not others:
            print("SKIP: SODA_TEST_NUMPY names no other headers of numpy")
        for folder in others:
            with self.subTest(folder=folder, numpy=version(folder)):
                self.compiles(folder)


if __name__ == "__main__":
    unittest.main()
