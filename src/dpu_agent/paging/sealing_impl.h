/* SPDX-License-Identifier: BSD-3-Clause */
/* What sealing.c, which has regions and their blocks, and sealed_files.c share. */
#ifndef SODA_DPU_AGENT_SEALING_IMPL_H
#define SODA_DPU_AGENT_SEALING_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/paging/sealing.h"
#include "trust/sealed_file.h"

#define SEAL_PENDING (1ull << 63)
#define SEAL_ZERO (1ull << 62)
#define SEAL_LIFE_SHIFT 48
#define SEAL_NUMBER ((1ull << SEAL_LIFE_SHIFT) - 1)

/* version: a number of 48 bits, above it the life that sealed the block, and the flags. */
struct soda_sealing_block {
	uint8_t tag[SODA_SEAL_TAG];
	uint64_t version;
};
_Static_assert(SEAL_NUMBER == SODA_SEALED_VERSION_MAX, "as in the table of a file");

/*
 * An agent, from when it has found the state, or made it, to its end.  It seals with a key that is
 * drawn then: what it has seals nothing that a state of earlier, which was copied and brought back,
 * could seal again.
 */
struct soda_sealing_life {
	uint8_t key[SODA_KEY_BYTES];
	uint8_t salt[SODA_SEALED_OPEN_SALT]; /* of a file, from which the key is derived */
	uint8_t used;			     /* blocks may be sealed with it */
	uint8_t reserved[5];
};

enum { SODA_SEALING_LIVES = 84 };

static inline uint64_t soda_sealing_life(uint64_t version)
{
	return (version & ~(SEAL_PENDING | SEAL_ZERO)) >> SEAL_LIFE_SHIFT;
}

/*
 * The state's first page.  Pages of entries, one a block, follow; and behind them, of a file and
 * with --seal-state, the header and the table that it had when it was opened, as they lie in it.
 */
struct soda_sealing_head {
	uint64_t magic, format, bytes; /* of the region */
	uint64_t orphaned;	       /* blocks without a version are lost, not zeros */
	_Atomic uint64_t versions;     /* that were drawn: each by one encryption */
	uint64_t cipher; /* an agent that finds another one faster goes on with this one */
	/*
	 * A file's last commit that was begun, its number.  An agent that
	 * knows no files has left zeros here.
	 */
	uint64_t file, commits;
	struct soda_sealing_life lives[SODA_SEALING_LIVES];
};
_Static_assert(sizeof(struct soda_sealing_head) == 4096, "a page");

struct soda_sealing {
	struct soda_sealing *next_live; /* guarded by the sealer's lock */
	struct soda_sealer *sealer;
	struct soda_sealing *next; /* while it is parked */
	uint64_t parked_ms;	   /* since when it is */
	uint64_t client;
	uint16_t region;
	int fd;
	struct soda_sealing_head *head;
	uint64_t map_bytes, blocks;
	uint64_t reserved;	    /* bytes, of --seal-memory */
	uint32_t life;		    /* ours */
	struct soda_seal_key *keys; /* of all lives, in a page that no core file has */
	pthread_mutex_t lock;
	uint8_t *filled;    /* a bit for each page that has memory; guarded by lock, and so below */
	uint64_t metadata;  /* bytes */
	uint64_t disturbed; /* the version when a DISCARD began or ended last */
	unsigned discards;  /* under way */
	bool told;	    /* that blocks are lost with the agent before this one */
	/*
	 * Of a file, else NULL.  Its table has what was committed last: of blocks that have no
	 * entry of ours it does not change, and is read without the lock.  The commit's thread's
	 * alone but for that, and `confirmed`, too.
	 */
	struct soda_sealed_file *file;
	uint64_t confirmed; /* the number of the last commit that the server has made */
	bool refused;	    /* the server has refused a WRITE: nobody knows what it has of it;
			       guarded by lock, and so below */
	uint8_t *changed;   /* a byte for each page of the table: since then */
};

/* The entry as it is; without a version if its page has no memory. s->lock is held. */
struct soda_sealing_block soda_sealing_load_locked(const struct soda_sealing *s, uint64_t block);

#endif
