/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS (trust/tls.h) with a peer that says what the input has, and with the right one while somebody
 * between changes what it says.  Nobody comes to the end of a handshake without the key.
 * who 8: 0  we listen, and the rest is what comes  1  we connect, and it is what is answered
 * 2 and more  both are ours, and a byte is changed: of whom 8, at 16, how 8; how 0: none is
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "trust/identity.h"
#include "trust/proof.h"
#include "trust/tls.h"

static const uint8_t the_key[SODA_KEY_BYTES] = { 42 };

static int find(void *arg, const char *tenant, const uint8_t *id, uint8_t *key, void **tenant_p,
		char *why)
{
	MUST(!tenant);
	*tenant_p = NULL;
	if (memcmp(id, the_key, SODA_WIRE_KEY_ID_BYTES)) {
		snprintf(why, 128, "nobody");
		return -EACCES;
	}
	memcpy(key, the_key, sizeof(the_key));
	return 0;
}

static const struct soda_guard guard = { .server = "mem1", .find = find };
static struct soda_identity identity = { .server = "mem1", .proves = true };
static struct soda_tls_context *serves;

static bool prepare(void)
{
	struct soda_conf_error err;

	if (serves)
		return true;
	memcpy(identity.key, the_key, sizeof(the_key));
	memcpy(identity.key_id, the_key, sizeof(identity.key_id));
	return !soda_tls_serve(&guard, NULL, &serves, &err) &&
	       !soda_tls_visit(NULL, &identity.tls, &err);
}

/* One side of ours: its end of a socket pair, and the other end, where what it says comes out. */
struct side {
	struct soda_tls *tls;
	int ours, theirs;
	int result;
	size_t said;
};

static void open_side(struct side *s, bool server)
{
	int fds[2];

	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	*s = (struct side){ .ours = fds[0], .theirs = fds[1], .result = -EAGAIN };
	MUST(!(server ? soda_tls_accept(serves, s->ours, &s->tls)
		      : soda_tls_connect(&identity, s->ours, false, &s->tls)));
}

static void close_side(struct side *s)
{
	soda_tls_close(s->tls);
	close(s->ours);
	close(s->theirs);
}

static void step(struct side *s)
{
	char why[SODA_TLS_WHY];

	if (s->result != -EAGAIN)
		return;
	s->result = soda_tls_handshake(s->tls, why);
	MUST(!s->result || s->result == -EAGAIN || s->result == -EACCES || s->result == -EPROTO ||
	     s->result == -ECONNRESET);
	MUST((s->result != -EACCES && s->result != -EPROTO) || *why);
}

/* What one side has said comes to the other, with a byte changed. */
static size_t carry(struct side *from, struct side *to, size_t at, uint8_t how)
{
	uint8_t bytes[4096];
	ssize_t n = recv(from->theirs, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n <= 0)
		return 0;
	if (at >= from->said && at < from->said + (size_t)n)
		bytes[at - from->said] ^= how;
	from->said += (size_t)n;
	(void)!send(to->theirs, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	return (size_t)n;
}

static void talk(struct side *a, struct side *b)
{
	uint8_t of_a[SODA_KEY_BYTES], of_b[SODA_KEY_BYTES];
	struct iovec iov[2] = { { (void *)(uintptr_t) "hel", 3 }, { (void *)(uintptr_t) "lo", 2 } };
	char heard[8] = "";

	MUST(!soda_tls_channel(a->tls, of_a) && !soda_tls_channel(b->tls, of_b));
	MUST(!memcmp(of_a, of_b, sizeof(of_a)));
	MUST(soda_tls_send(a->tls, iov, 2) == 5);
	MUST(soda_tls_recv(b->tls, heard, sizeof(heard)) == -EAGAIN);
	carry(a, b, SIZE_MAX, 0);
	MUST(soda_tls_recv(b->tls, heard, sizeof(heard)) == 5 && !strcmp(heard, "hello"));
}

static void between(struct fuzz_input *in)
{
	struct side client, server;
	bool of_client = fuzz_u8(in) & 1;
	size_t at = fuzz_u16(in) % 1024;
	uint8_t how = fuzz_u8(in);

	open_side(&client, false);
	open_side(&server, true);
	do {
		step(&client);
		step(&server);
	} while (carry(&client, &server, of_client ? at : SIZE_MAX, how) +
		 carry(&server, &client, of_client ? SIZE_MAX : at, how));
	MUST(how || (!client.result && !server.result));
	if (!client.result && !server.result && !how)
		talk(&client, &server);
	close_side(&client);
	close_side(&server);
}

static void stranger(bool server, struct fuzz_input *in)
{
	uint8_t bytes[512];
	struct side s;

	open_side(&s, server);
	do {
		size_t n = fuzz_take(in, bytes, sizeof(bytes));

		(void)!send(s.theirs, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		step(&s);
	} while (in->left && s.result == -EAGAIN);
	MUST(s.result);
	close_side(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	uint8_t who = fuzz_u8(&in);

	fuzz_quiet();
	if (!prepare())
		return 0;
	if (who < 2)
		stranger(who == 0, &in);
	else
		between(&in);
	return 0;
}
