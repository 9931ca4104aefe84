/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/tenants_file.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <linux/limits.h> /* PATH_MAX */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "trust/identity.h"

const char *const soda_role_names[] = { "client", "agent", "operator", NULL };

#define UTC "%Y-%m-%dT%H:%M:%SZ"
#define TENANT "tenant "

char *soda_utc_format(time_t at, char out[SODA_UTC_BYTES])
{
	struct tm tm;

	if (!gmtime_r(&at, &tm) || !strftime(out, SODA_UTC_BYTES, UTC, &tm))
		strcpy(out, "?");
	return out;
}

/* What a file consists of */

struct soda_tenant_entry *soda_tenants_file_find(const struct soda_tenants_file *file,
						 const char *name)
{
	for (unsigned i = 0; i < file->n; i++)
		if (!strcmp(file->tenants[i].name, name))
			return &file->tenants[i];
	return NULL;
}

static void free_entries(struct soda_tenants_file *file)
{
	soda_secret_free(file->tenants, file->room * sizeof(*file->tenants));
}

int soda_tenants_file_add(struct soda_tenants_file *file, const char *name,
			  struct soda_tenant_entry **entry_p, struct soda_conf_error *err)
{
	struct soda_tenant_entry *more;

	if (!soda_wire_tenant_ok(name))
		return soda_conf_fail(err, -EINVAL,
				      "'%.80s' is no tenant's name: 1 to %u letters, digits and"
				      " . _ - :",
				      name, SODA_TENANT_NAME_MAX);
	if (soda_tenants_file_find(file, name))
		return soda_conf_fail(err, -EEXIST, "tenant %s is there already", name);
	if (file->n == SODA_TENANTS_MAX)
		return soda_conf_fail(err, -E2BIG, "at most %d tenants", SODA_TENANTS_MAX);
	more = soda_secret_new((file->n + 1) * sizeof(*more));
	if (!more)
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	if (file->n)
		memcpy(more, file->tenants, file->n * sizeof(*more));
	free_entries(file);
	file->tenants = more;
	file->room = file->n + 1;
	*entry_p = &more[file->n++];
	memcpy((*entry_p)->name, name, strlen(name));
	return 0;
}

static void clear_entry(struct soda_tenant_entry *entry)
{
	for (unsigned i = 0; i < entry->exports_n; i++)
		free(entry->exports[i].path);
	soda_wipe(entry, sizeof(*entry));
}

void soda_tenants_file_remove(struct soda_tenants_file *file, struct soda_tenant_entry *entry)
{
	size_t at = (size_t)(entry - file->tenants);

	clear_entry(entry);
	file->n--;
	memmove(entry, entry + 1, (file->n - at) * sizeof(*entry));
}

void soda_tenants_file_free(struct soda_tenants_file *file)
{
	for (unsigned i = 0; i < file->n; i++)
		clear_entry(&file->tenants[i]);
	free_entries(file);
	*file = (struct soda_tenants_file){ .n = 0 };
}

/* Whether a line of the file gives it back as it is: ';' after a blank begins a comment there. */
static bool export_path_ok(const char *path)
{
	size_t n = strlen(path);

	if (*path != '/' || n > SODA_TENANT_EXPORT_PATH_MAX || path[n - 1] == ' ')
		return false;
	for (const char *c = path; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f || (*c == ' ' && c[1] == ';'))
			return false;
	return true;
}

int soda_tenant_export_add(struct soda_tenant_entry *entry, const char *text,
			   struct soda_conf_error *err)
{
	bool writable = !strncmp(text, "rw ", 3);
	const char *path = "";

	if (writable || !strncmp(text, "ro ", 3))
		path = text + 3 + strspn(text + 3, " \t");
	if (!export_path_ok(path))
		return soda_conf_fail(err, -EINVAL,
				      "export '%.80s': expected 'ro /DIRECTORY' or 'rw /DIRECTORY',"
				      " of at most %d bytes, none of them a control character, and"
				      " no ';' after a blank",
				      text, SODA_TENANT_EXPORT_PATH_MAX);
	if (entry->exports_n == SODA_TENANT_EXPORTS_MAX)
		return soda_conf_fail(err, -E2BIG, "a tenant has at most %d directories",
				      SODA_TENANT_EXPORTS_MAX);
	entry->exports[entry->exports_n].path = strdup(path);
	if (!entry->exports[entry->exports_n].path)
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	entry->exports[entry->exports_n++].writable = writable;
	return 0;
}

/* Reading */

struct reader {
	struct soda_tenants_file *file;
	struct soda_conf_error *err;
	const char *path;
	const char *at, *end; /* what is left of the text */
	unsigned line;
	int status;   /* the first error */
	unsigned in;  /* tenants so far, the one whose section this is the last; 0: none yet */
	bool has_key; /* of that one, and so below */
	bool has_until, has_role, has_quota, has_rate, has_requests, has_weight;
	bool in_server;
};

static int bad(struct reader *r, const char *what)
{
	if (!r->status)
		r->status =
			soda_conf_fail(r->err, -EINVAL, "%.120s:%u: %s", r->path, r->line, what);
	return r->status;
}

static struct soda_tenant_entry *current(struct reader *r)
{
	return &r->file->tenants[r->file->n - 1];
}

/* All that a tenant needs has come before its section ends. */
static int end_section(struct reader *r)
{
	if (!r->in || r->status)
		return r->status;
	if (!r->has_key)
		return bad(r, "the tenant before this line has no key: expected 'key = ' and 64 "
			      "hexadecimal digits");
	if (current(r)->has_previous != r->has_until)
		return bad(r, "the tenant before this line needs both of previous and "
			      "previous-until, or neither");
	return 0;
}

static int begin_section(struct reader *r, const char *section)
{
	struct soda_tenant_entry *entry;
	struct soda_conf_error why;

	if (!strcmp(section, "server")) {
		r->in_server = true;
		return 0;
	}
	r->in_server = false;
	if (strncmp(section, TENANT, strlen(TENANT)))
		return bad(r, "expected [server], then [tenant NAME]");
	section += strlen(TENANT);
	if (end_section(r))
		return r->status;
	if (soda_tenants_file_add(r->file, section, &entry, &why))
		return bad(r, why.text);
	r->in = r->file->n;
	r->has_key = r->has_until = r->has_role = r->has_quota = false;
	r->has_rate = r->has_requests = r->has_weight = false;
	return 0;
}

/* libinih tells of sections only with the keys in them, and cuts long ones off. */
static int take_section_line(struct reader *r, const char *line)
{
	char section[128];
	size_t n = strcspn(++line, "]");

	if (line[n] != ']' || n >= sizeof(section))
		return bad(r, "expected '[server]' or '[tenant NAME]'");
	memcpy(section, line, n);
	section[n] = 0;
	return begin_section(r, section);
}

/* A line for libinih, as base/conf/file.c reads them: it counts none, and joins indented ones. */
static char *read_line(char *out, int bytes, void *stream)
{
	struct reader *r = stream;
	const char *eol;
	size_t n;

	if (r->status || r->at == r->end)
		return NULL;
	r->line++;
	eol = memchr(r->at, '\n', (size_t)(r->end - r->at));
	n = (size_t)((eol ? eol + 1 : r->end) - r->at);
	if (n >= (size_t)bytes || memchr(r->at, 0, n)) {
		bad(r, n >= (size_t)bytes ? "the line is too long" : "a byte that is 0");
		return NULL;
	}
	memcpy(out, r->at, n);
	out[n] = 0;
	r->at += n;
	n = strspn(out, " \t\v\f\r");
	memmove(out, out + n, strlen(out + n) + 1);
	if (*out == '[' && take_section_line(r, out))
		return NULL;
	return out;
}

static int take_role(struct reader *r, const char *value)
{
	for (unsigned i = 0; soda_role_names[i]; i++) {
		if (!strcmp(soda_role_names[i], value)) {
			current(r)->role = (enum soda_role)i;
			r->has_role = true;
			return 0;
		}
	}
	return bad(r, "role: expected client, agent or operator");
}

static int take_until(struct reader *r, const char *value)
{
	struct tm tm = { 0 };
	const char *end = strptime(value, UTC, &tm);
	char text[SODA_UTC_BYTES];
	time_t at = timegm(&tm);

	/* a year of four digits, as it is written again: 9999-12-31T23:59:60Z is of the next one */
	if (!end || *end || strlen(soda_utc_format(at, text)) != strlen("2026-12-31T23:59:59Z"))
		return bad(r, "previous-until: expected a time as 2026-12-31T23:59:59Z");
	current(r)->previous_until = at;
	r->has_until = true;
	return 0;
}

static int take_key(struct reader *r, bool *has, uint8_t *key, const char *value)
{
	if (*has)
		return bad(r, "this tenant has this key already");
	if (soda_key_parse(value, key))
		return bad(r, "a key is 64 hexadecimal digits");
	*has = true;
	return 0;
}

/* Like a rate: a size, or 0. */
static int take_size(struct reader *r, bool *has, uint64_t *value, const char *text,
		     const char *expected)
{
	*has = true;
	return soda_parse_size(text, value) ? bad(r, expected) : 0;
}

static int take_number(struct reader *r, bool *has, uint64_t min, uint64_t max, uint64_t *value,
		       const char *text, const char *expected)
{
	unsigned long long n;
	char *end;

	*has = true;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || n < min || n > max)
		return bad(r, expected);
	*value = n;
	return 0;
}

static int take_share(struct reader *r, const char *name, const char *value)
{
	struct soda_tenant_entry *t = current(r);
	uint64_t weight = 0;
	int ret;

	if (!strcmp(name, "rate") && !r->has_rate)
		return take_size(r, &r->has_rate, &t->rate, value,
				 "rate: expected bytes a second such as 500M, or 0: no limit");
	if (!strcmp(name, "requests") && !r->has_requests)
		return take_number(r, &r->has_requests, 0, SODA_TENANT_REQUESTS_MAX, &t->requests,
				   value,
				   "requests: expected a number a second, at most 1000000000; 0: no"
				   " limit");
	if (strcmp(name, "weight") || r->has_weight)
		return bad(r, "of a tenant once each key, previous, previous-until, role, quota, "
			      "rate, requests and weight are expected, and any number of export");
	ret = take_number(r, &r->has_weight, 1, SODA_TENANT_WEIGHT_MAX, &weight, value,
			  "weight: expected a number from 1 to 100");
	t->weight = (uint32_t)weight;
	return ret;
}

static int take_tenant(struct reader *r, const char *name, const char *value)
{
	struct soda_tenant_entry *t = current(r);
	struct soda_conf_error why;

	if (!strcmp(name, "key"))
		return take_key(r, &r->has_key, t->key, value);
	if (!strcmp(name, "previous"))
		return take_key(r, &t->has_previous, t->previous, value);
	if (!strcmp(name, "previous-until") && !r->has_until)
		return take_until(r, value);
	if (!strcmp(name, "role") && !r->has_role)
		return take_role(r, value);
	if (!strcmp(name, "quota") && !r->has_quota)
		return take_size(r, &r->has_quota, &t->quota, value,
				 "quota: expected a size such as 16G, or 0: none");
	if (!strcmp(name, "export"))
		return soda_tenant_export_add(t, value, &why) ? bad(r, why.text) : 0;
	return take_share(r, name, value);
}

static int take_server(struct reader *r, const char *name, const char *value)
{
	if (strcmp(name, "name") || *r->file->server || !soda_wire_server_ok(value))
		return bad(r, "[server] has one 'name = NAME', of 1 to 63 letters, digits and"
			      " . _ - :");
	memcpy(r->file->server, value, strlen(value));
	return 0;
}

/* libinih calls it for each 'name = value'. */
static int take(void *user, const char *section, const char *name, const char *value)
{
	struct reader *r = user;

	if (r->status)
		return 1;
	if (r->in_server)
		take_server(r, name, value);
	else if (r->in)
		take_tenant(r, name, value);
	else
		bad(r, "expected [server], then [tenant NAME]");
	return 1;
}

int soda_tenants_file_parse(const char *text, size_t bytes, const char *path,
			    struct soda_tenants_file *file_p, struct soda_conf_error *err)
{
	struct soda_tenants_file file = { .n = 0 };
	struct reader r = {
		.file = &file, .err = err, .path = path, .at = text, .end = text + bytes
	};
	int line = ini_parse_stream(read_line, &r, take, &r);

	if (!r.status && line) {
		r.line = (unsigned)line;
		bad(&r, "expected 'key = value' or '[tenant NAME]'");
	}
	if (!r.status)
		end_section(&r);
	if (!r.status && !*file.server)
		bad(&r, "the file does not say whose it is: expected [server] with 'name = NAME'");
	if (r.status)
		soda_tenants_file_free(&file);
	else
		*file_p = file;
	return r.status;
}

static int read_all(int fd, const char *path, char **text_p, size_t bytes,
		    struct soda_conf_error *err)
{
	char *text = malloc(bytes + 1);
	size_t got = 0;

	if (!text)
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	while (got < bytes) {
		ssize_t n = read(fd, text + got, bytes - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) { /* it has become shorter: half a file is none */
			soda_wipe(text, got);
			free(text);
			return soda_conf_fail(err, -EIO, "%.180s: cannot read", path);
		}
		got += (size_t)n;
	}
	*text_p = text;
	return 0;
}

int soda_tenants_file_read(const char *path, struct soda_tenants_file *file_p,
			   struct soda_conf_error *err)
{
	struct stat st;
	char *text = NULL;
	int fd = soda_private_open(path, &st, err), r;

	if (fd < 0)
		return fd;
	if (st.st_size > SODA_TENANTS_FILE_MAX)
		r = soda_conf_fail(err, -E2BIG, "%.160s: longer than %d bytes", path,
				   SODA_TENANTS_FILE_MAX);
	else
		r = read_all(fd, path, &text, (size_t)st.st_size, err);
	close(fd);
	if (r)
		return r;
	r = soda_tenants_file_parse(text, (size_t)st.st_size, path, file_p, err);
	soda_wipe(text, (size_t)st.st_size);
	free(text);
	return r;
}

/* Writing */

/* -errno of the first step that failed. */
static int write_synced(int fd, const char *path, const char *text, size_t bytes)
{
	struct stat before;
	size_t done = 0;

	if (fchmod(fd, 0600))
		return -errno;
	/* root edits it for the daemon, whose user it is */
	if (!geteuid() && !stat(path, &before) && fchown(fd, before.st_uid, before.st_gid))
		return -errno;
	while (done < bytes) {
		ssize_t n = write(fd, text + done, bytes - done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return fsync(fd) ? -errno : 0;
}

int soda_private_write(const char *path, const char *text, size_t bytes,
		       struct soda_conf_error *err)
{
	char beside[PATH_MAX];
	int fd, r;

	if (snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= (int)sizeof(beside))
		return soda_conf_fail(err, -ENAMETOOLONG, "%.180s: the name is too long", path);
	fd = mkostemp(beside, O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		return soda_conf_fail(err, r, "%.180s: cannot write beside it: %s", path,
				      soda_strerror(r));
	}
	r = write_synced(fd, path, text, bytes);
	close(fd);
	if (!r && rename(beside, path))
		r = -errno;
	if (!r)
		return 0;
	unlink(beside);
	return soda_conf_fail(err, r, "%.180s: cannot write: %s", path, soda_strerror(r));
}

static void print_entry(FILE *out, const struct soda_tenant_entry *t)
{
	char key[SODA_KEY_TEXT_BYTES], until[SODA_UTC_BYTES];

	fprintf(out, "\n[tenant %s]\nrole = %s\n", t->name, soda_role_names[t->role]);
	fprintf(out, "key = %s\n", soda_key_format(t->key, sizeof(t->key), key));
	if (t->has_previous)
		fprintf(out, "previous = %s\nprevious-until = %s\n",
			soda_key_format(t->previous, sizeof(t->previous), key),
			soda_utc_format(t->previous_until, until));
	if (t->quota)
		fprintf(out, "quota = %llu\n", (unsigned long long)t->quota);
	if (t->rate)
		fprintf(out, "rate = %llu\n", (unsigned long long)t->rate);
	if (t->requests)
		fprintf(out, "requests = %llu\n", (unsigned long long)t->requests);
	if (t->weight)
		fprintf(out, "weight = %u\n", t->weight);
	for (unsigned i = 0; i < t->exports_n; i++)
		fprintf(out, "export = %s %s\n", t->exports[i].writable ? "rw" : "ro",
			t->exports[i].path);
	soda_wipe(key, sizeof(key));
}

int soda_tenants_file_write(const char *path, const struct soda_tenants_file *file,
			    struct soda_conf_error *err)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int r;

	if (!out)
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	fprintf(out,
		"; Tenants of a SODA memory server: soda-tenant-add(1). Nobody else may read "
		"this.\n"
		"[server]\nname = %s\n",
		file->server);
	for (unsigned i = 0; i < file->n; i++)
		print_entry(out, &file->tenants[i]);
	r = fclose(out) ? soda_conf_fail(err, -ENOMEM, "out of memory")
			: soda_private_write(path, text, bytes, err);
	if (text)
		soda_wipe(text, bytes);
	free(text);
	return r;
}
