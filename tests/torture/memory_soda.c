/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

#include "soda.h"

static void *soda_memory(size_t bytes)
{
	return soda_alloc(bytes, 0);
}

static void give_back(void *p, size_t bytes)
{
	soda_free(p);
}

static void *file(const char *name, int writable, size_t *bytes_p)
{
	return soda_alloc_file(name, 0, writable ? SODA_WRITABLE : SODA_READ_ONLY, bytes_p);
}

static void *make(const char *name, size_t bytes)
{
	return soda_alloc_file(name, bytes, SODA_WRITABLE | SODA_CREATE, NULL);
}

static int discard(void *p, size_t bytes)
{
	return soda_advise(p, bytes, SODA_DISCARD);
}

static int cold(void *p, size_t bytes)
{
	return soda_advise(p, bytes, SODA_COLD);
}

static int pin(void *p, size_t bytes)
{
	return soda_advise(p, bytes, SODA_PIN);
}

static int unpin(void *p, size_t bytes)
{
	return soda_advise(p, bytes, SODA_UNPIN);
}

static int prefetch(void *p, size_t bytes)
{
	return soda_prefetch(p, bytes);
}

static int freeze(void *p, size_t bytes)
{
	return soda_advise(p, bytes, SODA_STATIC_CACHE);
}

const struct memory memory = {
	.alloc = soda_memory,
	.free = give_back,
	.file = file,
	.make = make,
	.sync = soda_sync,
	.discard = discard,
	.cold = cold,
	.pin = pin,
	.unpin = unpin,
	.prefetch = prefetch,
	.freeze = freeze,
	.heap_alloc = soda_malloc,
	.heap_free = soda_free,
	.why = soda_last_error,
};
