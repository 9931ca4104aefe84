/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who a program is to a memory server with tenants: the tenant's name, its key, and which server
 * is meant.  The key lies in a file of its own:
 *
 *   [tenant]
 *   name = physics
 *   key = 64 hexadecimal digits
 *
 * One thread at a time uses an identity; the driver of its session.
 */
#ifndef SODA_TRUST_IDENTITY_H
#define SODA_TRUST_IDENTITY_H

#include <sys/stat.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "trust/crypto.h"
#include "trust/tls.h"
#include "wire/proof.h"

struct soda_identity {
	char tenant[SODA_WIRE_TENANT_MAX + 1];
	char server[SODA_WIRE_TENANT_MAX + 1];
	bool proves;		      /* there is a key: both sides prove who they are */
	bool clear_data;	      /* data may travel in clear beyond this machine */
	struct soda_tls_context *tls; /* for control connections on tcp; NULL: without TLS */
	uint8_t key[SODA_KEY_BYTES];  /* the server's of the tenant */
	uint8_t key_id[SODA_WIRE_KEY_ID_BYTES];
	char *path;	     /* of the key file */
	struct timespec age; /* its mtime when it was read */
	ino_t ino;
};

/*
 * Open a file that holds keys, to read: a regular file, of this user or root, that nobody else can
 * read or write; for root one of any user, unless soda_private_own_only().  A descriptor; -EACCES:
 * it is not, with the sentence; errors of open.
 */
int soda_private_open(const char *path, struct stat *st_p, struct soda_conf_error *err);
/* A daemon, at its start, before it has threads: for root, too, the file must be its own. */
void soda_private_own_only(void);

/* So many bytes in hexadecimal digits, and nothing else. 0, -EINVAL. */
int soda_hex_parse(const char *text, uint8_t *bytes, size_t n);
/* 64 hexadecimal digits. 0, -EINVAL. */
int soda_key_parse(const char *text, uint8_t key[SODA_KEY_BYTES]);
#define SODA_KEY_TEXT_BYTES (2 * SODA_KEY_BYTES + 1)
char *soda_key_format(const uint8_t *bytes, size_t n, char *out);

/* A key file, read: the tenant's name and key.  0; errors of soda_private_open, -EINVAL. */
int soda_key_file_read(const char *path, char tenant[SODA_WIRE_TENANT_MAX + 1],
		       uint8_t key[SODA_KEY_BYTES], struct stat *st_p, struct soda_conf_error *err);

/*
 * The identity for a server at this address.  tenant: its name; NULL: that in the key file, which
 * must be the same where both are given.  key_file: NULL: *identity_p is NULL, which is
 * nobody, and a tenant without one an error.  server: the server's name; NULL: the host of
 * the address.  0; -EINVAL, -EACCES, -ENOENT..., -ENOTSUP: no OpenSSL.  Free by
 * soda_identity_free.
 */
int soda_identity_load(const char *tenant, const char *key_file, const char *server,
		       const char *address, struct soda_identity **identity_p,
		       struct soda_conf_error *err);
/*
 * How the server at this address is to be reached: by TLS, which is for tcp and says nothing of
 * shm.  An identity is made where there was none, which is nobody and proves nothing; it has the
 * server's name, as in soda_identity_load().  certificates: a directory, or NULL: by the identity's
 * key.  0; -EINVAL: TLS without either; -ENOTSUP: also on verbs; errors of soda_tls_visit().
 */
int soda_identity_encrypt(enum soda_tls_mode mode, const char *certificates, const char *server,
			  const char *address, struct soda_identity **identity_p,
			  struct soda_conf_error *err);
/*
 * Both, of SODA_TENANT, SODA_KEY_FILE and SODA_SERVER_NAME, SODA_TLS and SODA_TLS_CERTIFICATES.
 */
int soda_identity_of_environment(const char *address, struct soda_identity **identity_p,
				 struct soda_conf_error *err);
/*
 * Read the key file again if it is another one.  0: the identity has the key that the file has.
 * A key that cannot be used changes nothing, is logged, and is an error of soda_key_file_read(), or
 * of stat().
 */
int soda_identity_refresh(struct soda_identity *identity);
/* NULL is a no-op. */
void soda_identity_free(struct soda_identity *identity);

#endif
