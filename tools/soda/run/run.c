/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda run`: set the environment, and start the program, with libsoda-run.so loaded into it.
 * What cannot be loaded into is refused here, with the reason.  This process stays as the program's
 * parent where something is left to do at its end, or to keep for its children; else it becomes it.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/run.h"
#include "base/tree/tree.h"
#include "host_agent/core/settings.h"
#include "registry/registry.h"
#include "soda/base/tool.h"
#include "soda/run/parent.h"
#include "soda/run/results.h"

struct options {
	char *mem;
	char *server;
	char *dpu;
	struct soda_registry_login etcd;
	char *threshold;
	uint64_t local;
	char *report;
	bool stats;
	bool json;
	bool quiet;
	uint32_t children;
	uint32_t io_uring;
};

enum { CHILDREN_ALL = 2, LOCAL_MIN = 16 << 20, THRESHOLD = 1 << 20 };
static const char *const children[] = { "none", "exec", "all", NULL };

static const char *const rings[] = { "refuse", "hold", "allow", NULL };

static const struct soda_option option_table[] = {
	OPTION("mem", 'm', STRING, mem, .arg = "SIZE",
	       .help = "The page buffer: how much fabric memory is resident at once (512M, or 1/3 "
		       "of what is allocated). Default: SODA_BUFFER, or 1/3, at least 16 MiB."),
	OPTION("threshold", 't', LIST, threshold, .arg = "SIZE", .def = "1M",
	       .help = "Blocks of malloc and anonymous mappings of this size and more go to fabric "
		       "memory; smaller ones stay with the program's allocator. auto: smaller ones "
		       "than 1M do, too, once local memory is nearly what --local says."),
	OPTION("local", 'l', SIZE, local, .arg = "SIZE", .min = LOCAL_MIN,
	       .help = "With --threshold auto, how much anonymous memory the program and what it "
		       "starts may have resident, the page buffer (--mem) included, which is "
		       "half of it by default; an eighth is left for the runtime."),
	OPTION("server", 's', STRING, server, .arg = "ADDRESS",
	       .max = SODA_MEMBERS_MAX * (SODA_ADDRESS_MAX + 1),
	       .help = "The memory server: tcp://HOST:PORT, or shm:///PATH; several with commas "
		       "between are a pool, and etcd://HOST:PORT[,HOST:PORT...]/POOL is one whose "
		       "servers are registered in etcd, of which those that are up are taken, at "
		       "most 16, and with --children=all those that come while PROGRAM runs. "
		       "Default: SODA_SERVER, "
		       "or a private server for the program and what it starts, which ends with "
		       "the last of them."),
	OPTION("dpu", 'd', STRING, dpu, .arg = "ADDRESS", .max = SODA_ADDRESS_MAX,
	       .help = "A DPU agent instead of a server: tcp://HOST:PORT, or unix:///PATH."),
	SODA_ETCD_CA("SODA_ETCD_CA", .offset = offsetof(struct options, etcd.ca)),
	SODA_ETCD_CERT("SODA_ETCD_CERT", .offset = offsetof(struct options, etcd.cert)),
	SODA_ETCD_KEY("SODA_ETCD_KEY", .offset = offsetof(struct options, etcd.key)),
	SODA_ETCD_USER("SODA_ETCD_USER", .offset = offsetof(struct options, etcd.user_file)),
	OPTION("stats", 0, BOOL, stats,
	       .help = "At the program's end print on standard error what it did with fabric "
		       "memory, with --children=all what each process did; how long it took, what "
		       "part of that its threads waited, and what could be changed. The program "
		       "is then a child of soda."),
	OPTION("json", 'j', BOOL, json,
	       .help = "Print these statistics as one JSON object, in one line, the last one on "
		       "standard error; implies --stats."),
	OPTION("report", 'r', STRING, report, .arg = "FILE.html",
	       .help = "At the program's end write a page that shows residency, faults and traffic "
		       "over time, and its numbers beside it, FILE.json. Where what draws it is "
		       "not installed (soda report), there are the numbers. The program is then a "
		       "child of soda."),
	OPTION("children", 0, CHOICE, children, .arg = "WHICH", .def = "all", .choices = children,
	       .help = "Who has fabric memory beside this program: all programs that it starts, "
		       "and they theirs; exec: only what it becomes itself, as a shell script does "
		       "that ends with exec; none. With all, each has a runtime of its own, and "
		       "--mem, where it is a size, is what all of them have together."),
	OPTION("io-uring", 0, CHOICE, io_uring, .arg = "WHETHER", .def = "refuse", .choices = rings,
	       .help = "Whether PROGRAM may use io_uring, with which the kernel would store to "
		       "pages that fabric memory has left meanwhile. refuse: as on a kernel "
		       "without it, so that a program that has another way takes it. hold: all "
		       "fabric memory that it has at its first ring stays resident, beside --mem, "
		       "and what it gets later is local. allow: where what it transfers so is in "
		       "no block or mapping of --threshold or more; or in handler mode without "
		       "O_DIRECT and without registered buffers."),
	OPTION("quiet", 'q', BOOL, quiet,
	       .help = "Say nothing about programs that use no fabric memory or cannot have any."),
};

static const struct soda_conf conf = {
	.program = "soda run",
	.summary = "run an unmodified program on fabric memory",
	.args = "-- PROGRAM [ARGUMENT]...",
	.description =
		"Runs PROGRAM with its large blocks and mappings in fabric memory: those of "
		"malloc(3), its family and C++ new, and of mmap(2) where the mapping is "
		"private, anonymous, readable and writable and nothing else is asked of it. "
		"A library is loaded into the program by LD_PRELOAD; so it must be "
		"dynamically linked, and not set-user-id.\n\n"
		"System calls on such memory work through the C library's functions; "
		"docs/limits.md lists those that do not. With SODA_MODE=handler and the "
		"privilege to serve the kernel's own faults (root, or access to "
		"/dev/userfaultfd) all of them do, and each fault costs two wake-ups more. "
		"Chunks are of 16 KiB unless SODA_CHUNK says otherwise. What PROGRAM becomes "
		"by exec, as a wrapper does, has fabric memory, and so have the programs "
		"that it starts (--children); the child of a fork that goes on as the same "
		"program reads what its parent had, and what it allocates is local.",
	.epilogue = ".SH EXIT STATUS\nThat of PROGRAM; 126 it cannot be run, 127 it was not found "
		    "or there is no fabric memory, or the file of \\-\\-report cannot be written, "
		    "2 wrong usage.\n"
		    ".SH EXAMPLES\n.nf\n"
		    "soda run \\-\\-mem 1G \\-\\-stats \\-\\- sort \\-S 4G \\-o sorted words\n"
		    ".fi\n"
		    ".SH SEE ALSO\n.BR soda\\-report (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static void set_unless_null(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
}

/* Who goes to fabric memory: blocks from `threshold` on, and smaller ones beyond `local` bytes. */
struct blocks {
	uint64_t threshold, local; /* local 0: they never do */
	char mem[32];		   /* --mem where none is given; "": SODA_BUFFER stays */
};

static int usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("soda run: ", stderr);
	vfprintf(stderr, format, args);
	fputs("\n", stderr);
	va_end(args);
	return SODA_EXIT_USAGE;
}

/* --threshold auto: what --local leaves for small blocks. */
static int share_local(const struct options *opt, struct blocks *what)
{
	const char *mem = opt->mem ? opt->mem : getenv("SODA_BUFFER");
	uint64_t bytes = opt->local / 2, reserve = opt->local / 8;

	if (!opt->local)
		return usage("--threshold auto needs --local SIZE: how much local memory small "
			     "blocks and the page buffer may have together");
	if (mem && strchr(mem, '/'))
		return usage("--mem (SODA_BUFFER) %s is a fraction, and with --threshold auto the "
			     "page buffer is a part of --local: give a size, or neither, for half "
			     "of --local",
			     mem);
	if (mem && soda_parse_size(mem, &bytes))
		return usage("--mem (SODA_BUFFER) %s is not a size", mem);
	if (bytes >= opt->local - reserve)
		return usage(
			"--mem (SODA_BUFFER) %s leaves nothing of --local for small blocks: it "
			"must be less than seven eighths of --local, %llu bytes",
			mem, (unsigned long long)(opt->local - reserve));
	if (!mem)
		snprintf(what->mem, sizeof(what->mem), "%llu", (unsigned long long)bytes);
	what->threshold = THRESHOLD;
	what->local = opt->local - reserve - bytes;
	return 0;
}

/* 0, or an exit status after a message. */
static int choose_blocks(const struct options *opt, struct blocks *what)
{
	const char *given = opt->threshold;

	*what = (struct blocks){ 0 };
	if (strchr(given, ','))
		return usage("--threshold is given more than once, as %s: give one size, or auto",
			     given);
	if (!strcmp(given, "auto"))
		return share_local(opt, what);
	if (soda_parse_size(given, &what->threshold) || !what->threshold)
		return usage(
			"--threshold %s is neither a size of at least 1 byte (64K, 1M) nor auto",
			given);
	if (opt->local)
		return usage("--local is for --threshold auto: with a threshold that is a size "
			     "small blocks are always local");
	return 0;
}

/*
 * Ranks of one machine read each other's memory with process_vm_readv(), which fails on fabric
 * memory that is not resident, and some try for ever.  They have other ways, by these variables,
 * each of which the user may have set.
 */
static void turn_single_copies_off(void)
{
	static const char *const off[][2] = {
		{ "OMPI_MCA_btl_vader_single_copy_mechanism", "emulated" }, /* Open MPI to 4.1 */
		{ "OMPI_MCA_smsc", "^cma,knem,xpmem" },			    /* and from 5.0 on */
		{ "UCX_TLS", "^cma,knem,xpmem" },
		{ "FI_SHM_DISABLE_CMA", "1" },	     /* libfabric */
		{ "MPIR_CVAR_CH4_CMA_ENABLE", "0" }, /* MPICH */
		{ "MPIR_CVAR_CH4_XPMEM_ENABLE", "0" },
	};

	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		setenv(off[i][0], off[i][1], 0);
}

static void set_environment(const struct options *opt, const struct blocks *what,
			    const char *library)
{
	const char *before = getenv("LD_PRELOAD");
	char list[2 * PATH_MAX], number[32];

	snprintf(list, sizeof(list), "%s%s%s", library, before && *before ? ":" : "",
		 before ? before : "");
	setenv("LD_PRELOAD", list, 1);
	setenv("SODA_RUN_LIBRARY", library, 1);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)what->threshold);
	setenv("SODA_RUN_THRESHOLD", number, 1);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)what->local);
	setenv("SODA_RUN_LOCAL", number, 1);
	setenv("SODA_RUN_STATS", opt->stats ? "1" : "0", 1);
	setenv("SODA_RUN_CHILDREN", children[opt->children], 1);
	if (opt->quiet)
		setenv("SODA_RUN_QUIET", "1", 1);
	else
		unsetenv("SODA_RUN_QUIET");
	setenv("SODA_RUN_IO_URING", rings[opt->io_uring], 1);
	unsetenv("SODA_RUN_TREE"); /* of a soda run that this one runs under */
	set_unless_null("SODA_BUFFER", what->mem[0] ? what->mem : opt->mem);
	set_unless_null("SODA_SERVER", opt->server);
	set_unless_null("SODA_DPU", opt->dpu);
	if (opt->server && !opt->dpu)
		unsetenv("SODA_DPU");
	if (opt->dpu && !opt->server)
		unsetenv("SODA_SERVER");
	/* small chunks: the program does not know of chunks, and may touch small pieces */
	setenv("SODA_CHUNK", "16K", 0);
	turn_single_copies_off();
}

/*
 * Where the servers are registered in etcd, name those that are up in SODA_SERVER: the program does
 * not ask etcd.  Else registry->name stays NULL.  0, or -1 with one line on standard error.
 */
static int find_servers(struct soda_run_registry *registry)
{
	static char list[SODA_MEMBERS_TEXT_MAX + 1];
	const char *server = getenv("SODA_SERVER");
	struct soda_why why = { "" };

	if (!soda_registry_is_name(server))
		return 0;
	registry->name = strdup(server); /* for as long as this process lives */
	if (!registry->name || soda_registry_list(server, registry->login, list, &why)) {
		fprintf(stderr, "soda run: %s\n", *why.text ? why.text : strerror(ENOMEM));
		return -1;
	}
	return setenv("SODA_SERVER", list, 1);
}

/* The option of `soda run` that has set the variable that the sentence is about, with ": ", or "".
 */
static const char *concerned(const struct options *opt, const char *sentence)
{
	return opt->mem && strstr(sentence, "(SODA_BUFFER)")	  ? "--mem: "
	       : opt->server && strstr(sentence, "(SODA_SERVER)") ? "--server: "
	       : opt->dpu && strstr(sentence, "(SODA_DPU)")	  ? "--dpu: "
								  : "";
}

/* False: a server's name, which does not say how to reach it; each of a list was looked at. */
static bool is_address(const char *server)
{
	return !server || !*server || strstr(server, "://");
}

/*
 * Refuse now what libsoda would refuse at the program's first large block: a setting that is no
 * value of its own, or a buffer that is too small (what sealing takes beside is left to libsoda).
 * The settings are in the environment by now; no server is asked.  0, or -1 with one line on
 * standard error.
 */
static int check_settings(const struct options *opt)
{
	struct soda_settings s;
	struct soda_why why = { "" };
	int ret = soda_settings_load(NULL, &s, &why);

	if (!ret) {
		ret = soda_settings_check_buffer(&s, 0, &why);
		if (!ret && !is_address(s.server)) {
			ret = -EINVAL;
			snprintf(why.text, sizeof(why.text),
				 "%s (%s): '%.64s' is no address; write it as tcp://HOST:PORT, "
				 "verbs://HOST:PORT or shm:///PATH",
				 s.dpu ? "dpu" : "server", s.dpu ? "SODA_DPU" : "SODA_SERVER",
				 s.server);
		}
		soda_settings_free(&s);
	}
	return ret ? usage("%s%s", concerned(opt, why.text), why.text) : 0;
}

/* libsoda says this where there is no `soda run`. */
static void warn_of_misspelt(void)
{
	const char *given, *meant;
	int length;

	meant = soda_conf_misspelt(&soda_settings_conf, &given, &length);
	if (meant)
		fprintf(stderr,
			"soda run: %.*s in the environment is no setting and changes nothing; is "
			"%s "
			"meant?\n",
			length, given, meant);
}

/*
 * The memory that the program shares with `soda` and those that it starts.  SODA_BUFFER, which
 * --mem has set, is what they have together, if `common`; not so a fraction, which is one of what
 * each of them allocates.  0, or -1 with one line on standard error.
 */
static int share(bool common, struct soda_tree **tree_p)
{
	const char *size = getenv("SODA_BUFFER");
	char name[SODA_TREE_NAME];
	uint64_t bytes = 0;
	int ret;

	if (size && !strchr(size, '/') && soda_parse_size(size, &bytes))
		bytes = 0; /* the program's runtime says what is wrong with it */
	if (!common)
		bytes = 0;
	ret = soda_tree_create(bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX,
			       getenv("SODA_MEM_SERVER"), tree_p, name);
	if (!ret && !setenv("SODA_RUN_TREE", name, 1))
		return 0;
	fprintf(stderr, "soda run: no memory to share with the program's children: %s\n",
		strerror(ret ? -ret : errno));
	return -1;
}

/* So that the program looks for others later: what is registered, or `soda pool add` names. */
static void tell_servers(struct soda_tree *tree, const struct soda_run_registry *registry)
{
	const char *list = getenv("SODA_SERVER");

	if (!tree || !list || !*list || strlen(list) >= SODA_TREE_POOL || getenv("SODA_DPU"))
		return;
	atomic_store(&tree->pool.registered, registry->name != NULL);
	soda_tree_pool_set(tree, list);
}

static void tell_statistics(const struct options *opt, const struct soda_run_end *end)
{
	if (opt->json) {
		soda_run_summary_json(end);
	} else {
		soda_run_table(end);
		soda_run_summary(end);
	}
}

/* Run the program as a child, and do what is to be done at its end. Returns its exit status. */
static int stay(const struct options *opt, const struct blocks *what, struct soda_tree *tree,
		const char *library, const struct soda_run_registry *registry, const char *program,
		char **argv)
{
	uint64_t began = soda_now_ns();
	bool joins = opt->children == CHILDREN_ALL; /* servers that come while it runs */
	int status;

	if (joins)
		tell_servers(tree, registry);
	status = soda_run_as_child(program, argv, tree, library,
				   joins && registry->name ? registry : NULL);
	if (opt->stats && status >= 0)
		tell_statistics(opt, &(struct soda_run_end){ .tree = tree,
							     .argv = argv,
							     .status = soda_run_status(status),
							     .took_ns = soda_now_ns() - began,
							     .threshold = what->threshold,
							     .local = what->local,
							     .quiet = opt->quiet });
	if (opt->report && status >= 0)
		soda_run_numbers_close(opt->report, argv, soda_run_status(status));
	return status < 0 ? 126 : soda_run_end_as(status);
}

/* Become the program, or run it; what this process exits with. */
static int run(const struct options *opt, char **argv)
{
	/* where this build has it, or where it is installed */
	static const char *const places[] = { "../../src/run/libsoda-run.so", SODA_RUN_LIBRARY,
					      NULL };
	struct soda_run_registry registry = { .login = &opt->etcd };
	struct soda_tree *tree = NULL;
	struct blocks what;
	struct soda_run_refusal why;
	char library[PATH_MAX], program[1024];

	if (choose_blocks(opt, &what))
		return SODA_EXIT_USAGE;
	if (!soda_tool_find(places, library)) {
		fputs("soda run: libsoda-run.so is not there: this build has no jemalloc, or the "
		      "installation is not complete\n",
		      stderr);
		return 127;
	}
	if (strpbrk(library, " :\t\n")) {
		fprintf(stderr,
			"soda run: %s cannot be loaded into a program: the dynamic linker takes a "
			"space or a colon in LD_PRELOAD for the end of a name; install SODA where "
			"the path has neither\n",
			library);
		return 127;
	}
	if (soda_run_check(argv[0], program, sizeof(program), &why)) {
		fprintf(stderr, "soda run: %s\n", why.text);
		return why.status;
	}
	set_environment(opt, &what, library);
	if (find_servers(&registry))
		return 127;
	if (check_settings(opt))
		return SODA_EXIT_USAGE;
	warn_of_misspelt();
	if (opt->report && soda_run_numbers_open(opt->report))
		return 127;
	if ((opt->children == CHILDREN_ALL || opt->stats) &&
	    share(opt->children == CHILDREN_ALL, &tree))
		return 127;
	if (opt->report || tree)
		return stay(opt, &what, tree, library, &registry, program, argv);
	execv(program, argv);
	fprintf(stderr, "soda run: %s: %s\n", program, strerror(errno));
	return 126;
}

int soda_command_run(int argc, char **argv)
{
	struct options opt = { 0 };
	struct soda_conf_error err;
	int first, status = SODA_EXIT_USAGE;

	if (soda_conf_defaults(&conf, &opt, &err) || soda_conf_environment(&conf, &opt, &err) ||
	    soda_conf_flags(&conf, argc, argv, &opt, &first, &err)) {
		fprintf(stderr, "soda run: %s\n", err.text);
	} else if (first >= argc) {
		fputs("soda run: which program? soda run [OPTION]... -- PROGRAM [ARGUMENT]...\n",
		      stderr);
	} else {
		opt.stats |= opt.json;
		status = run(&opt, argv + first);
	}
	soda_conf_free(&conf, &opt);
	return status;
}
