# SPDX-License-Identifier: BSD-3-Clause
"""The answers that examples/slurm/pool.sbatch takes, with a Slurm that only names nodes."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = os.environ["SODA_SOURCE_DIR"] + "/examples/slurm/pool.sbatch"
# One node is started, and its server is not: as far as that the script has taken everything.
STUBS = {
    "scontrol": 'if [ "$2" = hostnames ]; then seq -f node%g 120; else echo NodeAddr=nowhere; fi',
    "srun": 'echo "$@" >> "$STUB_SAYS"; exit 1',
}


# Steps run here: what stands behind the options of srun.
STEPS = {
    "scontrol": 'if [ "$2" = hostnames ]; then seq -f node%g 2; else echo NodeAddr=127.0.0.1; fi',
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
}
# The program has both servers' memory; each serves who has the job's key, and nobody else.
PROGRAM = """
set -eu
stat -c %a "$SODA_KEY_FILE"
python3 -c 'print(len(bytearray(80 << 20)) >> 20)'
for server in $(echo "$SODA_SERVER" | tr , ' '); do
    soda stat "$server" >/dev/null && echo served
    ! env -u SODA_KEY_FILE soda stat "$server" >/dev/null 2>&1 && echo refused
done
"""


def stub_programs(folder, stubs):
    for name, text in stubs.items():
        stub = pathlib.Path(folder, name)
        stub.write_text(f"#!/bin/sh\n{text}\n")
        stub.chmod(0o755)


class Key(unittest.TestCase):
    def run_job(self, program, **settings):
        with tempfile.TemporaryDirectory() as folder:
            stub_programs(folder, STEPS)
            env = {"PATH": folder + ":" + os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]",
                   "SODA_CAPACITY": "256M", "SODA_RUN": "--mem 16M --quiet", **settings}
            result = subprocess.run(["bash", SCRIPT, "2", "sh", "-c", program], env=env, cwd=folder,
                                    capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            kept = [path.name for path in pathlib.Path(folder).glob("pool-7-*/*")]
            self.assertFalse([name for name in kept if "key" in name or "tenants" in name], kept)
            return result.stdout.split()

    def test_of_the_job(self):
        self.assertEqual(self.run_job(PROGRAM), ["600", "80", "served", "refused", "served", "refused"])

    def test_open(self):
        self.assertEqual(self.run_job('echo "${SODA_KEY_FILE-none}"; soda stat "${SODA_SERVER%,*}" >/dev/null && echo served',
                                      SODA_OPEN="yes"), ["none", "served"])


class Pool(unittest.TestCase):
    def ask(self, memory_nodes, **settings):
        """The script's output, and how its first server would have been started."""
        with tempfile.TemporaryDirectory() as folder:
            stub_programs(folder, STUBS)
            said = pathlib.Path(folder, "said")
            env = {"PATH": folder + ":" + os.environ["PATH"], "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node[1-120]",
                   "STUB_SAYS": str(said), **settings}
            result = subprocess.run(["bash", SCRIPT, memory_nodes, "true"], env=env, cwd=folder, capture_output=True,
                                    text=True, timeout=120, check=False)
            self.assertNotEqual(result.returncode, 0)
            return result.stderr, said.read_text() if said.exists() else ""

    def test_many_nodes(self):
        says, started = self.ask("100", SODA_CAPACITY="1G")
        self.assertIn("no memory server on", says)
        self.assertIn("--capacity 1G", started)
        for number in "121", "0", "x", "1x":
            says, started = self.ask(number, SODA_CAPACITY="1G")
            self.assertIn("give a number from 1 to 120", says)
            self.assertEqual(started, "")

    def test_all_of_a_node(self):
        """--mem=0 is all of a node's memory, and no number."""
        for settings in {"SLURM_MEM_PER_NODE": "0"}, {}, {"SLURM_MEM_PER_NODE": "0", "SODA_CAPACITY": ""}:
            says, started = self.ask("1", **settings)
            self.assertIn("how much memory may a server promise?", says)
            self.assertEqual(started, "")
        self.assertIn("--capacity 3G", self.ask("1", SLURM_MEM_PER_NODE="0", SODA_CAPACITY="3G")[1])
        self.assertIn("--capacity 750M", self.ask("1", SLURM_MEM_PER_NODE="1000")[1])


if __name__ == "__main__":
    unittest.main()
