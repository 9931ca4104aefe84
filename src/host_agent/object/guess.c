/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/guess.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/guard.h"
#include "base/lock.h"
#include "host_agent/object/fingerprint.h"

enum {
	SHARE = 64,  /* one in so many stays protected */
	ONE = 1024,  /* the odds of a store, as a fraction of this */
	WEIGHT = 16, /* of the past, against one new observation */
	WORTH = 640, /* from these odds on a wrong guess costs less than the faults */
	CHUNK_MIN =
		65536, /* with smaller chunks the table would be more than 0.05 % of the objects */
};

static struct soda_fingerprint *kept; /* by chunk */
static const struct soda_fingerprint_ops *hash;
static uint64_t secret;

static const struct soda_fingerprint_ops *fastest(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return &soda_fingerprint_avx2;
#endif
	return &soda_fingerprint_plain;
}

int soda_guess_start(void)
{
	uint64_t bytes = (soda_agent.bytes >> soda_agent.chunk_shift) * sizeof(*kept);
	void *p;

	kept = NULL;
	hash = fastest();
	if (soda_chunk_bytes() < CHUNK_MIN)
		return 0;
	if (getrandom(&secret, sizeof(secret), GRND_NONBLOCK) != sizeof(secret))
		secret = soda_now_ns() ^ (uintptr_t)&secret; /* early at boot */
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	madvise(p, bytes, MADV_NOHUGEPAGE);
	kept = p;
	return 0;
}

void soda_guess_undo(uint64_t chunks)
{
	if (kept)
		munmap(kept, chunks * sizeof(*kept));
	kept = NULL;
}

static uint32_t odds(const struct soda_region *r)
{
	return atomic_load_explicit(&r->store_odds, memory_order_relaxed);
}

/* No chunk is guessed: children of a fork want what they load for chunks that are not stored to. */
static _Atomic bool resting;

void soda_guess_rest(bool on)
{
	atomic_store_explicit(&resting, on, memory_order_relaxed);
}

bool soda_guess_active(const struct soda_region *r)
{
	return kept && odds(r) >= WORTH && !atomic_load_explicit(&resting, memory_order_relaxed);
}

bool soda_guess_wanted(struct soda_region *r)
{
	return soda_guess_active(r) &&
	       atomic_fetch_add_explicit(&r->load_turn, 1, memory_order_relaxed) % SHARE;
}

void soda_guess_learn(struct soda_region *r, bool stored)
{
	uint32_t p = odds(r);

	/* Two threads at once: one observation is lost. */
	if (stored)
		p += (ONE - p) / WEIGHT;
	else if (p >= WEIGHT)
		p -= p / WEIGHT;
	else
		return; /* so that a thread that only reads does not write to the object's struct */
	atomic_store_explicit(&r->store_odds, p, memory_order_relaxed);
}

void soda_guess_keep(struct soda_region *r, uint32_t id, const void *src, uint32_t bytes)
{
	if (!atomic_load_explicit(&r->guessed, memory_order_relaxed))
		atomic_store_explicit(&r->guessed, true, memory_order_relaxed);
	kept[id] = hash->take(src, bytes, secret);
}

struct comparison {
	uint32_t id, bytes;
	bool same;
};

static void compare(void *arg)
{
	struct comparison *c = arg;

	c->same = hash->same(&kept[c->id], soda_chunk_address(c->id), c->bytes, secret);
}

int soda_guess_unchanged(uint32_t id, uint32_t bytes)
{
	struct comparison c = { .id = id, .bytes = bytes };
	int ret = soda_guard_call(compare, &c);

	return ret ? ret : c.same;
}

void soda_guess_forget(uint32_t first, uint32_t n)
{
	uint64_t page = SODA_WIRE_PAGE;
	uintptr_t from, to;

	if (!kept)
		return;
	from = ((uintptr_t)&kept[first] + page - 1) & ~(page - 1);
	to = (uintptr_t)&kept[first + n] & ~(page - 1);
	if (from < to)
		madvise((void *)from, to - from, MADV_DONTNEED);
}

uint64_t soda_guess_bytes(const struct soda_region *r)
{
	uint64_t page = SODA_WIRE_PAGE, bytes = (uint64_t)r->chunks * sizeof(*kept);

	return atomic_load_explicit(&r->guessed, memory_order_relaxed)
		       ? (bytes + page - 1) & ~(page - 1)
		       : 0;
}
