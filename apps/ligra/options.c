/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: soda-ligra [OPTION...] APPLICATION         run one\n"
	"       soda-ligra [OPTION...] verify RESULT...    check results with serial references\n"
	"\n"
	"Applications: bfs, pagerank, radii, bc, components; kcore, mis, triangle (these on\n"
	"symmetric graphs only), bellman-ford.  The defaults are Ligra's.\n"
	"\n"
	"Graph applications on memory of this node or on fabric memory.\n"
	"\n"
	"The graph:\n"
	"  --graph FILE        of any format that `soda graph convert' reads, text gzipped or\n"
	"                      not; what it writes (FILE.config, FILE.idx ...) is loaded as it\n"
	"                      is, everything else is converted first, in $TMPDIR\n"
	"  --rmat SCALE        generate an R-MAT graph of 2^SCALE vertices\n"
	"  --edge-factor N     with so many edges for each vertex (default 16)\n"
	"  --edges N           or with so many edges in all\n"
	"  --rmat-abc A,B,C    its probabilities (default 0.5,0.1,0.1)\n"
	"  --seed N            and its seed (default 1): same parameters, same graph\n"
	"  --symmetric         each edge in both directions, once, and no self-loops;\n"
	"                      without it the edges are taken as they are\n"
	"  --weights           with the weights of the file's edges, as `soda graph convert\n"
	"                      --weights' takes them, for bellman-ford; a file that was\n"
	"                      converted with them has them anyway.  For a graph without\n"
	"                      weights bellman-ford draws some\n"
	"The run:\n"
	"  --memory KIND       where the graph lies: dram (default); fam, filled by this\n"
	"                      program; served, the files of --graph in the memory server's\n"
	"                      export folder, read-only; mmap, the files mapped;\n"
	"                      mmap-advised, the same with the advice and the passes back and\n"
	"                      forth that fabric memory gets (madvise).  fam and served are\n"
	"                      configured by SODA_SERVER, SODA_BUFFER and the like\n"
	"  --arrays dram|fam   where every other array lies whose size grows with the graph\n"
	"                      (default: fam with --memory fam, otherwise dram)\n"
	"  --threads N         default: one for each processor\n"
	"  --repeat N          run so often and report the median (default 1)\n"
	"  --source ID         bfs, bc, bellman-ford: begin here (default: the vertex with\n"
	"                      most out-edges)\n"
	"  --iterations N      pagerank: at most so many (default 100)\n"
	"  --epsilon X         pagerank: stop when the ranks move by less (default 1e-7;\n"
	"                      0: never)\n"
	"  --verify            check the result with a serial reference, which needs local\n"
	"                      memory; under a memory limit write --result and check it later\n"
	"  --result FILE       write the result for `verify'\n"
	"  --json FILE         write what was measured\n"
	"  --trusted           do not read the whole graph for its checksums before and after\n"
	"                      the runs: they begin with nothing of it resident\n"
	"  --cache-edges       a DPU agent's dynamic cache is for the edges alone\n"
	"  --warm BYTES        before the first run, touch so much memory and give it back: a\n"
	"                      virtual machine's host then has memory behind what the run is\n"
	"                      given, and its first touch is not part of the time\n"
	"  --help              this text\n"
	"\n"
	"Exit status: 0 success; 1 wrong result or failed run; 2 bad usage or bad input.\n";

enum {
	OPT_GRAPH = 1,
	OPT_RMAT,
	OPT_EDGE_FACTOR,
	OPT_EDGES,
	OPT_ABC,
	OPT_SEED,
	OPT_SYMMETRIC,
	OPT_WEIGHTS,
	OPT_MEMORY,
	OPT_ARRAYS,
	OPT_THREADS,
	OPT_REPEAT,
	OPT_SOURCE,
	OPT_ITERATIONS,
	OPT_EPSILON,
	OPT_VERIFY,
	OPT_RESULT,
	OPT_JSON,
	OPT_TRUSTED,
	OPT_CACHE_EDGES,
	OPT_WARM,
	OPT_HELP,
};

static const struct option long_options[] = {
	{ "graph", required_argument, NULL, OPT_GRAPH },
	{ "rmat", required_argument, NULL, OPT_RMAT },
	{ "edge-factor", required_argument, NULL, OPT_EDGE_FACTOR },
	{ "edges", required_argument, NULL, OPT_EDGES },
	{ "rmat-abc", required_argument, NULL, OPT_ABC },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "symmetric", no_argument, NULL, OPT_SYMMETRIC },
	{ "weights", no_argument, NULL, OPT_WEIGHTS },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "arrays", required_argument, NULL, OPT_ARRAYS },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "repeat", required_argument, NULL, OPT_REPEAT },
	{ "source", required_argument, NULL, OPT_SOURCE },
	{ "iterations", required_argument, NULL, OPT_ITERATIONS },
	{ "epsilon", required_argument, NULL, OPT_EPSILON },
	{ "verify", no_argument, NULL, OPT_VERIFY },
	{ "result", required_argument, NULL, OPT_RESULT },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "trusted", no_argument, NULL, OPT_TRUSTED },
	{ "cache-edges", no_argument, NULL, OPT_CACHE_EDGES },
	{ "warm", required_argument, NULL, OPT_WARM },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static void __attribute__((format(printf, 1, 2), noreturn)) bad_usage(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "soda-ligra: ");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, " (soda-ligra --help)\n");
	va_end(args);
	exit(2);
}

static uint64_t number(const char *option, const char *text, uint64_t min, uint64_t max)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < min || value > max)
		bad_usage("--%s %s: expected a number from %llu to %llu", option, text,
			  (unsigned long long)min, (unsigned long long)max);
	return value;
}

static double real(const char *option, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0) || isinf(value))
		bad_usage("--%s %s: expected a number that is not negative", option, text);
	return value;
}

static void parse_abc(const char *text, struct soda_graph_random *rmat)
{
	char end;

	if (sscanf(text, "%lf,%lf,%lf%c", &rmat->a, &rmat->b, &rmat->c, &end) != 3)
		bad_usage("--rmat-abc %s: expected three numbers A,B,C", text);
}

static enum mem_kind parse_memory(const char *text)
{
	for (enum mem_kind kind = MEM_DRAM; kind <= MEM_MMAP_ADVISED; kind++)
		if (!strcmp(text, mem_kind_name(kind)))
			return kind;
	bad_usage("--memory %s: expected dram, fam, served, mmap or mmap-advised", text);
}

static enum mem_kind parse_arrays(const char *text)
{
	if (!strcmp(text, "dram"))
		return MEM_DRAM;
	if (!strcmp(text, "fam"))
		return MEM_FAM;
	bad_usage("--arrays %s: expected dram or fam", text);
}

static void parse_command(const char *text, struct options *o)
{
	o->app = app_find(text);
	if (o->app)
		o->command = COMMAND_RUN;
	else if (!strcmp(text, "verify"))
		o->command = COMMAND_VERIFY;
	else
		bad_usage("%s: expected an application or verify", text);
}

static void parse_graph_option(int option, const char *name, struct options *o,
			       uint64_t *edge_factor)
{
	struct soda_graph_random *rmat = &o->input.rmat;

	switch (option) {
	case OPT_GRAPH:
		o->input.path = optarg;
		break;
	case OPT_RMAT:
		rmat->scale = (unsigned)number(name, optarg, 1, 31);
		break;
	case OPT_EDGE_FACTOR:
		*edge_factor = number(name, optarg, 1, UINT32_MAX);
		break;
	case OPT_EDGES:
		rmat->edges = number(name, optarg, 1, UINT64_MAX / 64);
		break;
	case OPT_ABC:
		parse_abc(optarg, rmat);
		break;
	case OPT_SEED:
		rmat->seed = number(name, optarg, 0, UINT64_MAX);
		break;
	case OPT_SYMMETRIC:
		o->input.symmetric = true;
		break;
	case OPT_WEIGHTS:
		o->input.weighted = true;
		break;
	}
}

static void parse_run_option(int option, const char *name, struct options *o)
{
	switch (option) {
	case OPT_MEMORY:
		o->memory = parse_memory(optarg);
		break;
	case OPT_ARRAYS:
		o->has_arrays = true;
		o->arrays = parse_arrays(optarg);
		break;
	case OPT_THREADS:
		o->threads = (unsigned)number(name, optarg, 1, 4096);
		break;
	case OPT_REPEAT:
		o->repeat = (unsigned)number(name, optarg, 1, 1000000);
		break;
	case OPT_SOURCE:
		o->has_source = true;
		o->source = number(name, optarg, 0, UINT32_MAX);
		break;
	case OPT_ITERATIONS:
		o->params.iterations = (unsigned)number(name, optarg, 1, INT_MAX);
		break;
	case OPT_EPSILON:
		o->params.epsilon = real(name, optarg);
		break;
	case OPT_VERIFY:
		o->verify = true;
		break;
	case OPT_RESULT:
		o->result = optarg;
		break;
	case OPT_JSON:
		o->json = optarg;
		break;
	case OPT_TRUSTED:
		o->trusted = true;
		break;
	case OPT_CACHE_EDGES:
		o->cache_edges = true;
		break;
	case OPT_WARM:
		o->warm_bytes = number(name, optarg, 0, UINT64_MAX / 4096);
		break;
	}
}

static void check(const struct options *o)
{
	if (!o->input.path == !o->input.rmat.scale)
		bad_usage("expected --graph or --rmat");
	if (o->input.weighted && !o->input.path)
		bad_usage("--weights: expected --graph, a file that has them");
	if (o->memory == MEM_SERVED && !o->input.path)
		bad_usage("--memory served: expected --graph, a file of the memory server's");
	if (o->command == COMMAND_VERIFY && o->file_count < 1)
		bad_usage("verify: expected results to check");
	if (o->command == COMMAND_RUN && o->file_count)
		bad_usage("%s: expected nothing after the application", o->files[0]);
}

void options_parse(int argc, char **argv, struct options *o_p)
{
	struct options o = { .input.rmat = SODA_GRAPH_RANDOM_DEFAULTS,
			     .params = APP_PARAMS_DEFAULTS,
			     .repeat = 1 };
	uint64_t edge_factor = 16;
	int option, index;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", long_options, &index)) != -1) {
		if (option == '?' || option == ':')
			bad_usage("%s: %s", argv[optind - 1],
				  option == ':' ? "expected a value" : "unknown option");
		if (option == OPT_HELP) {
			fputs(help, stdout);
			exit(0);
		}
		if (option < OPT_MEMORY)
			parse_graph_option(option, long_options[index].name, &o, &edge_factor);
		else
			parse_run_option(option, long_options[index].name, &o);
	}
	if (optind == argc)
		bad_usage("expected an application or verify");
	parse_command(argv[optind], &o);
	o.files = argv + optind + 1;
	o.file_count = argc - optind - 1;
	if (!o.input.rmat.edges && o.input.rmat.scale)
		o.input.rmat.edges = edge_factor << o.input.rmat.scale;
	if (!o.has_arrays)
		o.arrays = o.memory == MEM_FAM ? MEM_FAM : MEM_DRAM;
	check(&o);
	*o_p = o;
}
