/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench seal`: what sealing costs, and whether it holds.
 *
 *   seal.c    options; rounds of two processes, of which one seals; the report
 *   attack.c  reads and changes a memory server's memory, as somebody who has broken into it could
 *   victim.c  the process whose sealed object is attacked
 */
#ifndef SODA_BENCH_SEAL_H
#define SODA_BENCH_SEAL_H

#include <stdbool.h>
#include <stdint.h>

struct soda_seal_attack {
	uint64_t found_plain;  /* how often the text is in the server's memory: not sealed, */
	uint64_t found_sealed; /* and sealed */
	uint32_t tampered;     /* blocks that were changed there */
	uint32_t detected;     /* of them, whose touch was SIGBUS, */
	uint32_t served;       /* and whose content was read all the same */
	uint32_t lines;	       /* lines of the log that say so */
	uint32_t spoilt;       /* blocks that nobody changed, and that could not be read */
};

/*
 * Let a process fill an object on a server of its own, first not sealed, then sealed, and look for
 * its text; then change `blocks` blocks of the sealed one.  0, or negative errno after a message.
 */
int soda_seal_attack_run(bool shm, uint32_t blocks, struct soda_seal_attack *out);

/* The hidden command `soda bench .sealed FD BLOCKS SPARED TEXT`. */
int soda_seal_victim(int argc, char **argv);

enum { SODA_SEAL_BLOCK_BYTES = 4096, SODA_SEAL_TEXT = 32 };

/* What the parent asks of it: versions from 1 on are filled, sent and evicted; 0: touch all. */
struct soda_seal_answer {
	int32_t err; /* 0 or negative errno */
	uint32_t detected, served, lines, spoilt;
	char why[200];
};

#endif
