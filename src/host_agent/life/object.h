/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and freeing objects, and the address range in which all of them lie. */
#ifndef SODA_HOST_OBJECT_H
#define SODA_HOST_OBJECT_H

#include "host_agent/object/region.h"

/*
 * Reserve the address range, its chunk table and the other tables of chunks, and register the range
 * with userfaultfd.  -ENOMEM, userfaultfd errors.
 */
int soda_objects_start(struct soda_why *why);
/*
 * Free what soda_objects_start() got: the start has failed, no object was made, userfaultfd is
 * closed.
 */
void soda_objects_undo(void);
/* Make each touch of the range SIGSEGV from now on.  The objects stay in their table. */
void soda_objects_end(void);

/*
 * A flag beside those of soda_alloc_file(): the heap's; placed behind its other objects, if
 * possible.
 */
enum { SODA_REGION_HEAP = 1 << 30 };
/* The bits of soda_alloc()'s flags that say the object's redundancy: a kind, and its numbers. */
enum { SODA_OBJECT_REDUNDANCY = 0xfff0000 };

/*
 * Make ready for sealed objects. api_lock held. 0; -ENOTSUP: there is no OpenSSL; -ENOMEM: the page
 * buffer has no room for what sealing needs of it; with a sentence.
 */
int soda_object_seals(struct soda_why *why);

/*
 * Make an object: open the region on the server, choose addresses, set chunk states.  file NULL:
 * anonymous; with SODA_REGION_PUBLISHED a published object's name.  api_lock held.  Errors of
 * soda_alloc_file() and soda_open_published().
 */
int soda_object_create(const char *file, uint64_t bytes, uint32_t flags,
		       struct soda_region **region_p, struct soda_why *why);
/*
 * Free an object: drop its chunks, write nothing back, close its region.  api_lock held.  If the
 * server refuses to close the region, it keeps it until the program ends; that is logged, and *why
 * says it.
 */
void soda_object_destroy(struct soda_region *r, struct soda_why *why);

/*
 * Start the runtime if it does not run, make an object, recompute the page
 * buffer's limit.  file NULL: anonymous.  api_lock held.  Errors of soda_alloc_file().
 */
int soda_object_create_locked(const char *file, size_t bytes, unsigned flags,
			      struct soda_region **region_p, struct soda_why *why);

#endif
