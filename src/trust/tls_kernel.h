/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS 1.3 by the kernel (Documentation/networking/tls.rst of Linux), for data connections: after a
 * handshake in the program the kernel encrypts what is sent and opens what comes, and the path of a
 * fault goes on with system calls alone.
 *
 * The suite is TLS_CHACHA20_POLY1305_SHA256: it has no limit of records for a key that a connection
 * could reach (RFC 8446, 5.5; AES-GCM's is 24 million, which takes minutes here), and kernels
 * before 6.14 cannot change the keys of a connection.
 */
#ifndef SODA_TRUST_TLS_KERNEL_H
#define SODA_TRUST_TLS_KERNEL_H

#include "trust/tls.h"

#define SODA_TLS_SECRET_BYTES 32u /* the suite's hash is SHA-256 */

/* What the kernel is given of one direction (RFC 8446, 7.3). */
struct soda_tls_record_key {
	uint8_t key[32], iv[12];
};
/* Of a direction's traffic secret; key_bytes: of the suite, at most 32.  Errors of soda_hmac. */
int soda_tls_record_key(const uint8_t secret[SODA_TLS_SECRET_BYTES], unsigned key_bytes,
			struct soda_tls_record_key *out);

/*
 * From the next byte on the socket, which is connected and of TCP, is the kernel's to encrypt and
 * open; no record has been sent or received with these secrets yet.  0; -ENOENT: the kernel has no
 * TLS; errors of setsockopt(2); of soda_hmac.
 */
int soda_tls_kernel_take(int fd, const uint8_t sends[SODA_TLS_SECRET_BYTES],
			 const uint8_t receives[SODA_TLS_SECRET_BYTES]);

#endif
