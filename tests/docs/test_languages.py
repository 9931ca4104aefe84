# SPDX-License-Identifier: BSD-3-Clause
"""The programs of docs/languages.md: each is compiled against an installation, with the words of the page, and run; its
output is what the page shows below it.

test_languages.py LANGUAGE: cpp or fortran
"""
import os
import re
import shlex
import sys
import unittest

import installation
import servers

SOURCE = os.environ["SODA_SOURCE_DIR"]
LANGUAGE = sys.argv.pop()
SUFFIX, COMPILERS = {"cpp": ("cc", ["g++", "clang++"]), "fortran": ("f90", ["gfortran"])}[LANGUAGE]


def programs():
    """[(commands or "", program, output)] of the page."""
    with open(SOURCE + "/docs/languages.md", encoding="utf-8") as file:
        page = file.read()
    found = re.findall(rf"^```{LANGUAGE}\n(.*?)^```\n+(?:```sh\n(.*?)^```\n+)?```text\n(.*?)^```$", page, re.M | re.S)
    assert len(found) == len(re.findall(rf"^```{LANGUAGE}$", page, re.M)), "a program without its output"
    # the commands that compile one, before the first program
    before = page.split(f"```{LANGUAGE}\n")[0]
    (words,) = re.findall(rf"^```sh\n(\w\S* .*program\.{SUFFIX} .*)\n```", before, re.M)[-1:]
    return words, [(commands, text, output) for text, commands, output in found]


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        installation.need(COMPILERS[0])
        cls.here = cls.enterClassContext(installation.Installation())
        cls.server = cls.enterClassContext(servers.Server())

    def shell(self, line, **settings):
        result = self.here.run("sh", "-ec", line, SODA_SERVER=self.server.address, **settings)
        self.assertEqual(result.returncode, 0, (line, result.stdout, result.stderr))
        return result.stdout

    def plain(self, compile_line, output):
        self.shell(compile_line)
        self.assertEqual(self.shell("./a.out"), output)

    def parallel(self, commands, output):
        """With each MPI that is installed, by its own names."""
        compile_line, run_line = commands.strip().split("\n")
        compiler, sources = compile_line.split(" ", 1)
        words = shlex.split(run_line)
        self.assertEqual(words[:2], ["mpirun", "-n"])
        for kind in "openmpi", "mpich":
            with self.subTest(mpi=kind):
                installation.need(f"{compiler}.{kind}", f"mpirun.{kind}")
                self.shell(f"{compiler}.{kind} {sources}")
                launch = installation.mpi(f"mpirun.{kind}", int(words[2])) + words[3:]
                self.assertEqual(self.shell(shlex.join(launch)), output)

    def test_programs(self):
        words, all_programs = programs()
        self.assertGreater(len(all_programs), 1)
        for number, (commands, text, output) in enumerate(all_programs):
            with self.subTest(program=number):
                with open(self.here.path("program." + SUFFIX), "w", encoding="utf-8") as file:
                    file.write(text)
                if commands:
                    self.parallel(commands, output)
                    continue
                # another compiler with each program
                compiler = COMPILERS[number % len(COMPILERS)]
                if installation.missing(compiler):
                    compiler = COMPILERS[0]
                self.plain(words.replace(COMPILERS[0], compiler, 1), output)


if __name__ == "__main__":
    unittest.main()
