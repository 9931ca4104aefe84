/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue's memory, and the two words that let its sides sleep. See queue.h. */
#include "transport/shm/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/api/rawsys.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint32_t suitable(uint32_t slot_bytes)
{
	uint32_t n = SODA_QUEUE_MAX;

	while (n > SODA_QUEUE_MIN && (uint64_t)n * slot_bytes > SODA_QUEUE_SLOTS_BYTES)
		n /= 2;
	return n;
}

static uint64_t total_bytes(uint32_t n, uint32_t slot_bytes)
{
	return SODA_QUEUE_SLOTS_AT + (uint64_t)n * slot_bytes;
}

static int map(int fd, uint32_t n, uint32_t slot_bytes, struct soda_queue *q)
{
	uint64_t bytes = total_bytes(n, slot_bytes);
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	/* a child has no FAM, and a core file no use for it */
	madvise(at, bytes, MADV_DONTFORK);
	madvise(at, bytes, MADV_DONTDUMP);
	*q = (struct soda_queue){
		.head = (struct soda_queue_head *)at,
		.requests = (struct soda_queue_request *)(at + SODA_QUEUE_REQUESTS_AT),
		.events = (struct soda_queue_event *)(at + SODA_QUEUE_EVENTS_AT),
		.slots = at + SODA_QUEUE_SLOTS_AT,
		.n = n,
		.slot_bytes = slot_bytes,
		.bytes = bytes,
	};
	return 0;
}

int soda_queue_create(uint32_t slot_bytes, struct soda_queue *q, int *fd_p)
{
	uint32_t n = suitable(slot_bytes);
	int fd = memfd_create("soda-queue", MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)total_bytes(n, slot_bytes)) < 0 ||
	    fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		ret = -errno;
	else
		ret = map(fd, n, slot_bytes, q);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	q->head->n = n;
	q->head->slot_bytes = slot_bytes;
	q->head->keeps = 1;
	q->head->magic = SODA_QUEUE_MAGIC;
	*fd_p = fd;
	return 0;
}

/* What the head says, copied once. A read(2) needs no mapping that could be too short. */
static int check(int fd, uint32_t *n_p, uint32_t *slot_bytes_p, bool *keeps_p)
{
	uint32_t says[4];
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
	    pread(fd, says, sizeof(says), 0) != sizeof(says) || says[0] != SODA_QUEUE_MAGIC)
		return -EPROTO;
	if (says[1] < SODA_QUEUE_MIN || says[1] > SODA_QUEUE_MAX || says[1] & (says[1] - 1) ||
	    says[2] % SODA_WIRE_PAGE || !says[2] || says[2] > SODA_WIRE_MAX_DATA ||
	    (uint64_t)st.st_size < total_bytes(says[1], says[2]))
		return -EPROTO;
	*n_p = says[1];
	*slot_bytes_p = says[2];
	*keeps_p = says[3];
	return 0;
}

int soda_queue_map(int fd, struct soda_queue *q, struct soda_why *why)
{
	uint32_t n, slot_bytes;
	bool keeps;
	int ret = check(fd, &n, &slot_bytes, &keeps);

	if (ret < 0) {
		soda_why_set(why, "what the daemon has passed is not a queue");
		return ret;
	}
	ret = map(fd, n, slot_bytes, q);
	if (ret < 0)
		soda_why_set(why, "cannot map the daemon's queue: %s", soda_strerror(ret));
	else
		q->keeps = keeps;
	return ret;
}

void soda_queue_unmap(struct soda_queue *q)
{
	munmap(q->head, q->bytes);
}

void soda_queue_publish(_Atomic uint32_t *tail, uint32_t to, _Atomic uint32_t *waits, int fd)
{
	static const char wake = SODA_QUEUE_WAKE;

	/* sequentially consistent, both: the partners are in soda_queue_may_sleep */
	atomic_store(tail, to);
	if (!atomic_load(waits) || !atomic_exchange(waits, 0))
		return;
	/* a full socket buffer wakes as well, and a broken one is noticed by who waits on it */
	syscall(SYS_sendto, fd, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}
