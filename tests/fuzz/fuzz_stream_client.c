/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data frames on byte streams, the side that connects: tcp_data.c and tcp_queue.c on a socket at
 * whose other end the input answers. how 8 | ops: what 8, then 0,1  post a READ: page 8, pages 8 2
 * post a WRITE: the same 3    flush                                       4  poll, at most so many
 * 8 5    answer as a server would: status 8, wrong 8 6  bytes as they are: length 8 7    the stream
 * ends
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "transport/tcp/tcp.h"

enum { DEPTH = 8, PAGES_MAX = 4, REGION_PAGES = 64, POSTS_MAX = 4096 };

/* What was posted and not answered, as a server would see it. */
static struct posted {
	bool write;
	uint32_t bytes;
	uint64_t cookie;
} posted[POSTS_MAX];
static uint32_t posted_n, completed_n;

static uint8_t source[PAGES_MAX * SODA_WIRE_PAGE];
static int peer = -1;

/* What the client has sent: never more than the socket takes. */
static uint8_t requests[1 << 20];
static size_t requests_bytes, requests_used;

static void hear(void)
{
	ssize_t n;

	if (requests_bytes ==
	    sizeof(requests)) /* forgotten: a full socket would hold up the client */
		requests_used = requests_bytes;
	if (requests_used == requests_bytes)
		requests_used = requests_bytes = 0;
	n = recv(peer, requests + requests_bytes, sizeof(requests) - requests_bytes, MSG_DONTWAIT);

	requests_bytes += n > 0 ? (size_t)n : 0;
}

static void say(const void *data, size_t bytes)
{
	/* what does not fit is not said: a server that is slow */
	(void)!send(peer, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The next request as a server would answer it, or nearly. */
static void answer(struct fuzz_input *in)
{
	static uint8_t out[SODA_WIRE_HEAD_BYTES + PAGES_MAX * DEPTH * SODA_WIRE_PAGE];
	const uint8_t *at = requests + requests_used;
	struct soda_wire_frame f, reply = { .status = fuzz_u8(in) % 20 };
	uint8_t wrong = fuzz_u8(in);
	size_t bytes = SODA_WIRE_HEAD_BYTES;
	struct soda_wire_read read;

	hear();
	if (requests_bytes - requests_used < SODA_WIRE_HEAD_BYTES)
		return;
	soda_wire_get_frame(at, &f);
	memset(out, 0, SODA_WIRE_HEAD_BYTES);
	if (f.type == SODA_MSG_READ) {
		soda_wire_get_read(at + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES, &read);
		memcpy(out + SODA_WIRE_HEAD_BYTES - 8, at + SODA_WIRE_HEAD_BYTES - 16, 8);
		MUST(read.size <= sizeof(out) - SODA_WIRE_HEAD_BYTES);
		reply.type = SODA_MSG_READ_REPLY;
		bytes += reply.status ? 0 : read.size;
		requests_used += SODA_WIRE_HEAD_BYTES;
	} else {
		size_t whole = SODA_WIRE_HEAD_BYTES + f.length - SODA_WIRE_WRITE_BYTES;

		MUST(f.type == SODA_MSG_WRITE);
		if (requests_bytes - requests_used < whole)
			return;
		memcpy(out + SODA_WIRE_HEAD_BYTES - 8,
		       at + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES, 8);
		reply.type = SODA_MSG_WRITE_REPLY;
		requests_used += whole;
	}
	reply.length = (uint32_t)(bytes - SODA_WIRE_HEAD_BYTES + SODA_WIRE_TAG_BYTES);
	soda_wire_put_frame(out, &reply);
	if (wrong == 255)
		out[fuzz_u8(in) % SODA_WIRE_HEAD_BYTES] ^= fuzz_u8(in);
	say(out, bytes);
}

static void post(struct soda_conn *conn, struct fuzz_input *in, bool write, uint8_t *memory)
{
	struct soda_mr mr = { .bytes = REGION_PAGES * SODA_WIRE_PAGE,
			      .region_id = 1,
			      .writable = 1 };
	uint64_t offset = (uint64_t)fuzz_u8(in) * SODA_WIRE_PAGE;
	uint32_t bytes = fuzz_u8(in) % (PAGES_MAX + 1) * SODA_WIRE_PAGE;
	int ret;

	if (posted_n == POSTS_MAX)
		return;
	/* a page has its place: what is merged lies side by side */
	if (write)
		ret = soda_conn_post_write(conn, &mr, offset, bytes, source, posted_n);
	else
		ret = soda_conn_post_read(conn, &mr, offset, bytes, memory + offset, posted_n);
	if (ret == 0)
		posted[posted_n] = (struct posted){ write, bytes, posted_n };
	posted_n += ret == 0;
}

static void poll_some(struct soda_conn *conn, int max)
{
	struct soda_done done[DEPTH];
	int n = soda_conn_poll(conn, done, max < DEPTH ? max : DEPTH, 0, 0);

	for (int i = 0; i < n; i++, completed_n++) {
		MUST(completed_n < posted_n);
		MUST(done[i].cookie == posted[completed_n].cookie);
		MUST(done[i].bytes == posted[completed_n].bytes && done[i].status <= 0);
	}
}

static void step(struct soda_conn *conn, struct fuzz_input *in, uint8_t *memory)
{
	uint8_t what = fuzz_u8(in) % 8;
	size_t n;

	switch (what) {
	case 0:
	case 1:
	case 2:
		post(conn, in, what == 2, memory);
		break;
	case 3:
		hear();
		soda_conn_flush(conn, fuzz_u8(in) & 1);
		break;
	case 4:
		poll_some(conn, 1 + fuzz_u8(in) % DEPTH);
		break;
	case 5:
		answer(in);
		break;
	case 6:
		n = fuzz_u8(in);
		n = n < in->left ? n : in->left;
		say(in->at, n);
		in->at += n;
		in->left -= n;
		break;
	default:
		shutdown(peer, SHUT_WR);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	struct soda_conn_options opt = { .kind = SODA_CONN_DATA, .depth = DEPTH };
	uint8_t *memory = malloc((256 + PAGES_MAX) * SODA_WIRE_PAGE);
	struct soda_conn *conn;
	int sockets[2];

	opt.merge = fuzz_u8(&in) & 1;
	posted_n = completed_n = 0;
	requests_bytes = requests_used = 0;
	MUST(memory && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
	peer = sockets[1];
	MUST(soda_tcp_data_create(sockets[0], "peer", &opt, &conn) == 0);
	conn->merges = opt.merge;
	conn->max_data = SODA_WIRE_MAX_DATA;
	for (unsigned i = 0; i < 2000 && in.left; i++)
		step(conn, &in, memory);
	MUST(soda_conn_outstanding(conn) <= DEPTH);
	soda_conn_close(conn);
	close(peer);
	free(memory);
	return 0;
}
