/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the program of the campaign gets memory and speaks of it: through soda.h
 * (memory_soda.c), or as a program that knows nothing of SODA and is run by `soda run`
 * (memory_plain.c).  A function that is NULL is not to be had there.
 */
#ifndef SODA_TORTURE_MEMORY_H
#define SODA_TORTURE_MEMORY_H

#include <stddef.h>

struct memory {
	/* Zeros. NULL and errno. */
	void *(*alloc)(size_t bytes);
	void (*free)(void *p, size_t bytes);
	/* A file of the server; for writing, or read-only. NULL and errno. */
	void *(*file)(const char *name, int writable, size_t *bytes_p);

	/* The same of one that is to be made, for writing, and sealed where all is. */
	void *(*make)(const char *name, size_t bytes);

	/* 0 or negative errno, as of soda.h. */
	int (*sync)(void *p, size_t bytes);
	int (*discard)(void *p, size_t bytes);
	int (*cold)(void *p, size_t bytes);
	int (*pin)(void *p, size_t bytes);
	int (*unpin)(void *p, size_t bytes);
	int (*prefetch)(void *p, size_t bytes);
	int (*freeze)(void *p, size_t bytes); /* into the static cache of a DPU agent */

	void *(*heap_alloc)(size_t bytes);
	void (*heap_free)(void *p);

	/* Why the last call of the thread failed, or "". */
	const char *(*why)(void);
};

extern const struct memory memory;

#endif
