/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/unacked.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "host_agent/core/agent.h"

typedef _Atomic uint64_t bits;

static struct {
	bits *noted, *asked;
	_Atomic uint32_t top; /* no chunk from here on has a bit */
	_Atomic bool early;   /* the agent acknowledges a WRITE before the server does */
	_Atomic bool pending; /* a chunk was noted since the agent was last asked */
	_Atomic uint32_t deaths;
	_Atomic uint32_t moves; /* odd while bits move from one array to the other, which only
				   who has the control connection lets them do */

	/* The keeper's alone. */
	uint32_t agent; /* number of the agent we are connected to; 0: none yet, or no agent */
	/*
	 * Once the agent's oldest unwritten WRITE has this number or a later one, all WRITEs of
	 * ASKED chunks are on the server; 0: the agent has not been asked.
	 */
	uint64_t until;
	uint64_t lost; /* WRITEs that the agent could not bring to the server, as it said last */
} unacked;

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

int soda_unacked_start(void)
{
	uint64_t bytes = bytes_of(soda_agent.bytes >> soda_agent.chunk_shift);

	unacked.noted = reserve(bytes);
	unacked.asked = reserve(bytes);
	return unacked.noted && unacked.asked ? 0 : -ENOMEM;
}

void soda_unacked_undo(uint64_t chunks)
{
	if (unacked.noted)
		munmap(unacked.noted, bytes_of(chunks));
	if (unacked.asked)
		munmap(unacked.asked, bytes_of(chunks));
	unacked.noted = unacked.asked = NULL;
}

static void raise_top(uint32_t chunk)
{
	uint32_t top = atomic_load_explicit(&unacked.top, memory_order_relaxed);

	while (top <= chunk && !atomic_compare_exchange_weak(&unacked.top, &top, chunk + 1))
		;
}

void soda_unacked_note(uint32_t chunk)
{
	if (!atomic_load_explicit(&unacked.early, memory_order_relaxed))
		return;
	atomic_fetch_or(&unacked.noted[chunk / 64], 1ull << chunk % 64);
	raise_top(chunk);
	if (!atomic_load_explicit(&unacked.pending, memory_order_relaxed))
		atomic_store(&unacked.pending, true);
}

/* The bits of chunks [*at, end) in the word of chunk *at. *at becomes the first chunk of the next
 * word. */
static uint64_t mask_of(uint32_t *at, uint32_t end)
{
	uint32_t from = *at % 64, n = end - *at < 64 - from ? end - *at : 64 - from;

	*at += n;
	return (n == 64 ? ~0ull : (1ull << n) - 1) << from;
}

/* The end of [first, first + n), cut off where no chunk has a bit. */
static uint32_t end_of(uint32_t first, uint32_t n)
{
	uint32_t top = atomic_load(&unacked.top);

	return first >= top ? first : n < top - first ? first + n : top;
}

static void move(bits *from, bits *to, uint32_t first, uint32_t n)
{
	uint32_t end = end_of(first, n);

	if (to)
		atomic_fetch_add(&unacked.moves, 1);
	while (first < end) {
		uint32_t word = first / 64;
		uint64_t set = atomic_load(&from[word]) & mask_of(&first, end);

		if (!set)
			continue;
		if (to) /* set before it is cleared, so that another thread always sees one of the
			   two */
			atomic_fetch_or(&to[word], set);
		atomic_fetch_and(&from[word], ~set);
	}
	if (to)
		atomic_fetch_add(&unacked.moves, 1);
}

static bool any(uint32_t first, uint32_t end)
{
	while (first < end) {
		uint32_t word = first / 64;
		uint64_t mask = mask_of(&first, end);

		if ((atomic_load(&unacked.noted[word]) | atomic_load(&unacked.asked[word])) & mask)
			return true;
	}
	return false;
}

bool soda_unacked_any(uint32_t first, uint32_t n)
{
	uint32_t end = end_of(first, n), moves;

	if (first >= end)
		return false;
	/* A bit that moved to the array that was looked at first would not be seen. */
	moves = atomic_load(&unacked.moves);
	return any(first, end) || moves & 1 || moves != atomic_load(&unacked.moves);
}

bool soda_unacked_is(uint32_t chunk)
{
	return soda_unacked_any(chunk, 1);
}

bool soda_unacked_certainly(uint32_t chunk)
{
	uint32_t end = end_of(chunk, 1), moves;

	do {
		moves = atomic_load(&unacked.moves);
		if (any(chunk, end))
			return true;
	} while (moves & 1 || moves != atomic_load(&unacked.moves));
	return false;
}

void soda_unacked_forget(uint32_t first, uint32_t n)
{
	move(unacked.noted, NULL, first, n);
	move(unacked.asked, NULL, first, n);
}

uint64_t soda_unacked_bytes(void)
{
	uint64_t page = SODA_WIRE_PAGE, bytes = (atomic_load(&unacked.top) + 7) / 8;

	return 2 * ((bytes + page - 1) & ~(page - 1));
}

void soda_unacked_begin(uint32_t first, uint32_t n)
{
	move(unacked.noted, unacked.asked, first, n);
}

void soda_unacked_end(uint32_t first, uint32_t n, bool written)
{
	move(unacked.asked, written ? NULL : unacked.noted, first, n);
	if (!written)
		atomic_store(&unacked.pending, true);
}

int soda_unacked_ask(struct soda_conn *control, int timeout_ms, struct soda_unacked_answer *answer)
{
	uint8_t reply[SODA_WIRE_WRITTEN_BYTES];
	struct soda_wire_written w;
	struct soda_why why;
	size_t bytes = 0;
	int ret;

	if (!atomic_load(&unacked.early))
		return 0;
	if (!unacked.until) {
		if (!atomic_exchange(&unacked.pending, false))
			return 0;
		soda_unacked_begin(0, UINT32_MAX);
	}
	ret = soda_conn_call(control, SODA_MSG_WRITTEN, NULL, 0, reply, sizeof(reply), &bytes,
			     timeout_ms, &why);
	if (!ret)
		ret = soda_wire_get_written(reply, bytes, &w);
	if (ret) {
		unacked.until = 0;
		soda_unacked_end(0, UINT32_MAX, false);
		return ret;
	}
	if (!unacked.until)
		unacked.until = w.next;
	answer->refused = w.lost != unacked.lost;
	answer->written = !answer->refused && w.oldest >= unacked.until;
	unacked.lost = w.lost;
	if (answer->refused || answer->written) {
		soda_unacked_end(0, UINT32_MAX, answer->written);
		unacked.until = 0;
	}
	return 0;
}

bool soda_unacked_meet(uint32_t agent)
{
	bool other = unacked.agent && agent != unacked.agent;

	unacked.agent = agent;
	unacked.until = 0;
	if (other)
		unacked.lost = 0;
	atomic_store(&unacked.early, agent & SODA_WIRE_AGENT_EARLY);
	soda_unacked_end(0, UINT32_MAX, false);
	if (!other || !soda_unacked_any(0, UINT32_MAX))
		return false;
	atomic_fetch_add(&unacked.deaths, 1);
	return true;
}

void soda_unacked_buried(void)
{
	soda_unacked_forget(0, UINT32_MAX);
	atomic_fetch_add(&unacked.deaths, 1);
}

uint32_t soda_unacked_deaths(void)
{
	return atomic_load(&unacked.deaths);
}

uint32_t soda_unacked_losses(void)
{
	return soda_unacked_deaths() + soda_link_restarts(&soda_agent.links[0]);
}
