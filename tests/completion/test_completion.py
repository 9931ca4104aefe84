# SPDX-License-Identifier: BSD-3-Clause
"""What a shell offers behind our programs' names, held against what the programs themselves say they have.

    test_completion.py bash|zsh|fish
"""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

BUILD = os.environ["SODA_BUILD_DIR"]
MADE = os.path.join(BUILD, "tools/completion")
PROGRAMS = {
    "soda": os.path.join(BUILD, "tools/soda/soda"),
    "soda-mem-server": os.path.join(BUILD, "src/mem_server/soda-mem-server"),
    "soda-dpu-agent": os.path.join(BUILD, "src/dpu_agent/soda-dpu-agent"),
}
LIMIT_S = 60


def help_of(*words):
    program, *rest = words
    return subprocess.run([PROGRAMS[program], *rest, "--help"], capture_output=True, text=True, check=True).stdout


def commands_of(*words):
    """The table below "Commands:" or "Benchmarks:"."""
    table = re.search(r"^(?:Commands|Benchmarks):\n((?:  .*\n)+)", help_of(*words), re.M)
    return set(re.findall(r"^  ([a-z]+) ", table[1], re.M))


def options_of(*words):
    return {"--" + name for name in re.findall(r"^  (?:-\w, |)--([a-z-]+)", help_of(*words), re.M)}


def all_commands():
    """Each program with the words of each of its commands."""
    for name in sorted(commands_of("soda")):
        if name in ("bench", "graph", "msg", "pool", "seal", "tenant"):
            for word in sorted(commands_of("soda", name)):
                yield ("soda", name, word)
        else:
            yield ("soda", name)
    yield ("soda-mem-server",)
    yield ("soda-dpu-agent",)


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, arguments, environment):
        self.seen = ""
        self.child, self.fd = pty.fork()
        if self.child == 0:
            os.execvpe(arguments[0], arguments, {**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null", **environment})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 300, 200, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def await_text(self, pattern):
        """What the terminal has shown since the last call, once that matches."""
        end = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.fd], [], [], 1)
            if ready:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            if time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
        seen, self.seen = self.seen, ""
        return seen

    def end(self):
        os.kill(self.child, signal.SIGKILL)
        os.close(self.fd)
        os.waitpid(self.child, 0)


class Bash(unittest.TestCase):
    shell = "bash"

    def offers(self, *line):
        """The words that may stand in the place of the last one."""
        script = (f'source "{MADE}/$1" || exit 1; shift\n'
                  'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n'
                  'ours=$(complete -p "$1") && ours=${ours#*-F } && ours=${ours%% *}\n'
                  '"$ours" "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"\n'
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        out = subprocess.run(["bash", "--norc", "--noprofile", "-c", script, "bash", line[0], *line],
                             capture_output=True, text=True, check=True)
        self.assertEqual(out.stderr, "")
        return {word for word in out.stdout.split("\n") if word}

    def test_offers_all_commands(self):
        for words in (("soda",), ("soda", "bench"), ("soda", "graph"), ("soda", "msg"), ("soda", "pool"), ("soda", "seal"),
                      ("soda", "tenant")):
            self.assertEqual(self.offers(*words, ""), commands_of(*words))
        self.assertEqual(self.offers("soda", "doc"), {"doctor"})
        self.assertEqual(self.offers("soda", "nonsense", "x", ""), set())

    def test_offers_all_options(self):
        for words in all_commands():
            with self.subTest(words=words):
                self.assertEqual(self.offers(*words, "-"), options_of(*words))

    def test_offers_values(self):
        levels = {"error", "warning", "info", "debug"}
        self.assertEqual(self.offers("soda-mem-server", "--log-level", ""), levels)
        self.assertEqual(self.offers("soda-mem-server", "--quota", "1G", "--log-level", "=", "d"), {"debug"})
        self.assertEqual(self.offers("soda-mem-server", "--log-level", "="), levels)
        self.assertEqual(self.offers("soda", "eval", "-m", "agg,st"), {"agg,static", "agg,static+dynamic", "agg,store"})
        self.assertEqual(self.offers("soda", "stat", "--timeout", ""), set())
        self.assertEqual(self.offers("soda", "run", "-s", "s"), {"shm://"})
        self.assertIn("shm://", self.offers("soda", "top", "s"))
        self.assertEqual(self.offers("soda", "doctor", "v"), {"verbs://"})

    def test_offers_files(self):
        with tempfile.TemporaryDirectory(prefix="soda-test-completion-") as folder:
            name = os.path.join(folder, "two words.json")
            open(name, "w", encoding="ascii").close()
            os.mkdir(os.path.join(folder, "two folders"))
            begin = os.path.join(folder, "two")
            both = {name, os.path.join(folder, "two folders")}
            self.assertEqual(self.offers("soda", "report", begin), both)
            self.assertEqual(self.offers("soda-mem-server", "--config", begin), both)
            self.assertEqual(self.offers("soda-mem-server", "--export", begin), both - {name})

    def test_offers_programs_behind_the_dashes(self):
        self.assertEqual(self.offers("soda", "run", ""), {"--"})
        self.assertIn("true", self.offers("soda", "run", "-m", "1G", "--", "tru"))
        self.assertEqual(self.offers("soda", "run", "--", "true", "--"), set())
        self.assertNotIn("shm://", self.offers("soda", "run", "--", "true", "-s", "s"))

    def test_at_a_terminal(self):
        terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], {"PS1": "ready> "})
        terminal.await_text("ready> ")
        terminal.type(f"source {MADE}/soda\n")
        terminal.await_text("ready> $")
        terminal.type("soda doc\t--qu\t")
        terminal.await_text("soda doctor --quiet ")
        terminal.end()


class Fish(unittest.TestCase):
    shell = "fish"

    def offers(self, line):
        with tempfile.TemporaryDirectory(prefix="soda-test-completion-") as home:
            out = subprocess.run(["fish", "--no-config", "-c", f"source {MADE}/{line.split()[0]}.fish; complete -C '{line}'"],
                                 capture_output=True, text=True, check=True,
                                 env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home})
        self.assertEqual(out.stderr, "")
        return {found.split("\t")[0] for found in out.stdout.splitlines()}

    def test_offers_all_commands(self):
        for words in (("soda",), ("soda", "bench"), ("soda", "graph"), ("soda", "msg"), ("soda", "pool"), ("soda", "seal"),
                      ("soda", "tenant")):
            self.assertEqual(self.offers(" ".join(words) + " "), commands_of(*words))
        self.assertEqual(self.offers("soda doc"), {"doctor"})

    def test_offers_all_options(self):
        for words in all_commands():
            with self.subTest(words=words):
                self.assertEqual(self.offers(" ".join(words) + " --"), options_of(*words))

    def test_offers_values(self):
        self.assertEqual(self.offers("soda-mem-server --log-level "), {"error", "warning", "info", "debug"})
        self.assertEqual(self.offers("soda eval --modes agg,sto"), {"agg,store"})
        self.assertEqual(self.offers("soda run -s sh"), {"shm://"})
        self.assertIn("true", self.offers("soda run -- tru"))


class Zsh(unittest.TestCase):
    shell = "zsh"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="soda-test-completion-")
        self.addCleanup(self.folder.cleanup)
        for name in PROGRAMS:
            shutil.copy(os.path.join(MADE, "_" + name), self.folder.name)
        self.terminal = Terminal(["zsh", "-f", "-i"], {"PS1": "ready> ", "LISTMAX": "9999", "HOME": self.folder.name, "ZDOTDIR": self.folder.name})
        self.terminal.await_text("ready> ")
        self.terminal.type(f"fpath=({self.folder.name} $fpath); autoload -U compinit; compinit -u -D; print do''ne\n")
        self.terminal.await_text("done[\r\n]+.*ready> ")
        self.addCleanup(self.terminal.end)

    def completes(self, typed, whole):
        self.terminal.type(typed + "\t")
        self.terminal.await_text(re.escape(whole))
        self.terminal.type("\x15\n")  # the line is given up
        self.terminal.await_text("ready> ")

    def test_completes_commands_options_and_values(self):
        self.completes("soda doc", "soda doctor ")
        self.completes("soda bench tran", "soda bench transport ")
        self.completes("soda doctor --qui", "soda doctor --quiet ")
        self.completes("soda graph gen --vert", "soda graph gen --vertices=")
        self.completes("soda-mem-server --log-level de", "soda-mem-server --log-level debug ")
        self.completes("soda-dpu-agent --serv", "soda-dpu-agent --server")
        self.completes("soda eval --modes agg,sto", "soda eval --modes agg,store")

    def test_offers_all_options(self):
        for words in all_commands():
            with self.subTest(words=words):
                self.terminal.type(" ".join(words) + " --\x04")  # ^D: list
                shown = self.terminal.await_text(r"--version[\s\S]*" + re.escape(" ".join(words) + " --") + r"$")
                for option in options_of(*words):
                    self.assertIn(option, shown)
                self.terminal.type("\x15\n")
                self.terminal.await_text("ready> ")


def main():
    case = {"bash": Bash, "zsh": Zsh, "fish": Fish}[sys.argv[1]]
    if not shutil.which(case.shell):
        print(f"SKIP: {case.shell} is not installed")
        sys.exit(77)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


main()
