/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocation seam: every array whose size grows with the graph is
 * allocated here, from the heap (dram) or as an object of fabric memory (fam).
 * Nothing else in this program knows which of the two it computes on, except
 * that no system call may be handed such an array: in fabric memory a page
 * that is not resident makes it fail with EFAULT (copy through a local buffer).
 */
#ifndef LIGRA_MEM_H
#define LIGRA_MEM_H

#include "error.h"

#include <soda.h>

#include <stddef.h>
#include <stdint.h>

enum mem_kind { MEM_DRAM, MEM_FAM };

struct mem {
	enum mem_kind kind;
	uint64_t bytes; /* allocated now */
	uint64_t peak;	/* the most at a time; whoever asks may set it back to bytes */
};

/*
 * Ready for allocations; for fam this starts the runtime, configured by the
 * environment, for `threads` threads.  0 or an error of soda_init().
 */
int mem_open(struct mem *mem, enum mem_kind kind, unsigned threads, struct error *err);

/* A zero-filled object.  0 or -ENOMEM, -ENOSPC and the like; 0 bytes are allowed. */
int mem_alloc(struct mem *mem, size_t bytes, const char *name, void **object_p, struct error *err);

/* `bytes` as at allocation.  NULL is a no-op. */
void mem_free(struct mem *mem, void *object, size_t bytes);

/* Advice (enum soda_advice) on fabric memory, a hint: nothing depends on its success. */
void mem_advise(const struct mem *mem, void *object, size_t bytes, int advice);

/* The runtime's counters; zeros for dram. */
struct soda_stats mem_stats(const struct mem *mem);

const char *mem_kind_name(enum mem_kind kind);

#endif
