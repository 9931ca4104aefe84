/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda pool drain`: asks a server to become empty, and waits until the programs have moved what
 * they have there to other servers of their pools; or says why they cannot, and what would help.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/base/tool.h"
#include "soda/pool/look.h"
#include "wire/pool.h"

struct options {
	uint32_t patience_ms, timeout_ms;
	bool cancel, json;
};

static const struct soda_option option_table[] = {
	OPTION("cancel", 0, BOOL, cancel,
	       .help = "The server is used as before: it takes new data, and what has moved away "
		       "stays where it is."),
	OPTION("patience", 0, TIME_MS, patience_ms, .arg = "TIME", .def = "10s", .min = 1,
	       .max = 86400000, .help = "Give up when nothing has moved for so long."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "5s", .min = 1,
	       .max = 3600000, .help = "Longest wait for an answer of the server."),
	OPTION("json", 'j', BOOL, json,
	       .help = "Print progress and outcome as lines of JSON on standard output."),
};

static const struct soda_conf conf = {
	.program = "soda pool drain",
	.summary = "move what a memory server has to the other servers of its pools",
	.args = "ADDRESS",
	.description =
		"Marks the server as one that is drained: it takes nothing new, and each program "
		"that "
		"has something there moves it to another server of its pool, while it runs on: "
		"first it is copied, at most SODA_REBUILD_RATE bytes a second and program, then "
		"given up here, so that nothing has a copy less meanwhile. That goes for objects "
		"with and without redundancy. The command waits, prints what is left, and ends "
		"when the server is empty: then it may end, or its machine. Until that, or "
		"--cancel, it stays marked, also when the command ends before; a server that "
		"starts anew is not.\n"
		"\n"
		"Some things cannot move: what programs have that use this server alone, published "
		"objects among that; files that are open to be written or as private copies, and "
		"those to be read that no other server exports with the same content; and what no "
		"other server of the "
		"pool that can be reached has room for, in a failure domain where it may lie. "
		"When nothing has moved for the time of --patience, the command says whose they "
		"are and what would help, and ends with 1.\n"
		"\n"
		"Where the server has tenants, SODA_KEY_FILE must be the key of one whose role is "
		"operator; over shm its own user and root may drain it; else everybody who can "
		"connect.\n"
		"\n"
		"With --json a line {\"state\": \"draining\", \"used_bytes\", \"regions\", "
		"\"programs\": "
		"[{\"pid\", \"address\", \"used_bytes\", \"held\"}]} whenever that changes; held "
		"is "
		"null, or why it does not move. The last line's state is \"empty\", \"held\" or "
		"\"cancelled\".",
	.epilogue = ".SH EXIT STATUS\n.TP\n.B 0\nthe server is empty, or used as before\n"
		    ".TP\n.B 1\nsomething cannot move, or the server does not answer\n"
		    ".TP\n.B 2\nwrong usage\n"
		    ".SH EXAMPLES\nTake a machine out of a pool that is in use:\n.PP\n.RS\n.nf\n"
		    "soda pool drain tcp://10.0.0.2:7001 && ssh 10.0.0.2 systemctl stop "
		    "soda\\-mem\\-server\n.fi\n.RE\n"
		    ".SH SEE ALSO\n.BR soda\\-pool\\-status (1),\n.BR soda\\-tenant\\-add (1),\n"
		    ".BR soda\\-mem\\-server (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* One drain. */
struct drain {
	const char *address;
	struct options opt;
	struct soda_conn *conn;
	uint64_t used, regions; /* of the last answer */
	uint64_t moved_ms;	/* when something was seen to, last */
	bool shown;
};

static int fail(const struct drain *d, int err, const struct soda_why *why)
{
	char text[sizeof(why->text)];

	snprintf(text, sizeof(text), "%s", why->text[0] ? why->text : strerror(-err));
	soda_make_printable(text);
	fprintf(stderr, "%s: %s: %s\n", conf.program, d->address, text);
	return SODA_EXIT_FAILED;
}

/* Why what the client has does not move; NULL: it does. */
static const char *held(const json_t *client)
{
	if (!json_is_true(json_object_get(client, "connected")))
		return "it is away: what it has here is freed after the server's grace time, "
		       "unless "
		       "it comes back";
	if (soda_json_count(client, "pool_members") < 2)
		return "it knows no other server (SODA_SERVER), or is of a version that moves "
		       "nothing: end it";
	if (soda_json_count(client, "pool_held") == SODA_WIRE_HELD_NOT)
		return NULL;
	if (soda_json_count(client, "pool_held") == SODA_WIRE_HELD_FILE)
		return "its files and published objects do not move: WRITABLE and PRIVATE files "
		       "lie on this server, and of READ_ONLY ones no other server exports the same "
		       "content: end the program, or export the file there";
	return "no other server that it can reach may take it: add memory, or a server in another "
	       "failure domain";
}

static json_t *describe(const json_t *client)
{
	const char *why = held(client);
	char address[64];
	json_t *o = json_object();

	snprintf(address, sizeof(address), "%s", soda_json_text(client, "address"));
	soda_make_printable(address);
	soda_json_set_count(o, "pid", soda_json_count(client, "pid"));
	soda_json_set_text(o, "address", address);
	soda_json_set_count(o, "used_bytes", soda_json_count(client, "used_bytes"));
	soda_json_set_text(o, "held", why);
	return o;
}

/* Those that have something there. A new reference. */
static json_t *programs_of(const json_t *answer)
{
	json_t *list = json_array(), *clients = json_object_get(answer, "client_list"), *client;
	size_t i;

	json_array_foreach(clients, i, client)
	{
		if (soda_json_count(client, "regions_n"))
			json_array_append_new(list, describe(client));
	}
	return list;
}

static void say_json(const struct drain *d, const char *state, json_t *programs)
{
	json_t *o = json_object();

	soda_json_set_text(o, "state", state);
	soda_json_set_count(o, "used_bytes", d->used);
	soda_json_set_count(o, "regions", d->regions);
	json_object_set(o, "programs", programs);
	if (!json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII))
		putchar('\n');
	json_decref(o);
}

static void show(const struct drain *d, json_t *programs)
{
	char size[16];

	if (d->opt.json)
		say_json(d, "draining", programs);
	else
		printf("%s: %s of %zu program%s left\n", d->address,
		       soda_format_size(d->used, size), json_array_size(programs),
		       json_array_size(programs) == 1 ? "" : "s");
	fflush(stdout);
}

/* Say why it does not go on. */
static int give_up(const struct drain *d, json_t *programs)
{
	json_t *program;
	char size[16];
	size_t i;

	if (d->opt.json)
		say_json(d, "held", programs);
	json_array_foreach(programs, i, program)
	{
		const char *why = json_string_value(json_object_get(program, "held"));

		fprintf(stderr, "%s: %s of program %llu (%s) does not move: %s\n", conf.program,
			soda_format_size(soda_json_count(program, "used_bytes"), size),
			(unsigned long long)soda_json_count(program, "pid"),
			soda_json_text(program, "address"), why ? why : "its log may say more");
	}
	if (!json_array_size(programs))
		fprintf(stderr, "%s: %llu regions are left, of whom the server does not tell you\n",
			conf.program, (unsigned long long)d->regions);
	fprintf(stderr,
		"%s: %s is not empty, and takes nothing new; it goes on when there is a way, and "
		"soda pool drain %s waits again; with --cancel it is used as before\n",
		conf.program, d->address, d->address);
	return SODA_EXIT_FAILED;
}

/* Look once. -1: it goes on; else the exit code. */
static int look(struct drain *d)
{
	struct soda_why why = { "" };
	uint64_t had = d->used, regions = d->regions;
	json_t *answer, *programs;
	int err = soda_stat_fetch(d->conn, (int)d->opt.timeout_ms, &answer, &why), code = -1;

	if (err)
		return fail(d, err, &why);
	d->used = soda_json_count(answer, "used_bytes");
	d->regions = soda_json_count(answer, "regions");
	programs = programs_of(answer);
	if (d->used != had || d->regions != regions || !d->shown) {
		d->moved_ms = soda_now_ms();
		if (d->regions)
			show(d, programs);
		d->shown = true;
	}
	if (!d->regions) {
		if (d->opt.json)
			say_json(d, "empty", programs);
		else
			printf("%s is empty\n", d->address);
		code = SODA_EXIT_OK;
	} else if (soda_now_ms() - d->moved_ms > d->opt.patience_ms) {
		code = give_up(d, programs);
	}
	json_decref(programs);
	json_decref(answer);
	return code;
}

static int drain(struct drain *d)
{
	struct soda_wire_welcome welcome;
	struct soda_why why = { "" };
	int code = -1,
	    err = soda_stat_join(d->address, (int)d->opt.timeout_ms, &d->conn, &welcome, &why);

	if (!err)
		err = soda_pool_tell(d->conn,
				     d->opt.cancel ? SODA_WIRE_POOL_KEEP : SODA_WIRE_POOL_DRAIN,
				     (int)d->opt.timeout_ms, &why);
	if (err) {
		code = fail(d, err, &why);
	} else if (d->opt.cancel) {
		if (d->opt.json)
			puts("{\"state\":\"cancelled\"}");
		else
			printf("%s is used as before\n", d->address);
		code = SODA_EXIT_OK;
	}
	while (code < 0) {
		code = look(d);
		if (code < 0)
			usleep(200000);
	}
	soda_conn_leave(d->conn, (int)d->opt.timeout_ms);
	return fflush(stdout) ? SODA_EXIT_FAILED : code;
}

int soda_command_pool_drain(int argc, char **argv)
{
	struct drain d = { .used = 0 };
	int n = soda_tool_options(&conf, argc, argv, &d.opt, &d.address, 1);

	if (n == 0)
		fprintf(stderr, "%s: which server? its address; see --help\n", conf.program);
	if (n < 1)
		return SODA_EXIT_USAGE;
	if (!strstr(d.address, "://")) {
		fprintf(stderr, "%s: '%s' is no address (tcp://HOST:PORT, shm://...)\n",
			conf.program, d.address);
		return SODA_EXIT_USAGE;
	}
	return drain(&d);
}
