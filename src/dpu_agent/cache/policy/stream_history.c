/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/policy/stream_history.h"

enum { WAYS = 4, SETS_MIN = 64, RECORDS_MAX = 8192, AGE = 32 /* caches */ };
enum { RECENTLY = 1024, LAP = 256 }; /* requests */

static uint32_t sets_for(uint32_t slots)
{
	uint32_t sets = SETS_MIN;

	while (sets < 16 * slots && sets * WAYS < RECORDS_MAX)
		sets *= 2;
	return sets;
}

size_t soda_stream_history_bytes(uint32_t slots)
{
	return (size_t)sets_for(slots) * WAYS * sizeof(struct soda_stream_record);
}

void soda_stream_history_init(struct soda_stream_history *h, uint32_t slots, void *memory)
{
	*h = (struct soda_stream_history){ .records = memory,
					   .sets = sets_for(slots),
					   .halving = slots * AGE };
}

static struct soda_stream_record *set_of(const struct soda_stream_history *h, uint32_t owner,
					 uint64_t entry)
{
	uint64_t hash = (entry + ((uint64_t)owner << 40)) * 0x9e3779b97f4a7c15ull;

	return &h->records[(hash >> 32 & (h->sets - 1)) * WAYS];
}

struct soda_stream_record *soda_stream_find(const struct soda_stream_history *h, uint32_t owner,
					    uint64_t entry)
{
	struct soda_stream_record *set = set_of(h, owner, entry);

	for (int i = 0; i < WAYS; i++)
		if (set[i].entry == entry + 1 && set[i].owner == owner)
			return &set[i];
	return NULL;
}

/* The record of an entry, a new one in the place of the set's oldest. */
static struct soda_stream_record *get(struct soda_stream_history *h,
				      const struct soda_cache_key *key)
{
	struct soda_stream_record *r = soda_stream_find(h, key->owner, key->entry), *set;

	if (r)
		return r;
	set = set_of(h, key->owner, key->entry);
	r = &set[0];
	for (int i = 1; i < WAYS; i++)
		if (h->clock - set[i].when > h->clock - r->when)
			r = &set[i];
	*r = (struct soda_stream_record){ .entry = key->entry + 1,
					  .owner = key->owner,
					  .when = h->clock,
					  .slot = SODA_CACHE_NONE };
	return r;
}

uint32_t soda_stream_wanted(const struct soda_stream_history *h, const struct soda_stream_record *r)
{
	uint32_t ages = (h->clock - r->when) / h->halving;

	return ages < 16 ? r->wanted >> ages : 0;
}

struct soda_stream_record *soda_stream_note(struct soda_stream_history *h,
					    const struct soda_cache_key *key, bool *again_p)
{
	struct soda_stream_record *r = get(h, key);
	uint32_t count = soda_stream_wanted(h, r);

	*again_p = h->clock - r->when > LAP;
	/* Half of what is remembered goes with each age, also of those in steady use. */
	h->clock++;
	if (h->clock % h->halving == 0)
		for (uint32_t i = 0; i < h->sets * WAYS; i++)
			h->records[i].wanted /= 2;
	r->wanted = (uint16_t)(count < UINT16_MAX ? count + 1 : count);
	r->when = h->clock;
	return r;
}

void soda_stream_mark(struct soda_stream_record *r, uint64_t sectors, bool again)
{
	if (again || r->mask == UINT64_MAX) {
		r->last = r->mask;
		r->mask = r->repeats = 0;
	}
	if ((r->mask & sectors) == sectors && r->repeats < UINT8_MAX)
		r->repeats++;
	r->mask |= sectors;
}

bool soda_stream_lately(const struct soda_stream_history *h, const struct soda_stream_record *r)
{
	return r && h->clock - r->when < RECENTLY;
}

bool soda_stream_read_through(const struct soda_stream_record *r)
{
	int asked = __builtin_popcountll(r->mask), whole = __builtin_popcountll(r->last);
	int got = __builtin_popcountll(r->mask | r->has);
	int least = r->has ? SODA_STREAM_HALF / 2 : SODA_STREAM_HALF;

	if (whole < SODA_STREAM_HALF || r->has) /* a few spots say nothing of a stream */
		whole = 64;
	return r->repeats <= 2 && asked >= least && got * 4 >= whole * 3;
}
