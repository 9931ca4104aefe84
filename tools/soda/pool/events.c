/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda pool events`: what has changed from one look at a pool to the next, a line of JSON each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/pool/look.h"

struct options {
	struct soda_registry_login etcd;
	uint32_t interval_ms, timeout_ms, time_ms;
};

static const struct soda_option option_table[] = {
	OPTION("interval", 'i', TIME_MS, interval_ms, .arg = "TIME", .def = "1s", .min = 10,
	       .max = 86400000, .help = "How long to wait between two looks."),
	OPTION("time", 't', TIME_MS, time_ms, .arg = "TIME", .max = 86400000,
	       .help = "End after this time. Default: when it is interrupted."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "2s", .min = 1,
	       .max = 3600000, .help = "Longest wait for a server's answer."),
	SODA_ETCD_CA("SODA_ETCD_CA", .offset = offsetof(struct options, etcd.ca)),
	SODA_ETCD_CERT("SODA_ETCD_CERT", .offset = offsetof(struct options, etcd.cert)),
	SODA_ETCD_KEY("SODA_ETCD_KEY", .offset = offsetof(struct options, etcd.key)),
	SODA_ETCD_USER("SODA_ETCD_USER", .offset = offsetof(struct options, etcd.user_file)),
};

static const struct soda_conf conf = {
	.program = "soda pool events",
	.summary = "print what changes in a pool of memory servers, as it happens",
	.args = "[ADDRESS,...|etcd://HOST:PORT[,...]/POOL]",
	.description =
		"Looks at each server of the list, or of SODA_SERVER (etcd://...: those that are "
		"registered there when it begins), again and again, and prints "
		"what "
		"has changed since the look before, each change as a line of JSON; the first look "
		"prints what there is. What happens and ends between two looks is not seen; the "
		"programs' own logs, on level warning, have it all.\n"
		"\n"
		"Every line has \"time\" (UTC) and \"event\". Of a server, with its \"address\": "
		"\"state\" "
		"(\"from\", \"to\", and \"why\" where it is unreachable), \"restarted\" (what was "
		"only "
		"there is lost), \"domain\" (\"from\", \"to\"). Of a program, with its \"program\" "
		"(a "
		"number of its own), \"pid\" and \"from_address\": \"came\", \"left\", \"missing\" "
		"(how many "
		"of its slabs have fewer copies than they should, \"from\", \"to\"), "
		"\"expelled\", \"rebuilt\" and \"moved\" (how many \"copies\" it has given up, "
		"made "
		"anew, and moved from a server that is drained).",
	.epilogue = ".SH EXIT STATUS\n.TP\n.B 0\nit has ended as it was told to\n"
		    ".TP\n.B 1\nstandard output is gone, or etcd cannot be asked, or has no server "
		    "of the pool\n.TP\n.B 2\nwrong usage\n"
		    ".SH SEE ALSO\n.BR soda\\-pool\\-status (1),\n.BR soda\\-top (1),\n"
		    ".BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* What the look before has found. */
struct before {
	bool any;
	struct {
		enum soda_pool_state state;
		char domain[64], instance[24];
	} members[SODA_MEMBERS_MAX];
	struct soda_pool_program *programs;
	size_t programs_n;
};

static json_t *begin(const char *event)
{
	json_t *o = json_object();
	time_t now = time(NULL);
	struct tm utc;
	char text[32];

	gmtime_r(&now, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	soda_json_set_text(o, "time", text);
	soda_json_set_text(o, "event", event);
	return o;
}

static void say(json_t *o)
{
	if (!json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII))
		putchar('\n');
	json_decref(o);
}

static json_t *begin_of_member(const char *event, const struct soda_pool_member *m)
{
	json_t *o = begin(event);

	json_object_set_new(o, "address", soda_json_text_of(m->source.target));
	return o;
}

static json_t *begin_of_program(const char *event, const struct soda_pool_program *p)
{
	json_t *o = begin(event);

	soda_json_set_text(o, "program", p->id);
	soda_json_set_count(o, "pid", p->pid);
	soda_json_set_text(o, "from_address", p->address);
	return o;
}

static void say_change(json_t *o, const char *from, const char *to)
{
	soda_json_set_text(o, "from", from);
	soda_json_set_text(o, "to", to);
	say(o);
}

static void compare_member(struct before *was, uint32_t i, const struct soda_pool_member *m)
{
	char *instance = was->members[i].instance, *domain = was->members[i].domain;
	enum soda_pool_state state = was->members[i].state;
	json_t *o;

	if (!was->any || state != m->state) {
		o = begin_of_member("state", m);
		if (m->state == SODA_POOL_UNREACHABLE)
			soda_json_set_text(o, "why", m->why);
		say_change(o, was->any ? soda_pool_states[state] : NULL,
			   soda_pool_states[m->state]);
	}
	if (*instance && strcmp(instance, m->instance))
		say(begin_of_member("restarted", m));
	if (strcmp(domain, m->domain))
		say_change(begin_of_member("domain", m), *domain ? domain : NULL,
			   *m->domain ? m->domain : NULL);
	was->members[i].state = m->state;
	strcpy(instance, m->instance);
	strcpy(domain, m->domain);
}

static const struct soda_pool_program *find(const struct soda_pool_program *programs, size_t n,
					    const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(programs[i].id, id))
			return &programs[i];
	return NULL;
}

static void compare_program(const struct soda_pool_program *was, const struct soda_pool_program *p)
{
	static const struct soda_pool_program nothing;
	json_t *o;

	if (!was)
		say(begin_of_program("came", p));
	was = was ? was : &nothing;
	if (p->missing != was->missing) {
		o = begin_of_program("missing", p);
		soda_json_set_count(o, "from", was->missing);
		soda_json_set_count(o, "to", p->missing);
		say(o);
	}
	if (p->expelled > was->expelled) {
		o = begin_of_program("expelled", p);
		soda_json_set_count(o, "copies", p->expelled - was->expelled);
		say(o);
	}
	if (p->rebuilt > was->rebuilt) {
		o = begin_of_program("rebuilt", p);
		soda_json_set_count(o, "copies", p->rebuilt - was->rebuilt);
		say(o);
	}
	if (p->moved > was->moved) {
		o = begin_of_program("moved", p);
		soda_json_set_count(o, "copies", p->moved - was->moved);
		say(o);
	}
}

/* Whether no server can say whether a program is still there. */
static bool all_away(const struct soda_pool *pool)
{
	for (uint32_t i = 0; i < pool->list.n; i++)
		if (pool->members[i].state != SODA_POOL_UNREACHABLE)
			return false;
	return true;
}

/* Say what has changed; the look is the one before, from now on. */
static void compare(struct before *was, struct soda_pool *pool)
{
	for (uint32_t i = 0; i < pool->list.n; i++)
		compare_member(was, i, &pool->members[i]);
	was->any = true;
	if (all_away(pool))
		return;
	for (size_t i = 0; i < was->programs_n; i++)
		if (!find(pool->programs, pool->programs_n, was->programs[i].id))
			say(begin_of_program("left", &was->programs[i]));
	for (size_t i = 0; i < pool->programs_n; i++)
		compare_program(find(was->programs, was->programs_n, pool->programs[i].id),
				&pool->programs[i]);
	free(was->programs);
	was->programs = pool->programs;
	was->programs_n = pool->programs_n;
	pool->programs = NULL;
	pool->programs_n = 0;
}

int soda_command_pool_events(int argc, char **argv)
{
	struct options opt = { 0 };
	struct before before = { .any = false };
	struct soda_pool pool;
	const char *list = NULL;
	int n = soda_tool_options(&conf, argc, argv, &opt, &list, 1), err;
	uint64_t begun = soda_now_ms();

	if (n < 0)
		return SODA_EXIT_USAGE;
	err = soda_pool_open(&pool, conf.program, n ? list : NULL, &opt.etcd);
	if (err)
		return soda_pool_exit(err);
	for (;;) {
		soda_pool_look(&pool, (int)opt.timeout_ms);
		compare(&before, &pool);
		err = fflush(stdout);
		if (err || (opt.time_ms && soda_now_ms() - begun >= opt.time_ms))
			break;
		usleep(opt.interval_ms * 1000u);
	}
	free(before.programs);
	soda_pool_close(&pool, (int)opt.timeout_ms);
	return err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}
