# SPDX-License-Identifier: BSD-3-Clause
"""Run the commands of a tutorial or another page, and compare what they print with what it shows.

test_tutorial.py PAGE

The blocks "sh" of the page are run by one shell, in order, in a directory of their own.  A block "text" after one is
what it prints on standard output; "..." in it stands for anything.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

MARK = "-- end of a block --"
LIMIT_S = 200


def blocks(page):
    """[(commands, what they print or None)]"""
    found = []
    for kind, text in re.findall(r"^```(sh|text)\n(.*?)^```$", page, re.M | re.S):
        if kind == "sh":
            found.append((text, None))
        else:
            found[-1] = (found[-1][0], text)
    return found


def run(script, folder):
    """Standard output and error of all of it.  Whatever it has started and left ends with it."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("SODA_") or name in ("SODA_BUILD_DIR", "SODA_EXAMPLES")}
    shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        return shell.communicate(timeout=LIMIT_S) + (shell.returncode,)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        return shell.communicate() + ("not at an end after %d s" % LIMIT_S,)
    finally:
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        wanted = blocks(page.read())
    assert wanted, "the page has no commands"
    script = "set -e\n" + "".join(commands + "echo '" + MARK + "'\n" for commands, _ in wanted)
    folder = tempfile.mkdtemp(prefix="soda-tutorial-")
    try:
        out, err, status = run(script, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    got = out.split(MARK + "\n")
    failed = status != 0 or len(got) != len(wanted) + 1
    for (commands, said), printed in zip(wanted, got):
        pattern = ".*".join(re.escape(part) for part in (said or "...").split("..."))
        if not re.fullmatch(pattern, printed, re.S):
            print("%s\nprints\n%s\nand not\n%s" % (commands, printed, said))
            failed = True
    if failed:
        print("status %s, standard output\n%s\nstandard error\n%s" % (status, out, err))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
