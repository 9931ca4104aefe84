# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the Python package share: a memory server of this build, programs in processes of their own."""
import os
import re
import subprocess
import sys
import tempfile
import textwrap

BUILD = os.environ["SODA_BUILD_DIR"]
SECONDS = 120  # a program that takes longer hangs


class Daemon:
    """A daemon of this build; ends with the context. It may say nothing that is a warning."""

    def __init__(self, *command):
        self.command = command

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([BUILD + "/src/" + self.command[0], *self.command[1:]],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        ready = re.match(r"READY (\S+)", line)
        if not ready:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.command[0]} is not ready: {line!r}")
        self.address = ready.group(1)
        return self

    def __exit__(self, *raised):
        self.process.terminate()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        self.log.seek(0)
        log = self.log.read()
        self.log.close()
        if not raised[0] and (status or re.search("warning|error", log)):
            raise AssertionError(f"{self.command[0]} ended with {status} and said: {log}")


class Server(Daemon):
    """A memory server with an export directory."""

    def __enter__(self):
        self.files = tempfile.TemporaryDirectory(prefix="soda-python-")
        self.command = ("mem_server/soda-mem-server", "--listen", "tcp://127.0.0.1:0", "--capacity", "512M",
                        "--export", self.files.name)
        return super().__enter__()

    def path(self, name):
        return os.path.join(self.files.name, name)

    def __exit__(self, *raised):
        try:
            super().__exit__(*raised)
        finally:
            self.files.cleanup()


class Agent(Daemon):
    """A DPU agent before that server, with more options."""

    def __init__(self, server, *options):
        super().__init__("dpu_agent/soda-dpu-agent", "--listen", "tcp://127.0.0.1:0", "--server", server, *options)


def run(program, address=None, seconds=SECONDS, **settings):
    """Run a program's text in a Python of its own, and give what has become of it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SODA_")}
    env.update(settings, **({"SODA_SERVER": address} if address else {}))
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True,
                          timeout=seconds, check=False)
