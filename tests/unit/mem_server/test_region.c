/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions of a client: holds against close, from several threads. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem_server/session/region.h"
#include "mem_server/store/handed.h"

#define MIB (1ull << 20)

static struct soda_store store;
static struct soda_files files;
static struct soda_region_pool pool;
static struct soda_region_set set;
static struct soda_why why;

static int start(void **state)
{
	soda_store_init(&store, 64 * MIB);
	pool = (struct soda_region_pool){
		.store = &store, .files = &files, .max_regions = 8, .close_ms = 50
	};
	return soda_files_init(&files, &store, NULL) || soda_region_set_init(&set, &pool, NULL);
}

static int stop(void **state)
{
	soda_region_set_destroy(&set);
	return 0;
}

static int open_region(uint16_t id)
{
	const struct soda_wire_open open = { .region_id = id, .bytes = 3 * MIB };
	struct soda_wire_opened opened;
	struct soda_share share;

	return soda_region_open(&set, &open, NULL, false, &opened, &share, &why);
}

static int acquire(uint16_t id, uint64_t page, uint32_t bytes, struct soda_span *span)
{
	return soda_region_acquire(&set, true, id, page, bytes, span);
}

static void check_bounds(void **state)
{
	struct soda_span span;

	assert_int_equal(open_region(5), 0);
	assert_int_equal(acquire(5, 0, 4096, &span), 0);
	assert_int_equal(span.offset, 0);
	soda_region_release(&set, &span, true, true);
	/* To the end of the backing, which is 4 MiB. */
	assert_int_equal(acquire(5, 1008, 65536, &span), 0);
	assert_int_equal(span.offset, 4 * MIB - 65536);
	soda_region_release(&set, &span, true, true);
	assert_int_equal(acquire(5, 1009, 65536, &span), -EINVAL);
	assert_int_equal(acquire(5, 1024, 4096, &span), -EINVAL);
	assert_int_equal(acquire(5, (1ull << 48) - 1, 4096, &span), -EINVAL);
	assert_true(acquire(5, 0, 0, &span) < 0);
	assert_true(acquire(5, 0, 100, &span) < 0);
	assert_true(acquire(5, 0, 8u << 20, &span) < 0);
	assert_int_equal(acquire(6, 0, 4096, &span), -EINVAL);
	assert_int_equal(soda_region_close(&set, 5, &why), 0);
	assert_int_equal(acquire(5, 0, 4096, &span), -EINVAL);
	assert_int_equal(soda_region_close(&set, 5, &why), -EINVAL);
}

/* A request that does not end: close gives up and the region is as before. */
static void check_close_gives_up(void **state)
{
	struct soda_span span, second;

	assert_int_equal(open_region(1), 0);
	assert_int_equal(acquire(1, 0, 4096, &span), 0);
	assert_int_equal(soda_region_close(&set, 1, &why), -EBUSY);
	assert_int_equal(acquire(1, 0, 4096, &second), 0);
	soda_region_release(&set, &second, true, true);
	soda_region_release(&set, &span, true, false);
	assert_int_equal(soda_region_close(&set, 1, &why), 0);
}

static void check_limits(void **state)
{
	for (uint16_t i = 0; i < 8; i++)
		assert_int_equal(open_region((uint16_t)(65528 + i)), 0);
	assert_int_equal(open_region(1), -ENOMEM);
	assert_int_equal(open_region(65535), -EBUSY);
	assert_int_equal(soda_region_close_all(&set, "test"), 0);
	assert_int_equal(soda_store_free_bytes(&store), 64 * MIB);
	assert_int_equal(set.account.used, 0);
	assert_int_equal(pool.regions.all, 0);
}

static _Atomic bool ended;

static void *request(void *arg)
{
	uint64_t *served = arg;
	struct soda_span span;

	while (!ended) {
		if (acquire(1, 3, 8192, &span))
			continue;
		/* The memory must be there until it is released. */
		for (uint32_t i = 0; i < span.bytes; i += 64)
			__atomic_fetch_add(span.memory + i, 1, __ATOMIC_RELAXED);
		soda_region_release(&set, &span, true, true);
		++*served;
	}
	return NULL;
}

static void check_close_races_requests(void **state)
{
	enum { THREADS = 3 };
	uint64_t served[THREADS] = { 0 };
	pthread_t threads[THREADS];

	pool.close_ms = 10000;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, request, &served[i]), 0);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(open_region(1), 0);
		usleep(100);
		assert_int_equal(soda_region_close(&set, 1, &why), 0);
	}
	ended = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(served[0] + served[1] + served[2] > 0);
	assert_int_equal(soda_store_free_bytes(&store), 64 * MIB);
}

static int discard(uint16_t id, uint64_t offset, uint64_t bytes)
{
	const struct soda_wire_discard d = { id, offset, bytes };

	return soda_region_discard(&set, &d, &why);
}

static void expect_bytes(uint16_t id, uint64_t page, uint8_t value)
{
	struct soda_span span;

	assert_int_equal(acquire(id, page, 4096, &span), 0);
	for (uint32_t i = 0; i < span.bytes; i++)
		assert_int_equal(span.memory[i], value);
	soda_region_release(&set, &span, true, false);
}

/* In memory of its own, and in a descriptor that transports hand out. */
static void check_discard(void **state)
{
	const struct soda_wire_open shared = { .region_id = 6, .bytes = 3 * MIB };
	struct soda_wire_opened opened;
	struct soda_share share;
	struct soda_span span;

	soda_store_populate_later(&store);
	assert_int_equal(open_region(5), 0);
	assert_int_equal(soda_region_open(&set, &shared, NULL, true, &opened, &share, &why), 0);
	for (uint16_t id = 5; id <= 6; id++) {
		assert_int_equal(acquire(id, 0, MIB, &span), 0);
		memset(span.memory, 7, span.bytes);
		soda_region_release(&set, &span, true, true);
		assert_int_equal(discard(id, 8192, MIB / 2), 0);
		expect_bytes(id, 1, 7);
		expect_bytes(id, 2, 0);
		expect_bytes(id, 129, 0);
		expect_bytes(id, 130, 7);
	}
	assert_int_equal(set.account.used, 8 * MIB); /* reserved for what comes next */
	assert_int_equal(soda_region_close_all(&set, "test"), 0);
}

/*
 * Memory that was allocated for a client that stores to it itself stays allocated: pages that the
 * client made would be charged to its own memory cgroup.
 */
static void check_discard_shared(void **state)
{
	const struct soda_wire_open shared = { .region_id = 6, .bytes = 3 * MIB };
	struct soda_wire_opened opened;
	struct soda_share share;
	struct stat before, after;
	struct soda_span span;

	assert_int_equal(soda_region_open(&set, &shared, NULL, true, &opened, &share, &why), 0);
	assert_int_equal(acquire(6, 0, MIB, &span), 0);
	memset(span.memory, 7, span.bytes);
	soda_region_release(&set, &span, true, true);
	assert_int_equal(fstat(share.fd, &before), 0);
	assert_true((uint64_t)before.st_blocks * 512 >= 3 * MIB);
	assert_int_equal(discard(6, 8192, MIB / 2), -ENOTSUP);
	assert_int_equal(fstat(share.fd, &after), 0);
	assert_int_equal(after.st_blocks, before.st_blocks);
	expect_bytes(6, 2, 7);
	assert_int_equal(soda_region_close_all(&set, "test"), 0);
}

static void check_discard_refused(void **state)
{
	assert_int_equal(open_region(5), 0);
	assert_int_equal(discard(5, 0, 3 * MIB), 0);
	assert_int_equal(discard(5, 0, 3 * MIB + 4096), -EINVAL);
	assert_int_equal(discard(5, 3 * MIB, 4096), -EINVAL);
	assert_int_equal(discard(5, 4096, UINT64_MAX - 4095), -EINVAL);
	assert_int_equal(discard(5, UINT64_MAX - 4095, 8192), -EINVAL);
	assert_int_equal(discard(5, 100, 4096), -EINVAL);
	assert_int_equal(discard(5, 0, 100), -EINVAL);
	assert_int_equal(discard(5, 0, 0), -EINVAL);
	assert_int_equal(discard(6, 0, 4096), -EINVAL);
	store.hugepages = true;
	assert_int_equal(discard(5, 0, 4096), -ENOTSUP);
	store.hugepages = false;
	assert_int_equal(soda_region_close_all(&set, "test"), 0);
}

/* Published objects */

static struct soda_region_set reader;

static int publish(struct soda_region_set *s, uint16_t id, const char *name)
{
	struct soda_wire_opened opened;

	why = (struct soda_why){ "" };
	return soda_region_publish(s, id, name, strlen(name), &opened, &why);
}

static int open_published(struct soda_region_set *s, uint16_t id, const char *name, bool shares,
			  struct soda_wire_opened *opened)
{
	const struct soda_wire_open open = { .region_id = id,
					     .name_bytes = (uint16_t)strlen(name),
					     .flags = SODA_WIRE_READ_ONLY | SODA_WIRE_PUBLISHED,
					     .bytes = 7 };
	struct soda_share share;

	why = (struct soda_why){ "" };
	return soda_region_open(s, &open, name, shares, opened, &share, &why);
}

static int read_byte(struct soda_region_set *s, uint16_t id, uint64_t page)
{
	struct soda_span span;
	int byte;

	assert_int_equal(soda_region_acquire(s, false, id, page, 4096, &span), 0);
	byte = span.memory[0];
	soda_region_release(s, &span, false, false);
	return byte;
}

/* A region with content, and another client. */
static void start_publishing(void)
{
	struct soda_span span;

	assert_int_equal(soda_region_set_init(&reader, &pool, NULL), 0);
	assert_int_equal(open_region(5), 0);
	assert_int_equal(acquire(5, 100, 4096, &span), 0);
	memset(span.memory, 9, span.bytes);
	soda_region_release(&set, &span, true, true);
}

static void end_publishing(void)
{
	assert_int_equal(soda_region_close_all(&set, "test"), 0);
	assert_int_equal(soda_region_close_all(&reader, "test"), 0);
	assert_int_equal(reader.account.used, 0);
	soda_region_set_destroy(&reader);
	assert_int_equal(soda_store_free_bytes(&store), 64 * MIB);
	assert_int_equal(set.account.used, 0);
	assert_int_equal(pool.regions.all, 0);
	assert_null(files.in_use);
}

/* One memory, no WRITE, and a life as long as that of the last region that has it. */
static void check_publish(void **state)
{
	struct soda_wire_opened opened, again;
	struct soda_wire_listed listed;
	struct soda_span span;

	start_publishing();
	assert_int_equal(open_published(&reader, 1, "index.1", false, &opened), -ENOENT);
	assert_int_equal(publish(&set, 5, "index.1"), 0);
	assert_int_equal(acquire(5, 0, 4096, &span), -EACCES);
	assert_int_equal(discard(5, 0, 4096), -EACCES);
	assert_string_equal(soda_region_kind(set.list), "published");
	assert_int_equal(soda_region_list(&set, 0, &listed, 1), 1);
	assert_int_equal(listed.flags, SODA_WIRE_READ_ONLY | SODA_WIRE_PUBLISHED);
	assert_int_equal(open_published(&reader, 1, "index.1", false, &opened), 0);
	assert_int_equal(opened.bytes, 3 * MIB);
	assert_true(opened.file_id && opened.file_id == listed.file_id);
	assert_true(opened.generation == listed.generation);
	assert_int_equal(soda_region_acquire(&reader, true, 1, 0, 4096, &span), -EACCES);
	assert_int_equal(soda_store_free_bytes(&store), 60 * MIB); /* once */
	assert_int_equal(reader.account.used, 4 * MIB);		   /* but charged to each */
	assert_int_equal(soda_region_close(&set, 5, &why), 0);
	assert_int_equal(set.account.used, 0);
	assert_int_equal(read_byte(&reader, 1, 100), 9);
	assert_int_equal(read_byte(&reader, 1, 99), 0);
	/* a client that comes now finds the same, and the name is not free */
	assert_int_equal(open_published(&set, 2, "index.1", false, &again), 0);
	assert_true(again.file_id == opened.file_id && again.generation == opened.generation);
	assert_int_equal(open_region(6), 0);
	assert_int_equal(publish(&set, 6, "index.1"), -EEXIST);
	assert_int_equal(acquire(6, 0, 4096, &span), 0); /* as before */
	soda_region_release(&set, &span, true, true);
	assert_int_equal(soda_region_close(&set, 2, &why), 0);
	assert_int_equal(soda_region_close(&reader, 1, &why), 0);
	/* and then it is */
	assert_int_equal(open_published(&reader, 1, "index.1", false, &again), -ENOENT);
	assert_int_equal(publish(&set, 6, "index.1"), 0);
	assert_int_equal(open_published(&reader, 1, "index.1", false, &again), 0);
	assert_true(again.file_id != opened.file_id && again.generation != opened.generation);
	end_publishing();
}

static void check_publish_refused(void **state)
{
	char name[SODA_WIRE_MAX_NAME + 2];
	struct soda_wire_opened opened;

	memset(name, 'n', sizeof(name));
	name[SODA_WIRE_MAX_NAME + 1] = 0;
	start_publishing();
	assert_int_equal(publish(&set, 6, "a"), -EINVAL);
	assert_int_equal(publish(&set, 5, ""), -EINVAL);
	assert_int_equal(publish(&set, 5, "a b"), -EINVAL);
	assert_int_equal(publish(&set, 5, "a\n"), -EINVAL);
	assert_int_equal(publish(&set, 5, "\xc3\xa4"), -EINVAL);
	assert_int_equal(publish(&set, 5, name), -EINVAL);
	assert_non_null(strstr(why.text, "255"));
	assert_int_equal(soda_region_publish(&set, 5, "a\0b", 3, &opened, &why), -EINVAL);
	name[SODA_WIRE_MAX_NAME] = 0;
	assert_int_equal(publish(&set, 5, name), 0);
	/* an answer that was lost is given again; another name is not taken */
	assert_int_equal(publish(&set, 5, name), 0);
	assert_int_equal(publish(&set, 5, "b"), -EINVAL);
	assert_int_equal(open_published(&reader, 1, "b", false, &opened), -ENOENT);
	assert_int_equal(open_published(&reader, 1, "b c", false, &opened), -EINVAL);
	assert_int_equal(open_published(&reader, 1, name, false, &opened), 0);
	assert_int_equal(publish(&reader, 1, "c"), -EINVAL);
	/* nothing can be shared: its publisher has no descriptor */
	assert_int_equal(open_published(&reader, 2, name, true, &opened), -ENOTSUP);
	end_publishing();
}

/* A reader of an object has a descriptor of its memory that does not write to it. */
static void check_publish_descriptor(void **state)
{
	const struct soda_wire_open own = { .region_id = 6, .bytes = 3 * MIB }, published = {
		.region_id = 1, .name_bytes = 1, .flags = SODA_WIRE_READ_ONLY | SODA_WIRE_PUBLISHED
	};
	struct soda_wire_opened opened;
	struct soda_share share;
	struct soda_span span;
	struct stat st;
	uint8_t *map;

	start_publishing();
	assert_int_equal(soda_region_open(&set, &own, NULL, true, &opened, &share, &why), 0);
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, share.fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	map[5] = 7;
	assert_int_equal(munmap(map, MIB), 0);
	assert_int_equal(publish(&set, 6, "a"), 0);
	assert_int_equal(soda_region_open(&reader, &published, "a", true, &opened, &share, &why),
			 0);
	assert_false(share.writable);
	assert_int_equal(fcntl(share.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_ptr_equal(mmap(NULL, MIB, PROT_WRITE, MAP_SHARED, share.fd, 0), MAP_FAILED);
	assert_int_equal(pwrite(share.fd, "x", 1, 0), -1);
	map = mmap(NULL, MIB, PROT_READ, MAP_SHARED, share.fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(map[5], 7);
	assert_int_equal(mprotect(map, MIB, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(fstat(share.fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600); /* no other user opens it anew */
	assert_int_equal(munmap(map, MIB), 0);
	assert_int_equal(soda_region_share(&set, 6, &share, &why), 0); /* its publisher's, too */
	assert_int_equal(fcntl(share.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(acquire(6, 0, 4096, &span), -EACCES);
	assert_int_equal(read_byte(&reader, 1, 100), 0);
	end_publishing();
	assert_int_equal(fcntl(share.fd, F_GETFD), -1);
}

/* Each user has names of its own. */
static void check_publish_users(void **state)
{
	const struct soda_wire_open open = { .region_id = 1, .bytes = MIB };
	struct soda_wire_opened opened, theirs;
	struct soda_share share;

	start_publishing();
	reader.owner = 1000;
	assert_int_equal(publish(&set, 5, "a"), 0);
	assert_int_equal(open_published(&reader, 1, "a", false, &opened), -ENOENT);
	assert_int_equal(soda_region_open(&reader, &open, NULL, false, &opened, &share, &why), 0);
	assert_int_equal(publish(&reader, 1, "a"), 0);
	assert_int_equal(open_published(&reader, 2, "a", false, &theirs), 0);
	assert_int_equal(theirs.bytes, MIB);
	assert_int_equal(open_published(&set, 2, "a", false, &opened), 0);
	assert_int_equal(opened.bytes, 3 * MIB);
	end_publishing();
}

/* A quota counts what others have published. */
static void check_publish_quota(void **state)
{
	struct soda_wire_opened opened;

	pool.quota = 3 * MIB;
	start_publishing();
	pool.quota = 0;
	assert_int_equal(publish(&set, 5, "a"), 0);
	assert_int_equal(open_published(&reader, 1, "a", false, &opened), -EDQUOT);
	assert_int_equal(soda_region_count(&reader), 0);
	end_publishing();
}

/* WRITEs under way end before the object has its name. */
static void check_publish_awaits_writes(void **state)
{
	struct soda_wire_opened opened;
	struct soda_span span;

	start_publishing();
	assert_int_equal(acquire(5, 0, 4096, &span), 0);
	assert_int_equal(publish(&set, 5, "a"), -EBUSY);
	assert_int_equal(open_published(&reader, 1, "a", false, &opened), -ENOENT);
	soda_region_release(&set, &span, true, true);
	assert_int_equal(acquire(5, 0, 4096, &span), 0); /* as before */
	soda_region_release(&set, &span, true, true);
	/* a READ does not matter */
	assert_int_equal(soda_region_acquire(&set, false, 5, 0, 4096, &span), 0);
	assert_int_equal(publish(&set, 5, "a"), 0);
	soda_region_release(&set, &span, false, false);
	end_publishing();
}

static _Atomic uint64_t stored; /* WRITEs that were let in */

static void *write_until_refused(void *arg)
{
	struct soda_span span;

	while (!acquire(5, 1, 4096, &span)) {
		__atomic_fetch_add(span.memory, 1, __ATOMIC_RELAXED);
		atomic_fetch_add(&stored, 1);
		soda_region_release(&set, &span, true, true);
	}
	return NULL;
}

/* What a client that opens it sees first is what it sees for ever. */
static void check_publish_races_writes(void **state)
{
	enum { THREADS = 3 };
	pthread_t threads[THREADS];
	struct soda_wire_opened opened;

	pool.close_ms = 10000;
	for (int i = 0; i < 100; i++) {
		start_publishing();
		stored = 0;
		for (int t = 0; t < THREADS; t++)
			assert_int_equal(
				pthread_create(&threads[t], NULL, write_until_refused, NULL), 0);
		usleep((unsigned)(i % 10) * 20);
		assert_int_equal(publish(&set, 5, "a"), 0);
		assert_int_equal(open_published(&reader, 1, "a", false, &opened), 0);
		assert_int_equal(read_byte(&reader, 1, 1), stored & 0xff);
		for (int t = 0; t < THREADS; t++)
			pthread_join(threads[t], NULL);
		assert_int_equal(read_byte(&reader, 1, 1), stored & 0xff);
		end_publishing();
	}
}

/* A client's quota counts what it keeps of regions that it has closed; not beyond its own end. */
static void check_kept(void **state)
{
	const struct soda_wire_open open = { .region_id = 1, .bytes = 4 * MIB };
	struct soda_wire_opened opened;
	struct soda_region_set client;
	struct soda_share share;
	int kept;

	assert_int_equal(soda_store_watch(&store), 0);
	pool.quota = 4 * MIB;
	assert_int_equal(soda_region_set_init(&client, &pool, NULL), 0);
	pool.quota = 0;
	for (int i = 0; i < 2; i++) { /* what was not kept is free at once */
		assert_int_equal(
			soda_region_open(&client, &open, NULL, true, &opened, &share, &why), 0);
		kept = dup(share.fd);
		assert_int_equal(soda_region_close(&client, 1, &why), 0);
		assert_int_equal(soda_account_used(&store, &client.account), 4 * MIB);
		assert_int_equal(
			soda_region_open(&client, &open, NULL, true, &opened, &share, &why),
			-EDQUOT);
		close(kept);
		assert_int_equal(soda_account_used(&store, &client.account), 0);
		assert_int_equal(soda_store_free_bytes(&store), 64 * MIB);
	}
	assert_int_equal(soda_region_open(&client, &open, NULL, true, &opened, &share, &why), 0);
	kept = dup(share.fd);
	assert_int_equal(soda_region_close(&client, 1, &why), 0);
	soda_region_set_destroy(&client);
	assert_int_equal(soda_store_free_bytes(&store), 60 * MIB);
	close(kept);
	assert_int_equal(soda_store_free_bytes(&store), 64 * MIB);
}

static const struct soda_holder nobody; /* an open server's */

/* While one thread has let go of a memory and not yet said so, another learns that it is gone. */
static void check_gone_early(void **state)
{
	struct soda_memory_options opt = { .bytes = 2 * MIB };
	struct soda_memory other, memory;
	int kept;

	soda_store_init(&store, 64 * MIB);
	assert_int_equal(soda_store_watch(&store), 0);
	assert_int_equal(soda_memory_create(&store, &opt, &other, &why), 0);
	assert_int_equal(soda_memory_create(&store, &opt, &memory, &why), 0);
	assert_int_equal(soda_memory_hand_out(&store, &other, nobody, &why), 0);
	assert_int_equal(soda_memory_hand_out(&store, &memory, nobody, &why), 0);
	kept = dup(other.fd);
	soda_memory_destroy(&store, &other, NULL); /* from now on events are read */
	munmap(memory.map, memory.backing_bytes);
	close(memory.fd);
	assert_int_equal(soda_store_free_bytes(&store), 60 * MIB);
	soda_handed_end(&store, memory.handed, 2 * MIB, NULL);
	assert_int_equal(soda_store_free_bytes(&store), 62 * MIB);
	close(kept);
	assert_int_equal(soda_store_free_bytes(&store), 64 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(check_bounds, start, stop),
		cmocka_unit_test_setup_teardown(check_close_gives_up, start, stop),
		cmocka_unit_test_setup_teardown(check_limits, start, stop),
		cmocka_unit_test_setup_teardown(check_discard, start, stop),
		cmocka_unit_test_setup_teardown(check_discard_shared, start, stop),
		cmocka_unit_test_setup_teardown(check_discard_refused, start, stop),
		cmocka_unit_test_setup_teardown(check_publish, start, stop),
		cmocka_unit_test_setup_teardown(check_publish_refused, start, stop),
		cmocka_unit_test_setup_teardown(check_publish_descriptor, start, stop),
		cmocka_unit_test_setup_teardown(check_publish_users, start, stop),
		cmocka_unit_test_setup_teardown(check_publish_quota, start, stop),
		cmocka_unit_test_setup_teardown(check_publish_awaits_writes, start, stop),
		cmocka_unit_test_setup_teardown(check_publish_races_writes, start, stop),
		cmocka_unit_test_setup_teardown(check_close_races_requests, start, stop),
		cmocka_unit_test(check_kept),
		cmocka_unit_test(check_gone_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
