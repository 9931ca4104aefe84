/* SPDX-License-Identifier: BSD-3-Clause */
/* Large folios of the node's store: when, of which size, and that holes give all of them back. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpu_agent/store/node_store_impl.h"

enum { CHUNK = 65536, CHUNKS = 300, ROOM = 256 };

#define KERNEL SODA_NODE_FOLIOS "/hugepages-64kB/"

static char dir[] = "/tmp/soda-folios-XXXXXX";
static struct soda_why why;

static bool put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	bool ok = f && fputs(text, f) >= 0;

	return f && !fclose(f) && ok;
}

static void size_says(unsigned kib, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/hugepages-%ukB", dir, kib);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/hugepages-%ukB/shmem_enabled", dir, kib);
	assert_true(put(path, text));
}

static void all_say(const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/shmem_enabled", dir);
	assert_true(put(path, text));
}

static void test_allowed_by_size(void **state)
{
	assert_false(soda_node_folios_allowed(dir, CHUNK)); /* a kernel without any */
	all_say("always within_size advise [never] deny force\n");
	assert_false(soda_node_folios_allowed(dir, CHUNK));
	size_says(64, "always inherit within_size [advise] never\n");
	assert_true(soda_node_folios_allowed(dir, CHUNK));
	assert_true(soda_node_folios_allowed(dir, 4 * CHUNK));
	assert_false(soda_node_folios_allowed(dir, CHUNK / 2));
	size_says(16, "[always] inherit within_size advise never\n");
	assert_true(soda_node_folios_allowed(dir, CHUNK / 4));
	assert_false(soda_node_folios_allowed(dir, 4096));
	size_says(16, "always inherit within_size advise [never]\n");
	size_says(64, "always [inherit] within_size advise never\n");
	assert_false(soda_node_folios_allowed(dir, CHUNK));
	all_say("always [within_size] advise never deny force\n");
	assert_true(soda_node_folios_allowed(dir, CHUNK));
	size_says(64, "[always] inherit within_size advise never\n");
	all_say("always within_size advise never [deny] force\n");
	assert_false(soda_node_folios_allowed(dir, CHUNK));
}

/* A view's address is a multiple of the chunk's size, and of nothing larger, whatever is mapped. */
static void test_alignment(void **state)
{
	static const uint32_t sizes[] = { 16384, 65536, 1 << 20, 4 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t bytes = 5 * (uint64_t)sizes[i] - 8192;
		int fd = memfd_create("folios", MFD_CLOEXEC);
		char *view;

		assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
		view = soda_node_map_view(fd, bytes, sizes[i]);
		if (!view) { /* a kernel without huge pages */
			close(fd);
			skip();
		}
		assert_int_equal((uintptr_t)view % sizes[i], 0);
		assert_int_not_equal((uintptr_t)view % (2 * (uintptr_t)sizes[i]), 0);
		view[bytes - 1] = 1;
		soda_node_unmap_view(view, bytes);
		close(fd);
	}
}

/* With the kernel's own folios of 64 KiB, allowed for the time of a test. */

static char before[16];

static uint64_t allocated(void)
{
	unsigned long long n = 0;
	FILE *f = fopen(KERNEL "stats/shmem_alloc", "re");

	if (f) {
		if (fscanf(f, "%llu", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

static int allow(void **state)
{
	char words[128] = "", *chosen;
	FILE *f = fopen(KERNEL "shmem_enabled", "re");

	before[0] = 0;
	if (f && fgets(words, sizeof(words), f) && (chosen = strchr(words, '[')))
		snprintf(before, sizeof(before), "%.*s", (int)strcspn(chosen + 1, "]"), chosen + 1);
	if (f)
		fclose(f);
	if (*before && !put(KERNEL "shmem_enabled", "advise"))
		before[0] = 0;
	return 0;
}

static int restore(void **state)
{
	return *before && !put(KERNEL "shmem_enabled", before) ? -1 : 0;
}

static void need_folios(void)
{
	if (*before)
		return;
	puts("SKIP: folios of 64 KiB for shared memory: Linux 6.11, and root who allows them");
	skip();
}

static uint64_t blocks_of(const struct soda_node_member *m)
{
	struct stat st;

	assert_int_equal(fstat(soda_node_descriptor(m->object, 0), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void fill(struct soda_node_object *o, uint32_t chunk)
{
	static char data[CHUNK];

	assert_int_equal(soda_node_ask(o, chunk, NULL), SODA_NODE_FILL);
	memset(data, (int)(chunk % 251) + 1, sizeof(data));
	assert_int_equal(soda_node_filled(o, chunk, data, 0), 0);
}

static void assert_holds(const struct soda_node_member *m, uint32_t chunk)
{
	static char got[CHUNK];
	int fd = soda_node_descriptor(m->object, 0);
	uint32_t bytes = soda_node_bytes(m->object, chunk);

	assert_int_equal(pread(fd, got, bytes, chunk * (off_t)CHUNK), bytes);
	for (uint32_t i = 0; i < bytes; i++)
		assert_int_equal(got[i], (char)(chunk % 251 + 1));
}

static struct soda_node_store *store_with(struct soda_node_member *m_p)
{
	static const struct soda_node_name name = { .uid = 1000,
						    .file_id = 7,
						    .generation = 1,
						    .bytes = CHUNKS * (uint64_t)CHUNK - 8192,
						    .chunk_bytes = CHUNK };
	struct soda_node_store *store;
	struct soda_node_stats s;

	assert_int_equal(soda_node_store_create(ROOM * CHUNK, &soda_node_memory, &store), 0);
	assert_int_equal(soda_node_join(store, &name, m_p, &why), 0);
	soda_node_stats(store, &s);
	assert_int_equal(s.folios, 1);
	return store;
}

/* Each chunk is one folio where memory is not in pieces; what goes, goes as a whole. */
static void test_chunks_are_folios(void **state)
{
	struct soda_node_member m;
	struct soda_node_store *store;
	struct soda_node_stats s;
	uint64_t was, large;

	need_folios();
	store = store_with(&m);
	was = allocated();
	for (uint32_t i = 0; i < CHUNKS; i++)
		fill(m.object, i);
	large = allocated() - was;
	if (large < CHUNKS / 2)
		fail_msg("%llu of %d chunks had a folio", (unsigned long long)large, CHUNKS);
	assert_holds(&m, CHUNKS - 1);
	soda_node_stats(store, &s);
	assert_true(s.evictions >= CHUNKS - ROOM);
	assert_int_equal(blocks_of(&m), s.used);
	soda_node_leave(&m);
	soda_node_store_destroy(store);
}

/* A program of the user has the descriptor, and may punch: the agent writes anew, and lives. */
static void test_a_program_punches(void **state)
{
	struct soda_node_member m;
	struct soda_node_store *store;
	int fd;

	need_folios();
	store = store_with(&m);
	fd = soda_node_descriptor(m.object, 0);
	for (uint32_t i = 0; i < 64; i++) {
		fill(m.object, i);
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   i * (off_t)CHUNK + 4096, 2 * CHUNK),
				 0);
	}
	fill(m.object, 70);
	assert_holds(&m, 70);
	soda_node_leave(&m);
	soda_node_store_destroy(store);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allowed_by_size),
		cmocka_unit_test(test_alignment),
		cmocka_unit_test_setup_teardown(test_chunks_are_folios, allow, restore),
		cmocka_unit_test_setup_teardown(test_a_program_punches, allow, restore),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
