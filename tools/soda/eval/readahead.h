/* SPDX-License-Identifier: BSD-3-Clause */
/* The disk that files are on: its readahead, and what of files is in the page cache. */
#ifndef SODA_EVAL_READAHEAD_H
#define SODA_EVAL_READAHEAD_H

#include <stdbool.h>
#include <stdint.h>

#define SODA_EVAL_READAHEAD_KIB 128u /* Linux's default, and what the comparison is made with */

struct soda_eval_readahead {
	char path[256];	     /* of the setting; "": not known */
	uint32_t before_kib; /* what it was */
	int changed;	     /* negative errno: it could not be set */
};

/* Whether its files are only ever in memory: then nothing there is a disk's. */
bool soda_eval_readahead_none(const char *folder);
/* The disk of this folder, and what its setting is now. 0 or negative errno. */
int soda_eval_readahead_find(const char *folder, struct soda_eval_readahead *disk_p);
/* Set it; what is in force afterwards, KiB; 0: not known. */
uint32_t soda_eval_readahead_set(struct soda_eval_readahead *disk, uint32_t kib);
/* As it was. */
void soda_eval_readahead_restore(const struct soda_eval_readahead *disk);

/* Write what is dirty of a file and drop it from the page cache. 0 or negative errno. */
int soda_eval_drop_cached(const char *path);

#endif
