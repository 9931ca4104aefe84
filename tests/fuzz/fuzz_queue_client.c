/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue in shared memory as a program sees it: the input is the agent, which writes anything
 * anywhere between the program's steps.
 *   how 8 | head: of what comes as a queue, if how says so: magic 32, n 32, slot bytes 32, size 32
 * | ops: what 8, then 0,1  post a READ: page 8, pages 8, place 8      2  post a WRITE     3  flush
 * 4  poll, at most 8 5    the next answer: status 8, where 8     6  a WRITE's slot is free: 8
 *     7    an event as it is: 8 bytes                 8  events_tail 32   9  a claim: which 8, 8
 *     10   words of the head: which 8, 32             11 revoke           12 bytes on the socket: 8
 *     13   the socket ends
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "transport/shm/queue.h"
#include "transport/shm/shm.h"

enum { DEPTH = 24, CHUNK = 16 << 10, REGION_PAGES = 64, POSTS_MAX = 4096 };

static uint8_t memory[REGION_PAGES * SODA_WIRE_PAGE];
static uint32_t lengths[POSTS_MAX], posted_n, completed_n;
static uint32_t answered; /* by the agent as it should be */

static void post(struct soda_conn *conn, struct fuzz_input *in, bool write)
{
	struct soda_mr mr = { .bytes = sizeof(memory), .region_id = 1, .writable = 1 };
	uint64_t offset = (uint64_t)fuzz_u8(in) * SODA_WIRE_PAGE;
	uint32_t bytes = fuzz_u8(in) % 6 * SODA_WIRE_PAGE;
	uint8_t place = fuzz_u8(in);
	uint8_t *at = memory + offset % (sizeof(memory) - CHUNK);
	int ret;

	if (posted_n == POSTS_MAX)
		return;
	if (write)
		ret = soda_conn_post_write(conn, &mr, offset, bytes, at, posted_n);
	else if (place & 1)
		ret = soda_conn_post_install(conn, &mr, offset, bytes, at,
					     (void *)(uintptr_t)(CHUNK * (1ull + place)), place & 2,
					     posted_n);
	else
		ret = soda_conn_post_read(conn, &mr, offset, bytes, at, posted_n);
	if (ret == 0)
		lengths[posted_n++] = bytes;
}

/* Where data lie in place, they can be read, all of them. */
static void poll_some(struct soda_conn *conn, int max)
{
	struct soda_done done[DEPTH];
	int n = soda_conn_poll(conn, done, max < DEPTH ? max : DEPTH, 0, 0);

	for (int i = 0; i < n; i++, completed_n++) {
		MUST(completed_n < posted_n && done[i].cookie == completed_n);
		MUST(done[i].bytes == lengths[completed_n] && done[i].status <= 0);
		if (done[i].data)
			memcpy(memory, done[i].data, done[i].bytes);
	}
}

static void put_event(struct soda_queue *q, const struct soda_queue_event *e)
{
	uint32_t tail = atomic_load(&q->head->events_tail);

	q->events[tail & (2 * q->n - 1)] = *e;
	atomic_store(&q->head->events_tail, tail + 1);
}

/* Of the oldest request without one, as an agent would. */
static void answer(struct soda_queue *q, struct fuzz_input *in)
{
	struct soda_queue_event e = { .kind = SODA_QUEUE_DONE };
	uint32_t tail = atomic_load(&q->head->requests_tail);

	e.status = fuzz_u8(in) % 18;
	e.where = fuzz_u8(in) % 3;
	if (answered == tail)
		return;
	e.slot = q->requests[answered++ & (q->n - 1)].slot;
	put_event(q, &e);
}

static void step(struct soda_conn *conn, struct soda_queue *q, int peer, struct fuzz_input *in)
{
	uint32_t *words = (uint32_t *)q->head;
	struct soda_queue_event e = { 0 };
	uint8_t what = fuzz_u8(in) % 14, which;

	switch (what) {
	case 0:
	case 1:
	case 2:
		post(conn, in, what == 2);
		break;
	case 3:
		soda_conn_flush(conn, fuzz_u8(in) & 1);
		break;
	case 4:
		poll_some(conn, 1 + fuzz_u8(in) % DEPTH);
		break;
	case 5:
		answer(q, in);
		break;
	case 6:
		put_event(q, &(struct soda_queue_event){ .kind = SODA_QUEUE_FREE,
							 .slot = fuzz_u8(in) });
		break;
	case 7:
		fuzz_take(in, &e, sizeof(e));
		put_event(q, &e);
		break;
	case 8:
		atomic_store(&q->head->events_tail, fuzz_u32(in));
		break;
	case 9:
		which = fuzz_u8(in);
		atomic_store(&q->head->claim[which], fuzz_u8(in));
		break;
	case 10:
		which = fuzz_u8(in);
		words[which] = fuzz_u32(in);
		break;
	case 11:
		soda_conn_revoke(conn);
		break;
	case 12:
		which = fuzz_u8(in);
		(void)!send(peer, &which, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	default:
		shutdown(peer, SHUT_RDWR);
	}
}

/* What comes instead of a queue. */
static int odd_queue(struct fuzz_input *in, uint8_t how)
{
	int fd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint32_t says[3];
	off_t size;

	MUST(fd >= 0);
	for (int i = 0; i < 3; i++)
		says[i] = fuzz_u32(in);
	size = (off_t)fuzz_u32(in);
	if (how & 8)
		says[0] = SODA_QUEUE_MAGIC;
	MUST(ftruncate(fd, size) == 0);
	MUST(pwrite(fd, says, sizeof(says), 0) == sizeof(says));
	if (how & 16)
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	uint8_t how = fuzz_u8(&in);
	struct soda_conn_options opt = {
		.kind = SODA_CONN_DATA, .depth = DEPTH, .in_place = how & 1, .hand_over = how & 2
	};
	struct soda_why why = { "" };
	struct soda_conn *conn;
	struct soda_queue q;
	int sockets[2], fd, ret;

	posted_n = completed_n = answered = 0;
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
	MUST(soda_queue_create(CHUNK, &q, &fd) == 0);
	if (how & 4) {
		close(fd);
		fd = odd_queue(&in, how);
	}
	ret = soda_shm_client_create(sockets[0], fd, "peer", &opt, &conn, &why);
	MUST(ret == 0 || why.text[0]);
	for (unsigned i = 0; ret == 0 && i < 2000 && in.left; i++)
		step(conn, &q, sockets[1], &in);
	if (ret == 0)
		soda_conn_close(conn);
	soda_queue_unmap(&q);
	close(sockets[1]);
	return 0;
}
