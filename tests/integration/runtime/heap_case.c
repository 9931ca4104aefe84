/* SPDX-License-Identifier: BSD-3-Clause */
#include "heap_case.h"

#include <stdio.h>
#include <sys/wait.h>

struct world heap_world;

struct soda_config heap_config(size_t more)
{
	static char text[32];
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = heap_world.address;
	cfg.threads = 4;
	set_buffer(&cfg, smallest_buffer(cfg) + more, text);
	return cfg;
}

void heap_fill(struct block *b, size_t bytes, uint64_t key)
{
	b->words = soda_malloc(bytes);
	CHECK(b->words, "%s", soda_last_error());
	CHECK((uintptr_t)b->words % 16 == 0 || bytes < 16);
	b->n = bytes / 8;
	b->key = key;
	for (size_t i = 0; i < b->n; i++)
		b->words[i] = mix(i, key);
}

void heap_verify(const struct block *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(b->words[i] == mix(i, b->key), "block %llu, word %zu: %llx",
		      (unsigned long long)b->key, i, (unsigned long long)b->words[i]);
}

static void child_probe(const void *arg)
{
	setenv("SODA_SERVER", "nowhere", 1);
	_exit(!soda_malloc(1) && errno == ENOTSUP ? 77 : 0);
}

/* Known before any case: without a server it fails for another reason where there is a heap. */
static bool have_heap(void)
{
	struct trial probe = { .child = child_probe };
	struct outcome out;

	trial_run(&probe, &out);
	return !(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 77);
}

int heap_run(const char *name, const struct CMUnitTest *tests, size_t n)
{
	if (!have_heap()) {
		puts("SKIP: this libsoda has no heap: it was built without jemalloc");
		return 77;
	}
	return world_run(name, &heap_world, false, tests, n);
}
