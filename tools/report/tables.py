# SPDX-License-Identifier: BSD-3-Clause
"""Markdown tables of the benchmarks."""
import os
import statistics

from . import texts

FORMATS = ("soda-bench-fault", "soda-bench-dpu", "soda-bench-messages", "soda-bench-node", "soda-bench-move")
_UNKNOWN = "-"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def head(*names):
    return [row(*names), row(*("---" for _ in names))]


def _real(value, digits=3):
    return _UNKNOWN if value is None else f"{value:.{digits}f}"


def _ranged(run, name):
    told = _real(run[name])
    least, most = run.get(f"{name}_min"), run.get(f"{name}_max")
    return told if least is None or most is None else f"{told} ({least:.3f}-{most:.3f})"


def _fault_rows(path, run):
    floor = run.get("floor") or {}
    yield (os.path.basename(path), run["pattern"], str(run["threads"]), _ranged(run, "gb_per_s"),
           _real(run.get("us_per_fault_p50"), 1), _real(run.get("us_per_fault_p99"), 1),
           _real(run.get("cpu_s_per_gb")), _real(floor.get("gb_per_s")), _real(run.get("ratio_gb_per_s"), 2))


def _dpu_rows(path, document):
    for run in document["runs"]:
        yield (os.path.basename(path), run["pattern"], run["mode"], _ranged(run, "gb_per_s"),
               _real(run.get("cpu_s_per_gb_host")), _real(run.get("cpu_s_per_gb_agent")),
               _real(run.get("cpu_s_per_gb_server")), texts.significant(run["traffic"]["total"] / 1e6),
               _real(run.get("hit_rate"), 2), _real(run.get("seconds_vs_memserver"), 2),
               _real(run.get("seconds_vs_base"), 2))


def _median(runs, name, unit=1):
    known = [run[name] / unit for run in runs if run[name] is not None]
    return statistics.median(known) if known else None


def _node_rows(path, document):
    """A row for each pattern and mode: medians over its rounds."""
    cases = {}
    for run in document["runs"]:
        cases.setdefault((run["pattern"], run["processes"], run["mode"]), []).append(run)
    for (pattern, processes, mode), runs in cases.items():
        yield (os.path.basename(path), pattern, str(processes), mode, _real(_median(runs, "seconds")),
               _real(_median(runs, "net_bytes", 1e6), 1), _real(_median(runs, "memory_bytes", 1e6), 1),
               _real(_median(runs, "cpu_s")), _real(_median(runs, "fault_us_p50"), 1),
               _real(_median(runs, "fault_us_p99"), 1))


def _millions(value):
    return _UNKNOWN if value is None else f"{value / 1e6:.2f}"


def _message_rates(path, document):
    for run in document["rates"]:
        yield (os.path.basename(path), run["transport"], str(run["ranks"]), str(run["agents"]), str(run["bytes"]),
               _millions(run["messages_per_s"]), _real(run["agent_ns"], 0),
               _millions(run["mpi_messages_per_s"]), _real(run["ratio"], 2),
               _millions(run["gathered_messages_per_s"]), _real(run["gathered_ratio"], 2),
               _millions(run["alltoallv_messages_per_s"]), _real(run["alltoallv_ratio"], 2))


def _message_apps(path, document):
    """A row for each application: the rule says how many times as fast an agent with its own processor can make it."""
    apps = {}
    for run in document["apps"]:
        apps.setdefault((run["app"], run["ranks"]), {})[run["mode"]] = run
    for (app, ranks), modes in apps.items():
        shared, own, process = (modes.get(mode, {}).get("seconds") for mode in ("shared", "own", "process"))
        ratio = next(iter(modes.values()))["mc_ratio"]
        yield (os.path.basename(path), app, str(ranks), _real(process), _real(shared), _real(own), _real(ratio, 2),
               _real(None if ratio is None else (ratio + 1) / max(ratio, 1), 2),
               _real(shared / own if shared and own else None, 2),
               "yes" if all(run["verified"] for run in modes.values()) else "**no**")


def _message_sweeps(path, document):
    for run in document["sweeps"]:
        yield os.path.basename(path), run["sweep"], str(run["value"]), _millions(run["messages_per_s"])


def _host_rows(path, document):
    for run in document["host"]:
        yield (os.path.basename(path), run["transport"], run["way"], texts.size(run["bytes"]),
               _real(run["median_us"], 1), _real(run["max_us"], 1), _real(run["cpu_us"], 1))


def _throughput_rows(path, document):
    for run in document["throughput"]:
        yield (os.path.basename(path), run["transport"], run["way"], texts.size(run["bytes"]), str(run["depth"]),
               _real(run["gb_per_s"]), _real(run["plain_gb_per_s"]), _real(run["ratio"], 2))


def _arrow_rows(path, document):
    for run in document["arrow"]:
        yield (os.path.basename(path), run["transport"], texts.size(run["bytes"]), str(run["columns"]),
               run["strategy"], _real(run["host_us"], 1), _real(run["gb_per_s"]), _real(run["plain_gb_per_s"]),
               _real(run["ratio"], 2), _real(run["agent_cpu_s_per_gb"]))


_TABLES = (
    ("soda-bench-fault", _fault_rows, ("file", "pattern", "threads", "GB/s", "us a fault, median", "99 %", "CPU s/GB",
                                       "floor GB/s", "ratio")),
    ("soda-bench-dpu", _dpu_rows, ("file", "pattern", "mode", "GB/s", "CPU s/GB: host", "agent", "server",
                                   "MB on the network", "hit rate", "time of memserver", "of base")),
    ("soda-bench-messages", _message_rates, ("file", "transport", "ranks", "agents", "bytes", "million messages a s",
                                             "agent ns", "MPI_Isend", "ratio", "gathered over MPI", "ratio",
                                             "MPI_Alltoallv", "ratio")),
    ("soda-bench-messages", _message_apps, ("file", "application", "ranks", "s, an agent each", "s, agent shares",
                                            "s, agent has its own", "m/c ratio", "times as fast, at most", "measured", "verified")),
    ("soda-bench-messages", _message_sweeps, ("file", "sweep", "value", "million messages a s")),
    ("soda-bench-node", _node_rows, ("file", "pattern", "processes", "mode", "seconds", "MB from the server",
                                     "MB of memory", "CPU s", "us a fault, median", "99 %")),
    ("soda-bench-move", _host_rows, ("file", "transport", "way", "size", "us a call, median", "at most",
                                     "CPU us to end")),
    ("soda-bench-move", _throughput_rows, ("file", "transport", "way", "size", "depth", "GB/s", "plain GB/s", "ratio")),
    ("soda-bench-move", _arrow_rows, ("file", "transport", "size", "columns", "way", "host CPU us", "GB/s",
                                      "unplaced GB/s", "ratio", "agent CPU s/GB")),
)


def markdown(read):
    """Tables for each format of [(path, format, document)]; medians, with the least and the most in brackets."""
    told = []
    for kind, rows_of, names in _TABLES:
        rows = [row(*cells) for path, of, document in read if of == kind for cells in rows_of(path, document)]
        if rows:
            told.append("\n".join([*head(*names), *rows]) + "\n")
    return "\n".join(told)
