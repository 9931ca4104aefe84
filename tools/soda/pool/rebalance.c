/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda pool rebalance`: asks the servers of a pool, again and again, that programs may move what
 * is there to servers with more free, until nothing moves any more.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/pool/look.h"
#include "wire/pool.h"

struct options {
	struct soda_registry_login etcd;
	uint32_t patience_ms, timeout_ms;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("patience", 0, TIME_MS, patience_ms, .arg = "TIME", .def = "5s", .min = 1,
	       .max = 86400000, .help = "End when nothing has moved for so long."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "2s", .min = 1,
	       .max = 3600000, .help = "Longest wait for a server's answer."),
	OPTION("json", 'j', BOOL, json, .help = "Print progress as lines of JSON."),
	SODA_ETCD_CA("SODA_ETCD_CA", .offset = offsetof(struct options, etcd.ca)),
	SODA_ETCD_CERT("SODA_ETCD_CERT", .offset = offsetof(struct options, etcd.cert)),
	SODA_ETCD_KEY("SODA_ETCD_KEY", .offset = offsetof(struct options, etcd.key)),
	SODA_ETCD_USER("SODA_ETCD_USER", .offset = offsetof(struct options, etcd.user_file)),
};

static const struct soda_conf conf = {
	.program = "soda pool rebalance",
	.summary = "move what lies on a pool to those of its servers that have more free",
	.args = "[ADDRESS,...|etcd://HOST:PORT[,...]/POOL]",
	.description =
		"Servers that have come to a pool while programs run get what is new; this moves "
		"what is there. Each program that uses the servers of the list, or of SODA_SERVER, "
		"or that are registered in etcd, moves slabs from servers with less free to "
		"servers with "
		"more, while it runs on, until they differ by less than two slabs: first a slab is "
		"copied, at most SODA_REBUILD_RATE bytes a second and program, then given up where "
		"it was, so that nothing has a copy less meanwhile. No two copies of a slab come "
		"into one failure domain.\n"
		"\n"
		"The command waits, prints what the servers have free when that changes, and ends "
		"when "
		"nothing moves any more. When it is interrupted, moving ends within 3 s.\n"
		"\n"
		"Where the servers have tenants, SODA_KEY_FILE must be the key of one whose role "
		"is "
		"operator; over shm their own user and root may do it; else everybody who can "
		"connect.\n"
		"\n"
		"With --json a line {\"moved\", \"copied_bytes\", \"servers\": [{\"address\", "
		"\"used_bytes\", \"free_bytes\"}]} for each change; moved and copied_bytes count "
		"from "
		"the command's beginning.",
	.epilogue = ".SH EXIT STATUS\n.TP\n.B 0\nnothing moves any more\n"
		    ".TP\n.B 1\na server cannot be asked, or does not allow it\n"
		    ".TP\n.B 2\nwrong usage\n"
		    ".SH SEE ALSO\n.BR soda\\-pool\\-drain (1),\n.BR soda\\-pool\\-status (1),\n"
		    ".BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* What programs have moved in all; those that have ended take theirs with them. */
struct sums {
	uint64_t moved, bytes;
};

static struct sums sum_up(const struct soda_pool *pool)
{
	struct sums s = { 0 };

	for (size_t i = 0; i < pool->programs_n; i++) {
		s.moved += pool->programs[i].moved;
		s.bytes += pool->programs[i].rebuilt_bytes;
	}
	return s;
}

/* 0, or an exit code after a message. */
static int ask(struct soda_pool_member *m, int timeout_ms)
{
	struct soda_why why = { "" };
	int err = -ENOTCONN;

	if (m->state == SODA_POOL_UNREACHABLE)
		snprintf(why.text, sizeof(why.text), "%s", m->why);
	else
		err = soda_pool_tell(m->source.conn, SODA_WIRE_POOL_SPREAD, timeout_ms, &why);
	if (!err)
		return 0;
	soda_make_printable(why.text);
	fprintf(stderr, "%s: %s: %s\n", conf.program, m->source.target,
		why.text[0] ? why.text : strerror(-err));
	return SODA_EXIT_FAILED;
}

static void show_json(const struct soda_pool *pool, uint64_t moved, uint64_t bytes)
{
	json_t *all = json_object(), *servers = json_array();

	for (uint32_t i = 0; i < pool->list.n; i++) {
		json_t *o = json_object();

		json_object_set_new(o, "address", soda_json_text_of(pool->list.address[i]));
		soda_json_set_count(o, "used_bytes", pool->members[i].used);
		soda_json_set_count(o, "free_bytes", pool->members[i].free_bytes);
		json_array_append_new(servers, o);
	}
	soda_json_set_count(all, "moved", moved);
	soda_json_set_count(all, "copied_bytes", bytes);
	json_object_set_new(all, "servers", servers);
	if (!json_dumpf(all, stdout, JSON_COMPACT | JSON_ENSURE_ASCII))
		putchar('\n');
	json_decref(all);
}

static void show(const struct soda_pool *pool, uint64_t moved, uint64_t bytes)
{
	char size[16];

	printf("%llu moved, %s copied; free:", (unsigned long long)moved,
	       soda_format_size(bytes, size));
	for (uint32_t i = 0; i < pool->list.n; i++)
		printf(" %s", soda_format_size(pool->members[i].free_bytes, size));
	puts("");
}

/* Look and ask until nothing moves; an exit code. */
static int rebalance(struct soda_pool *pool, const struct options *opt)
{
	struct sums first = { 0 }, last = { 0 }, now;
	uint64_t changed_ms = 0;
	int code = 0;

	for (;;) {
		soda_pool_look(pool, (int)opt->timeout_ms);
		for (uint32_t i = 0; i < pool->list.n && !code; i++)
			code = ask(&pool->members[i], (int)opt->timeout_ms);
		if (code)
			return code;
		now = sum_up(pool);
		if (!changed_ms)
			first = now;
		if (!changed_ms || now.moved != last.moved || now.bytes != last.bytes) {
			changed_ms = soda_now_ms();
			last = now;
			(opt->json ? show_json : show)(pool, now.moved - first.moved,
						       now.bytes - first.bytes);
			if (fflush(stdout))
				return SODA_EXIT_FAILED;
		}
		if (soda_now_ms() - changed_ms >= opt->patience_ms)
			return SODA_EXIT_OK;
		usleep(500000);
	}
}

int soda_command_pool_rebalance(int argc, char **argv)
{
	struct options opt = { 0 };
	struct soda_pool pool;
	const char *list = NULL;
	int n = soda_tool_options(&conf, argc, argv, &opt, &list, 1), err;

	if (n < 0)
		return SODA_EXIT_USAGE;
	err = soda_pool_open(&pool, conf.program, n ? list : NULL, &opt.etcd);
	if (err)
		return soda_pool_exit(err);
	err = rebalance(&pool, &opt);
	soda_pool_close(&pool, (int)opt.timeout_ms);
	return err;
}
