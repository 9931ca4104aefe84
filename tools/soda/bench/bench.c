/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench`: which benchmark. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soda/base/tool.h"
#include "soda/bench/fault/fault.h"
#include "soda/bench/heap/heap.h"

static const char usage[] =
	"Usage: soda bench BENCHMARK [OPTION]...\n"
	"\n"
	"Benchmarks:\n"
	"  dpu      what a DPU agent changes, part by part\n"
	"  fault    page faults: rates, latencies, CPU time, beside the bare mechanism\n"
	"  heap     allocation and free, and programs under soda run, where all is resident\n"
	"  start    time to the first fault\n"
	"  transport  READ and WRITE on each transport, without page faults\n"
	"\n"
	"soda bench BENCHMARK --help tells its options.\n";

int soda_command_bench(int argc, char **argv)
{
	const char *which = argc > 1 ? argv[1] : "";

	if (strcmp(which, "dpu") == 0)
		return soda_command_bench_dpu(argc - 1, argv + 1);
	if (strcmp(which, "fault") == 0)
		return soda_command_bench_fault(argc - 1, argv + 1);
	if (strcmp(which, "heap") == 0)
		return soda_command_bench_heap(argc - 1, argv + 1);
	if (strcmp(which, "start") == 0)
		return soda_command_bench_start(argc - 1, argv + 1);
	if (strcmp(which, "transport") == 0)
		return soda_command_bench_transport(argc - 1, argv + 1);
	/* Hidden: what the benchmarks execute. */
	if (strcmp(which, ".worker") == 0 && argc == 3)
		return soda_bench_worker_run(atoi(argv[2]));
	if (strcmp(which, ".start") == 0 && argc == 4)
		return soda_bench_start_program(atoi(argv[2]), strtoull(argv[3], NULL, 10));
	if (strcmp(which, ".sort") == 0 && argc == 3)
		return soda_heap_sort_program(strtoull(argv[2], NULL, 10));
	if (strcmp(which, "--help") == 0 || strcmp(which, "-h") == 0) {
		fputs(usage, stdout);
		return SODA_EXIT_OK;
	}
	if (*which)
		fprintf(stderr, "soda bench: no benchmark '%s'\n", which);
	fputs(usage, stderr);
	return SODA_EXIT_USAGE;
}
