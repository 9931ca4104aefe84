/* SPDX-License-Identifier: BSD-3-Clause */
/* How objects come and go, and the addresses that all of them lie in. */
#ifndef SODA_HOST_OBJECT_H
#define SODA_HOST_OBJECT_H

#include "host_agent/object/region.h"

/*
 * Reserve the address range, its chunk table and all that is kept of chunks, register it.  -ENOMEM,
 * userfaultfd errors.
 */
int soda_objects_start(struct soda_why *why);
/* Undo that, as far as it came: the start failed, and there was no object.  userfaultfd is closed.
 */
void soda_objects_undo(void);
/* Take the addresses away: a touch is SIGSEGV from now on.  The objects stay known. */
void soda_objects_end(void);

/* Beside the flags of soda_alloc_file(): behind the heap's other regions, if there is room. */
enum { SODA_REGION_HEAP = 1 << 30 };

/*
 * Make an object: addresses, the server's region, chunk states.  file NULL:
 * anonymous.  api_lock held.  Errors of soda_alloc_file().
 */
int soda_object_create(const char *file, uint64_t bytes, uint32_t flags,
		       struct soda_region **region_p, struct soda_why *why);
/*
 * Undo it: resident chunks dropped, nothing written back.  api_lock held.  Where the server does
 * not close its part, which it then has until the program ends, that is logged, and said in *why.
 */
void soda_object_destroy(struct soda_region *r, struct soda_why *why);

/*
 * Start the runtime if it does not run, make an object, recompute the page
 * buffer.  file NULL: anonymous.  api_lock held.  Errors of soda_alloc_file().
 */
int soda_object_create_locked(const char *file, size_t bytes, unsigned flags,
			      struct soda_region **region_p, struct soda_why *why);

#endif
