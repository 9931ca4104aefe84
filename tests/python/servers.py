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


class Server:
    """A memory server with an export directory; ends with the context."""

    def __enter__(self):
        self.files = tempfile.TemporaryDirectory(prefix="soda-python-")
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [BUILD + "/src/mem_server/soda-mem-server", "--listen", "tcp://127.0.0.1:0", "--capacity", "512M", "--export",
             self.files.name], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        ready = re.match(r"READY (\S+)", line)
        if not ready:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server is not ready: {line!r}")
        self.address = ready.group(1)
        return self

    def path(self, name):
        return os.path.join(self.files.name, name)

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
        self.files.cleanup()
        if not raised[0] and (status or re.search("warning|error", log)):
            raise AssertionError(f"the server ended with {status} and said: {log}")


def run(program, address=None, seconds=SECONDS, **settings):
    """Run a program's text in a Python of its own, and give what has become of it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SODA_")}
    env.update(settings, **({"SODA_SERVER": address} if address else {}))
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True,
                          timeout=seconds, check=False)
