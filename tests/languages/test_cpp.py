# SPDX-License-Identifier: BSD-3-Clause
"""soda.hpp: programs that are compiled against an installation, each case a process with a real server."""
import os
import unittest

import installation
import servers

HERE = os.path.dirname(os.path.abspath(__file__)) + "/cpp/"
WARNINGS = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]
QUICK = ["array", "errors", "names", "sizes", "spans"]


class Cpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.here = cls.enterClassContext(installation.Installation())

    def cases(self, compiler, standard, only=None):
        installation.need(compiler)
        program = self.here.compile([compiler, "-std=" + standard, *WARNINGS], HERE + "everything.cc",
                                    name=f"{compiler}-{standard}")
        names = self.here.run(program).stdout.split()
        self.assertGreater(len(names), 10)
        with servers.Server() as server:
            for name in only or names:
                with self.subTest(case=name):
                    result = self.here.run(program, name, SODA_SERVER=server.address)
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                    self.said(name, result.stdout)

    def said(self, name, text):
        if name == "errors":
            self.assertRegex(text, r"refused: 1 TiB wanted, .*: No space left on device\n$")
        elif name == "statics":
            self.assertRegex(text, r"^\d+ ([a-z])\1{19}\n$")
        else:
            self.assertEqual(text, "")

    def test_gcc_17(self):
        self.cases("g++", "c++17")

    def test_gcc_20(self):
        self.cases("g++", "c++20", QUICK)

    def test_clang_17(self):
        self.cases("clang++", "c++17", QUICK)

    def test_clang_20(self):
        self.cases("clang++", "c++20")

    def test_older(self):
        """It says what it needs."""
        installation.need("g++")
        with open(self.here.path("older.cc"), "w") as file:
            file.write("#include <soda.hpp>\n")
        result = self.here.run("g++", "-std=c++14", "-fsyntax-only", *self.here.pkg_config("--cflags"), "older.cc")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("soda.hpp needs C++17", result.stderr)

    def mpi(self, kind):
        installation.need("mpicxx." + kind, "mpirun." + kind)
        # their headers and libraries have warnings of their own
        program = self.here.compile(["mpicxx." + kind, "-std=c++17", "-O1"], HERE + "ranks.cc", name="ranks-" + kind)
        with servers.Server() as server:
            result = self.here.run(*installation.mpi("mpirun." + kind, 2), program, SODA_SERVER=server.address)
        self.assertEqual((result.returncode, result.stdout), (0, "786093312 of 2 ranks, 0 wrong\n"), result.stderr)

    def test_open_mpi(self):
        self.mpi("openmpi")

    def test_mpich(self):
        self.mpi("mpich")


if __name__ == "__main__":
    unittest.main()
