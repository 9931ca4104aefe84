/* SPDX-License-Identifier: BSD-3-Clause */
/* Making an object, for the public functions and for the heap. */
#ifndef SODA_HOST_OBJECT_H
#define SODA_HOST_OBJECT_H

#include "host_agent/object/region.h"

/*
 * Start the runtime if it does not run, make an object, recompute the page
 * buffer.  file NULL: anonymous.  api_lock held.  Errors of soda_alloc_file().
 */
int soda_object_create_locked(const char *file, size_t bytes, unsigned flags,
			      struct soda_region **region_p, struct soda_why *why);

#endif
