/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A second instance of the object that libsoda has its heap from, configured alike, whose memory
 * comes from the kernel: that, and what the functions around it cost, is all that differs.
 */
#include "soda/bench/heap/heap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>

void *soda_je_malloc(size_t bytes);
void soda_je_free(void *p);
int soda_je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);

extern const char *soda_je_malloc_conf;
const char *soda_je_malloc_conf =
	"narenas:1,retain:true,oversize_threshold:0,max_background_threads:1,"
	"dirty_decay_ms:1000,muzzy_decay_ms:0,lg_extent_max_active_fit:10";

/* Its configuration, and a profile, would come from this. */
char *soda_je_secure_getenv(const char *name);
char *soda_je_secure_getenv(const char *name)
{
	return NULL;
}

ssize_t soda_je_readlink(const char *path, char *buf, size_t bytes);
ssize_t soda_je_readlink(const char *path, char *buf, size_t bytes)
{
	errno = ENOENT;
	return -1;
}

int soda_je__Unwind_Backtrace(void *fn, void *arg);
int soda_je__Unwind_Backtrace(void *fn, void *arg)
{
	return 0;
}

uintptr_t soda_je__Unwind_GetIP(void *context);
uintptr_t soda_je__Unwind_GetIP(void *context)
{
	return 0;
}

/* And how it learns that a thread ends. */
int soda_je_pthread_key_create(pthread_key_t *key_p, void (*destructor)(void *));
int soda_je_pthread_key_create(pthread_key_t *key_p, void (*destructor)(void *))
{
	return pthread_key_create(key_p, destructor);
}

int soda_je_pthread_setspecific(pthread_key_t key, const void *value);
int soda_je_pthread_setspecific(pthread_key_t key, const void *value)
{
	return pthread_setspecific(key, value);
}

__attribute__((visibility("default"))) const struct soda_heap_ops *soda_heap_plain(void)
{
	static const struct soda_heap_ops ops = { soda_je_malloc, soda_je_free };
	bool on = true;

	soda_je_mallctl("background_thread", NULL, NULL, &on, sizeof(on));
	return &ops;
}
