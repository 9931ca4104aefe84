/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon's door: a listener with all its threads, the memory server or the agent behind it, and a
 * stranger that says what the input has, from the first byte on.  What follows a HELLO goes on to
 * the control connection's thread, or to the workers. ops: what 8, then: 0,1  connect  2  a frame:
 * which 8, type 8, length 16, body  3  a HELLO: which 8, kind 8, chunk 8  4..6  bytes: which 8,
 * length 8  7  no more of it: which 8
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz/fixtures/calls.h"
#include "transport/shm/shm.h"

enum { STRANGERS = 3, PATIENCE_MS = 20000 };

static struct soda_listener *listener;
static struct sockaddr_un addr;
static socklen_t addr_bytes;
static int fds[STRANGERS];

static void say(int fd, const void *data, size_t bytes)
{
	if (fd >= 0 && bytes)
		(void)!send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void knock(int *fd_p)
{
	if (*fd_p >= 0)
		return;
	*fd_p = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(*fd_p >= 0);
	MUST(connect(*fd_p, (const struct sockaddr *)&addr, addr_bytes) == 0);
}

static void say_frame(int fd, uint8_t type, const void *body, size_t bytes)
{
	uint8_t text[SODA_WIRE_FRAME_BYTES + 65536];

	soda_wire_put_frame(text,
			    &(struct soda_wire_frame){ .type = type, .length = (uint32_t)bytes });
	memcpy(text + SODA_WIRE_FRAME_BYTES, body, bytes);
	say(fd, text, SODA_WIRE_FRAME_BYTES + bytes);
}

static void say_hello(int fd, struct fuzz_input *in)
{
	uint8_t text[SODA_WIRE_HELLO_BYTES], kind = fuzz_u8(in), chunk = fuzz_u8(in);

	soda_wire_put_hello(text, &(struct soda_wire_hello){
					  .magic = SODA_WIRE_MAGIC,
					  .version = SODA_WIRE_VERSION,
					  .kind = 1 + kind % 2,
					  .features = kind >> 1,
					  .chunk_bytes = chunk == 255 ? 0 : 4096u << chunk % 12,
					  .epoch = 1 });
	say_frame(fd, SODA_MSG_HELLO, text, sizeof(text));
}

static void step(struct fuzz_input *in)
{
	uint8_t what = fuzz_u8(in) % 8, which = fuzz_u8(in) % STRANGERS, type;
	size_t n;

	switch (what) {
	case 0:
	case 1:
		knock(&fds[which]);
		break;
	case 3:
		say_hello(fds[which], in);
		break;
	case 7:
		if (fds[which] >= 0)
			shutdown(fds[which], SHUT_WR);
		break;
	default:
		type = what == 2 ? fuzz_u8(in) : 0;
		n = what == 2 ? fuzz_u16(in) : fuzz_u8(in);
		n = n < in->left ? n : in->left;
		if (what == 2)
			say_frame(fds[which], type, in->at, n);
		else
			say(fds[which], in->at, n);
		in->at += n;
		in->left -= n;
	}
}

/* Whoever says no more is told goodbye: the other end closes, soon, whatever was said. */
static void await_end(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char text[4096];
	ssize_t n;

	shutdown(fd, SHUT_WR);
	do {
		do /* the fuzzer's clock interrupts */
			n = poll(&p, 1, PATIENCE_MS);
		while (n < 0 && errno == EINTR);
		MUST(n > 0);
		n = recv(fd, text, sizeof(text), 0);
	} while (n > 0);
	close(fd);
}

static void begin(void)
{
	const struct soda_listener_options opt = { .workers = 1, .hello_timeout_ms = 1000 };
	struct soda_why why;
	char address[64];

	snprintf(address, sizeof(address), "shm://@soda-fuzz-hello-%d", (int)getpid());
	MUST(soda_shm_address(address + 6, &addr, &addr_bytes, &why) == 0);
	MUST(soda_listener_open(address, fuzz_service, fuzz_svc, &opt, &listener, &why) == 0);
	MUST(soda_listener_start(listener) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	fuzz_export_restore();
	fuzz_service_start();
	begin();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };

	for (int i = 0; i < STRANGERS; i++)
		fds[i] = -1;
	knock(&fds[0]);
	while (in.left)
		step(&in);
	for (int i = 0; i < STRANGERS; i++)
		if (fds[i] >= 0)
			await_end(fds[i]);
	fuzz_service_end();
	return 0;
}
