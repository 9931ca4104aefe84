/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which loads are followed by a store.  A chunk that a load brings in is write-protected,
 * and its first store is a second fault, whose end flushes the TLBs of other cores.  Where
 * a program reads, then writes, this costs more than the rest.  So an object whose loaded
 * chunks get stored to has them installed writable, on a guess: DIRTY and GUESSED, with a
 * fingerprint of what the server holds.  What has that fingerprint still when it is
 * to be written back was not written, and is not sent.
 *
 *   learns    +  first store to a protected chunk; a GUESSED chunk that was stored to
 *             -  a protected chunk dropped without a store; a GUESSED one that was not
 *
 * One in SHARE stays protected, so that protect.c goes on seeing where stores go.
 * The fingerprint is keyed by a secret of the process; two contents with the same one are
 * as likely as any other failure of the machine's memory that nobody plans for.
 */
#ifndef SODA_HOST_GUESS_H
#define SODA_HOST_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"

/* Reserve the table of fingerprints; small chunks have none, and nothing is guessed. -ENOMEM. */
int soda_guess_start(void);
/* Give it back: of so many chunks. */
void soda_guess_undo(uint64_t chunks);

/* Whether a chunk that a load brings in should be writable at once. AS. */
bool soda_guess_wanted(struct soda_region *r);

/* Whether that is so for most of the object's chunks at present. AS. */
bool soda_guess_active(const struct soda_region *r);

/* A chunk of the object was stored to, or left without. AS. */
void soda_guess_learn(struct soda_region *r, bool stored);

/* Remember the content of a chunk, `bytes` at src, that nobody changes meanwhile. AS. */
void soda_guess_keep(struct soda_region *r, uint32_t id, const void *src, uint32_t bytes);

/*
 * Whether a protected, resident chunk has still the content that was kept: 1, 0; -EFAULT: the
 * program has closed some of it. AS.
 */
int soda_guess_unchanged(uint32_t id, uint32_t bytes);

/* Give the pages back that hold fingerprints of these chunks only. */
void soda_guess_forget(uint32_t first, uint32_t n);

/* What fingerprints of an object take. */
uint64_t soda_guess_bytes(const struct soda_region *r);

#endif
