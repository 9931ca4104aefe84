/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/ring.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "base/lock.h"
#include "dpu_agent/movement/memory.h"

enum { MOVED_NS = 2000000 }; /* the kernel gets so long to place both threads */

int soda_ring_make(struct soda_ring *r)
{
	struct soda_why why;
	uint8_t *memory;
	int fd, ret = soda_memory_make("soda-move-ring", SODA_MOVE_RING_BYTES, SODA_MEMORY_SHARED,
				       &fd, &memory, &why);

	if (ret == 0)
		*r = (struct soda_ring){ .map = (void *)memory, .fd = fd };
	return ret;
}

void soda_ring_unmake(struct soda_ring *r)
{
	soda_memory_unmake(r->fd, (uint8_t *)r->map, SODA_MOVE_RING_BYTES);
	r->map = NULL;
}

bool soda_ring_take(struct soda_ring *r, struct soda_wire_move_post *post_p,
		    const uint8_t **pieces_p)
{
	uint8_t head[SODA_WIRE_MOVE_POST_BYTES];
	const uint8_t *from;
	uint32_t ready;

	if (!r->map || r->broken)
		return false;
	/* acquire: the list; sequentially consistent with `attended` (soda_ring_attend) */
	ready = atomic_load(&r->map->posted) - r->lists;
	r->broken = ready > SODA_MOVE_RING_SIZE;
	if (!ready || r->broken)
		return false;
	from = soda_move_ring_list(r->map, r->lists++);
	memcpy(head, from, sizeof(head));
	soda_wire_get_move_head(head, post_p);
	if (post_p->pieces <= SODA_MOVE_RING_PIECES)
		memcpy(r->pieces, from + sizeof(head), post_p->pieces * SODA_WIRE_PIECE_BYTES);
	*pieces_p = r->pieces;
	return true;
}

void soda_ring_tell(struct soda_ring *r, const struct soda_wire_notice *n)
{
	soda_wire_put_notice(soda_move_ring_notice(r->map, r->told++), n);
	/* release: the notice; sequentially consistent with `sleepers` (the library's ring.c) */
	atomic_store(&r->map->told, r->told);
	if (atomic_load(&r->map->sleepers))
		soda_futex_wake_shared(&r->map->told, INT32_MAX);
}

bool soda_ring_untaken(const struct soda_ring *r)
{
	return r->map && atomic_load_explicit(&r->map->taken, memory_order_relaxed) != r->told;
}

void soda_ring_attend(struct soda_ring *r, bool attended)
{
	atomic_store(&r->map->attended, attended);
}

/* By an affinity without this processor, for a moment: what somebody else has set stays. */
static void leave(int cpu)
{
	cpu_set_t may_use, others;

	if (sched_getaffinity(0, sizeof(may_use), &may_use) < 0)
		return;
	others = may_use;
	CPU_CLR((size_t)cpu, &others);
	if (CPU_COUNT(&others) && sched_setaffinity(0, sizeof(others), &others) == 0)
		sched_setaffinity(0, sizeof(may_use), &may_use);
}

void soda_ring_give_way(const struct soda_ring *r, struct soda_ring_place *place)
{
	int cpu = sched_getcpu();
	uint64_t now;

	if (!r->map || cpu < 0 ||
	    atomic_load_explicit(&r->map->waiter_cpu, memory_order_relaxed) != (uint32_t)cpu + 1)
		return;
	now = soda_now_ns();
	if (now - place->moved_ns < MOVED_NS)
		return;
	place->moved_ns = now;
	leave(cpu);
}
