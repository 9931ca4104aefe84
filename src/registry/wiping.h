/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is overwritten when it is given back, for passwords and tokens of etcd's users, and
 * for the libraries that they go through.  It is malloc()'s, and free() takes it, too.
 */
#ifndef SODA_REGISTRY_WIPING_H
#define SODA_REGISTRY_WIPING_H

#include <stddef.h>

/* As free(3). */
void soda_wiping_free(void *p);
/* As realloc(3), but for bytes 0. NULL: the block stays. */
void *soda_wiping_realloc(void *p, size_t bytes);

#endif
