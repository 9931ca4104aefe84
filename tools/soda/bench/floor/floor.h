/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor: the bare mechanism, the yardstick of `soda bench fault --floor`.
 *
 * A fault is served in the faulting thread (UFFD_FEATURE_SIGBUS): fetch the chunk
 * from another process over that thread's own connection, UFFDIO_COPY it, and when
 * the limit is reached first drop the 16 oldest chunks (SODA: up to 32).  No prefetch, no
 * polling, no statistics on the path; its server's threads are bound to no processor, as SODA's are
 * (transport/listen/home.h).  Where the accesses only read, nothing is
 * write-protected.  Where they write, every resident chunk counts as dirty and
 * leaves by write-protect, send, acknowledgement, drop: the least that a correct
 * pager does.
 *
 *   tcp  two processes, loopback, one blocking connection a faulting thread, a
 *        blocking server thread for each
 *   shm  the region is a memfd of the other process, mapped here: UFFDIO_COPY
 *        straight from it, a write-back is a memcpy into it
 *
 * Uses nothing of SODA but the waits of soda/stage/patience.h.  One floor a process (a signal
 * handler has no argument).  Errors are 0 or negative errno; a fault that cannot be served is a
 * line on stderr and the end of the process.
 */
#ifndef SODA_FLOOR_H
#define SODA_FLOOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SODA_FLOOR_BATCH 16u /* chunks evicted at once */

struct soda_floor_options {
	uint64_t bytes;	      /* of the region */
	uint32_t chunk_bytes; /* a power of two, whole pages */
	uint32_t limit;	      /* resident chunks */
	uint32_t threads;     /* faulting threads */
	bool shm;
	bool writes; /* the accesses write */
	/* Fills the server's memory, in the server. */
	void (*fill)(uint64_t *words, uint64_t words_n, uint64_t seed);
	uint64_t seed;
};

/* Since the start. */
struct soda_floor_counters {
	uint64_t faults;	/* fetched + joined */
	uint64_t joined;	/* found another thread fetching the chunk */
	uint64_t fetched;	/* chunks */
	uint64_t written;	/* chunks */
	uint64_t resident_peak; /* chunks */
	uint64_t metadata_bytes;
};

/*
 * Start the server process, map the region at *base_p.  Call while the process has
 * one thread.  -EPERM, -ENOSYS: no userfaultfd; and what fork, socket and mmap return.
 */
int soda_floor_open(const struct soda_floor_options *opt, uint8_t **base_p);

/* The calling thread faults as number `thread` from now on. */
void soda_floor_attach(unsigned thread);

/*
 * Write back this thread's share of the resident chunks.  All threads call it, none
 * touches the region meanwhile.
 */
int soda_floor_sync(unsigned thread);

void soda_floor_counters(struct soda_floor_counters *out);

/* The server process, for its CPU time. */
pid_t soda_floor_server(void);

void soda_floor_close(void);

#endif
