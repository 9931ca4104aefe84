/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda tenant`: makes, shows, rotates and removes the tenants of a memory server, in its file
 * (trust/tenants_file.h), and the key files of their programs (trust/identity.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "trust/identity.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"

#define DEFAULT_FILE "/etc/soda/tenants.ini"

struct options {
	char *file, *key_file, *server_name, *read, *write;
	uint64_t quota, rate;
	uint32_t requests, weight;
	uint32_t role, keep_days;
	bool json;
};

#define FILE_OPTION                                                                                \
	OPTION("file", 'f', STRING, file, .arg = "FILE", .def = DEFAULT_FILE,                      \
	       .env = "SODA_MEM_SERVER_TENANTS",                                                   \
	       .help = "The server's tenants file, as its --tenants names it.")
#define KEY_FILE_OPTION(HELP)                                                                      \
	OPTION("key-file", 'k', STRING, key_file, .arg = "FILE",                                   \
	       .help = "The key file of the tenant's programs (SODA_KEY_FILE). Default: NAME.key " \
		       "here. " HELP)

static const struct soda_option add_table[] = {
	FILE_OPTION,
	JSON_OPTION,
	KEY_FILE_OPTION("If there is one of this tenant, its key is used: so a tenant gets "
			"another server."),
	OPTION("server-name", 0, STRING, server_name, .arg = "NAME", .max = SODA_WIRE_TENANT_MAX,
	       .help = "The server's name, where the file is to be made: what programs have as the "
		       "host in its address, or in SODA_SERVER_NAME."),
	OPTION("role", 0, CHOICE, role, .arg = "ROLE", .def = "client", .choices = soda_role_names,
	       .help = "client; agent: may connect by way of DPU agents; operator: sees "
		       "everybody's statistics."),
	OPTION("quota", 0, SIZE, quota, .arg = "SIZE",
	       .help = "Most memory of all of its clients together; 0: no limit, the default."),
	OPTION("rate", 0, SIZE, rate, .arg = "SIZE",
	       .help = "Most bytes a second, read and written, of all of its clients together; 0: "
		       "no "
		       "limit, the default. A tenant with a rate connects by tcp, not shm."),
	OPTION("requests", 0, UINT, requests, .arg = "N", .def = "0",
	       .max = SODA_TENANT_REQUESTS_MAX, .help = "The same of READs and WRITEs a second."),
	OPTION("weight", 0, UINT, weight, .arg = "N", .def = "1", .min = 1,
	       .max = SODA_TENANT_WEIGHT_MAX,
	       .help = "Its share where several tenants' requests wait for the server, beside "
		       "theirs, "
		       "on tcp."),
	OPTION("read", 0, LIST, read, .arg = "DIR",
	       .help = "Absolute directory whose files the tenant may read; several, separated by "
		       "commas, or the option again."),
	OPTION("write", 0, LIST, write, .arg = "DIR",
	       .help = "The same of files that it may write and make, too."),
};

static const struct soda_option list_table[] = {
	FILE_OPTION,
	JSON_OPTION,
};

static const struct soda_option rotate_table[] = {
	FILE_OPTION,
	JSON_OPTION,
	KEY_FILE_OPTION(
		"If its key is not the server's, as after a rotation at another server, that "
		"becomes the server's; else a new one is made."),
	OPTION("keep-days", 0, UINT, keep_days, .arg = "N", .def = "7", .max = 3650,
	       .help = "How long the key before stays valid; 0: not at all."),
};

static const struct soda_option remove_table[] = { FILE_OPTION, JSON_OPTION };

#define AFTERWARDS                                                                                 \
	"\n\nThe server reads the file again on SIGHUP (systemctl reload soda-mem-server, or "     \
	"soda-dpu-agent)."
#define SEE                                                                                        \
	".SH SEE ALSO\n.BR soda\\-mem\\-server (1),\n.BR soda\\-dpu\\-agent (1),\n.BR soda (7)\n"
#define CONF(NAME, ARGS, SUMMARY, DESCRIPTION)                                                     \
	static const struct soda_conf NAME##_conf = {                                              \
		.program = "soda tenant " #NAME,                                                   \
		.summary = SUMMARY,                                                                \
		.args = ARGS,                                                                      \
		.description = DESCRIPTION,                                                        \
		.epilogue = SEE,                                                                   \
		.options = NAME##_table,                                                           \
		.options_n = sizeof(NAME##_table) / sizeof(NAME##_table[0]),                       \
	}

CONF(add, "NAME", "give a memory server a tenant more",
     "Makes a key for the tenant NAME in a key file of its programs, and an entry in the server's "
     "tenants file, which is made if there is none. The server's file gets a key that is derived "
     "of it and of the server's name, of no use anywhere else. Bring the key file to those "
     "who run the tenant's programs by a way that nobody else reads, with mode 0600. The file may "
     "be a DPU agent's, too: without directories, which are the memory server's." AFTERWARDS);
CONF(list, "", "show the tenants of a memory server",
     "Prints the tenants of a server's file, without their keys: name, role, quota, rates, weight, "
     "until when a "
     "key before is valid, directories.");
CONF(rotate, "NAME", "give a tenant of a memory server another key",
     "Writes a new key into the key file and its derived one into the server's tenants file, where "
     "the one before stays valid for a while. Programs that run read the key file again when they "
     "connect anew." AFTERWARDS);
CONF(remove, "NAME", "take a tenant from a memory server",
     "Removes the tenant NAME from the server's file. When the server has read that, the tenant's "
     "connections end and its memory is freed; files of its directories stay." AFTERWARDS);

/* What every command begins and ends with */

struct edit {
	struct options opt;
	const char *name;
	struct soda_tenants_file file;
	char key_path[PATH_MAX];
	int lock; /* of the file, beside others who edit it; or -1 */
	struct soda_conf_error err;
};

static int fail(const struct soda_conf *conf, struct edit *e)
{
	fprintf(stderr, "%s: %s\n", conf->program, e->err.text);
	return SODA_EXIT_FAILED;
}

/* 0; or the exit code, after a message. */
static int parse(const struct soda_conf *conf, int argc, char **argv, bool named, struct edit *e)
{
	const char *args[1];
	int n;

	memset(e, 0, sizeof(*e));
	e->lock = -1;
	n = soda_tool_options(conf, argc, argv, &e->opt, args, named);
	if (n < 0)
		return SODA_EXIT_USAGE;
	if (named && !n) {
		fprintf(stderr, "%s: which tenant? expected NAME; see --help\n", conf->program);
		return SODA_EXIT_USAGE;
	}
	e->name = named ? args[0] : NULL;
	if (named && !soda_wire_tenant_ok(e->name)) {
		fprintf(stderr, "%s: '%.80s' is no name: 1 to %u letters, digits and . _ - :\n",
			conf->program, e->name, SODA_TENANT_NAME_MAX);
		return SODA_EXIT_USAGE;
	}
	if (named && !e->opt.key_file)
		snprintf(e->key_path, sizeof(e->key_path), "%s.key", e->name);
	else if (named)
		snprintf(e->key_path, sizeof(e->key_path), "%s", e->opt.key_file);
	return soda_crypto_ready(&e->err) ? fail(conf, e) : 0;
}

/*
 * One at a time changes the file: by a lock on a file beside it, as it is replaced. 0 or negative
 * errno.
 */
static int lock_file(struct edit *e)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s.lock", e->opt.file) >= (int)sizeof(path))
		return soda_conf_fail(&e->err, -ENAMETOOLONG, "%.180s: too long", e->opt.file);
	e->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (e->lock < 0 || flock(e->lock, LOCK_EX | LOCK_NB)) {
		int r = -errno;

		return soda_conf_fail(&e->err, r, "%.180s: %s", path,
				      r == -EWOULDBLOCK ? "somebody changes the file: try again"
							: soda_strerror(r));
	}
	return 0;
}

static void end(const struct soda_conf *conf, struct edit *e)
{
	soda_tenants_file_free(&e->file);
	if (e->lock >= 0)
		close(e->lock);
	soda_conf_free(conf, &e->opt);
}

static int find(struct edit *e, struct soda_tenant_entry **entry_p)
{
	*entry_p = soda_tenants_file_find(&e->file, e->name);
	if (*entry_p)
		return 0;
	return soda_conf_fail(&e->err, -ENOENT, "%.100s has no tenant %s", e->opt.file, e->name);
}

/* Keys */

static int write_key(struct edit *e, const uint8_t root[SODA_KEY_BYTES])
{
	char text[256], hex[SODA_KEY_TEXT_BYTES];
	int n = snprintf(text, sizeof(text), "[tenant]\nname = %s\nkey = %s\n", e->name,
			 soda_key_format(root, SODA_KEY_BYTES, hex));
	int r = soda_private_write(e->key_path, text, (size_t)n, &e->err);

	soda_wipe(text, sizeof(text));
	soda_wipe(hex, sizeof(hex));
	return r;
}

/* The key in the key file. *there_p: there is a file. 0; an error of a file that is there. */
static int read_key(struct edit *e, uint8_t root[SODA_KEY_BYTES], bool *there_p)
{
	char name[SODA_WIRE_TENANT_MAX + 1];
	struct stat st;
	int r = soda_key_file_read(e->key_path, name, root, &st, &e->err);

	*there_p = r != -ENOENT;
	if (r)
		return r == -ENOENT ? 0 : r;
	if (strcmp(name, e->name))
		return soda_conf_fail(&e->err, -EINVAL, "%.100s is the key of tenant %s, not of %s",
				      e->key_path, name, e->name);
	return 0;
}

static int make_key(struct edit *e, uint8_t root[SODA_KEY_BYTES])
{
	int r = soda_random(root, SODA_KEY_BYTES);

	return r ? soda_conf_fail(&e->err, r, "no randomness: %s", soda_strerror(r)) : 0;
}

/* The server's key of this one. */
static int derive(struct edit *e, const uint8_t root[SODA_KEY_BYTES], uint8_t key[SODA_KEY_BYTES])
{
	int r = soda_key_for_server(root, e->file.server, key);

	return r ? soda_conf_fail(&e->err, r, "cannot derive a key: %s", soda_strerror(r)) : 0;
}

/* Commands */

/* The change by a command, for --json; new_key < 0: it has nothing to do with a key. */
static int print_change(struct edit *e, int new_key)
{
	json_t *o = json_pack("{ss ss}", "tenant", e->name, "server", e->file.server);

	if (new_key >= 0) {
		json_object_set_new(o, "key_file", soda_json_text_of(e->key_path));
		json_object_set_new(o, "new_key", json_boolean(new_key));
	}
	return soda_json_print(o)
		       ? soda_conf_fail(&e->err, -EIO, "standard output: %s", soda_strerror(EIO))
		       : 0;
}

/* The server's file, or the beginning of one. */
static int read_or_begin(struct edit *e)
{
	int r = soda_tenants_file_read(e->opt.file, &e->file, &e->err);

	if (r && r != -ENOENT)
		return r;
	if (!r && e->opt.server_name && strcmp(e->opt.server_name, e->file.server))
		return soda_conf_fail(&e->err, -EINVAL,
				      "%.100s is the file of server %s, not of %s", e->opt.file,
				      e->file.server, e->opt.server_name);
	if (!r)
		return 0;
	if (!e->opt.server_name || !soda_wire_server_ok(e->opt.server_name))
		return soda_conf_fail(
			&e->err, -EINVAL,
			"%.100s is to be made: expected --server-name NAME, of 1 to %u "
			"letters, digits and . _ - :",
			e->opt.file, SODA_WIRE_TENANT_MAX);
	strcpy(e->file.server, e->opt.server_name);
	return 0;
}

static int add_directories(struct edit *e, struct soda_tenant_entry *entry, const char *access,
			   const char *list)
{
	char text[PATH_MAX + 8], *copy = strdup(list ? list : ""), *rest = copy, *path;
	int r = copy ? 0 : soda_conf_fail(&e->err, -ENOMEM, "out of memory");

	while (!r && (path = strsep(&rest, ",")))
		if (*path) {
			snprintf(text, sizeof(text), "%s %s", access, path);
			r = soda_tenant_export_add(entry, text, &e->err);
		}
	free(copy);
	return r;
}

static int add(struct edit *e)
{
	struct soda_tenant_entry *entry;
	uint8_t root[SODA_KEY_BYTES];
	bool there = false;
	int r = lock_file(e);

	if (!r)
		r = read_or_begin(e);
	if (!r)
		r = soda_tenants_file_add(&e->file, e->name, &entry, &e->err);
	if (!r)
		r = read_key(e, root, &there);
	if (!r && !there)
		r = make_key(e, root);
	if (!r)
		r = derive(e, root, entry->key);
	if (!r)
		r = add_directories(e, entry, "ro", e->opt.read);
	if (!r)
		r = add_directories(e, entry, "rw", e->opt.write);
	if (r)
		return r;
	entry->role = (enum soda_role)e->opt.role;
	entry->quota = e->opt.quota;
	entry->rate = e->opt.rate;
	entry->requests = e->opt.requests;
	entry->weight = e->opt.weight;
	/* first the key, which nobody can make again */
	r = there ? 0 : write_key(e, root);
	soda_wipe(root, sizeof(root));
	if (!r)
		r = soda_tenants_file_write(e->opt.file, &e->file, &e->err);
	if (!r && e->opt.json)
		return print_change(e, !there);
	if (!r)
		printf("tenant %s of server %s; the key of its programs is %s in %s\n", e->name,
		       e->file.server, there ? "that" : "new,", e->key_path);
	return r;
}

static int rotate(struct edit *e)
{
	uint8_t root[SODA_KEY_BYTES], key[SODA_KEY_BYTES];
	struct soda_tenant_entry *entry;
	bool there = false, same = false;
	int r = lock_file(e);

	if (!r)
		r = soda_tenants_file_read(e->opt.file, &e->file, &e->err);
	if (!r)
		r = find(e, &entry);
	if (!r)
		r = read_key(e, root, &there);
	if (!r && there)
		r = derive(e, root, key);
	same = !r && there && soda_mac_equal(key, entry->key, sizeof(key));
	if (!r && (!there || same)) {
		r = make_key(e, root);
		r = r ? r : derive(e, root, key);
	}
	if (r)
		return r;
	memcpy(entry->previous, entry->key, sizeof(key));
	entry->has_previous = e->opt.keep_days;
	entry->previous_until = time(NULL) + (time_t)e->opt.keep_days * 86400;
	memcpy(entry->key, key, sizeof(key));
	/*
	 * First the server's: a program that reads a key before the server has it is refused, and
	 * comes again.  The other way round the key that the server still has could be lost.
	 */
	r = soda_tenants_file_write(e->opt.file, &e->file, &e->err);
	if (!r && (!there || same))
		r = write_key(e, root);
	soda_wipe(root, sizeof(root));
	soda_wipe(key, sizeof(key));
	if (!r && e->opt.json)
		return print_change(e, !there || same);
	if (!r)
		printf("tenant %s of server %s has %s key, in %s; the one before is valid for %u "
		       "days\n",
		       e->name, e->file.server, there && !same ? "that" : "a new", e->key_path,
		       e->opt.keep_days);
	return r;
}

static int remove_tenant(struct edit *e)
{
	struct soda_tenant_entry *entry;
	int r = lock_file(e);

	if (!r)
		r = soda_tenants_file_read(e->opt.file, &e->file, &e->err);
	if (!r)
		r = find(e, &entry);
	if (r)
		return r;
	soda_tenants_file_remove(&e->file, entry);
	r = soda_tenants_file_write(e->opt.file, &e->file, &e->err);
	if (!r && e->opt.json)
		return print_change(e, -1);
	if (!r)
		printf("tenant %s is no more of server %s\n", e->name, e->file.server);
	return r;
}

static json_t *describe(const struct soda_tenant_entry *t)
{
	json_t *directories = json_array(), *o;
	char until[SODA_UTC_BYTES];

	for (unsigned i = 0; i < t->exports_n; i++)
		json_array_append_new(directories,
				      json_pack("{s:s, s:b}", "path", t->exports[i].path,
						"writable", t->exports[i].writable));
	o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "name", t->name, "role",
		      soda_role_names[t->role], "quota_bytes", (json_int_t)t->quota, "rate_bytes",
		      (json_int_t)t->rate, "rate_requests", (json_int_t)t->requests, "weight",
		      (json_int_t)(t->weight ? t->weight : 1), "directories", directories);
	if (o && t->has_previous)
		json_object_set_new(o, "previous_until",
				    json_string(soda_utc_format(t->previous_until, until)));
	return o;
}

static void print_json(const struct edit *e)
{
	json_t *tenants = json_array(), *all;

	for (unsigned i = 0; i < e->file.n; i++)
		json_array_append_new(tenants, describe(&e->file.tenants[i]));
	all = json_pack("{s:s, s:o}", "server", e->file.server, "tenants", tenants);
	json_dumpf(all, stdout, JSON_INDENT(1));
	puts("");
	json_decref(all);
}

static void print_tenant(const struct soda_tenant_entry *t)
{
	char quota[16], rate[16], requests[24], until[SODA_UTC_BYTES];

	snprintf(requests, sizeof(requests), "%llu", (unsigned long long)t->requests);
	printf("%-20s %-9s %-10s %-10s %-10s %-6u %-21s", t->name, soda_role_names[t->role],
	       t->quota ? soda_format_size(t->quota, quota) : "-",
	       t->rate ? soda_format_size(t->rate, rate) : "-", t->requests ? requests : "-",
	       t->weight ? t->weight : 1,
	       t->has_previous ? soda_utc_format(t->previous_until, until) : "-");
	for (unsigned i = 0; i < t->exports_n; i++)
		printf(" %s:%s", t->exports[i].writable ? "rw" : "ro", t->exports[i].path);
	puts("");
}

static int list(struct edit *e)
{
	int r = soda_tenants_file_read(e->opt.file, &e->file, &e->err);

	if (r)
		return r;
	if (e->opt.json) {
		print_json(e);
		return 0;
	}
	printf("server %s\n%-20s %-9s %-10s %-10s %-10s %-6s %-21s directories\n", e->file.server,
	       "tenant", "role", "quota", "bytes/s", "requests/s", "weight", "previous key until");
	for (unsigned i = 0; i < e->file.n; i++)
		print_tenant(&e->file.tenants[i]);
	return 0;
}

static int run(const struct soda_conf *conf, int argc, char **argv, bool named,
	       int (*command)(struct edit *e))
{
	struct edit e;
	int code = parse(conf, argc, argv, named, &e);

	if (!code && command(&e))
		code = fail(conf, &e);
	end(conf, &e);
	if (!code && fflush(stdout))
		code = SODA_EXIT_FAILED;
	return code;
}

static int run_add(int argc, char **argv)
{
	return run(&add_conf, argc, argv, true, add);
}

static int run_list(int argc, char **argv)
{
	return run(&list_conf, argc, argv, false, list);
}

static int run_rotate(int argc, char **argv)
{
	return run(&rotate_conf, argc, argv, true, rotate);
}

static int run_remove(int argc, char **argv)
{
	return run(&remove_conf, argc, argv, true, remove_tenant);
}

int soda_command_tenant(int argc, char **argv)
{
	static const struct soda_tool_command commands[] = {
		{ "add", run_add },	  { "list", run_list }, { "remove", run_remove },
		{ "rotate", run_rotate }, { NULL, NULL },
	};

	return soda_tool_choose(commands, "soda tenant: no command",
				"Usage: soda tenant COMMAND [ARGUMENT]...\n\n"
				"Commands:\n"
				"  add      give a memory server a tenant more\n"
				"  list     show the tenants of a memory server\n"
				"  remove   take a tenant from a memory server\n"
				"  rotate   give a tenant another key\n\n"
				"soda tenant COMMAND --help tells its options.\n",
				argc, argv);
}
