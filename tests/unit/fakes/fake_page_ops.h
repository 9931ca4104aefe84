/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's side of paging, as a fake: link it instead of uffd.c.  A shadow page
 * table says for each page whether it is present and write-protected; the memory
 * behind it is ordinary memory.  Each call of a page operation is checked:
 *
 *   copy     to missing pages of chunks that are FETCHING, or BUSY after a drop that failed;
 *            with `peer` others are left; it ends with ENOENT at one that has another mapping
 *   protect  present pages of chunks that are BUSY or FETCHING
 *   drop     of BUSY chunks only where the server (fake_conn.h) holds the same bytes, or,
 *            for chunks that it has no copy of, where all is zero; of FETCHING ones any
 *
 * A breach prints a line and aborts, because it may happen in any thread.
 */
#ifndef SODA_TESTS_FAKE_PAGE_OPS_H
#define SODA_TESTS_FAKE_PAGE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One lock for the pages and the server: a store is atomic against protection. */
void fake_lock(void);
void fake_unlock(void);
/* Abort with a message, and with what was set for this test (its seed). */
void fake_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void fake_context(const char *text);

/* Forget all pages, counters and failures; soda_agent.base is set. */
void fake_page_ops_reset(void);

/*
 * One 8-byte access as the processor and the kernel make it: a fault where the page
 * table says so, then again.  0, or the error of soda_fault_serve.
 */
int fake_store(void *addr, uint64_t value);
int fake_load(const void *addr, uint64_t *value_p);

/* Lock held: whether the page is there (and protected). */
bool fake_present(const void *addr);
bool fake_protected(const void *addr);
/* Lock held: the peer installs a page of a chunk that is FETCHING, unless it is there. */
void fake_peer_copy(void *page, const void *src, bool protect);
/* Without the lock: pages present of an address range. */
uint32_t fake_resident(const void *addr, size_t bytes);

extern struct fake_page_ops {
	/* counters, guarded by the lock */
	uint32_t copies, protects, unprotects, drops, dropped_ranges, dropped_chunks, wakes;
	uint32_t covered; /* copies that ended at a page with another mapping */
	/* failures to come: after so many more calls (copy, drop: pages), one fails with this
	   error, and what it has done is done */
	int64_t copy_fails_in, protect_fails_in, drop_fails_in; /* < 0: never */
	int error;
	/* Of one call: what the program wants gone may differ from the server's copy. */
	bool discarding;
	void (*on_open)(void); /* once, before pages are made writable, without the lock */
	bool peer;	       /* somebody else installs pages, too */
	bool poisons;	       /* as Linux 6.6 and later */
	const void *poisoned;  /* the last page with a mark */
} fake_page_ops;

#endif
