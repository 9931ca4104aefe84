/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench`: which benchmark. */
#include <stdlib.h>

#include "soda/base/tool.h"
#include "soda/bench/fault/fault.h"
#include "soda/bench/heap/heap.h"
#include "soda/bench/messages/messages.h"
#include "soda/bench/seal/seal.h"

static const char usage[] =
	"Usage: soda bench BENCHMARK [OPTION]...\n"
	"\n"
	"Benchmarks:\n"
	"  dpu      what a DPU agent changes, part by part\n"
	"  fault    page faults: rates, latencies, CPU time, beside the bare mechanism\n"
	"  heap     allocation and free, and programs under soda run, where all is resident\n"
	"  messages many small messages between ranks, beside MPI\n"
	"  move     how an agent fetches data out of a program: a call's time, throughput\n"
	"  node     what a store saves that the processes of a node share\n"
	"  pool     a pool of memory servers, redundancy, servers killed under load\n"
	"  seal     what sealed objects cost, and attacks on them\n"
	"  start    time to the first fault\n"
	"  transport  READ and WRITE on each transport, without page faults\n"
	"\n"
	"soda bench BENCHMARK --help tells its options.\n"
	"\n"
	"Environment:\n"
	"  SODA_BENCH_PATIENCE=SECONDS  how long processes that dpu, fault, messages, move, node, "
	"seal and transport\n"
	"           have started may stand still, or take to end, before that is a failure; "
	"default 20\n";

/* Commands that the benchmarks themselves execute; --help does not name them. */
static int run_worker(int argc, char **argv)
{
	return argc == 2 ? soda_bench_worker_run(atoi(argv[1])) : SODA_EXIT_USAGE;
}

static int run_start(int argc, char **argv)
{
	return argc == 3 ? soda_bench_start_program(atoi(argv[1]), strtoull(argv[2], NULL, 10))
			 : SODA_EXIT_USAGE;
}

static int run_sort(int argc, char **argv)
{
	return argc == 2 ? soda_heap_sort_program(strtoull(argv[1], NULL, 10)) : SODA_EXIT_USAGE;
}

static int run_heap(int argc, char **argv)
{
	return argc >= 3 && argc % 2
		       ? soda_heap_measure_program((uint32_t)strtoul(argv[1], NULL, 10),
						   (uint32_t)strtoul(argv[2], NULL, 10),
						   (unsigned)(argc - 3) / 2, argv + 3)
		       : SODA_EXIT_USAGE;
}

int soda_command_bench(int argc, char **argv)
{
	static const struct soda_tool_command commands[] = {
		{ "dpu", soda_command_bench_dpu },
		{ "fault", soda_command_bench_fault },
		{ "heap", soda_command_bench_heap },
		{ "messages", soda_command_bench_messages },
		{ "move", soda_command_bench_move },
		{ "node", soda_command_bench_node },
		{ "pool", soda_command_bench_pool },
		{ "seal", soda_command_bench_seal },
		{ "start", soda_command_bench_start },
		{ "transport", soda_command_bench_transport },
		{ ".worker", run_worker },
		{ ".start", run_start },
		{ ".rank", soda_bench_messages_rank },
		{ ".sealed", soda_seal_victim },
		{ ".sort", run_sort },
		{ ".heap", run_heap },
		{ NULL, NULL },
	};

	return soda_tool_choose(commands, "soda bench: no benchmark", usage, argc, argv);
}
