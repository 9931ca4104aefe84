# SPDX-License-Identifier: BSD-3-Clause
"""python3 tools/report RESULTS.json [PAGE.html], or python3 -m report."""
import logging
import os
import sys

PACKAGES = {"matplotlib": "python3-matplotlib", "jinja2": "python3-jinja2"}
DEBIANS = "/usr/bin/python3"


def missing():
    """Packages to install.  That matplotlib finds no home for its cache is nobody's concern here."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    absent = []
    for module, package in PACKAGES.items():
        try:
            __import__(module)
        except ImportError:
            absent.append(package)
    return absent


def main():
    absent = missing()
    if absent and os.access(DEBIANS, os.X_OK) and os.path.realpath(sys.executable) != os.path.realpath(DEBIANS):
        # Another Python comes first on the PATH; Debian's packages are not for it.
        os.execv(DEBIANS, [DEBIANS, "-B", os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:]])
    if absent:
        print(f"soda report: nothing can be drawn before {' and '.join(absent)} {'are' if len(absent) > 1 else 'is'} installed"
              f" (apt-get install {' '.join(absent)})", file=sys.stderr)
        return 3
    if not __package__:
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from report.command import run

    return run(sys.argv[1:])


sys.exit(main())
