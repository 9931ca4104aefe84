/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocation seam: every array whose size grows with the graph is
 * allocated here, from the heap (dram) or as an object of fabric memory (fam),
 * or is a file, served from a memory server or mapped from this machine's disk.
 * Nothing else in this program knows which of these it computes on, except
 * that no system call may be handed such an array: in fabric memory a page
 * that is not resident makes it fail with EFAULT (copy through a local buffer).
 */
#ifndef LIGRA_MEM_H
#define LIGRA_MEM_H

#include "graph/format/source.h"

#include <soda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum mem_kind {
	MEM_DRAM,
	MEM_FAM,	  /* anonymous objects, filled by this program */
	MEM_SERVED,	  /* files that the memory server exports, read-only */
	MEM_MMAP,	  /* files of this machine, mapped: what fabric memory is compared with */
	MEM_MMAP_ADVISED, /* the same, with the advice that fabric memory gets */
};

struct mem {
	enum mem_kind kind;
	uint64_t bytes; /* allocated now */
	uint64_t peak;	/* the most at a time; a caller may set it back to bytes */
	bool trusted;	/* a graph in it is not read for its checksums */
};

/*
 * Ready for allocations; for fam this starts the runtime, configured by the
 * environment, for `threads` threads.  0 or an error of soda_init().
 */
int mem_open(struct mem *mem, enum mem_kind kind, unsigned threads, struct soda_graph_error *err);

/*
 * A file as an object that must not be stored to; served: name is relative to
 * the server's export folder.  bytes: what it must have; 0: any, bytes_p
 * receives it.  0; -EINVAL: of another size; -ENOENT, -EACCES and the like.
 */
int mem_map(struct mem *mem, const char *name, size_t bytes, void **object_p, size_t *bytes_p,
	    struct soda_graph_error *err);

/*
 * A zero-filled object; dram and fam only.  0 or -ENOMEM, -ENOSPC and the like; 0 bytes are
 * allowed.
 */
int mem_alloc(struct mem *mem, size_t bytes, const char *name, void **object_p,
	      struct soda_graph_error *err);

/* Free the object; `bytes` as at allocation. Does nothing with NULL. */
void mem_free(struct mem *mem, void *object, size_t bytes);

/*
 * Advice (enum soda_advice) on fabric memory, or what madvise() has of it on an advised mapping; a
 * hint: nothing depends on its success.
 */
void mem_advise(const struct mem *mem, void *object, size_t bytes, int advice);

/* Ranges of objects that are read soon: soda_prefetchv(), or MADV_WILLNEED. A hint. */
void mem_prefetch(const struct mem *mem, const struct iovec *ranges, int n);

/* Whether a file of the graph is mapped as an object, and not read into one. */
static inline bool mem_is_file(const struct mem *mem)
{
	return mem->kind == MEM_SERVED || mem->kind == MEM_MMAP || mem->kind == MEM_MMAP_ADVISED;
}

/* Whether pages come over the network. */
static inline bool mem_is_fabric(const struct mem *mem)
{
	return mem->kind == MEM_FAM || mem->kind == MEM_SERVED;
}

/* Whether pages are far and advice is given: then to fetch ahead, and to sweep back and forth. */
static inline bool mem_is_far(const struct mem *mem)
{
	return mem_is_fabric(mem) || mem->kind == MEM_MMAP_ADVISED;
}

/* The runtime's counters; zeros for memory without the runtime. */
struct soda_stats mem_stats(const struct mem *mem);

const char *mem_kind_name(enum mem_kind kind);

#endif
