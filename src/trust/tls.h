/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS 1.3 on a connected socket, by OpenSSL's libssl, which is loaded when the first context is
 * made (docs/internals/tenants.md): for control connections on tcp.  Data connections begin with
 * the same handshake, say so in it (ALPN), and are the kernel's from then on (tls_kernel.h).
 *
 * Both ends know each other by a key that they share, the tenant's of this server, as an external
 * PSK with an ephemeral exchange (psk_dhe_ke, nothing else); or the client knows the server by a
 * certificate for its name.  Who the client is, a proof inside says (trust/proof.h), which is bound
 * to this connection by soda_tls_channel().
 *
 * No call waits for the peer.  One thread at a time uses a connection; any number of connections
 * share a context.  Not async-signal-safe: none of this is on the path of a fault.  Where SODA was
 * built without OpenSSL no context can be made: -ENOTSUP.
 */
#ifndef SODA_TRUST_TLS_H
#define SODA_TRUST_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/conf/conf.h"
#include "trust/crypto.h"

struct soda_guard;
struct soda_identity;
struct soda_tls_context;
struct soda_tls;

enum soda_tls_mode {
	SODA_TLS_OFF,
	/* Who connects: by TLS alone. Who listens: those who want it by TLS, others without. */
	SODA_TLS_ON,
	/* By TLS alone, and what carries data in clear beyond this machine is refused. */
	SODA_TLS_REQUIRE,
};
extern const char *const soda_tls_mode_names[]; /* by enum soda_tls_mode, then NULL */

/* Files in a directory of certificates, PEM. */
#define SODA_TLS_CHAIN                                                                             \
	"cert.pem"		/* who listens: its certificate, and those between it and a root */
#define SODA_TLS_KEY "key.pem"	/* and that one's key, which nobody else may read */
#define SODA_TLS_ROOTS "ca.pem" /* who connects: whose certificates are believed */

#define SODA_TLS_WHY 192 /* bytes of a reason */

/*
 * For who listens.  guard: whose tenants' keys count; certificates: the directory of SODA_TLS_CHAIN
 * and SODA_TLS_KEY; either may be NULL, not both: -EINVAL.  guard stays the caller's, as long as
 * the context.  0; -ENOTSUP: no OpenSSL; -ENOENT, -EACCES, -EINVAL: these certificates.
 */
int soda_tls_serve(const struct soda_guard *guard, const char *certificates,
		   struct soda_tls_context **context_p, struct soda_conf_error *err);
/*
 * For who connects.  certificates: the directory of SODA_TLS_ROOTS; NULL: the server is to have the
 * identity's key.  Errors as above.
 */
int soda_tls_visit(const char *certificates, struct soda_tls_context **context_p,
		   struct soda_conf_error *err);
/*
 * Read the certificates again, for connections from now on; those that are there go on.  With an
 * error, as of the two above, nothing changes.  Without certificates, and NULL: nothing to do.  Any
 * thread.
 */
int soda_tls_context_reload(struct soda_tls_context *context, struct soda_conf_error *err);
/* A client's: whether the file of SODA_TLS_ROOTS is another one than when it was last read. */
bool soda_tls_context_is_old(struct soda_tls_context *context);
/* Connections that are there go on. NULL is a no-op. */
void soda_tls_context_free(struct soda_tls_context *context);

/* Whether what begins with this byte is TLS: no SODA frame does. */
static inline bool soda_tls_begins(uint8_t first)
{
	return first == 22; /* a handshake record, RFC 8446, 5.1 */
}

/*
 * Whether the kernel of this machine can carry data connections. 0; negative errno, with a sentence
 * that says what to do. Asked of the kernel once.
 */
int soda_tls_kernel(char why[SODA_TLS_WHY]);

/* On a socket that stays the caller's. 0, -ENOMEM. */
int soda_tls_accept(struct soda_tls_context *context, int fd, struct soda_tls **tls_p);
/*
 * as->tls is the context; as, with its key and the server's name: until the handshake is over.
 * data: the kernels at both ends are to carry it from then on.
 */
int soda_tls_connect(const struct soda_identity *as, int fd, bool data, struct soda_tls **tls_p);
/*
 * Wipe and free; the socket stays open, and the peer is told nothing; what the kernel carries it
 * carries on. NULL is a no-op.
 */
void soda_tls_close(struct soda_tls *tls);
/* After the handshake: the kernel has it, for data. */
bool soda_tls_in_kernel(const struct soda_tls *tls);

/*
 * Go on with the handshake.  0: it is over; -EAGAIN: when the socket is readable; -EACCES,
 * -EPROTO: the peer is not who was meant, or speaks no TLS, or one of the kernels cannot carry what
 * is for data, with a reason in `why`; -ECONNRESET and other errors of the socket, without one.
 */
int soda_tls_handshake(struct soda_tls *tls, char why[SODA_TLS_WHY]);

/*
 * Some bytes, one record at most; 0 from recv: the peer has ended the connection.  -EAGAIN: the
 * socket must become writable, or readable; after that send is given the same bytes again.
 * -ECONNABORTED: what came is not the peer's.  Errors of the socket.
 */
ssize_t soda_tls_send(struct soda_tls *tls, const struct iovec *iov, int n);
ssize_t soda_tls_recv(struct soda_tls *tls, void *buf, size_t bytes);

/* What both ends of this connection know, and nobody else (RFC 8446, 7.5). 0, -EIO. */
int soda_tls_channel(struct soda_tls *tls, uint8_t channel[SODA_KEY_BYTES]);

#endif
