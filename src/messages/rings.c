/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/rings.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/lock.h"
#include "routing/near.h"

static int nonsense(struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text), "the agent's answer makes no sense");
	return -EPROTO;
}

/* The agent's answer, with a file. */
static int call(struct soda_conn *conn, struct soda_wire_msg_rings *sizes_p, int *fd_p,
		struct soda_why *why)
{
	uint8_t reply[SODA_WIRE_MSG_RINGS_BYTES];
	size_t got = 0;
	int ret;

	*fd_p = -1;
	ret = soda_conn_call_fd(conn, (enum soda_msg)SODA_MSG_MESSAGES_RINGS, NULL, 0, reply,
				sizeof(reply), &got, fd_p, SODA_MSG_CALL_MS, why);
	if (ret == 0 && (soda_wire_get_msg_rings(reply, got, sizes_p) < 0 || *fd_p < 0))
		ret = nonsense(why);
	return ret;
}

int soda_rings_ask(struct soda_rings *r, struct soda_conn *conn, uint32_t ranks,
		   struct soda_why *why)
{
	struct soda_rings found = { .ranks = ranks };
	int fd, ret = call(conn, &found.sizes, &fd, why);

	if (ret == 0) {
		found.out =
			soda_msg_map_sealed(fd, soda_rings_out_bytes(ranks, found.sizes.slot_bytes),
					    PROT_READ | PROT_WRITE);
		if (!found.out)
			ret = nonsense(why);
	}
	if (fd >= 0)
		close(fd);
	if (ret < 0) /* rings are no need */
		return ret == -ENOSPC || ret == -ENOTSUP || ret == -ENOMEM ? 0 : ret;
	found.tails = (_Atomic uint32_t *)((uint8_t *)found.out + soda_rings_tails_at());
	found.bytes = found.tails + ranks;
	found.slots = (uint8_t *)found.out + soda_rings_slots_at(ranks);
	memcpy(r, &found, sizeof(found));
	return 1;
}

/* The ring of the inbox, twice in a row. NULL: no memory. */
static uint8_t *map_twice(int fd, uint64_t at, uint64_t bytes)
{
	uint8_t *p = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	for (unsigned i = 0; i < 2; i++) {
		if (mmap(p + i * bytes, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)at) ==
		    MAP_FAILED) {
			munmap(p, 2 * bytes);
			return NULL;
		}
	}
	return p;
}

int soda_rings_ask_inbox(struct soda_rings *r, struct soda_conn *conn, struct soda_why *why)
{
	struct soda_wire_msg_rings sizes;
	int fd, ret = call(conn, &sizes, &fd, why);

	if (ret == 0 && memcmp(&sizes, &r->sizes, sizeof(sizes)) != 0)
		ret = nonsense(why);
	if (ret == 0) {
		r->in = soda_msg_map_sealed(fd, soda_rings_in_bytes(r->ranks, sizes.inbox_bytes),
					    PROT_READ);
		r->inbox_map =
			r->in ? map_twice(fd, soda_rings_inbox_at(r->ranks), sizes.inbox_bytes)
			      : NULL;
		if (!r->inbox_map)
			ret = nonsense(why);
	}
	if (fd >= 0)
		close(fd);
	if (ret < 0)
		return ret;
	r->inbox = r->inbox_map;
	r->heads = (const _Atomic uint32_t *)((const uint8_t *)r->in + soda_rings_heads_at());
	return 0;
}

void soda_rings_unmap(struct soda_rings *r)
{
	if (r->inbox_map)
		munmap(r->inbox_map, 2 * (size_t)r->sizes.inbox_bytes);
	if (r->in)
		munmap((void *)(uintptr_t)r->in,
		       soda_rings_in_bytes(r->ranks, r->sizes.inbox_bytes));
	if (r->out)
		munmap(r->out, soda_rings_out_bytes(r->ranks, r->sizes.slot_bytes));
	memset(r, 0, sizeof(*r));
}

/* Wake the agent, where it sleeps. After what it is to see. */
static void ring_bell(struct soda_rings *r)
{
	atomic_fetch_add(&r->out->doorbell, 1);
	soda_futex_wake_shared(&r->out->doorbell, 1);
}

void soda_rings_put(struct soda_rings *r, uint32_t rank, uint32_t tail, uint32_t bytes)
{
	uint32_t at = rank * SODA_RING_SLOTS + tail % SODA_RING_SLOTS;

	atomic_store_explicit(&r->bytes[at], bytes, memory_order_relaxed);
	/* with the agent's load before it reads size and slot */
	atomic_store(&r->tails[rank], tail + 1);
	if (atomic_load(&r->in->idle))
		ring_bell(r);
}

uint32_t soda_rings_taken(const struct soda_rings *r, uint32_t rank)
{
	return atomic_load(&r->heads[rank]); /* with the agent's store when it has read the slot */
}

int soda_rings_look(const struct soda_rings *r, const uint8_t **data_p, uint32_t *bytes_p,
		    bool *ends_p)
{
	uint64_t at = atomic_load_explicit(&r->at, memory_order_relaxed);
	uint32_t ended = atomic_load_explicit(&r->ended, memory_order_relaxed);
	/* the tail first: what was put after an end comes with a tail behind the end's */
	uint64_t stop = atomic_load(&r->in->tail);

	*ends_p = atomic_load(&r->in->ends) != ended;
	if (*ends_p)
		stop = atomic_load_explicit(&r->in->end_at[ended % 2], memory_order_relaxed);
	if (stop - at > r->sizes.inbox_bytes)
		return -EPROTO;
	*data_p = r->inbox + (at & (r->sizes.inbox_bytes - 1));
	*bytes_p = (uint32_t)(stop - at);
	return 0;
}

bool soda_rings_here(const struct soda_rings *r)
{
	return atomic_load(&r->in->tail) != atomic_load_explicit(&r->at, memory_order_relaxed) ||
	       atomic_load(&r->in->ends) != atomic_load_explicit(&r->ended, memory_order_relaxed);
}

void soda_rings_pulled(struct soda_rings *r, uint64_t at)
{
	uint64_t left;

	atomic_store_explicit(&r->at, at, memory_order_relaxed);
	atomic_store(&r->out->pulled, at); /* with the agent's load before it writes over it */
	if (!atomic_load(&r->in->wanted))
		return;
	/* half of it is room for any packet, and for many: the agent is not woken for each */
	left = atomic_load_explicit(&r->in->tail, memory_order_relaxed) - at;
	if (left <= r->sizes.inbox_bytes / 2 && atomic_load(&r->in->idle))
		ring_bell(r);
}

void soda_rings_ended(struct soda_rings *r)
{
	uint32_t ended = atomic_load_explicit(&r->ended, memory_order_relaxed) + 1;

	atomic_store_explicit(&r->ended, ended, memory_order_relaxed);
	atomic_store(&r->out->ended, ended); /* behind `pulled` */
}

void soda_rings_begin_sleep(struct soda_rings *r)
{
	atomic_fetch_add(&r->out->sleeping, 1);
}

uint32_t soda_rings_word(const struct soda_rings *r)
{
	return atomic_load(&r->out->news);
}

void soda_rings_sleep(struct soda_rings *r, uint32_t word, uint64_t timeout_ns)
{
	const uint64_t most = SODA_MSG_AWAIT_MS * 1000000ull;

	soda_futex_wait_shared(&r->out->news, word,
			       (int64_t)(timeout_ns < most ? timeout_ns : most));
}

void soda_rings_end_sleep(struct soda_rings *r)
{
	atomic_fetch_sub(&r->out->sleeping, 1);
}

void soda_rings_tell(struct soda_rings *r)
{
	atomic_fetch_add(&r->out->news, 1);
	soda_futex_wake_shared(&r->out->news, INT_MAX);
}
