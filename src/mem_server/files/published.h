/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects that clients have published: a region's memory under a name, as a READ_ONLY file that
 * lies in no directory (docs/internals/published.md).  Each owner, a user or a tenant, has names of
 * its own.  The name
 * and the memory go with the last use.
 *
 * An object is in the list of the files in use, guarded by the files' lock.
 */
#ifndef SODA_MEM_SERVER_PUBLISHED_H
#define SODA_MEM_SERVER_PUBLISHED_H

#include <sys/types.h>

#include "mem_server/files/files.h"

/* What a published object is known by; constant. */
struct soda_published {
	uint64_t id;	/* random, not 0 */
	uint64_t owner; /* whose name it is: a user, or a tenant (soda_region_set.owner) */
	char name[SODA_WIRE_MAX_NAME + 1];
	/*
	 * A descriptor of the memory for programs that open the object: opened anew for reading,
	 * so that nobody writes by it.  -1: the memory has none.
	 */
	int fd;
};

/*
 * Make a string of a name from a peer: 1 to SODA_WIRE_MAX_NAME printable characters of ASCII, no
 * space.  0, -EINVAL.
 */
int soda_published_check(const char *name, size_t bytes, char out[SODA_WIRE_MAX_NAME + 1],
			 struct soda_why *why);

/*
 * Publish memory, to which nobody writes any more, of an object of so many bytes, for which an
 * account is charged.  name: checked.  0: *file_p has the memory, with one use, which ends with
 * soda_files_close() and that account; -EEXIST: the user has an object of that name; -ENOMEM;
 * errors of open(2).
 */
int soda_published_add(struct soda_files *files, uint64_t owner, const char *name,
		       const struct soda_memory *memory, uint64_t bytes, struct soda_file **file_p,
		       struct soda_why *why);

/*
 * Begin a use of the user's object of that name, which is charged to the account until
 * soda_files_close().  0; -ENOENT; -EDQUOT.
 */
int soda_published_open(struct soda_files *files, uint64_t owner, const char *name,
			struct soda_account *account, struct soda_file **file_p,
			struct soda_why *why);

/* For each object of soda_published_add(), when nobody uses it any more. NULL: nothing to do. */
void soda_published_free(struct soda_published *published);

#endif
