/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a cache policy of soda-dpu-agent is: it says which entries the dynamic cache
 * fetches and which one goes.  Besides those built in, the agent loads policies from
 * shared objects that include this file, and no other of SODA (docs/policies.md).
 *
 * The cache is an array of `slots`, each holding one entry: entry_bytes of one
 * owner (a file, or a client's region), whose entries are numbered from 0.
 *
 * A policy only decides: no I/O, no locks, no clock, no allocation.  All its
 * memory is the state, of a size that it names, zeroed and aligned to 64 bytes.
 * The functions of one policy are called by one thread at a time.  What they
 * return is checked: nonsense is refused and counted, and a policy that goes on
 * with it is replaced.
 *
 * Order of calls, for each request: hit, if the cache holds or awaits its entry;
 * predict; for each entry predicted that is not in the cache admit, victim and drop if
 * no slot is free, and fill: its data come later.  Requests may be left out when
 * they come too fast.  While caching does not pay for an owner nothing of it is fetched:
 * its requests still go to predict and admit.
 */
#ifndef SODA_CACHE_POLICY_H
#define SODA_CACHE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every change that breaks older shared objects. */
#define SODA_CACHE_POLICY_ABI 2u
/* The symbol that a shared object defines: const struct soda_cache_policy soda_cache_policy. */
#define SODA_CACHE_POLICY_SYMBOL "soda_cache_policy"

#define SODA_CACHE_NONE UINT32_MAX
/* Most entries that predict may name for one request. */
#define SODA_CACHE_PREDICT_MAX 4u

struct soda_cache_key {
	uint32_t owner; /* ids are dense and used again */
	uint64_t entry; /* number of the entry in its owner */
};

/* Constant as long as the state lives. */
struct soda_cache_setup {
	uint32_t slots;
	uint32_t entry_bytes; /* a power of two */
	uint64_t seed;	      /* for policies that throw dice */
	/* Whether the slot holds an entry that nobody uses now: what victim may return. */
	bool (*evictable)(const void *cache, uint32_t slot);
	const void *cache;
};

/* One request of a client. */
struct soda_cache_touch {
	struct soda_cache_key key;
	uint32_t offset, bytes; /* in the entry; whole pages, at least one */
	uint32_t slot;		/* that holds or awaits the entry; SODA_CACHE_NONE: not cached */
	uint64_t entries;	/* of the owner: 0 .. entries - 1 exist */
	/* The owner has one client, which says what it has; and the 64ths of this entry that
	   that is, with what it asks for now. */
	bool told;
	uint64_t has;
};

/* What predict asks for: an entry of the touch's owner, or the parts of it that are worth it. */
struct soda_cache_want {
	uint64_t entry;
	uint64_t sectors; /* a bit for each 64th of the entry; 0 is nonsense; a hint: the
			     cache may fetch somewhat more */
	bool once;	  /* it will be read once: where the client says what it has, that is left
			     out */
};
#define SODA_CACHE_WHOLE UINT64_MAX

struct soda_cache_policy {
	uint32_t abi;	       /* SODA_CACHE_POLICY_ABI */
	uint32_t struct_bytes; /* sizeof(struct soda_cache_policy) */
	const char *name;      /* as the file is called */
	/* How much state it wants; at most a 64th of the cache's bytes, or 1 MiB. */
	size_t (*state_bytes)(const struct soda_cache_setup *setup);
	/* Make the (zeroed) state ready. setup stays valid. */
	void (*init)(void *state, const struct soda_cache_setup *setup);
	/* A predicted entry that is not cached: shall it be? */
	bool (*admit)(void *state, const struct soda_cache_key *key);
	/* A request met touch->slot. */
	void (*hit)(void *state, const struct soda_cache_touch *touch);
	/* The slot holds these sectors of this entry from now on. */
	void (*fill)(void *state, uint32_t slot, const struct soda_cache_key *key,
		     uint64_t sectors);
	/* A slot to be emptied, one that is evictable; SODA_CACHE_NONE: there is none. */
	uint32_t (*victim)(void *state);
	/* The slot is empty: its entry was evicted, written to, closed, or could not be had. */
	void (*drop)(void *state, uint32_t slot);
	/*
	 * After this request: which entries of the same owner should be in the cache?
	 * Writes at most max of them, below touch->entries, and returns how many.
	 * Entries that are cached already, if only in parts, may be among them: nothing
	 * is fetched for them.
	 */
	uint32_t (*predict)(void *state, const struct soda_cache_touch *touch,
			    struct soda_cache_want *wants_p, uint32_t max);
};

#ifdef __cplusplus
}
#endif
#endif
