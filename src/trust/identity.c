/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "trust/proof.h"

static bool own_only;

void soda_private_own_only(void)
{
	own_only = true;
}

/* Root's tools look after the files of others, which its daemons do not serve by. */
static bool may_hold_keys(const struct stat *st)
{
	return S_ISREG(st->st_mode) && !(st->st_mode & 077) &&
	       (st->st_uid == geteuid() || !st->st_uid || (!own_only && !geteuid()));
}

/* Why the file is kept from this process, and what to do: a service has a user of its own. */
static int forbidden(const char *path, struct soda_conf_error *err)
{
	unsigned me = (unsigned)geteuid();
	struct stat st;

	if (stat(path, &st))
		return soda_conf_fail(
			err, -EACCES,
			"%.120s: user %u, who this process runs as, may not look into "
			"a folder on the way there",
			path, me);
	return soda_conf_fail(
		err, -EACCES,
		"%.80s: it belongs to user %u, and this process runs as user %u: chown "
		"%u %.80s",
		path, (unsigned)st.st_uid, me, me, path);
}

int soda_private_open(const char *path, struct stat *st_p, struct soda_conf_error *err)
{
	/* NONBLOCK: a FIFO is refused, not waited for */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0) {
		int r = -errno;

		return r == -EACCES ? forbidden(path, err)
				    : soda_conf_fail(err, r, "%.180s: %s", path, soda_strerror(r));
	}
	if (fstat(fd, st_p))
		st_p->st_mode = 0;
	if (may_hold_keys(st_p))
		return fd;
	close(fd);
	if (S_ISREG(st_p->st_mode) && st_p->st_mode & 077)
		return soda_conf_fail(err, -EACCES,
				      "%.150s: others than its owner can use this file (mode %04o),"
				      " and it holds keys: chmod 600, and rotate them",
				      path, (unsigned)st_p->st_mode & 07777);
	return soda_conf_fail(err, -EACCES,
			      "%.180s: a file with keys is a regular file of this user or root",
			      path);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int soda_hex_parse(const char *text, uint8_t *bytes, size_t n)
{
	if (strlen(text) != 2 * n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

int soda_key_parse(const char *text, uint8_t key[SODA_KEY_BYTES])
{
	return soda_hex_parse(text, key, SODA_KEY_BYTES);
}

char *soda_key_format(const uint8_t *bytes, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * n] = 0;
	return out;
}

/* The file of a key */

struct key_file {
	char *name, *key;
};

static const struct soda_option key_file_options[] = {
	{ .name = "name", .type = SODA_OPT_STRING, .offset = offsetof(struct key_file, name) },
	{ .name = "key", .type = SODA_OPT_STRING, .offset = offsetof(struct key_file, key) },
};

static const struct soda_conf key_file_conf = {
	.program = "tenant", /* the section */
	.options = key_file_options,
	.options_n = sizeof(key_file_options) / sizeof(key_file_options[0]),
};

static int take_key(const char *path, const struct key_file *file,
		    char tenant[SODA_WIRE_TENANT_MAX + 1], uint8_t key[SODA_KEY_BYTES],
		    struct soda_conf_error *err)
{
	if (!file->name || !soda_wire_tenant_ok(file->name))
		return soda_conf_fail(err, -EINVAL,
				      "%.150s: expected 'name = TENANT', of 1 to %u letters, digits"
				      " and . _ - :",
				      path, SODA_TENANT_NAME_MAX);
	if (!file->key || soda_key_parse(file->key, key))
		return soda_conf_fail(err, -EINVAL,
				      "%.150s: expected 'key = ' and 64 hexadecimal digits", path);
	memcpy(tenant, file->name, strlen(file->name) + 1);
	return 0;
}

int soda_key_file_read(const char *path, char tenant[SODA_WIRE_TENANT_MAX + 1],
		       uint8_t key[SODA_KEY_BYTES], struct stat *st_p, struct soda_conf_error *err)
{
	struct key_file file = { NULL, NULL };
	char by_fd[64];
	int fd = soda_private_open(path, st_p, err), r;

	if (fd < 0)
		return fd;
	/* what was looked at is what is read, whatever the name leads to by now */
	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
	r = soda_conf_file(&key_file_conf, by_fd, &file, err);
	if (!r)
		r = take_key(path, &file, tenant, key, err);
	if (file.key)
		soda_wipe(file.key, strlen(file.key));
	soda_conf_free(&key_file_conf, &file);
	close(fd);
	return r;
}

/* Identities */

/* The host in an address, or "localhost" where there is none. */
static void host_of(const char *address, char out[SODA_WIRE_TENANT_MAX + 1])
{
	const char *at = strstr(address, "://"), *end;
	size_t bytes;

	strcpy(out, "localhost");
	if (!at || strncmp(at - 3, "shm", 3) == 0)
		return;
	at += 3;
	end = strchr(at, '?');
	bytes = end ? (size_t)(end - at) : strlen(at);
	if (*at == '[') {
		at++;
		end = strchr(at, ']');
	} else {
		end = memrchr(at, ':', bytes);
	}
	bytes = end ? (size_t)(end - at) : 0;
	if (!bytes || bytes > SODA_WIRE_TENANT_MAX)
		return;
	memcpy(out, at, bytes);
	out[bytes] = 0;
}

static int read_key(struct soda_identity *identity, const char *tenant, struct soda_conf_error *err)
{
	char name[SODA_WIRE_TENANT_MAX + 1];
	uint8_t root[SODA_KEY_BYTES], key[SODA_KEY_BYTES];
	uint8_t id[SODA_WIRE_KEY_ID_BYTES];
	struct stat st;
	int r = soda_key_file_read(identity->path, name, root, &st, err);

	if (r)
		return r;
	if (tenant && strcmp(tenant, name))
		r = soda_conf_fail(err, -EINVAL,
				   "%.100s: this key is of tenant %s, and %.63s is wanted "
				   "(SODA_TENANT)",
				   identity->path, name, tenant);
	if (!r)
		r = soda_key_for_server(root, identity->server, key);
	if (!r)
		r = soda_key_id(key, id);
	if (!r) {
		memcpy(identity->tenant, name, sizeof(name));
		memcpy(identity->key, key, sizeof(key));
		memcpy(identity->key_id, id, sizeof(id));
		identity->age = st.st_mtim;
		identity->ino = st.st_ino;
	}
	soda_wipe(root, sizeof(root));
	soda_wipe(key, sizeof(key));
	return r;
}

static int bad_server_name(const char *server, struct soda_conf_error *err)
{
	return soda_conf_fail(err, -EINVAL,
			      "'%.63s' (SODA_SERVER_NAME) is no server's name: 1 to %u letters,"
			      " digits and . _ - :",
			      server, SODA_WIRE_TENANT_MAX);
}

/* The server that is meant at an address; server: its name, or NULL. */
static void name_server(struct soda_identity *identity, const char *server, const char *address)
{
	if (server)
		snprintf(identity->server, sizeof(identity->server), "%s", server);
	else
		host_of(address, identity->server);
}

int soda_identity_load(const char *tenant, const char *key_file, const char *server,
		       const char *address, struct soda_identity **identity_p,
		       struct soda_conf_error *err)
{
	struct soda_identity *identity;
	int r;

	*identity_p = NULL;
	if (!key_file && !tenant)
		return 0;
	if (!key_file)
		return soda_conf_fail(err, -EINVAL,
				      "tenant %.63s has no key: name its file (SODA_KEY_FILE)",
				      tenant);
	r = soda_crypto_ready(err);
	if (r)
		return r;
	if (server && !soda_wire_server_ok(server))
		return bad_server_name(server, err);
	identity = soda_secret_new(sizeof(*identity));
	if (identity)
		identity->path = strdup(key_file);
	if (!identity || !identity->path) {
		soda_secret_free(identity, sizeof(*identity));
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	}
	name_server(identity, server, address);
	identity->proves = identity->clear_data = true;
	r = read_key(identity, tenant, err);
	if (r)
		soda_identity_free(identity);
	else
		*identity_p = identity;
	return r;
}

/* What an address leads over, whatever decorates it. */
static bool is_over(const char *address, const char *transport)
{
	const char *at = strstr(address, "://");
	size_t n = strlen(transport);

	return at && (size_t)(at - address) >= n && !strncmp(at - n, transport, n);
}

int soda_identity_encrypt(enum soda_tls_mode mode, const char *certificates, const char *server,
			  const char *address, struct soda_identity **identity_p,
			  struct soda_conf_error *err)
{
	struct soda_identity *identity = *identity_p;
	struct soda_tls_context *tls = NULL;
	int r;

	if (mode == SODA_TLS_OFF || is_over(address, "shm"))
		return 0;
	if (is_over(address, "verbs"))
		return soda_conf_fail(err, -ENOTSUP,
				      "%.100s: verbs carries no TLS, and TLS is wanted (SODA_TLS):"
				      " use tcp, or leave it out on a network that you trust",
				      address);
	if (!certificates && !identity)
		return soda_conf_fail(
			err, -EINVAL,
			"TLS (SODA_TLS) needs a tenant's key (SODA_KEY_FILE), or whose"
			" certificates are believed (SODA_TLS_CERTIFICATES)");
	if (server && !soda_wire_server_ok(server))
		return bad_server_name(server, err);
	r = soda_tls_visit(certificates, &tls, err);
	if (r)
		return r;
	if (!identity)
		identity = *identity_p = soda_secret_new(sizeof(*identity));
	if (!identity) {
		soda_tls_context_free(tls);
		return soda_conf_fail(err, -ENOMEM, "out of memory");
	}
	name_server(identity, server, address);
	identity->tls = tls;
	identity->clear_data = mode != SODA_TLS_REQUIRE;
	return 0;
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

int soda_identity_of_environment(const char *address, struct soda_identity **identity_p,
				 struct soda_conf_error *err)
{
	const char *server = variable("SODA_SERVER_NAME"), *wanted = variable("SODA_TLS");
	enum soda_tls_mode mode = SODA_TLS_OFF;
	int r;

	while (wanted && soda_tls_mode_names[mode] && strcmp(wanted, soda_tls_mode_names[mode]))
		mode++;
	*identity_p = NULL;
	if (!soda_tls_mode_names[mode])
		return soda_conf_fail(err, -EINVAL,
				      "SODA_TLS: '%.40s' is none of off, on and require", wanted);
	r = soda_identity_load(variable("SODA_TENANT"), variable("SODA_KEY_FILE"), server, address,
			       identity_p, err);
	if (!r)
		r = soda_identity_encrypt(mode, variable("SODA_TLS_CERTIFICATES"), server, address,
					  identity_p, err);
	if (r) {
		soda_identity_free(*identity_p);
		*identity_p = NULL;
	}
	return r;
}

int soda_identity_refresh(struct soda_identity *identity)
{
	char tenant[SODA_WIRE_TENANT_MAX + 1];
	struct soda_conf_error err;
	struct stat st;
	int r;

	if (identity->tls && soda_tls_context_is_old(identity->tls) &&
	    soda_tls_context_reload(identity->tls, &err))
		soda_log_warning("the certificates that were read before are used on: %s",
				 err.text);
	if (!identity->proves)
		return 0;
	if (stat(identity->path, &st))
		return -errno;
	if (st.st_mtim.tv_sec == identity->age.tv_sec &&
	    st.st_mtim.tv_nsec == identity->age.tv_nsec && st.st_ino == identity->ino)
		return 0;
	memcpy(tenant, identity->tenant, sizeof(tenant));
	r = read_key(identity, tenant, &err);
	if (r)
		soda_log_warning("the key that was read before is used on: %s", err.text);
	return r;
}

void soda_identity_free(struct soda_identity *identity)
{
	if (!identity)
		return;
	soda_tls_context_free(identity->tls);
	free(identity->path);
	soda_secret_free(identity, sizeof(*identity));
}
