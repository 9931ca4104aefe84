/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/held.h"

#include <stddef.h>

#include "base/lock.h"
#include "host_agent/core/agent.h"

enum { HEADS = 1024, HELD_MAX = 4096, LEAST = 4 };

static struct soda_lock lock = SODA_LOCK_INIT(SODA_RANK_HELD);
/* All guarded by `lock`. */
static struct held {
	uint32_t id, holders;
	struct held *next;
} pool[HELD_MAX], *heads[HEADS], *unused;
static uint32_t used, chunks;

uint32_t soda_held_allowance(void)
{
	int64_t tenth = atomic_load(&soda_agent.buffer.limit) / 10;

	return tenth < LEAST ? LEAST : tenth > HELD_MAX ? HELD_MAX : (uint32_t)tenth;
}

static struct held **find_locked(uint32_t id)
{
	struct held **p = &heads[id % HEADS];

	while (*p && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

static struct held *new_locked(uint32_t id, uint32_t share)
{
	struct held *h = unused;

	while (chunks >= soda_held_allowance() / share)
		if (soda_held_allowance() == HELD_MAX || !soda_buffer_more())
			return NULL;
	if (h)
		unused = h->next;
	else
		h = &pool[used++];
	chunks++;
	*h = (struct held){ .id = id };
	atomic_fetch_add(&soda_agent.buffer.pinned, 1);
	soda_chunk_hold(&soda_agent.table[id]);
	return h;
}

bool soda_held_take(uint32_t id, uint32_t share)
{
	struct held **p;
	bool taken;

	soda_lock_acquire(&lock);
	p = find_locked(id);
	if (!*p)
		*p = new_locked(id, share);
	taken = *p;
	if (taken)
		(*p)->holders++;
	soda_lock_release(&lock);
	return taken;
}

static void drop_locked(struct held **p)
{
	struct held *h = *p;

	*p = h->next;
	h->next = unused;
	unused = h;
	chunks--;
	atomic_fetch_sub(&soda_agent.buffer.pinned, 1);
	soda_chunk_unhold(&soda_agent.table[h->id]);
}

void soda_held_give(uint32_t id)
{
	struct held **p;

	soda_lock_acquire(&lock);
	p = find_locked(id);
	if (*p && !--(*p)->holders)
		drop_locked(p);
	soda_lock_release(&lock);
}

void soda_held_forget(uint32_t first, uint32_t n)
{
	soda_lock_acquire(&lock);
	for (uint32_t i = 0; i < HEADS && chunks; i++)
		for (struct held **p = &heads[i]; *p;)
			if ((*p)->id - first < n)
				drop_locked(p);
			else
				p = &(*p)->next;
	soda_lock_release(&lock);
}

uint32_t soda_held_chunks(void)
{
	uint32_t n;

	soda_lock_acquire(&lock);
	n = chunks;
	soda_lock_release(&lock);
	return n;
}

bool soda_held_has(uint32_t id)
{
	bool has;

	soda_lock_acquire(&lock);
	has = *find_locked(id);
	soda_lock_release(&lock);
	return has;
}
