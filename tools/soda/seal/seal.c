/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda seal`: makes keys for sealed files (wire/sealed_file.h), prints what is in such a file, and
 * says what a file is.  A file is read where it lies, or, with an address, as an object of its
 * server.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "soda.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "trust/identity.h"
#include "trust/sealed_file.h"

struct options {
	char *key_file;
	bool json;
};

#define KEY_FILE_OPTION                                                                            \
	OPTION("key-file", 'k', STRING, key_file, .arg = "FILE", .env = "SODA_SEAL_KEY_FILE",      \
	       .help = "The key that the file was sealed with, of soda-seal-key(1).")

static const struct soda_option cat_table[] = { KEY_FILE_OPTION };
static const struct soda_option show_table[] = {
	KEY_FILE_OPTION,
	JSON_OPTION,
};
static const struct soda_option key_table[] = { JSON_OPTION };

#define SEE ".SH SEE ALSO\n.BR soda\\-mem\\-server (1),\n.BR soda_alloc_file (3),\n.BR soda (7)\n"
#define CONF(NAME, ARGS, OPTIONS, OPTIONS_N, SUMMARY, DESCRIPTION)                                 \
	static const struct soda_conf NAME##_conf = {                                              \
		.program = "soda seal " #NAME,                                                     \
		.summary = SUMMARY,                                                                \
		.args = ARGS,                                                                      \
		.description = DESCRIPTION,                                                        \
		.epilogue = SEE,                                                                   \
		.options = OPTIONS,                                                                \
		.options_n = OPTIONS_N,                                                            \
	}

CONF(cat, "FILE|ADDRESS/NAME", cat_table, sizeof(cat_table) / sizeof(cat_table[0]),
     "print the content of a sealed file",
     "Prints to standard output what a program has written to a sealed file: a FILE of this "
     "machine, "
     "in a server's export directory or a copy of it; or, with the address of a memory server "
     "before "
     "it (tcp://HOST:PORT/NAME), the file NAME there, which the server must not have open for "
     "writing. Each block is checked before it is printed; with one that was changed, or with "
     "another "
     "key, printing ends there, and the exit status is 1.");
CONF(key, "FILE", key_table, sizeof(key_table) / sizeof(key_table[0]),
     "make a key for sealed files",
     "Makes a random key in the new FILE, which nobody else may read. Programs seal files with it "
     "(SODA_SEAL_KEY_FILE), and nothing else opens these: keep a copy of the key where it is as "
     "safe. No server needs it.");
CONF(show, "FILE", show_table, sizeof(show_table) / sizeof(show_table[0]),
     "say what a sealed file is",
     "Prints the size of what is in a sealed FILE of this machine, its key's id, how often it was "
     "committed, and its root, a hash that is another one after each commit: who keeps it finds "
     "out "
     "whether the whole file was replaced by an earlier one. Header and table are checked with the "
     "key; the content is not.");

static int fail(const struct soda_conf *conf, const char *name, const char *text)
{
	fprintf(stderr, "%s: %.200s%s%s\n", conf->program, name, *name ? ": " : "", text);
	return SODA_EXIT_FAILED;
}

static int write_all(const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = write(STDOUT_FILENO, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* A file of this machine. */

struct local {
	const struct soda_conf *conf;
	const char *name;
	int fd;
	uint64_t size;
	struct soda_sealed_file file;
	char why[300];
};

static int read_at(struct local *l, void *to, uint64_t bytes, uint64_t offset)
{
	char *at = to;

	while (bytes) {
		ssize_t n = pread(l->fd, at, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			snprintf(l->why, sizeof(l->why), "%s",
				 n ? soda_strerror(errno) : "it is cut off");
			return -EIO;
		}
		at += n;
		bytes -= (uint64_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* Behind the content lies what a server was about to write when it was ended. */
static const char *journal_of(const struct local *l)
{
	return l->file.layout.total && l->size > l->file.layout.total
		       ? "; its server was ended while it wrote to it: open it by a server first"
		       : "";
}

static int open_local(struct local *l, const struct soda_sealed_key *key)
{
	uint8_t page[SODA_SEALED_PAGE];
	struct soda_conf_error err = { "" };
	struct stat st;
	int ret;

	l->fd = open(l->name, O_RDONLY | O_CLOEXEC);
	if (l->fd < 0 || fstat(l->fd, &st)) {
		snprintf(l->why, sizeof(l->why), "%s", soda_strerror(errno));
		return -errno;
	}
	l->size = (uint64_t)st.st_size;
	ret = read_at(l, page, sizeof(page), 0);
	if (ret)
		return ret;
	ret = soda_sealed_file_begin(key, page, &l->file, &err);
	if (!ret)
		ret = read_at(l, l->file.table, l->file.layout.table_pages * SODA_SEALED_PAGE,
			      l->file.layout.table_at);
	if (!ret)
		ret = soda_sealed_file_check(key, &l->file, &err);
	if (ret && err.text[0])
		snprintf(l->why, sizeof(l->why), "%.200s%s", err.text, journal_of(l));
	else if (ret && !l->why[0])
		snprintf(l->why, sizeof(l->why), "%s", soda_strerror(ret));
	return ret;
}

static void close_local(struct local *l)
{
	soda_sealed_file_end(&l->file);
	if (l->fd >= 0)
		close(l->fd);
}

static int print_block(struct local *l, struct soda_seal_engine *engine, uint64_t block)
{
	uint64_t at = block * SODA_SEALED_PAGE, left = l->file.header.bytes - at;
	struct soda_sealed_entry e =
		soda_sealed_get_entry(l->file.table + block * SODA_SEALED_ENTRY);
	uint8_t data[SODA_SEALED_PAGE] = { 0 };
	int ret = 0;

	if (e.version) {
		ret = read_at(l, data, sizeof(data), l->file.layout.data_at + at);
		if (!ret)
			ret = soda_open_block(engine, soda_sealed_file_key(&l->file, e.salt),
					      (uint32_t)block, e.version, data, e.tag, data);
		if (ret == -EBADMSG)
			snprintf(l->why, sizeof(l->why), "bytes from %llu on were changed%s",
				 (unsigned long long)at, journal_of(l));
	}
	if (ret)
		return ret;
	ret = write_all(data, left < sizeof(data) ? left : sizeof(data));
	if (ret)
		snprintf(l->why, sizeof(l->why), "standard output: %s", soda_strerror(ret));
	return ret;
}

static int cat_local(struct local *l, const struct soda_sealed_key *key)
{
	struct soda_seal_engine *engine = NULL;
	int ret = open_local(l, key);

	if (!ret)
		ret = soda_seal_engine_new(&engine);
	for (uint64_t i = 0; !ret && i < l->file.layout.blocks; i++)
		ret = print_block(l, engine, i);
	soda_seal_engine_free(engine);
	close_local(l);
	return ret ? fail(l->conf, l->name, l->why[0] ? l->why : soda_strerror(ret)) : 0;
}

/* A file of a server. */

static sigjmp_buf damaged;

static void on_sigbus(int signal)
{
	siglongjmp(damaged, 1);
}

static void only_errors(int level, const char *message, void *arg)
{
	if (level <= SODA_LOG_ERROR)
		fprintf(stderr, "%s: %s\n", (const char *)arg, message);
}

/* A touch of what was changed is SIGBUS, after a line that says so. */
static int print_object(const char *object, size_t bytes)
{
	static char buffer[SODA_SEALED_PAGE];
	struct sigaction act = { .sa_handler = on_sigbus };

	sigaction(SIGBUS, &act, NULL);
	if (sigsetjmp(damaged, 1))
		return -EBADMSG;
	for (size_t at = 0; at < bytes; at += sizeof(buffer)) {
		size_t n = bytes - at < sizeof(buffer) ? bytes - at : sizeof(buffer);
		int ret;

		memcpy(buffer, object + at, n);
		ret = write_all(buffer, n);
		if (ret)
			return ret;
	}
	return 0;
}

static int cat_remote(const struct soda_conf *conf, const char *address, const char *name,
		      const char *key_file)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	size_t bytes;
	char *object;
	int ret;

	unsetenv("SODA_DPU");
	setenv("SODA_SEAL_KEY_FILE", key_file, 1);
	cfg.server = address;
	cfg.log = only_errors;
	cfg.log_arg = (void *)(uintptr_t)conf->program;
	ret = soda_init(&cfg);
	if (ret)
		return fail(conf, address, soda_last_error());
	object = soda_alloc_file(name, 0, SODA_READ_ONLY | SODA_SEALED, &bytes);
	if (!object)
		return fail(conf, "", soda_last_error());
	ret = print_object(object, bytes);
	if (ret)
		fail(conf, name,
		     ret == -EBADMSG ? "what is there was changed" : soda_strerror(ret));
	if (!ret)
		soda_free(object);
	soda_shutdown();
	return ret ? SODA_EXIT_FAILED : 0;
}

/* Commands */

struct call {
	struct options opt;
	const char *name;
	struct soda_sealed_key key;
};

static int parse(const struct soda_conf *conf, int argc, char **argv, bool needs_key,
		 struct call *c)
{
	struct soda_conf_error err = { "" };
	const char *args[1], *cipher;
	int n;

	memset(c, 0, sizeof(*c));
	n = soda_tool_options(conf, argc, argv, &c->opt, args, 1);
	if (n < 0)
		return SODA_EXIT_USAGE;
	if (!n || (needs_key && !c->opt.key_file)) {
		fprintf(stderr, "%s: expected %s; see --help\n", conf->program,
			n ? "--key-file FILE, or SODA_SEAL_KEY_FILE" : "a file");
		return SODA_EXIT_USAGE;
	}
	c->name = args[0];
	if (needs_key && (soda_seal_ready(&cipher, &err) ||
			  soda_sealed_key_read(c->opt.key_file, &c->key, &err)))
		return fail(conf, "", err.text);
	return 0;
}

static int end(const struct soda_conf *conf, struct call *c, int code)
{
	soda_wipe(&c->key, sizeof(c->key));
	soda_conf_free(conf, &c->opt);
	return !code && fflush(stdout) ? SODA_EXIT_FAILED : code;
}

static int run_cat(int argc, char **argv)
{
	struct call c;
	const char *scheme, *slash;
	int code = parse(&cat_conf, argc, argv, true, &c);

	if (code)
		return end(&cat_conf, &c, code);
	scheme = strstr(c.name, "://");
	slash = scheme ? strchr(scheme + 3, '/') : NULL;
	if (scheme && (!slash || !slash[1] || slash == scheme + 3)) {
		fprintf(stderr, "%s: %s: expected tcp://HOST:PORT/NAME\n", cat_conf.program,
			c.name);
		code = SODA_EXIT_USAGE;
	} else if (scheme) {
		char *address = strndup(c.name, (size_t)(slash - c.name));

		code = address ? cat_remote(&cat_conf, address, slash + 1, c.opt.key_file)
			       : SODA_EXIT_FAILED;
		free(address);
	} else {
		code = cat_local(&(struct local){ .conf = &cat_conf, .name = c.name, .fd = -1 },
				 &c.key);
	}
	return end(&cat_conf, &c, code);
}

static int run_key(int argc, char **argv)
{
	struct soda_conf_error err = { "" };
	struct call c;
	int code = parse(&key_conf, argc, argv, false, &c);

	if (!code && soda_sealed_key_make(c.name, &err))
		code = fail(&key_conf, "", err.text);
	if (!code && c.opt.json)
		code = soda_json_print(json_pack("{so}", "key_file", soda_json_text_of(c.name)))
			       ? SODA_EXIT_FAILED
			       : 0;
	else if (!code)
		printf("a new key for sealed files is in %s\n", c.name);
	return end(&key_conf, &c, code);
}

static void print_header(const struct local *l, bool json)
{
	const struct soda_sealed_header *h = &l->file.header;
	char id[2 * SODA_SEALED_KEY_ID + 1], root[2 * SODA_SEALED_MAC + 1];
	json_t *o;

	soda_key_format(h->key_id, sizeof(h->key_id), id);
	soda_key_format(h->root, sizeof(h->root), root);
	if (!json) {
		printf("bytes    %llu\nkey id   %s\ncommits  %llu\nroot     %s\n",
		       (unsigned long long)h->bytes, id, (unsigned long long)h->commits, root);
		return;
	}
	o = json_pack("{s:I, s:s, s:I, s:s}", "bytes", (json_int_t)h->bytes, "key_id", id,
		      "commits", (json_int_t)h->commits, "root", root);
	json_dumpf(o, stdout, JSON_INDENT(1));
	puts("");
	json_decref(o);
}

static int run_show(int argc, char **argv)
{
	struct call c;
	int code = parse(&show_conf, argc, argv, true, &c);
	struct local l = { .conf = &show_conf, .name = c.name, .fd = -1 };
	int ret = code ? 0 : open_local(&l, &c.key);

	if (ret)
		code = fail(&show_conf, c.name, l.why);
	else if (!code)
		print_header(&l, c.opt.json);
	close_local(&l);
	return end(&show_conf, &c, code);
}

int soda_command_seal(int argc, char **argv)
{
	static const struct soda_tool_command commands[] = {
		{ "cat", run_cat },
		{ "key", run_key },
		{ "show", run_show },
		{ NULL, NULL },
	};

	return soda_tool_choose(commands, "soda seal: no command",
				"Usage: soda seal COMMAND [ARGUMENT]...\n\n"
				"Commands:\n"
				"  cat      print the content of a sealed file\n"
				"  key      make a key for sealed files\n"
				"  show     say what a sealed file is\n\n"
				"soda seal COMMAND --help tells its options.\n",
				argc, argv);
}
