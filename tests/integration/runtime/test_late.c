/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libsoda loaded by dlopen(3), as a program's plug-in or an interpreter's module is, late, where
 * others have taken most of what the C library keeps for static thread-local data.  This program is
 * not linked with libsoda.
 */
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"
#include "soda.h"

#define LIBRARY "src/host_agent/libsoda.so.0"

enum { TLS_MOST = 512, THREADS = 4, MIB = 1 << 20 };

static struct {
	void *(*alloc)(size_t, unsigned);
	void *(*malloc)(size_t);
	void (*free)(void *);
	int (*get_stats)(struct soda_stats *, size_t);
	const char *(*last_error)(void);
	int (*shutdown)(void);
} soda;

/* The address of a function, in the variable at function_p. */
static void find(void *lib, const char *name, void *function_p)
{
	void *found = dlsym(lib, name);

	assert_non_null(found);
	memcpy(function_p, &found, sizeof(found));
}

/* What is static of a thread's data is small: what the C library keeps is for all that come late.
 */
static void test_tls_size(void **state)
{
	FILE *in = fopen(build_path(LIBRARY), "rb");
	Elf64_Ehdr head;
	Elf64_Phdr part;
	unsigned found = 0;

	assert_non_null(in);
	assert_int_equal(fread(&head, sizeof(head), 1, in), 1);
	assert_memory_equal(head.e_ident, ELFMAG, SELFMAG);
	assert_int_equal(fseek(in, (long)head.e_phoff, SEEK_SET), 0);
	for (unsigned i = 0; i < head.e_phnum; i++) {
		assert_int_equal(fread(&part, sizeof(part), 1, in), 1);
		if (part.p_type != PT_TLS)
			continue;
		found++;
		assert_in_range(part.p_memsz, 1, TLS_MOST);
	}
	fclose(in);
	assert_int_equal(found, 1);
}

/*
 * All functions are found when the library is loaded: the loader would take its locks and a good
 * part of a small stack in the handler of a fault.  And it stays.
 */
static void test_binds_at_once(void **state)
{
	FILE *in = fopen(build_path(LIBRARY), "rb");
	Elf64_Ehdr head;
	Elf64_Phdr part;
	Elf64_Dyn entry;
	uint64_t flags = 0;

	assert_non_null(in);
	assert_int_equal(fread(&head, sizeof(head), 1, in), 1);
	for (unsigned i = 0; i < head.e_phnum; i++) {
		assert_int_equal(fseek(in, (long)(head.e_phoff + i * sizeof(part)), SEEK_SET), 0);
		assert_int_equal(fread(&part, sizeof(part), 1, in), 1);
		if (part.p_type != PT_DYNAMIC)
			continue;
		assert_int_equal(fseek(in, (long)part.p_offset, SEEK_SET), 0);
		while (fread(&entry, sizeof(entry), 1, in) == 1 && entry.d_tag != DT_NULL)
			if (entry.d_tag == DT_FLAGS_1)
				flags = entry.d_un.d_val;
	}
	fclose(in);
	assert_true(flags & DF_1_NOW);
	assert_true(flags & DF_1_NODELETE);
}

static void *load(const char *name)
{
	void *lib = dlopen(build_path(name), RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		print_message("%s\n", dlerror());
	return lib;
}

static void fill(uint64_t *words, size_t n, uint64_t key)
{
	for (size_t i = 0; i < n; i++)
		words[i] = key + i;
}

static bool holds(const uint64_t *words, size_t n, uint64_t key)
{
	for (size_t i = 0; i < n; i++)
		if (words[i] != key + i)
			return false;
	return true;
}

/* Blocks of several sizes, all alive at once, then freed, a half of them by another thread. */
static void *use_heap(void *arg)
{
	enum { BLOCKS = 200, WORDS = 40 };
	uint64_t key = (uintptr_t)arg << 32;
	uint64_t **blocks = calloc(BLOCKS, sizeof(*blocks));

	for (size_t i = 0; blocks && i < BLOCKS; i++) {
		blocks[i] = soda.malloc((WORDS + i) * sizeof(uint64_t));
		if (!blocks[i])
			return NULL;
		fill(blocks[i], WORDS + i, key + (i << 16));
	}
	for (size_t i = 0; blocks && i < BLOCKS; i++) {
		if (!holds(blocks[i], WORDS + i, key + (i << 16)))
			return NULL;
		if (i % 2)
			soda.free(blocks[i]);
	}
	return blocks;
}

/* A thread that has never allocated frees. */
static void *free_rest(void *arg)
{
	uint64_t **blocks = arg;

	for (size_t i = 0; i < 200; i += 2)
		soda.free(blocks[i]);
	free(blocks);
	return NULL;
}

static void in_thread(void *(*function)(void *), void *arg, void **result_p)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, function, arg), 0);
	assert_int_equal(pthread_join(thread, result_p), 0);
}

static void threads_use_heap(void)
{
	pthread_t threads[THREADS];
	void *blocks, *none;

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_heap, (void *)(i + 1)), 0);
	for (uintptr_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &blocks), 0);
		assert_non_null(blocks);
		in_thread(free_rest, blocks, &none);
	}
}

/* A child is a copy with no fabric memory; its own malloc() and threads are as they were. */
static void forks(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(soda.malloc(10) || !malloc(10) ? 1 : 0);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* May: ends | loads the library by dlopen() | served */
static void test_late(void **state)
{
	enum { BYTES = 24 * MIB };
	struct soda_stats st;
	struct server server;
	uint64_t *words;
	void *lib, *first;

	alarm(120);
	assert_int_equal(SERVER_START(&server, "--capacity=256M"), 0);
	setenv("SODA_SERVER", server.address, 1);
	setenv("SODA_BUFFER", "8M", 1);
	assert_non_null(load("tests/integration/runtime/libtls_filler1.so"));
	assert_non_null(load("tests/integration/runtime/libtls_filler2.so"));
	lib = load(LIBRARY);
	assert_non_null(lib);
	/* it was tight: there is no room for another such library */
	assert_null(load("tests/integration/runtime/libtls_filler3.so"));
	find(lib, "soda_alloc", &soda.alloc);
	find(lib, "soda_malloc", &soda.malloc);
	find(lib, "soda_free", &soda.free);
	find(lib, "soda_get_stats", &soda.get_stats);
	find(lib, "soda_last_error", &soda.last_error);
	find(lib, "soda_shutdown", &soda.shutdown);

	words = soda.alloc(BYTES, 0);
	if (!words)
		fail_msg("%s", soda.last_error());
	fill(words, BYTES / sizeof(*words), 7);
	assert_true(holds(words, BYTES / sizeof(*words), 7));
	assert_int_equal(soda.get_stats(&st, sizeof(st)), 0);
	assert_true(st.fetches + st.prefetched > 0);
	soda.free(words);

	if (getenv("SODA_TEST_NO_HEAP")) {
		print_message("SKIP: this libsoda has no heap: it was built without jemalloc\n");
	} else {
		first = use_heap((void *)100);
		assert_non_null(first);
		threads_use_heap();
		forks();
		free_rest(first);
	}
	assert_int_equal(soda.shutdown(), 0);
	assert_null(soda.malloc(1));
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

/* Has used the heap, and ends when the library has been closed. */
static void *outlive_library(void *arg)
{
	const int *ends = arg;
	void *block = soda.malloc(1000);
	char byte = block ? 'y' : 'n';

	soda.free(block);
	if (write(ends[1], &byte, 1) != 1 || read(ends[2], &byte, 1) != 1)
		return NULL;
	return block;
}

static int close_library(void)
{
	int ends[4];
	pthread_t thread;
	void *lib, *used;
	char byte;

	lib = dlopen(build_path(LIBRARY), RTLD_NOW | RTLD_LOCAL);
	if (!lib || pipe(ends) || pipe(ends + 2))
		return 2;
	find(lib, "soda_malloc", &soda.malloc);
	find(lib, "soda_free", &soda.free);
	find(lib, "soda_shutdown", &soda.shutdown);
	if (pthread_create(&thread, NULL, outlive_library, ends) || read(ends[0], &byte, 1) != 1 ||
	    soda.shutdown() || dlclose(lib))
		return 3;
	if (write(ends[3], &byte, 1) != 1 || pthread_join(thread, &used))
		return 4;
	return used ? 0 : 5;
}

/*
 * A library that is closed: what the C library calls at a thread's end, and at the program's, is
 * still there.
 *
 * May: ends | closes the library by dlclose() | the library stays
 */
static void test_closed(void **state)
{
	struct server server;
	int status;
	pid_t pid;

	if (getenv("SODA_TEST_NO_HEAP"))
		skip();
	assert_int_equal(SERVER_START(&server, "--capacity=64M"), 0);
	setenv("SODA_SERVER", server.address, 1);
	pid = fork();
	if (!pid) {
		alarm(60);
		_exit(close_library());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tls_size),
		cmocka_unit_test(test_binds_at_once),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
