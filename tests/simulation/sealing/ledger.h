/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every encryption of every program, under any key: by this the simulation reads what servers have,
 * and knows a nonce that is used twice.  It is the world's, so that what an agent that has ended
 * has sealed is in it, too.
 *
 * The cipher protects nothing: a word of a block is XORed with the mix of a number, and the tag is
 * a sum over all that.
 */
#ifndef SODA_SIM_LEDGER_H
#define SODA_SIM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_BLOCK = 4096, SIM_BLOCK_WORDS = SIM_BLOCK / 8 };

struct sim_tag {
	uint64_t words[2];
};

uint64_t sim_ledger_mix(uint64_t x);
/* What the first word is changed by; each next one by the mix of a number more. */
uint64_t sim_ledger_stream(uint64_t key, uint32_t block, uint64_t version);
struct sim_tag sim_ledger_tag(uint64_t stream, const uint64_t *sealed);
bool sim_ledger_same(const struct sim_tag *a, const void *b);

/* One encryption more. Fails the seed if the key has sealed anything with that version before. */
void sim_ledger_note(uint64_t key, uint32_t block, uint64_t version, const uint64_t *sealed,
		     struct sim_tag tag);
/*
 * Open a page that somebody has as that block.  What nobody has ever sealed so is not opened:
 * false; but zeros are zeros.
 */
bool sim_ledger_open(const void *page, uint32_t block, void *plain);
/* Of it one word alone, at that byte. */
bool sim_ledger_read(const void *page, uint32_t block, size_t at, uint64_t *word_p);

#endif
