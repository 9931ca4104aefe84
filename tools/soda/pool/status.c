/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda pool status`: the members of a pool and what programs have there, once or again and again.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/pool/look.h"

struct options {
	struct soda_registry_login etcd;
	uint32_t interval_ms, timeout_ms;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("interval", 'i', TIME_MS, interval_ms, .arg = "TIME", .min = 10, .max = 86400000,
	       .help = "Repeat after this time, until it is interrupted."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "2s", .min = 1,
	       .max = 3600000, .help = "Longest wait for a server's answer."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object, in one line."),
	SODA_ETCD_CA("SODA_ETCD_CA", .offset = offsetof(struct options, etcd.ca)),
	SODA_ETCD_CERT("SODA_ETCD_CERT", .offset = offsetof(struct options, etcd.cert)),
	SODA_ETCD_KEY("SODA_ETCD_KEY", .offset = offsetof(struct options, etcd.key)),
	SODA_ETCD_USER("SODA_ETCD_USER", .offset = offsetof(struct options, etcd.user_file)),
};

static const struct soda_conf conf = {
	.program = "soda pool status",
	.summary = "show the servers of a pool, and the redundancy of what programs have there",
	.args = "[ADDRESS,...|etcd://HOST:PORT[,...]/POOL]",
	.description =
		"Asks each server of the list, or of SODA_SERVER, or those that are registered in "
		"etcd, and prints its state (up; "
		"draining: by soda pool drain; ending: it has been told to end; unreachable), "
		"failure domain, memory, clients and version; "
		"and each program that uses the pool: its slabs, how many of them have fewer "
		"copies than they should (missing), and the copies that it gave up, as a server "
		"was away, and has made anew (rebuilt) or moved, with what it copied for them.\n"
		"\n"
		"What is said of programs they have told the servers themselves, ten times a "
		"second "
		"with redundancy, else once; it is at most two seconds old. A program of which no "
		"server that can be reached knows is not seen, and where servers have tenants, "
		"nor are those of others, unless SODA_KEY_FILE is the key of a tenant of role "
		"operator. A version before this one's says nothing of its pool.\n"
		"\n"
		"With --json: {\"format\": \"soda-pool\", \"version\": 1, \"servers\": "
		"[{\"address\", "
		"\"state\", \"why\", \"domain\", \"capacity_bytes\", \"used_bytes\", "
		"\"free_bytes\", \"clients\", \"version\", \"instance\"}], \"domains\", "
		"\"programs\": [{\"program\", \"pid\", \"address\", \"slabs\", \"copies\", "
		"\"copies_missing\", \"copies_expelled\", \"copies_rebuilt\", "
		"\"copies_moved\", \"rebuilt_bytes\", \"used_bytes\"}], \"copies_missing\"}. Of a "
		"server that is "
		"unreachable numbers are null, and why says what happened.",
	.epilogue =
		".SH EXIT STATUS\n.TP\n.B 0\nevery server can be reached, and no copy is missing\n"
		".TP\n.B 1\nnot so (the last time, where it repeats), or etcd cannot be asked, or "
		"has no server of the pool\n"
		".TP\n.B 2\nwrong usage\n"
		".SH SEE ALSO\n.BR soda\\-pool\\-drain (1),\n.BR soda\\-pool\\-events (1),\n.BR "
		"soda\\-stat (1),\n"
		".BR soda\\-mem\\-server (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static void print_member(const struct soda_pool_member *m)
{
	bool known = m->state != SODA_POOL_UNREACHABLE;
	char capacity[16] = "-", used[16] = "-", free_bytes[16] = "-", clients[24] = "-";

	if (known) {
		soda_format_size(m->capacity, capacity);
		soda_format_size(m->used, used);
		soda_format_size(m->free_bytes, free_bytes);
	}
	if (known && m->clients_known)
		snprintf(clients, sizeof(clients), "%llu", (unsigned long long)m->clients);
	printf("%-28s %-11s %-12s %9s %9s %9s %7s  %s\n", m->source.target,
	       soda_pool_states[m->state], *m->domain ? m->domain : "-", capacity, used, free_bytes,
	       clients, *m->version ? m->version : "-");
}

static void print_program(const struct soda_pool_program *p)
{
	char used[16], copied[16], pid[24];

	snprintf(pid, sizeof(pid), "%llu", (unsigned long long)p->pid);
	printf("%-8s %-23s %9s %7llu %8llu %8llu %8llu %6llu %9s\n", pid, p->address,
	       soda_format_size(p->used, used), (unsigned long long)p->slabs,
	       (unsigned long long)p->missing, (unsigned long long)p->expelled,
	       (unsigned long long)p->rebuilt, (unsigned long long)p->moved,
	       soda_format_size(p->rebuilt_bytes, copied));
}

static void print_sums(const struct soda_pool *pool)
{
	uint64_t capacity = 0, used = 0, missing = soda_pool_missing(pool);
	uint32_t reached = 0, domains = soda_pool_domains(pool);
	char capacity_text[16], used_text[16];

	for (uint32_t i = 0; i < pool->list.n; i++) {
		const struct soda_pool_member *m = &pool->members[i];

		if (m->state == SODA_POOL_UNREACHABLE) {
			printf("%s: %s\n", m->source.target, m->why);
			continue;
		}
		if (!m->clients_known)
			printf("%s: its list of clients is too long for an answer\n",
			       m->source.target);
		reached++;
		capacity += m->capacity;
		used += m->used;
	}
	printf("%u of %u servers, %u failure domain%s, %s of %s used; ", reached, pool->list.n,
	       domains, domains == 1 ? "" : "s", soda_format_size(used, used_text),
	       soda_format_size(capacity, capacity_text));
	if (!reached)
		puts("what programs have there is not known");
	else if (missing)
		printf("%llu slab%s a copy\n", (unsigned long long)missing,
		       missing == 1 ? " misses" : "s miss");
	else
		puts("no copy is missing");
}

static int print_text(const struct soda_pool *pool)
{
	printf("%-28s %-11s %-12s %9s %9s %9s %7s  %s\n", "server", "state", "domain", "capacity",
	       "used", "free", "clients", "version");
	for (uint32_t i = 0; i < pool->list.n; i++)
		print_member(&pool->members[i]);
	if (pool->programs_n)
		printf("\n%-8s %-23s %9s %7s %8s %8s %8s %6s %9s\n", "program", "from", "used",
		       "slabs", "missing", "expelled", "rebuilt", "moved", "copied");
	for (size_t i = 0; i < pool->programs_n; i++)
		print_program(&pool->programs[i]);
	puts("");
	print_sums(pool);
	return fflush(stdout);
}

static void set_known(json_t *into, const struct soda_pool_member *m, const char *key,
		      uint64_t value)
{
	json_object_set_new(into, key,
			    m->state == SODA_POOL_UNREACHABLE ? json_null()
							      : json_integer((json_int_t)value));
}

static json_t *describe_member(const struct soda_pool_member *m)
{
	json_t *o = json_object();

	json_object_set_new(o, "address", soda_json_text_of(m->source.target));
	soda_json_set_text(o, "state", soda_pool_states[m->state]);
	soda_json_set_text(o, "why", m->state == SODA_POOL_UNREACHABLE ? m->why : NULL);
	soda_json_set_text(o, "domain", *m->domain ? m->domain : NULL);
	set_known(o, m, "capacity_bytes", m->capacity);
	set_known(o, m, "used_bytes", m->used);
	set_known(o, m, "free_bytes", m->free_bytes);
	set_known(o, m, "clients", m->clients);
	soda_json_set_text(o, "version", *m->version ? m->version : NULL);
	soda_json_set_text(o, "instance", *m->instance ? m->instance : NULL);
	return o;
}

static json_t *describe_program(const struct soda_pool_program *p)
{
	json_t *o = json_object();

	soda_json_set_text(o, "program", p->id);
	soda_json_set_count(o, "pid", p->pid);
	soda_json_set_text(o, "address", p->address);
	soda_json_set_count(o, "slabs", p->slabs);
	soda_json_set_count(o, "copies", p->copies);
	soda_json_set_count(o, "copies_missing", p->missing);
	soda_json_set_count(o, "copies_expelled", p->expelled);
	soda_json_set_count(o, "copies_rebuilt", p->rebuilt);
	soda_json_set_count(o, "copies_moved", p->moved);
	soda_json_set_count(o, "rebuilt_bytes", p->rebuilt_bytes);
	soda_json_set_count(o, "used_bytes", p->used);
	return o;
}

static int print_json(const struct soda_pool *pool)
{
	json_t *servers = json_array(), *programs = json_array(), *all = json_object();
	int err;

	for (uint32_t i = 0; i < pool->list.n; i++)
		json_array_append_new(servers, describe_member(&pool->members[i]));
	for (size_t i = 0; i < pool->programs_n; i++)
		json_array_append_new(programs, describe_program(&pool->programs[i]));
	soda_json_set_text(all, "format", "soda-pool");
	soda_json_set_count(all, "version", 1);
	json_object_set_new(all, "servers", servers);
	soda_json_set_count(all, "domains", soda_pool_domains(pool));
	json_object_set_new(all, "programs", programs);
	soda_json_set_count(all, "copies_missing", soda_pool_missing(pool));
	err = json_dumpf(all, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(all);
	return err || putchar('\n') == EOF || fflush(stdout);
}

static bool all_well(const struct soda_pool *pool)
{
	for (uint32_t i = 0; i < pool->list.n; i++)
		if (pool->members[i].state == SODA_POOL_UNREACHABLE)
			return false;
	return !soda_pool_missing(pool);
}

int soda_command_pool_status(int argc, char **argv)
{
	struct options opt = { 0 };
	struct soda_pool pool;
	const char *list = NULL;
	int n = soda_tool_options(&conf, argc, argv, &opt, &list, 1), err = 0;
	bool first = true, well;

	if (n < 0)
		return SODA_EXIT_USAGE;
	err = soda_pool_open(&pool, conf.program, n ? list : NULL, &opt.etcd);
	if (err)
		return soda_pool_exit(err);
	do {
		if (!first) {
			usleep(opt.interval_ms * 1000u);
			if (!opt.json)
				puts("");
		}
		first = false;
		soda_pool_look(&pool, (int)opt.timeout_ms);
		err = opt.json ? print_json(&pool) : print_text(&pool);
	} while (opt.interval_ms && !err);
	well = all_well(&pool);
	soda_pool_close(&pool, (int)opt.timeout_ms);
	return err || !well ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}
