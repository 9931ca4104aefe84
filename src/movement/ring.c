/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's side of a mover's ring (wire/move_ring.h).  A list goes there straight from the
 * thread that hands it over, if none waits for the courier before it; notices are taken by the
 * thread that looks first: a thread that waits for a ticket or tests one, or the courier after a
 * call.
 */
#include <sched.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "movement/mover.h"

enum { SPIN_NS = 100000 }; /* a thread that waits looks so long before it sleeps */

int soda_mover_ring_map(struct soda_mover *m, int fd)
{
	void *memory;
	int ret = soda_shared_map(fd, SODA_MOVE_RING_BYTES, PROT_READ | PROT_WRITE, &memory);

	if (ret < 0)
		return ret;
	m->ring = memory;
	soda_spin_init(&m->spin, NULL);
	return 0;
}

void soda_mover_ring_unmap(struct soda_mover *m)
{
	if (m->ring)
		munmap(m->ring, SODA_MOVE_RING_BYTES);
	m->ring = NULL;
}

bool soda_mover_ring_post_locked(struct soda_mover *m, const struct soda_move_ticket *t)
{
	struct soda_wire_move_post post = { t->number, t->buffer->number, t->pieces_n };
	uint8_t *list;

	/* what the courier has comes first, and what it has sent */
	if (!m->ring || m->queue || m->sending || m->streamed || t->streamed || t->fabric ||
	    t->cancel || t->pieces_n > SODA_MOVE_RING_PIECES)
		return false;
	list = soda_move_ring_list(m->ring, m->ring_posted++);
	soda_wire_put_move_post(list, &post);
	for (uint32_t i = 0; i < t->pieces_n; i++)
		soda_wire_put_piece(list + SODA_WIRE_MOVE_POST_BYTES + i * SODA_WIRE_PIECE_BYTES,
				    &t->pieces[i]);
	/* release: the list; sequentially consistent with `attended` (the agent's ring.c) */
	atomic_store(&m->ring->posted, m->ring_posted);
	if (!atomic_load(&m->ring->attended))
		m->knock = true;
	return true;
}

void soda_mover_ring_reap_locked(struct soda_mover *m)
{
	struct soda_wire_notice n;
	uint32_t told;

	if (!m->ring)
		return;
	told = atomic_load_explicit(&m->ring->told, memory_order_acquire);
	if (told - m->ring_taken > SODA_MOVE_RING_SIZE)
		m->ring_taken = told - SODA_MOVE_RING_SIZE; /* it makes no sense: what is there */
	for (; m->ring_taken != told; m->ring_taken++) {
		soda_wire_get_notice(soda_move_ring_notice(m->ring, m->ring_taken), &n);
		soda_ticket_notice_locked(m, &n);
	}
	atomic_store_explicit(&m->ring->taken, told, memory_order_relaxed);
}

struct look {
	struct soda_move_ring *ring;
	uint32_t seen;
};

static bool is_told(void *arg)
{
	const struct look *l = arg;

	return atomic_load_explicit(&l->ring->told, memory_order_relaxed) != l->seen;
}

static void sleep_until_told(struct look *l, uint64_t ms)
{
	atomic_fetch_add(&l->ring->sleepers, 1);
	if (atomic_load(&l->ring->told) == l->seen)
		soda_futex_wait_shared(&l->ring->told, l->seen, (int64_t)(ms * SODA_MS_NS));
	atomic_fetch_sub(&l->ring->sleepers, 1);
}

void soda_mover_ring_await_locked(struct soda_mover *m, uint64_t ms)
{
	struct look look = { m->ring, m->ring_taken };
	bool spins = !m->spinning, found = false;

	m->spinning = true;
	atomic_store_explicit(&m->ring->waiter_cpu, (uint32_t)(sched_getcpu() + 1),
			      memory_order_relaxed);
	pthread_mutex_unlock(&m->lock);
	if (spins)
		found = soda_spin_until(&m->spin, SPIN_NS, is_told, &look);
	if (!found)
		sleep_until_told(&look, ms);
	atomic_store_explicit(&m->ring->waiter_cpu, 0, memory_order_relaxed);
	pthread_mutex_lock(&m->lock);
	if (spins)
		m->spinning = false;
}
