/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/owed.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "host_agent/core/agent.h"

typedef _Atomic uint64_t bits;

static struct {
	bits *noted, *asked;
	_Atomic uint32_t top; /* no chunk from here on has a bit */
	_Atomic bool early;   /* the agent acknowledges before the server has it */
	_Atomic bool pending; /* something was noted since the last question */
	_Atomic uint32_t deaths;

	/* The keeper's. */
	uint32_t agent; /* that we are connected to; 0: none yet, or the server itself */
	uint64_t until; /* ASKED ones are written when the agent is here; 0: not asked */
} owed;

static bits *reserve(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static uint64_t bytes_of(uint64_t chunks)
{
	return (chunks + 63) / 64 * 8;
}

int soda_owed_start(void)
{
	uint64_t bytes = bytes_of(soda_agent.bytes >> soda_agent.chunk_shift);

	owed.noted = reserve(bytes);
	owed.asked = reserve(bytes);
	return owed.noted && owed.asked ? 0 : -ENOMEM;
}

void soda_owed_undo(uint64_t chunks)
{
	if (owed.noted)
		munmap(owed.noted, bytes_of(chunks));
	if (owed.asked)
		munmap(owed.asked, bytes_of(chunks));
	owed.noted = owed.asked = NULL;
}

static void raise_top(uint32_t chunk)
{
	uint32_t top = atomic_load_explicit(&owed.top, memory_order_relaxed);

	while (top <= chunk && !atomic_compare_exchange_weak(&owed.top, &top, chunk + 1))
		;
}

void soda_owed_note(uint32_t chunk)
{
	if (!atomic_load_explicit(&owed.early, memory_order_relaxed))
		return;
	atomic_fetch_or(&owed.noted[chunk / 64], 1ull << chunk % 64);
	raise_top(chunk);
	if (!atomic_load_explicit(&owed.pending, memory_order_relaxed))
		atomic_store(&owed.pending, true);
}

/* Of the word that chunk `at` is in, the bits of [at, end). *at: the next word's first. */
static uint64_t mask_of(uint32_t *at, uint32_t end)
{
	uint32_t from = *at % 64, n = end - *at < 64 - from ? end - *at : 64 - from;

	*at += n;
	return (n == 64 ? ~0ull : (1ull << n) - 1) << from;
}

/* Bits of [first, first + n), as far as any are set at all. */
static uint32_t end_of(uint32_t first, uint32_t n)
{
	uint32_t top = atomic_load(&owed.top);

	return first >= top ? first : n < top - first ? first + n : top;
}

static void move(bits *from, bits *to, uint32_t first, uint32_t n)
{
	uint32_t end = end_of(first, n);

	while (first < end) {
		uint32_t word = first / 64;
		uint64_t set = atomic_load(&from[word]) & mask_of(&first, end);

		if (!set)
			continue;
		if (to) /* first: at no time a bit is in neither of them */
			atomic_fetch_or(&to[word], set);
		atomic_fetch_and(&from[word], ~set);
	}
}

bool soda_owed_any(uint32_t first, uint32_t n)
{
	uint32_t end = end_of(first, n);

	while (first < end) {
		uint32_t word = first / 64;
		uint64_t mask = mask_of(&first, end);

		if ((atomic_load(&owed.noted[word]) | atomic_load(&owed.asked[word])) & mask)
			return true;
	}
	return false;
}

bool soda_owed_is(uint32_t chunk)
{
	return soda_owed_any(chunk, 1);
}

void soda_owed_forget(uint32_t first, uint32_t n)
{
	move(owed.noted, NULL, first, n);
	move(owed.asked, NULL, first, n);
}

uint64_t soda_owed_bytes(void)
{
	uint64_t page = SODA_WIRE_PAGE, bytes = (atomic_load(&owed.top) + 7) / 8;

	return 2 * ((bytes + page - 1) & ~(page - 1));
}

void soda_owed_begin(uint32_t first, uint32_t n)
{
	move(owed.noted, owed.asked, first, n);
}

void soda_owed_end(uint32_t first, uint32_t n, bool written)
{
	move(owed.asked, written ? NULL : owed.noted, first, n);
	if (!written)
		atomic_store(&owed.pending, true);
}

int soda_owed_ask(struct soda_conn *control, int timeout_ms)
{
	uint8_t reply[SODA_WIRE_WRITTEN_BYTES];
	struct soda_wire_written w;
	struct soda_why why;
	size_t bytes = 0;
	int ret;

	if (!atomic_load(&owed.early))
		return 0;
	if (!owed.until) {
		if (!atomic_exchange(&owed.pending, false))
			return 0;
		soda_owed_begin(0, UINT32_MAX);
	}
	ret = soda_conn_call(control, SODA_MSG_WRITTEN, NULL, 0, reply, sizeof(reply), &bytes,
			     timeout_ms, &why);
	if (!ret)
		ret = soda_wire_get_written(reply, bytes, &w);
	if (ret) {
		owed.until = 0;
		soda_owed_end(0, UINT32_MAX, false);
		return ret;
	}
	if (!owed.until)
		owed.until = w.next;
	/* What could not be written stays owed: soda_sync will say so. */
	if (w.oldest >= owed.until) {
		soda_owed_end(0, UINT32_MAX, !w.lost);
		owed.until = 0;
	}
	return 0;
}

bool soda_owed_meet(uint32_t agent)
{
	bool other = owed.agent && agent != owed.agent;

	owed.agent = agent;
	owed.until = 0;
	atomic_store(&owed.early, agent & SODA_WIRE_AGENT_EARLY);
	soda_owed_end(0, UINT32_MAX, false);
	if (!other || !soda_owed_any(0, UINT32_MAX))
		return false;
	atomic_fetch_add(&owed.deaths, 1);
	return true;
}

void soda_owed_buried(void)
{
	soda_owed_forget(0, UINT32_MAX);
	atomic_fetch_add(&owed.deaths, 1);
}

uint32_t soda_owed_deaths(void)
{
	return atomic_load(&owed.deaths);
}

uint32_t soda_owed_losses(void)
{
	return soda_owed_deaths() + soda_link_restarts(&soda_agent.link);
}
