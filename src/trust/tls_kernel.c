/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/tls_kernel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#ifndef TLS_RX_EXPECT_NO_PAD
#define TLS_RX_EXPECT_NO_PAD 4 /* Linux 6.0 */
#endif

#define PREFIX "tls13 "

/* HKDF-Expand-Label of RFC 8446, 7.1, without a context: of so few bytes it is one mac. */
static int expand(const uint8_t secret[SODA_TLS_SECRET_BYTES], const char *label, uint8_t *out,
		  unsigned bytes)
{
	uint8_t info[2 + 1 + sizeof(PREFIX) - 1 + 8 + 1 + 1], mac[SODA_KEY_BYTES];
	size_t label_bytes = strlen(label), n = 0;
	int ret;

	info[n++] = 0;
	info[n++] = (uint8_t)bytes;
	info[n++] = (uint8_t)(strlen(PREFIX) + label_bytes);
	memcpy(info + n, PREFIX, strlen(PREFIX));
	n += strlen(PREFIX);
	memcpy(info + n, label, label_bytes);
	n += label_bytes;
	info[n++] = 0; /* the context's length */
	info[n++] = 1; /* HKDF-Expand's first block (RFC 5869, 2.3) */
	ret = soda_hmac(secret, SODA_TLS_SECRET_BYTES, info, n, mac);
	if (ret == 0)
		memcpy(out, mac, bytes);
	soda_wipe(mac, sizeof(mac));
	return ret;
}

int soda_tls_record_key(const uint8_t secret[SODA_TLS_SECRET_BYTES], unsigned key_bytes,
			struct soda_tls_record_key *out)
{
	int ret = expand(secret, "key", out->key, key_bytes);

	return ret ? ret : expand(secret, "iv", out->iv, sizeof(out->iv));
}

static int take_direction(int fd, int direction, const uint8_t secret[SODA_TLS_SECRET_BYTES])
{
	struct tls12_crypto_info_chacha20_poly1305 info = {
		.info = { TLS_1_3_VERSION, TLS_CIPHER_CHACHA20_POLY1305 }
	}; /* the first record is number 0 */
	struct soda_tls_record_key key;
	int ret = soda_tls_record_key(secret, sizeof(info.key), &key);

	if (ret == 0) {
		memcpy(info.key, key.key, sizeof(info.key));
		memcpy(info.iv, key.iv, sizeof(info.iv));
		if (setsockopt(fd, SOL_TLS, direction, &info, sizeof(info)))
			ret = -errno;
	}
	soda_wipe(&info, sizeof(info));
	soda_wipe(&key, sizeof(key));
	return ret;
}

int soda_tls_kernel_take(int fd, const uint8_t sends[SODA_TLS_SECRET_BYTES],
			 const uint8_t receives[SODA_TLS_SECRET_BYTES])
{
	int one = 1, ret;

	if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")))
		return -errno;
	ret = take_direction(fd, TLS_TX, sends);
	if (ret == 0)
		ret = take_direction(fd, TLS_RX, receives);
	/* our peers pad nothing: the kernel may open records where they belong, without a copy */
	if (ret == 0)
		setsockopt(fd, SOL_TLS, TLS_RX_EXPECT_NO_PAD, &one, sizeof(one));
	return ret;
}

/*
 * A socket that is connected to itself: no listener, which strangers could reach, is needed.
 * -ETIMEDOUT: loopback is down.
 */
static int connect_to_itself(void)
{
	struct timeval patience = { .tv_sec = 1 };
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (bind(fd, (struct sockaddr *)&at, bytes) == 0 &&
	    getsockname(fd, (struct sockaddr *)&at, &bytes) == 0 &&
	    connect(fd, (struct sockaddr *)&at, bytes) == 0)
		return fd;
	err = errno;
	close(fd);
	return err == EINPROGRESS ? -ETIMEDOUT : -err;
}

static struct {
	int ret;
	char why[SODA_TLS_WHY];
} probed; /* by probe(), then constant */

static void probe(void)
{
	static const uint8_t secret[SODA_TLS_SECRET_BYTES];
	int fd = connect_to_itself();

	probed.ret = fd < 0 ? fd : soda_tls_kernel_take(fd, secret, secret);
	if (fd >= 0)
		close(fd);
	if (probed.ret == -ENOENT)
		snprintf(probed.why, sizeof(probed.why),
			 "this machine's kernel has no TLS (root: modprobe tls)");
	else if (probed.ret)
		snprintf(probed.why, sizeof(probed.why),
			 "this machine's kernel does not do TLS with ChaCha20-Poly1305 on loopback"
			 ": %s",
			 soda_strerror(probed.ret));
}

int soda_tls_kernel(char why[SODA_TLS_WHY])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, probe);
	memcpy(why, probed.why, SODA_TLS_WHY);
	return probed.ret;
}
