/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda pool add`: tells the programs that run under `soda run` of a server more, or of the address
 * at which one of theirs is now.  What a program shares with `soda run` has its list of servers
 * (base/tree/pool.h), and a name that is in the environment of its processes.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/tree/tree.h"
#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/base/tool.h"
#include "soda/pool/look.h"

struct options {
	uint32_t timeout_ms;
	uint32_t pid;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("pid", 'p', UINT, pid, .arg = "PID", .def = "0", .min = 0, .max = INT32_MAX,
	       .help = "Tell the programs of that process's soda run alone. Default: of all of "
		       "this user's that can be seen."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "5s", .min = 1,
	       .max = 3600000, .help = "Longest wait for an answer of the server."),
	JSON_OPTION,
};

static const struct soda_conf conf = {
	.program = "soda pool add",
	.summary = "tell running programs of one memory server more",
	.args = "ADDRESS",
	.description =
		"Programs that were started by soda run with a list of servers, or with one, use "
		"the server at ADDRESS, too, within some seconds: new objects are placed there, "
		"by "
		"free memory, copies that are made anew go there, and soda pool rebalance moves "
		"what there is. Where one of their servers is away, and the one at ADDRESS is the "
		"same instance of it, which has another address now, that is used again, with all "
		"that it has.\n"
		"\n"
		"First the server is asked whether it is there. Programs say in their logs what "
		"they make of it, and why they cannot use it (soda-run(1), soda(7)): soda pool "
		"status with ADDRESS shows who uses it. Programs whose servers are registered in "
		"etcd look there: for these the server is started with --pool. A program that was "
		"not started by soda run, or with --children=none, keeps the servers that it has.",
	.epilogue = ".SH EXIT STATUS\n.TP\n.B 0\nat least one soda run was told, or knew it "
		    "already\n"
		    ".TP\n.B 1\nnone was, or the server does not answer\n"
		    ".TP\n.B 2\nwrong usage\n"
		    ".SH SEE ALSO\n.BR soda\\-pool\\-rebalance (1),\n.BR "
		    "soda\\-pool\\-status (1),\n.BR soda\\-run (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* The names of what soda runs share, each once. */
struct found {
	char (*names)[SODA_TREE_NAME];
	size_t n;
};

static void note(struct found *f, const char *name)
{
	char(*more)[SODA_TREE_NAME];

	if (strlen(name) >= SODA_TREE_NAME)
		return;
	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->names[i], name))
			return;
	more = realloc(f->names, (f->n + 1) * sizeof(*more));
	if (!more)
		return;
	f->names = more;
	strcpy(more[f->n++], name);
}

/* Root could look into others' processes, too, whose environment names whatever they like. */
static bool is_own(const char *pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%.20s", pid);
	return !stat(path, &st) && st.st_uid == geteuid();
}

/* A descriptor of a process of this user, as soda run names it. */
static bool is_name(const char *name)
{
	char pid[16];
	int end = 0;

	return sscanf(name, "/proc/%15[0-9]/fd/%*15[0-9]:%*16[0-9a-f]%n", pid, &end) == 1 && end &&
	       !name[end] && is_own(pid);
}

/* Of a process of this user; others are passed over. */
static void look_into(struct found *f, const char *pid)
{
	static char text[256 << 10];
	const char *variable = "SODA_RUN_TREE=", *end;
	char path[64];
	ssize_t n = 0, got;
	int fd;

	if (!is_own(pid))
		return;
	snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while (n < (ssize_t)sizeof(text) - 1 &&
	       (got = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
		n += got;
	close(fd);
	text[n] = '\0';
	end = text + n;
	for (const char *at = text; at < end; at += strlen(at) + 1)
		if (!strncmp(at, variable, strlen(variable)) && is_name(at + strlen(variable)))
			note(f, at + strlen(variable));
}

static void look(struct found *f, uint32_t pid)
{
	const struct dirent *e;
	char text[16];
	DIR *all;

	snprintf(text, sizeof(text), "%u", pid);
	if (pid) {
		look_into(f, text);
		return;
	}
	all = opendir("/proc");
	while (all && (e = readdir(all)))
		if (isdigit((unsigned char)e->d_name[0]))
			look_into(f, e->d_name);
	if (all)
		closedir(all);
}

/* The process that keeps it: /proc/PID/fd/... */
static const char *keeper_of(const char *name)
{
	static char pid[16];

	if (sscanf(name, "/proc/%15[0-9]", pid) != 1)
		strcpy(pid, "?");
	return pid;
}

/* Why a soda run was not told; NULL: it was. */
static const char *why_not(int err)
{
	switch (err) {
	case 0:
	case -EALREADY:
		return NULL;
	case -ENOENT:
		return "it has ended, or has no list of servers: a DPU agent, or a server of its "
		       "own";
	case -EPERM:
		return "its servers are registered in etcd: start the server with --pool";
	case -ENOSPC:
		return "its list has no room";
	default:
		return strerror(-err);
	}
}

/* true: told, or it knew. With `all`, an array for --json, it stands there, too. */
static bool tell(const char *name, const char *address, json_t *all)
{
	struct soda_tree *tree;
	int err = soda_tree_open(name, &tree);
	const char *why;

	if (!err) {
		err = soda_tree_pool_add(tree, address);
		munmap(tree, sizeof(*tree));
	}
	why = why_not(err);
	if (all)
		json_array_append_new(all, json_pack("{ss sb ss?}", "process", keeper_of(name),
						     "told", !why, "why", why));
	if (why)
		fprintf(stderr, "%s: the programs of soda run, process %s, are not told: %s\n",
			conf.program, keeper_of(name), why);
	else if (!all)
		printf("the programs of soda run, process %s, %s\n", keeper_of(name),
		       err ? "know it already" : "are told");
	return !why;
}

/* Whether a memory server answers there; else a message. */
static bool is_there(const char *address, int timeout_ms)
{
	struct soda_wire_welcome w;
	struct soda_why why = { "" };
	struct soda_conn *conn;
	int err = soda_stat_join(address, timeout_ms, &conn, &w, &why);

	if (!err) {
		soda_conn_leave(conn, timeout_ms);
		if (!w.agent)
			return true;
		snprintf(why.text, sizeof(why.text),
			 "this is a DPU agent: the members of a pool are memory servers");
	}
	soda_make_printable(why.text);
	fprintf(stderr, "%s: %s: %s\n", conf.program, address,
		why.text[0] ? why.text : strerror(-err));
	return false;
}

static int add(const char *address, const struct options *opt)
{
	struct soda_members one;
	struct soda_why why;
	struct found f = { NULL, 0 };
	json_t *all = NULL;
	size_t told = 0;

	if (soda_members_parse(address, &one, &why) || one.n != 1 || !strstr(address, "://")) {
		fprintf(stderr, "%s: '%.100s' is not the address of one server (tcp://HOST:PORT)\n",
			conf.program, address);
		return SODA_EXIT_USAGE;
	}
	if (!is_there(address, (int)opt->timeout_ms))
		return SODA_EXIT_FAILED;
	look(&f, opt->pid);
	if (opt->json)
		all = json_array();
	for (size_t i = 0; i < f.n; i++)
		told += tell(f.names[i], address, all);
	if (!f.n)
		fprintf(stderr, "%s: no program of this user%s runs under soda run\n", conf.program,
			opt->pid ? ", with that process id," : "");
	free(f.names);
	if (all && soda_json_print(json_pack("{ss so}", "address", address, "runs", all)))
		return SODA_EXIT_FAILED;
	return told ? SODA_EXIT_OK : SODA_EXIT_FAILED;
}

int soda_command_pool_add(int argc, char **argv)
{
	struct options opt = { 0 };
	const char *address;
	int n = soda_tool_options(&conf, argc, argv, &opt, &address, 1);

	if (n < 0)
		return SODA_EXIT_USAGE;
	if (!n) {
		fprintf(stderr, "%s: which server? %s ADDRESS\n", conf.program, conf.program);
		return SODA_EXIT_USAGE;
	}
	return add(address, &opt);
}
