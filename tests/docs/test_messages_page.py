# SPDX-License-Identifier: BSD-3-Clause
"""The program of docs/messages.md: compiled, run by three ranks, and ended where one of them is killed."""
import os
import re
import shlex
import subprocess
import tempfile
import unittest

SOURCE, BUILD = os.environ["SODA_SOURCE_DIR"], os.environ["SODA_BUILD_DIR"]
MAIN = r"""
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
PAGE
int main(int argc, char **argv)
{
	uint64_t bytes = 0;
	int ret;

	if (argc > 1 && !strcmp(getenv("SODA_MSG_RANK"), argv[1])) {
		struct soda_msg_job *job;

		if (soda_msg_start(NULL, &job) == 0)
			kill(getpid(), SIGKILL);
	}
	ret = exchange(&bytes);
	printf("%d %" PRIu64 "\n", ret == -ECANCELED ? 1 : ret, bytes);
	fflush(stdout);
	return 0;
}
"""


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        with open(SOURCE + "/docs/messages.md") as file:
            program = re.search(r"```c\n(.*?)```", file.read(), re.S).group(1)
        with open(cls.folder + "/page.c", "w") as file:
            file.write(MAIN.replace("PAGE", program))
        libraries = BUILD + "/src/messages"
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter",
                        "-Werror", "-D_GNU_SOURCE", "-I", SOURCE + "/include", cls.folder + "/page.c", "-o", cls.folder + "/page",
                        "-L", libraries, "-lsoda-msg", "-Wl,-rpath," + libraries], check=True)

    def run_ranks(self, *args):
        env = {name: value for name, value in os.environ.items() if not name.startswith("SODA_MSG_")}
        return subprocess.run([BUILD + "/tools/soda/soda", "msg", "run", "-n", "3", "--", self.folder + "/page", *args],
                              env=env, capture_output=True, text=True, timeout=120, check=False)

    def test_runs(self):
        result = self.run_ranks()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, "0 15\n" * 3)

    def test_ends_with_an_error(self):
        """The other two come back, before they would be ended from outside."""
        result = self.run_ranks("1")
        self.assertEqual(result.returncode, 137, result.stderr)
        self.assertEqual(re.findall(r"^(\d) \d+$", result.stdout, re.M), ["1", "1"])


if __name__ == "__main__":
    unittest.main()
