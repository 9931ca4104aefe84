/* SPDX-License-Identifier: BSD-3-Clause */
/* SODA without OpenSSL: there are no contexts, and so no connections. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "trust/tls.h"

static int none(struct soda_tls_context **context_p, struct soda_conf_error *err)
{
	*context_p = NULL;
	return soda_conf_fail(err, -ENOTSUP,
			      "this build of SODA has no OpenSSL, and so no TLS: build it with"
			      " libssl-dev (meson option trust)");
}

int soda_tls_serve(const struct soda_guard *guard, const char *certificates,
		   struct soda_tls_context **context_p, struct soda_conf_error *err)
{
	return none(context_p, err);
}

int soda_tls_visit(const char *certificates, struct soda_tls_context **context_p,
		   struct soda_conf_error *err)
{
	return none(context_p, err);
}

int soda_tls_context_reload(struct soda_tls_context *context, struct soda_conf_error *err)
{
	return 0;
}

bool soda_tls_context_is_old(struct soda_tls_context *context)
{
	return false;
}

void soda_tls_context_free(struct soda_tls_context *context)
{
	assert(!context);
}

int soda_tls_accept(struct soda_tls_context *context, int fd, struct soda_tls **tls_p)
{
	return -ENOTSUP;
}

int soda_tls_connect(const struct soda_identity *as, int fd, bool data, struct soda_tls **tls_p)
{
	return -ENOTSUP;
}

int soda_tls_kernel(char why[SODA_TLS_WHY])
{
	snprintf(why, SODA_TLS_WHY, "this build of SODA has no OpenSSL, and so no TLS");
	return -ENOTSUP;
}

bool soda_tls_in_kernel(const struct soda_tls *tls)
{
	return false;
}

void soda_tls_close(struct soda_tls *tls)
{
	assert(!tls);
}

int soda_tls_handshake(struct soda_tls *tls, char why[SODA_TLS_WHY])
{
	return -ENOTSUP;
}

ssize_t soda_tls_send(struct soda_tls *tls, const struct iovec *iov, int n)
{
	return -ENOTSUP;
}

ssize_t soda_tls_recv(struct soda_tls *tls, void *buf, size_t bytes)
{
	return -ENOTSUP;
}

int soda_tls_channel(struct soda_tls *tls, uint8_t channel[SODA_KEY_BYTES])
{
	return -ENOTSUP;
}
