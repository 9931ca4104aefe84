# SPDX-License-Identifier: BSD-3-Clause
"""This build, installed in a folder of the test's own, and compilers that find it there by pkg-config."""
import os
import shlex
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["SODA_BUILD_DIR"]
SECONDS = 300  # a compiler or a program that takes longer hangs


class Installation:
    """As a context: the environment `env` is that of a user who has installed into a prefix of his own."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="soda-languages-")
        root = self.path("root")
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root], check=True,
                       stdout=subprocess.DEVNULL, timeout=SECONDS)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SODA_", "PKG_CONFIG"))}
        (pc,) = [path for path, _, files in os.walk(root) if "soda.pc" in files]
        self.env.update(PKG_CONFIG_PATH=pc, PKG_CONFIG_SYSROOT_DIR=root)
        (binaries,) = [path for path, _, files in os.walk(root) if "soda-mem-server" in files and path.endswith("/bin")]
        self.env.update(LD_LIBRARY_PATH=os.path.dirname(pc), PATH=binaries + ":" + self.env["PATH"])
        return self

    def __exit__(self, *raised):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def pkg_config(self, *words):
        result = self.run("pkg-config", *words, "soda")
        assert result.returncode == 0, result.stderr
        return shlex.split(result.stdout)

    def compile(self, command, *sources, name="program"):
        """The program that COMMAND makes of the sources; it may say nothing."""
        program = self.path(name)
        result = self.run(*command, *sources, "-o", program, *self.pkg_config("--cflags", "--libs"))
        said = result.stdout + result.stderr
        assert (result.returncode, said) == (0, ""), (command, said)
        return program

    def run(self, *command, **settings):
        return subprocess.run(command, env={**self.env, **settings}, cwd=self.folder.name, capture_output=True,
                              text=True, check=False, timeout=SECONDS)


def missing(*programs):
    """The first that is not installed, or None."""
    return next((name for name in programs if not shutil.which(name)), None)


def need(*programs):
    """Skip the test, all of its class or its part where one of them is not installed."""
    lacking = missing(*programs)
    if lacking:
        print(f"SKIP: {lacking} is not installed")
        raise unittest.SkipTest(lacking)


def mpi(launcher, ranks):
    """The words that start so many ranks."""
    words = [launcher, "-n", str(ranks)]
    if launcher.endswith("openmpi"):
        words.append("--oversubscribe")
        if os.getuid() == 0:
            words.append("--allow-run-as-root")
    return words
