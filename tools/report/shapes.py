# SPDX-License-Identifier: BSD-3-Clause
"""What the programs write.  A document names its format and the version of that:

  soda-eval         results.json of soda eval: the plan, the machine, every run
  soda-run          soda run --report: counters of a program over time
  soda-bench-fault  soda bench fault --json;  soda-bench-dpu, -messages, -node, -move, -start: of dpu...

A member that is added keeps the version; one that goes, or that means something else, makes a new one.
"""
from . import reading
from .reading import Unreadable, count, flag, list_of, nullable, number, optional, record, text

VERSION = 1

MACHINE = record(cpu=text, kernel=text, architecture=text, processors=count, memory_bytes=count, soda=text, date=text)

TRAFFIC = record(on_demand=count, prefetch=count, write_back=count, preload=count, total=count)

EVAL_RUN = record(
    graph=text, app=text, mode=text, processes=count, repetition=count, valid=flag, why_invalid=optional(text),
    seconds=optional(number), traffic=optional(TRAFFIC), programs_bytes=optional(count), hits=optional(count),
    late_hits=optional(count), misses=optional(count), host_cpu_ns=optional(count), agent_cpu_ns=optional(count),
    server_cpu_ns=optional(count), interface_bytes=optional(count), readahead_kib=optional(count))

EVAL = record(
    commands=list_of(record(text=text, memory_cap=text, machine=MACHINE)),
    machine=nullable(MACHINE), memory_cap=text,
    disk=record(in_memory=flag, readahead_default_kib=count),
    plan=record(threads=count, iterations=count, chunk_bytes=count, cache_bytes=count, limit_bytes=count,
                dpu_cpu_pct=count, shm=flag, link=text, apps=list_of(text), modes=list_of(text), repeat=count,
                background=flag),
    graphs=list_of(record(name=text, vertices=count, edges=count, vertex_bytes=count, edge_bytes=count)),
    runs=list_of(EVAL_RUN))

SAMPLES = ("at_ns", "reserved", "resident", "buffer", "faults", "zero_fills", "fetched", "written", "stalled_ns")

RUN = record(command=list_of(text), status=count, machine=MACHINE, settings=record(),
             samples=record(**{name: list_of(count) for name in SAMPLES}))

BENCH_FAULT = record(pattern=text, threads=count, size=count, chunk=count, buffer=count, rounds=count,
                     gb_per_s=nullable(number), floor=optional(record(gb_per_s=nullable(number))))

BENCH_DPU = record(runs=list_of(record(mode=text, pattern=text, rounds=count, seconds=nullable(number),
                                       gb_per_s=nullable(number), traffic=TRAFFIC)))

BENCH_NODE = record(runs=list_of(record(mode=text, pattern=text, processes=count, seconds=number, net_bytes=count,
                                        memory_bytes=nullable(count), cpu_s=number, fault_us_p50=nullable(number),
                                        fault_us_p99=nullable(number), verified=flag)))

BENCH_MESSAGES = record(
    rates=list_of(record(transport=text, bytes=count, ranks=count, agents=count, messages_per_s=number,
                         agent_ns=nullable(number),
                         mpi_messages_per_s=nullable(number), mpi=nullable(text), ratio=nullable(number),
                         gathered_messages_per_s=nullable(number), gathered_ratio=nullable(number),
                         alltoallv_messages_per_s=nullable(number), alltoallv_ratio=nullable(number))),
    apps=list_of(record(app=text, mode=text, ranks=count, seconds=number, messages=count, bytes=count,
                        mc_ratio=nullable(number), verified=flag)),
    sweeps=list_of(record(sweep=text, value=count, messages_per_s=number)))

BENCH_MOVE = record(
    host=list_of(record(transport=text, way=text, bytes=count, median_us=number, max_us=number, cpu_us=number)),
    host_correlation=nullable(number),
    throughput=list_of(record(transport=text, way=text, bytes=count, depth=count, gb_per_s=number,
                              plain_gb_per_s=number, ratio=number)),
    arrow=list_of(record(transport=text, way=text, columns=count, bytes=count, strategy=text, host_us=number,
                         gb_per_s=number, plain_gb_per_s=number, ratio=number,
                         agent_cpu_s_per_gb=nullable(number))))

BENCH_START = record(size=count, ms_first_touch=number, ms_first_fetch=number)

FORMATS = {"soda-eval": EVAL, "soda-run": RUN, "soda-bench-fault": BENCH_FAULT, "soda-bench-dpu": BENCH_DPU,
           "soda-bench-messages": BENCH_MESSAGES, "soda-bench-node": BENCH_NODE, "soda-bench-move": BENCH_MOVE,
           "soda-bench-start": BENCH_START}


def _samples_agree(document, path):
    """One value of each counter at each time."""
    lengths = {len(document["samples"][name]) for name in SAMPLES}
    if len(lengths) > 1:
        raise Unreadable(f"{path}: samples: the lists differ in length")


def _valid_runs_took_time(document, path):
    for i, run in enumerate(document["runs"]):
        if run["valid"] and not run.get("seconds", 0) > 0:
            raise Unreadable(f"{path}.runs[{i}]: valid, and has taken no time ('seconds')")


_BEYOND_SHAPE = {"soda-run": _samples_agree, "soda-eval": _valid_runs_took_time}


def check(document, path, wanted=None):
    """The name of a document's format; Unreadable: it is none of ours, or not what that says."""
    known = ", ".join(FORMATS)
    name = document.get("format") if isinstance(document, dict) else None
    if name is None:
        raise Unreadable(f"{path}: no results of soda: 'format' is missing (known: {known})")
    if name not in FORMATS or (wanted and name != wanted):
        raise Unreadable(f"{path}: its format is {name!r}, not {wanted or 'one of ' + known}")
    version = document.get("version")
    if version != VERSION:
        raise Unreadable(f"{path}: version {version!r} of {name}, and this is for {VERSION}: take the report of the "
                         f"soda that wrote it")
    FORMATS[name](document, path)
    if name in _BEYOND_SHAPE:
        _BEYOND_SHAPE[name](document, path)
    return name


def read(path, wanted=None):
    """(format, document) of a file."""
    document = reading.load(path)
    return check(document, path, wanted), document
