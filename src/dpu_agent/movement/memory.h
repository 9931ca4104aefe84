/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the agent shares with programs: memory files whose size nobody can change, so that no
 * touch of their mapping is SIGBUS, with all of their pages from the beginning.
 */
#ifndef SODA_DPU_AGENT_MOVEMENT_MEMORY_H
#define SODA_DPU_AGENT_MOVEMENT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/api/transport.h"

/* In whole pages. */
uint64_t soda_memory_pages(uint64_t bytes);

enum soda_memory_kind {
	SODA_MEMORY_READ_ONLY, /* for others: only this mapping can ever be written */
	SODA_MEMORY_SHARED,    /* all that have the descriptor may write */
	SODA_MEMORY_MAPPED,    /* SHARED, and the agent's page tables are filled now */
};

/*
 * Make whole pages of zeros, mapped to be written by the agent; takes their memory now, which may
 * take 100 ms a GiB.  -ENOMEM; -ENOTSUP: the kernel cannot seal memory. why is set, nothing is left
 * then.
 */
int soda_memory_make(const char *name, uint64_t bytes, enum soda_memory_kind kind, int *fd_p,
		     uint8_t **memory_p, struct soda_why *why);
/* memory NULL: nothing. */
void soda_memory_unmake(int fd, uint8_t *memory, uint64_t bytes);

#endif
