/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue in shared memory as the agent sees it: the input is the client, which writes anything
 * anywhere, between the agent's steps and also while it answers.
 *   ops: what 8, then
 *     0,1  a READ in an entry: which 8, slot 8, page 8, pages 8, flags 8, place 8    2  a WRITE
 *     3    an entry as it is: which 8, 64 bytes          4  tail 32        5  tail + 1
 *     6    serve                                         7  answer: which 8, status 8
 *     8    free a WRITE: which 8                         9  events_head 32, or all
 *     10   a claim: which 8, 8                           11 words of the head: which 8, 32
 *     12   the connection ends
 *     13   a WRITE of data that were kept: which 8, slot 8, page 8, pages 8, flags 8, place 8,
 *          how many bytes say which 8, and those, which go into the slot
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzz/fixtures/daemon.h"
#include "fuzz/fuzz.h"
#include "transport/shm/shm.h"
#include "wire/field.h"

enum { CHUNK = 16 << 10, PLACES = 16 };

static struct fuzz_daemon daemon_;
static uint8_t *places; /* of the client: where pages may be installed */
static int uffd = -1;

static void *worker; /* one without connections: somebody to be woken */

static struct soda_queue_conn *begin(int sockets[2])
{
	struct soda_queue_conn *c = calloc(1, sizeof(*c));
	struct soda_why why;
	int fd;

	fuzz_daemon_init(&daemon_, false);
	MUST(c && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
	c->peer = (struct soda_peer){ .listener = &daemon_.listener,
				      .client = &daemon_,
				      .fd = sockets[0] };
	c->worker = worker;
	c->refs = 1;
	c->uffd = uffd >= 0 ? dup(uffd) : -1;
	c->chunk_bytes = CHUNK;
	pthread_mutex_init(&c->lock, NULL);
	MUST(soda_queue_create(CHUNK, &c->q, &fd) == 0);
	close(fd);
	MUST(soda_peer_add(&c->peer, true, &why) == 0);
	return c;
}

static struct soda_queue_request *put_request(struct soda_queue *q, struct fuzz_input *in,
					      bool write)
{
	struct soda_queue_request *e = &q->requests[fuzz_u8(in) & (q->n - 1)];
	uint8_t page, place;
	uint32_t size;

	e->slot = fuzz_u8(in);
	page = fuzz_u8(in);
	size = fuzz_u8(in) % 6 * SODA_WIRE_PAGE;
	e->imm = (write ? SODA_MSG_WRITE : SODA_MSG_READ) | (uint32_t)fuzz_u8(in) << 8;
	place = fuzz_u8(in);
	if (write)
		soda_wire_put_write(e->body, &(struct soda_wire_write){ 1, page, size });
	else
		soda_wire_put_read(
			e->body, &(struct soda_wire_read){
					 .region_id = 1,
					 .page_offset = page,
					 .dest_addr = place ? (uintptr_t)places + place * CHUNK : 0,
					 .size = size });
	return e;
}

static void put_kept(struct soda_queue *q, struct fuzz_input *in)
{
	struct soda_queue_request *e = put_request(q, in, true);
	uint8_t bytes = fuzz_u8(in);

	e->imm |= SODA_WIRE_KEPT << 8;
	soda_wire_put_u32(e->residency, bytes);
	if (e->slot < q->n)
		fuzz_take(in, soda_queue_slot(q, e->slot), bytes);
}

static void put_words(struct soda_queue *q, struct fuzz_input *in)
{
	uint32_t *words = (uint32_t *)q->head, which = fuzz_u8(in);

	words[which] = fuzz_u32(in);
}

/* True: the client has done what it must not. */
static bool step(struct soda_queue_conn *c, struct fuzz_input *in)
{
	static const uint8_t statuses[] = { 0, 0, 0, EIO, EINVAL, ESTALE };
	struct soda_queue *q = &c->q;
	const char *why = NULL;
	unsigned which;
	int n;

	switch (fuzz_u8(in) % 14) {
	case 0:
	case 1:
		put_request(q, in, false);
		break;
	case 2:
		put_request(q, in, true);
		break;
	case 3:
		which = fuzz_u8(in) & (q->n - 1);
		fuzz_take(in, &q->requests[which], sizeof(q->requests[which]));
		break;
	case 4:
		atomic_store(&q->head->requests_tail, fuzz_u32(in));
		break;
	case 5:
		atomic_fetch_add(&q->head->requests_tail, 1);
		break;
	case 6:
		n = soda_queue_conn_serve(c, &why);
		MUST(n >= 0 || why);
		soda_queue_conn_may_sleep(c);
		return n < 0;
	case 7:
		which = fuzz_u8(in);
		fuzz_daemon_answer(&daemon_, which, -(int)statuses[fuzz_u8(in) % sizeof(statuses)]);
		break;
	case 8:
		fuzz_daemon_free(&daemon_, fuzz_u8(in));
		break;
	case 9:
		which = fuzz_u8(in);
		atomic_store(&q->head->events_head, which ? c->events_tail : fuzz_u32(in));
		break;
	case 10:
		which = fuzz_u8(in);
		atomic_store(&q->head->claim[which], fuzz_u8(in));
		break;
	case 11:
		put_words(q, in);
		break;
	case 13:
		put_kept(q, in);
		break;
	default:
		return true;
	}
	return false;
}

static void end(struct soda_queue_conn *c, bool late)
{
	bool idle = soda_queue_conn_end(c);

	MUST(idle == !daemon_.waiting_n);
	while (fuzz_daemon_answer(&daemon_, 0, 0))
		;
	while (!late && fuzz_daemon_free(&daemon_, 0))
		;
	MUST(soda_queue_conn_end(c));
	soda_queue_conn_destroy(c);
	while (fuzz_daemon_free(&daemon_, 0)) /* long after it */
		;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	fuzz_quiet();
	MUST(soda_queue_plane.start(&daemon_.listener, &worker) == 0);
	places = mmap(NULL, (size_t)PLACES * CHUNK, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(places != MAP_FAILED);
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	reg.range = (struct uffdio_range){ (uintptr_t)places, (size_t)PLACES * CHUNK };
	/* where there is none, nothing is installed: the answers' other way */
	if (uffd >= 0 && (ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &reg))) {
		close(uffd);
		uffd = -1;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	int sockets[2];
	struct soda_queue_conn *c = begin(sockets);
	bool late = fuzz_u8(&in) & 1;

	while (in.left && !step(c, &in))
		;
	end(c, late);
	fuzz_daemon_check_end(&daemon_);
	close(sockets[1]);
	madvise(places, (size_t)PLACES * CHUNK, MADV_DONTNEED);
	return 0;
}
