/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which loads are followed by a store.  A chunk that a load brings in is write-protected,
 * and its first store is a second fault, whose end flushes the TLBs of other cores.  Where
 * a program reads, then writes, this costs more than the rest.  So an object whose loaded
 * chunks get stored to has them installed writable, on a guess: DIRTY and GUESSED, with a
 * fingerprint of what the server holds.  A chunk that still has that fingerprint when it is
 * to be written back was not stored to, and is not sent.
 *
 *   learns    +  first store to a protected chunk; a GUESSED chunk that was stored to
 *             -  a protected chunk dropped without a store; a GUESSED one that was not
 *
 * One loaded chunk in SHARE stays protected, so that protect.c goes on seeing where stores go.
 * The fingerprint is keyed by a secret of the process: that two contents have the same one is
 * less likely than an undetected error of the machine's memory.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_GUESS_H
#define SODA_HOST_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"

/* Reserve the table of fingerprints; small chunks have none, and nothing is guessed. -ENOMEM. */
int soda_guess_start(void);
/* Unmap the table, which has fingerprints of so many chunks. */
void soda_guess_undo(uint64_t chunks);

/* Whether a chunk that a load brings in should be writable at once. AS. */
bool soda_guess_wanted(struct soda_region *r);

/* Whether most of the object's loaded chunks are made writable at once at present. AS. */
bool soda_guess_active(const struct soda_region *r);

/*
 * While it is on no chunk is made writable on a guess: what is writable has to be kept for the
 * children of forks (fork/views.h), whether it is stored to or not. AS.
 */
void soda_guess_rest(bool on);

/* A loaded chunk of the object was stored to, or was dropped without a store. AS. */
void soda_guess_learn(struct soda_region *r, bool stored);

/* Take the fingerprint of a chunk's content, `bytes` at src, which nobody changes meanwhile. AS. */
void soda_guess_keep(struct soda_region *r, uint32_t id, const void *src, uint32_t bytes);

/*
 * Whether a protected, resident chunk still has the content of its fingerprint: 1, 0; -EFAULT: the
 * program has closed some of its pages. AS.
 */
int soda_guess_unchanged(uint32_t id, uint32_t bytes);

/* Give the system back the table's pages that hold only these chunks' fingerprints. */
void soda_guess_forget(uint32_t first, uint32_t n);

/* Bytes of memory that an object's fingerprints take. */
uint64_t soda_guess_bytes(const struct soda_region *r);

#endif
