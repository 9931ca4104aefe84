# SPDX-License-Identifier: BSD-3-Clause
"""The module soda for Fortran: programs that are compiled with it, from an installation, each case a process with a
real server."""
import importlib.machinery
import importlib.util
import os
import re
import unittest

import installation
import servers

SOURCE = os.environ["SODA_SOURCE_DIR"]
HERE = SOURCE + "/tests/languages/fortran/"
# Equality of real numbers is what these programs are about.
WARNINGS = ["-O1", "-Wall", "-Wextra", "-Wno-compare-reals", "-Wno-function-elimination", "-Werror", "-std=f2018"]
# Arrays are objects there; a doorbell for many ranges and a question about seals have no procedure.
NOT_BOUND = {"soda_malloc", "soda_calloc", "soda_realloc", "soda_aligned_alloc", "soda_free", "soda_prefetchv",
             "soda_is_sealed"}
CASES = ["matrices", "columns", "ranges", "files", "publish", "errors"]

C_NUMBERS = """
#include <soda.h>
#include <stdio.h>
int main(void)
{
	printf("%zu %u %u %u %u %d %d\\n", sizeof(struct soda_stats), SODA_MIRROR(2), SODA_EC(4, 2), SODA_STRIPE(8),
	       SODA_SEALED, (int)SODA_OFF, SODA_ABANDON);
	return 0;
}
"""


def generator():
    loader = importlib.machinery.SourceFileLoader("make_module", SOURCE + "/fortran/make-module")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_module", loader))
    loader.exec_module(module)
    return module


def every_type():
    """A program that has an array of each type and rank, by a shape of either kind, as in local memory."""
    out, calls = "", ""
    for name, kind, rank in generator().each():
        shape = ", ".join(str(extent) for extent in [5, 4, 3, 2, 3, 2, 2][:rank])
        for suffix in "", "_int64":
            made = "[" + ", ".join(extent + suffix for extent in shape.split(", ")) + "]"
            procedure = f"{name}_{rank}{suffix}"
            colons = ",".join(":" * rank)
            calls += f"  call {procedure}()\n"
            out += f"""
  subroutine {procedure}()
    {kind}, pointer :: a({colons})
    {kind}, allocatable :: b({colons})
    type(soda_range) :: part
    integer :: i
    call soda_allocate(a, {made})
    allocate (b({shape}))
    if (any(a /= 0) .or. any(shape(a) /= [{shape}])) error stop '{procedure}: not zeros of that shape'
    a = reshape([(i, i=1, size(b))], [{shape}])
    b = reshape([(i, i=1, size(b))], [{shape}])
    part = soda_part(a)
    if (any(a /= b) .or. part%bytes /= size(b) * storage_size(b) / 8) error stop '{procedure}: not what was stored'
    call soda_sync(part)
    call soda_deallocate(a)
    if (associated(a)) error stop '{procedure}: not gone'
    call soda_open(a, 'zeros', SODA_PRIVATE, {made})
    if (any(a /= 0)) error stop '{procedure}: not what the file has'
    a = b
    if (any(a /= b) .or. any(shape(a) /= [{shape}])) error stop '{procedure}: not a private copy of that shape'
    call soda_deallocate(a)
  end subroutine
"""
    return f"""
program types
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64
  use soda
  implicit none
{calls}contains
{out}end program types
"""


class Fortran(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        installation.need("gfortran", "gcc")
        cls.here = cls.enterClassContext(installation.Installation())
        cls.server = cls.enterClassContext(servers.Server())
        (folder,) = cls.here.pkg_config("--variable=includedir")
        cls.module = folder + "/soda.f90"
        # the module for itself, once: most programs need its object and its .mod
        result = cls.here.run("gfortran", *WARNINGS, "-c", cls.module)
        assert (result.returncode, result.stdout + result.stderr) == (0, ""), result.stderr
        cls.object = cls.here.path("soda.o")
        cls.everything = cls.here.compile(["gfortran", *WARNINGS], HERE + "everything.f90", cls.object,
                                          name="everything")

    def case(self, *words):
        return self.here.run(*words, SODA_SERVER=self.server.address)

    def test_cases(self):
        for name in CASES:
            with self.subTest(case=name):
                result = self.case(self.everything, name)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_ends_without_stat(self):
        result = self.case(self.everything, "stops")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "^ERROR STOP soda_allocate: .* refused: 8 TiB wanted")

    def test_numbers(self):
        """Those of soda.h, as a compiler of C reads it."""
        with open(self.here.path("numbers.c"), "w") as file:
            file.write(C_NUMBERS)
        expected = self.here.run(self.here.compile(["gcc"], self.here.path("numbers.c"), name="numbers")).stdout
        result = self.case(self.everything, "numbers")
        self.assertEqual(result.stdout, expected + "16384 1 1048576\n")

    def test_functions(self):
        """Those of soda.h."""
        with open(SOURCE + "/include/soda.h") as file:
            functions = set(re.findall(r"^SODA_API .*\b(soda_\w+)\(", file.read(), re.M))
        with open(self.module) as file:
            bound = set(re.findall(r"bind\(c, name='(soda_\w+)'\)", file.read()))
        self.assertGreater(len(bound), 10)
        self.assertEqual(functions - NOT_BOUND, bound)

    def test_every_type(self):
        with open(self.here.path("types.f90"), "w") as file:
            file.write(every_type())
        with open(self.server.path("zeros"), "wb") as file:
            file.write(bytes(1 << 16))
        program = self.here.compile(["gfortran", "-O0"], self.here.path("types.f90"), self.object, name="types")
        result = self.case(program)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_example(self):
        program = self.here.compile(["gfortran", *WARNINGS], SOURCE + "/examples/fortran/heat.f90", self.object,
                                    name="heat")
        result = self.case(program, "400", "20")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^warmest: +\d+\.\d+, sum: +[\d.]+\n")

    def mpi(self, kind):
        installation.need("mpifort." + kind, "mpirun." + kind)
        program = self.here.compile(["mpifort." + kind, "-O1"], HERE + "ranks.f90", self.object, name="ranks-" + kind)
        result = self.case(*installation.mpi("mpirun." + kind, 2), program)
        self.assertEqual((result.returncode, result.stdout), (0, "862715904 of 2 ranks, 0 wrong\n"), result.stderr)

    def test_open_mpi(self):
        self.mpi("openmpi")

    def test_mpich(self):
        self.mpi("mpich")


if __name__ == "__main__":
    unittest.main()
