/* SPDX-License-Identifier: BSD-3-Clause */
/* The node's store: who fills, who waits, what goes when there is no room, and what is told. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "dpu_agent/store/node_store.h"

enum { CHUNK = 65536, CHUNKS = 512, ROOM = 256 /* chunks in a store of 16 MiB */ };

static struct soda_node_store *store;
static struct soda_why why;
static char data[CHUNK];

static const struct soda_node_name file = { .uid = 1000,
					    .file_id = 7,
					    .generation = 1,
					    .bytes = CHUNKS * (uint64_t)CHUNK - 8192,
					    .chunk_bytes = CHUNK };

/* Memory that fails when it is told to. */
static _Atomic int fail_writes, fail_with;

static int write_or_fail(int fd, const void *from, uint32_t bytes, uint64_t at)
{
	if (atomic_load(&fail_writes) && atomic_fetch_sub(&fail_writes, 1) > 0)
		return atomic_load(&fail_with);
	return soda_node_memory.write(fd, from, bytes, at);
}

static int punch(int fd, uint64_t at, uint64_t bytes)
{
	return soda_node_memory.punch(fd, at, bytes);
}

static const struct soda_node_memory memory = { write_or_fail, punch };

static int begin(void **state)
{
	atomic_store(&fail_writes, 0);
	assert_int_equal(soda_node_store_create(ROOM * CHUNK, &memory, &store), 0);
	return 0;
}

static int end(void **state)
{
	soda_node_store_destroy(store);
	return 0;
}

static struct soda_node_stats stats(void)
{
	struct soda_node_stats s;

	why.text[0] = 0;
	if (soda_node_check(store, &why))
		fail_msg("%s", why.text);
	soda_node_stats(store, &s);
	return s;
}

static struct soda_node_member join(const struct soda_node_name *name)
{
	struct soda_node_member m = { .object = NULL };

	assert_int_equal(soda_node_join(store, name, &m, &why), 0);
	return m;
}

/* What a process sees. */
struct view {
	struct soda_store_map *map;
	uint32_t member;
};

static struct view view_of(const struct soda_node_member *m)
{
	int fd = soda_node_descriptor(m->object, SODA_WIRE_STORE_MAP);
	void *p =
		mmap(NULL, soda_store_map_bytes(CHUNKS), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return (struct view){ p, m->number };
}

static void close_view(struct view *v)
{
	munmap(v->map, soda_store_map_bytes(CHUNKS));
}

static enum soda_store_state word_of(const struct view *v, uint32_t chunk)
{
	return atomic_load(&soda_store_words(v->map)[chunk]) & SODA_STORE_STATE;
}

static void hold(const struct view *v, uint32_t ring, uint32_t chunk)
{
	atomic_store(&soda_store_member(v->map, CHUNKS, v->member)[ring], chunk + 1);
}

static void fill(struct soda_node_object *o, uint32_t chunk)
{
	assert_int_equal(soda_node_ask(o, chunk, NULL), SODA_NODE_FILL);
	memset(data, (int)chunk & 0xff, sizeof(data));
	assert_int_equal(soda_node_filled(o, chunk, data, 0), 0);
}

static void fill_range(struct soda_node_object *o, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		fill(o, i);
}

static bool holds_byte(const struct soda_node_member *m, uint32_t chunk)
{
	int fd = soda_node_descriptor(m->object, 0);
	char byte = 0;

	assert_int_equal(pread(fd, &byte, 1, chunk * (off_t)CHUNK + 5), 1);
	return byte == (char)chunk;
}

/* Those who wait. */
struct waiter {
	struct soda_node_waiter w;
	_Atomic int told; /* 1: again; 2: ready */
};

static void tell(struct soda_node_waiter *w, bool ready)
{
	atomic_store(&((struct waiter *)w)->told, ready ? 2 : 1);
}

static int await_told(struct waiter *w)
{
	for (int i = 0; i < 10000 && !atomic_load(&w->told); i++)
		usleep(1000);
	return atomic_load(&w->told);
}

static void test_filled_once(void **state)
{
	struct soda_node_member a = join(&file), b = join(&file);
	struct waiter w[2] = { { .w.told = tell }, { .w.told = tell } };
	struct view v = view_of(&a);

	assert_ptr_equal(a.object, b.object);
	assert_int_not_equal(a.number, b.number);
	assert_int_equal(word_of(&v, 3), SODA_STORE_EMPTY);
	assert_int_equal(soda_node_ask(a.object, 3, NULL), SODA_NODE_FILL);
	assert_int_equal(word_of(&v, 3), SODA_STORE_FILLING);
	assert_int_equal(soda_node_ask(a.object, 3, &w[0].w), SODA_NODE_WAITS);
	assert_int_equal(soda_node_ask(b.object, 3, &w[1].w), SODA_NODE_WAITS);
	memset(data, 3, sizeof(data));
	assert_int_equal(soda_node_filled(a.object, 3, data, 0), 0);
	assert_int_equal(w[0].told, 2);
	assert_int_equal(w[1].told, 2);
	assert_int_equal(word_of(&v, 3), SODA_STORE_READY);
	assert_true(holds_byte(&b, 3));
	assert_int_equal(soda_node_ask(b.object, 3, NULL), SODA_NODE_READY);
	assert_int_equal(stats().fills, 1);
	assert_int_equal(stats().waits, 2);
	assert_int_equal(stats().hits, 1);
	assert_int_equal(stats().used, CHUNK);
	close_view(&v);
	soda_node_leave(&a);
	soda_node_leave(&b);
}

/* Chunks are asked for as they are cut: the last one is short. */
static void test_whole_chunks_only(void **state)
{
	struct soda_node_member m = join(&file);

	assert_int_equal(soda_node_chunk(m.object, CHUNK, CHUNK), 1);
	assert_int_equal(soda_node_chunk(m.object, (CHUNKS - 1) * CHUNK, CHUNK - 8192), CHUNKS - 1);
	assert_int_equal(soda_node_chunk(m.object, (CHUNKS - 1) * CHUNK, CHUNK), UINT32_MAX);
	assert_int_equal(soda_node_chunk(m.object, CHUNK, 2 * CHUNK), UINT32_MAX);
	assert_int_equal(soda_node_chunk(m.object, 4096, CHUNK), UINT32_MAX);
	assert_int_equal(soda_node_chunk(m.object, CHUNKS * CHUNK, CHUNK), UINT32_MAX);
	fill(m.object, CHUNKS - 1);
	assert_int_equal(stats().used, CHUNK - 8192);
	soda_node_leave(&m);
}

/* The filler's process was killed, or its connection broke: one of those who wait is the next. */
static void test_a_fill_that_fails(void **state)
{
	struct soda_node_member m = join(&file);
	struct waiter w = { .w.told = tell };
	struct view v = view_of(&m);

	assert_int_equal(soda_node_ask(m.object, 9, NULL), SODA_NODE_FILL);
	assert_int_equal(soda_node_ask(m.object, 9, &w.w), SODA_NODE_WAITS);
	assert_int_equal(soda_node_filled(m.object, 9, NULL, -ECONNRESET), -ECONNRESET);
	assert_int_equal(await_told(&w), 1);
	assert_int_equal(word_of(&v, 9), SODA_STORE_EMPTY);
	assert_int_equal(stats().used, 0);
	assert_int_equal(stats().passed, 0);
	fill(m.object, 9);
	assert_int_equal(word_of(&v, 9), SODA_STORE_READY);
	close_view(&v);
	soda_node_leave(&m);
}

/* Room for ROOM: the oldest go, in a batch, and their memory with them. */
static void test_the_oldest_go(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	fill_range(m.object, 0, ROOM);
	assert_int_equal(stats().evictions, 0);
	fill(m.object, ROOM);
	assert_int_equal(stats().evictions, 16);
	assert_true(stats().used <= stats().capacity);
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(word_of(&v, i), SODA_STORE_EMPTY);
		assert_true(i == 0 || !holds_byte(&m, i));
	}
	assert_int_equal(word_of(&v, 16), SODA_STORE_READY);
	assert_true(holds_byte(&m, 16));
	close_view(&v);
	soda_node_leave(&m);
}

/* A word that was READY once is another one when it is READY again. */
static void test_generations(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);
	uint32_t before;

	fill_range(m.object, 0, ROOM);
	before = atomic_load(&soda_store_words(v.map)[1]);
	fill(m.object, ROOM);
	fill(m.object, 1);
	assert_int_equal(word_of(&v, 1), SODA_STORE_READY);
	assert_int_not_equal(atomic_load(&soda_store_words(v.map)[1]), before);
	close_view(&v);
	soda_node_leave(&m);
}

static void test_touched_ones_stay(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	fill_range(m.object, 0, ROOM);
	for (uint32_t i = 0; i < 8; i++)
		atomic_store(&soda_store_touched(v.map, CHUNKS)[i], 1);
	fill(m.object, ROOM);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(word_of(&v, i), SODA_STORE_READY);
	assert_int_equal(word_of(&v, 8), SODA_STORE_EMPTY);
	/* what a second program has mapped is settled: a scan passes */
	fill_range(m.object, ROOM + 1, 2 * ROOM);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(word_of(&v, i), SODA_STORE_READY);
	close_view(&v);
	soda_node_leave(&m);
}

static unsigned count_ready(const struct view *v, uint32_t from, uint32_t to)
{
	unsigned n = 0;

	for (uint32_t i = from; i < to; i++)
		n += word_of(v, i) == SODA_STORE_READY;
	return n;
}

static void need(struct soda_node_object *o, const struct view *v, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		if (word_of(v, i) != SODA_STORE_READY)
			fill(o, i);
}

/* What is asked for again soon after it was evicted stays, where other chunks pass. */
static void test_what_comes_back_stays(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	fill_range(m.object, 0, ROOM);
	fill(m.object, ROOM); /* 0 to 15 go, the oldest of all */
	need(m.object, &v, 0, 8);
	fill_range(m.object, ROOM + 1, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 8), 8);
	assert_int_equal(count_ready(&v, 8, 16), 0);
	close_view(&v);
	soda_node_leave(&m);
}

/* But not for ever: where programs turn to other chunks, those take its place. */
static void test_what_is_left_goes(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	for (int lap = 0; lap < 3; lap++) {
		need(m.object, &v, 0, ROOM);
		need(m.object, &v, ROOM, ROOM + 16);
	}
	for (int lap = 0; lap < 24; lap++)
		need(m.object, &v, ROOM + 16, CHUNKS);
	assert_int_equal(count_ready(&v, ROOM + 16, CHUNKS), CHUNKS - ROOM - 16);
	close_view(&v);
	soda_node_leave(&m);
}

/* Of a loop over twice as much as there is room for a part stays. */
static void test_a_loop_finds_a_part(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);
	uint64_t before;

	for (int lap = 0; lap < 8; lap++)
		need(m.object, &v, 0, CHUNKS);
	before = stats().fills;
	need(m.object, &v, 0, CHUNKS);
	assert_true(stats().fills - before < CHUNKS - CHUNKS / 8);
	close_view(&v);
	soda_node_leave(&m);
}

/* A lap over the file in streams, each of which passes what the READs ahead have brought. */
static uint64_t pass_all(const struct soda_node_member *m, const struct view *v)
{
	uint64_t before = stats().fills;

	for (uint32_t i = 0; i < CHUNKS; i++) {
		need(m->object, v, i, i + 1);
		atomic_store(&soda_store_touched(v->map, CHUNKS)[i], SODA_STORE_PASSED);
	}
	return stats().fills - before;
}

/*
 * A program that is alone passes what it has brought itself: a loop finds a part all the same.
 * Where another one has joined, what is passed stays for those that are behind.
 */
static void test_alone_and_in_company(void **state)
{
	struct soda_node_member a = join(&file), b;
	struct view v = view_of(&a);
	uint64_t fills = 0;

	for (int lap = 0; lap < 8; lap++)
		fills = pass_all(&a, &v);
	assert_true(fills < CHUNKS - CHUNKS / 8);
	b = join(&file);
	for (int lap = 0; lap < 8; lap++)
		fills = pass_all(&a, &v);
	assert_true(fills > CHUNKS - CHUNKS / 8);
	close_view(&v);
	soda_node_leave(&a);
	soda_node_leave(&b);
}

/* What threads may need for one instruction is not evicted, however long ago it was mapped. */
static void test_held_ones_stay(void **state)
{
	struct soda_node_member a = join(&file), b = join(&file);
	struct view v = view_of(&a), other = view_of(&b);

	fill_range(a.object, 0, ROOM);
	for (uint32_t i = 0; i < 4; i++)
		hold(i % 2 ? &v : &other, i, i);
	fill_range(a.object, ROOM, CHUNKS);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(word_of(&v, i), SODA_STORE_READY);
	assert_int_equal(word_of(&v, 4), SODA_STORE_EMPTY);
	assert_true(stats().held > 0);
	assert_int_equal(stats().forced, 0);
	/* nor for a process that has gone */
	soda_node_leave(&b);
	for (uint32_t i = 4; i < 4 + ROOM; i++)
		if (word_of(&v, i) == SODA_STORE_EMPTY)
			fill(a.object, i);
	assert_int_equal(word_of(&v, 0), SODA_STORE_EMPTY);
	assert_int_equal(word_of(&v, 1), SODA_STORE_READY);
	close_view(&v);
	close_view(&other);
	soda_node_leave(&a);
}

/* All of the list whose turn it is are held: what goes is of the other one. */
static void test_a_list_is_held(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	fill_range(m.object, 0, ROOM);
	for (uint32_t i = 0; i < ROOM / 2; i++)
		atomic_store(&soda_store_touched(v.map, CHUNKS)[i], 1);
	for (uint32_t i = ROOM / 2; i < ROOM; i++)
		hold(&v, i, i);
	for (uint32_t i = ROOM; i < ROOM + ROOM / 4; i++) {
		fill(m.object, i);
		hold(&v, i, i);
	}
	assert_int_equal(count_ready(&v, ROOM / 2, ROOM + ROOM / 4), ROOM * 3 / 4);
	assert_int_equal(stats().forced, 0);
	assert_int_equal(soda_node_check_now(store, &why), 0);
	close_view(&v);
	soda_node_leave(&m);
}

/* More is held than there is room for: the store goes on, within its budget. */
static void test_all_are_held(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	for (uint32_t i = 0; i < CHUNKS; i++)
		hold(&v, i, i);
	fill_range(m.object, 0, CHUNKS);
	assert_true(stats().used <= stats().capacity);
	assert_true(stats().forced > 0);
	assert_int_equal(soda_node_check_now(store, &why), 0);
	close_view(&v);
	soda_node_leave(&m);
}

/* Rings hold what processes write there. */
static void test_nonsense_in_the_map(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	memset((char *)v.map + SODA_WIRE_PAGE, 0xa5, soda_store_map_bytes(CHUNKS) - SODA_WIRE_PAGE);
	fill_range(m.object, 0, CHUNKS);
	assert_true(stats().used <= stats().capacity);
	assert_int_equal(stats().fills, CHUNKS);
	close_view(&v);
	soda_node_leave(&m);
}

/* Another user takes its share, and no more, from one who has all. */
static void test_users_have_shares(void **state)
{
	struct soda_node_name name = file;
	struct soda_node_member a = join(&file), b;
	struct view v = view_of(&a);
	uint32_t left = 0;

	name.uid = 1001;
	b = join(&name);
	assert_ptr_not_equal(a.object, b.object);
	fill_range(a.object, 0, ROOM);
	fill_range(b.object, 0, CHUNKS);
	for (uint32_t i = 0; i < ROOM; i++)
		left += word_of(&v, i) == SODA_STORE_READY;
	assert_in_range(left, ROOM / 2 - 16, ROOM / 2 + 16);
	assert_int_equal(stats().objects, 2);
	close_view(&v);
	soda_node_leave(&a);
	soda_node_leave(&b);
}

/* A process that reads by two ways has one place, and what it has pinned, until it leaves by both.
 */
static void test_a_place_twice(void **state)
{
	struct soda_node_member m = join(&file), again, other = join(&file);

	assert_int_equal(soda_node_pin(&m, 0, file.chunk_bytes, &why), 0);
	soda_node_join_again(&m, &again);
	assert_ptr_equal(again.object, m.object);
	assert_int_equal(again.number, m.number);
	assert_int_equal(stats().members, 2);
	soda_node_leave(&m);
	assert_int_equal(stats().members, 2);
	assert_int_equal(stats().pins, 1);
	soda_node_leave(&again);
	assert_int_equal(stats().members, 1);
	assert_int_equal(stats().pins, 0);
	soda_node_leave(&other);
	assert_int_equal(stats().members, 0);
}

/* Whoever comes late finds what is there, also when nobody is left; until it is needed. */
static void test_what_is_left_behind(void **state)
{
	struct soda_node_name next = file;
	struct soda_node_member m = join(&file), n;

	fill_range(m.object, 0, 10);
	soda_node_leave(&m);
	assert_int_equal(stats().members, 0);
	assert_int_equal(stats().objects, 1);
	m = join(&file);
	assert_int_equal(soda_node_ask(m.object, 4, NULL), SODA_NODE_READY);
	soda_node_leave(&m);
	next.generation++; /* the file has changed: nothing of the old one is it */
	n = join(&next);
	fill_range(n.object, 0, ROOM + 1);
	assert_int_equal(stats().objects, 1);
	soda_node_leave(&n);
}

/* The system gives less than the budget says. */
static void test_less_memory(void **state)
{
	struct soda_node_member m = join(&file);

	fill_range(m.object, 0, 128);
	atomic_store(&fail_with, -ENOSPC);
	atomic_store(&fail_writes, 1);
	fill(m.object, 200);
	assert_int_equal(stats().limited, 1);
	assert_true(stats().capacity <= 129 * CHUNK);
	assert_true(stats().evictions > 0);
	fill_range(m.object, 201, 400);
	assert_true(stats().used <= stats().capacity);
	soda_node_leave(&m);
}

/* No memory at all, or an error that is not for want of memory. */
static void test_no_memory(void **state)
{
	struct soda_node_member m = join(&file);

	for (int i = 0; i < 2; i++) {
		atomic_store(&fail_with, i ? -EIO : -ENOMEM);
		atomic_store(&fail_writes, 1000);
		assert_int_equal(soda_node_ask(m.object, 5, NULL), SODA_NODE_FILL);
		assert_int_equal(soda_node_filled(m.object, 5, data, 0), fail_with);
		assert_int_equal(stats().used, 0);
		assert_int_equal(stats().passed, i + 1);
	}
	atomic_store(&fail_writes, 0);
	fill(m.object, 5);
	soda_node_leave(&m);
}

static void test_what_is_refused(void **state)
{
	struct soda_node_member m = { .object = NULL }, many[SODA_STORE_MEMBERS];
	struct soda_node_name bad = file;

	bad.chunk_bytes = 512u << 10; /* 32 of them */
	assert_int_equal(soda_node_join(store, &bad, &m, &why), -EINVAL);
	assert_non_null(strstr(why.text, "--store"));
	bad.chunk_bytes = 3 * 4096;
	assert_int_equal(soda_node_join(store, &bad, &m, &why), -EINVAL);
	bad = file;
	bad.bytes = 0;
	assert_int_equal(soda_node_join(store, &bad, &m, &why), -EINVAL);
	bad.bytes = UINT64_MAX & ~4095ull;
	assert_int_equal(soda_node_join(store, &bad, &m, &why), -EINVAL);
	bad.bytes = 1ull << 40; /* a map of 80 MiB, for a store of 16 */
	assert_int_equal(soda_node_join(store, &bad, &m, &why), -EINVAL);
	assert_non_null(strstr(why.text, "too many chunks"));
	for (int i = 0; i < SODA_STORE_MEMBERS; i++)
		many[i] = join(&file);
	assert_int_equal(soda_node_join(store, &file, &m, &why), -EBUSY);
	assert_null(m.object);
	soda_node_leave(&many[7]);
	m = join(&file);
	assert_int_equal(m.number, 7);
	soda_node_leave(&m);
	for (int i = 0; i < SODA_STORE_MEMBERS; i++)
		soda_node_leave(&many[i]);
	assert_int_equal(soda_node_store_create(SODA_NODE_MIN - 1, &memory, &store), -EINVAL);
	assert_int_equal(stats().refused, 6);
}

/* Descriptors are bounded: what was left behind goes for what comes. */
static void test_many_objects(void **state)
{
	struct rlimit was, few;
	struct soda_node_name name = file;
	struct soda_node_member m, kept[32];
	int n = 0;

	soda_node_store_destroy(store);
	getrlimit(RLIMIT_NOFILE, &was);
	few = (struct rlimit){ 128, was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	assert_int_equal(soda_node_store_create(ROOM * CHUNK, &memory, &store), 0);
	setrlimit(RLIMIT_NOFILE, &was);
	name.bytes = CHUNK;
	for (int i = 0; i < 1000; i++) {
		name.file_id = 1000 + (uint64_t)i;
		m = join(&name);
		assert_int_equal(soda_node_ask(m.object, 0, NULL), SODA_NODE_FILL);
		assert_int_equal(soda_node_filled(m.object, 0, data, 0), 0);
		soda_node_leave(&m);
	}
	assert_true(stats().objects <= 16);
	assert_int_equal(stats().refused, 0);
	for (int i = 0; i < 32; i++) {
		name.file_id = 5000 + (uint64_t)i;
		n += !soda_node_join(store, &name, &kept[n], &why);
	}
	assert_int_equal(n, 16);
	assert_int_equal(stats().refused, 16);
	while (n)
		soda_node_leave(&kept[--n]);
	assert_int_equal(stats().objects, 0);
}

static void test_descriptors(void **state)
{
	struct soda_node_name two = file;
	struct soda_node_member m;
	struct soda_wire_stored said;
	int seals;

	two.bytes = SODA_WIRE_STORE_PART + 4096;
	m = join(&two);
	soda_node_describe(&m, &said);
	assert_int_equal(said.parts, 2);
	assert_int_equal(said.chunks, SODA_WIRE_STORE_PART / CHUNK + 1);
	assert_int_equal(said.map_bytes, soda_store_map_bytes(said.chunks));
	assert_int_equal(lseek(soda_node_descriptor(m.object, 1), 0, SEEK_END), 4096);
	assert_int_equal(soda_node_descriptor(m.object, 2), -EINVAL);
	seals = fcntl(soda_node_descriptor(m.object, 0), F_GET_SEALS);
	assert_int_equal(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	fill(m.object, said.chunks - 1); /* the first chunk of the second part */
	soda_node_leave(&m);
}

/* Pins */

static void pin(const struct soda_node_member *m, uint32_t first, uint32_t n)
{
	assert_int_equal(soda_node_pin(m, first * (uint64_t)CHUNK, n * (uint64_t)CHUNK, &why), 0);
}

static int unpin(const struct soda_node_member *m, uint32_t first, uint32_t n)
{
	return soda_node_unpin(m, first * (uint64_t)CHUNK, n * (uint64_t)CHUNK);
}

/* Pinned before it is there, while it is there, by part of a chunk: it stays, others go. */
static void test_pinned_ones_stay(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	pin(&m, 4, 8);
	fill_range(m.object, 0, 20);
	assert_int_equal(soda_node_pin(&m, 16 * CHUNK + 4096, CHUNK, &why), 0); /* of 16 and 17 */
	assert_int_equal(stats().pinned, 10 * CHUNK);
	assert_int_equal(stats().pins, 2);
	for (int lap = 0; lap < 3; lap++)
		need(m.object, &v, 20, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 4), 0);
	assert_int_equal(count_ready(&v, 4, 12), 8);
	assert_int_equal(count_ready(&v, 12, 16), 0);
	assert_int_equal(count_ready(&v, 16, 18), 2);
	assert_int_equal(count_ready(&v, 18, 20), 0);
	assert_true(stats().used <= stats().capacity);
	/* asked for again it is no reason to fill it */
	assert_int_equal(soda_node_ask(m.object, 5, NULL), SODA_NODE_READY);
	close_view(&v);
	soda_node_leave(&m);
}

/* Until the last one that asked for it has unpinned it, or has left. */
static void test_the_last_asker_counts(void **state)
{
	struct soda_node_member a = join(&file), b = join(&file);
	struct view v = view_of(&a);

	fill_range(a.object, 0, 8);
	pin(&a, 0, 8);
	assert_int_equal(soda_node_pin(&a, 2 * CHUNK, CHUNK, &why), 1); /* it is there */
	pin(&b, 4, 4);
	assert_int_equal(stats().pinned, 8 * CHUNK);
	assert_int_equal(unpin(&a, 0, 4), -EBUSY); /* a part of a range */
	assert_int_equal(unpin(&b, 0, 4), 0);	   /* it has pinned nothing there */
	assert_int_equal(unpin(&a, 0, CHUNKS - 1), 1);
	assert_int_equal(stats().pinned, 4 * CHUNK);
	need(a.object, &v, 8, CHUNKS);
	need(a.object, &v, 8, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 4), 0);
	assert_int_equal(count_ready(&v, 4, 8), 4);
	soda_node_leave(&b);
	assert_int_equal(stats().pinned, 0);
	assert_int_equal(stats().pins, 0);
	need(a.object, &v, 8, CHUNKS);
	need(a.object, &v, 8, CHUNKS);
	assert_int_equal(count_ready(&v, 4, 8), 0);
	close_view(&v);
	soda_node_leave(&a);
}

/* Pins have half of the store, and no user more than half of its share. */
static void test_pins_are_bounded(void **state)
{
	struct soda_node_name name = file;
	struct soda_node_member a = join(&file), b;
	struct view v = view_of(&a);

	assert_int_equal(stats().pinned_most, ROOM / 2 * CHUNK);
	assert_int_equal(soda_node_pin(&a, 0, (ROOM / 2 + 1) * CHUNK, &why), -ENOSPC);
	assert_non_null(strstr(why.text, "--store"));
	assert_non_null(strstr(why.text, "8256 KiB wanted, but only 8192 more"));
	assert_int_equal(stats().pinned, 0);
	assert_int_equal(stats().pins_refused, 1);
	pin(&a, 0, ROOM / 2);
	assert_int_equal(soda_node_pin(&a, ROOM * CHUNK, 4096, &why), -ENOSPC);
	assert_int_equal(soda_node_pin(&a, file.bytes, 4096, &why), -EINVAL);
	assert_int_equal(soda_node_pin(&a, 4096, file.bytes, &why), -EINVAL);
	/* all that is pinned is there, and the rest of the store serves what is not */
	fill_range(a.object, 0, ROOM / 2);
	for (int lap = 0; lap < 3; lap++)
		need(a.object, &v, ROOM / 2, CHUNKS);
	assert_int_equal(count_ready(&v, 0, ROOM / 2), ROOM / 2);
	assert_true(count_ready(&v, ROOM / 2, CHUNKS) >= ROOM / 2 - 16);
	assert_true(stats().used <= stats().capacity);
	name.uid = 1001; /* what others have pinned is not taken from them, and not exceeded */
	b = join(&name);
	assert_int_equal(soda_node_pin(&b, 0, CHUNK, &why), -ENOSPC);
	assert_int_equal(unpin(&a, 0, ROOM), 1);
	assert_int_equal(soda_node_pin(&b, 0, (ROOM / 4 + 1) * CHUNK, &why), -ENOSPC);
	pin(&b, 0, ROOM / 4);
	pin(&a, 0, ROOM / 4);
	close_view(&v);
	soda_node_leave(&a);
	soda_node_leave(&b);
	assert_int_equal(stats().pinned, 0);
}

static void test_many_pins(void **state)
{
	struct soda_node_member m = join(&file);
	int n = 0, ret = 0;

	for (uint32_t first = 0; first < 128 && !ret; first++)
		for (uint32_t i = 128 - first; i && !ret; i--) { /* of no range a part is asked */
			if (first && first + i == 128)
				continue;
			ret = soda_node_pin(&m, first * (uint64_t)CHUNK, i * (uint64_t)CHUNK, &why);
			n += !ret;
			if (ret == 1)
				ret = 0;
		}
	assert_int_equal(n, 1); /* all others are a part of the first */
	assert_int_equal(unpin(&m, 0, 128), 1);
	for (uint32_t i = 1; i <= 128; i++)
		pin(&m, 0, i); /* each more than the one before */
	assert_int_equal(stats().pins, 128);
	assert_int_equal(stats().pinned, 128 * CHUNK);
	assert_int_equal(unpin(&m, 0, 128), 128);
	assert_int_equal(stats().pinned, 0);
	soda_node_leave(&m);
}

/* Of a user's pins that have come while the chunk was on its way, in or out. */
static void test_pinned_on_the_way(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	assert_int_equal(soda_node_ask(m.object, 0, NULL), SODA_NODE_FILL);
	pin(&m, 0, 1);
	assert_int_equal(soda_node_filled(m.object, 0, NULL, -EIO), -EIO); /* pinned all the same */
	assert_int_equal(stats().pinned, CHUNK);
	assert_int_equal(stats().used, 0);
	fill(m.object, 0);
	need(m.object, &v, 1, CHUNKS);
	assert_int_equal(word_of(&v, 0), SODA_STORE_READY);
	assert_int_equal(unpin(&m, 0, 1), 1);
	need(m.object, &v, 1, CHUNKS);
	need(m.object, &v, 1, CHUNKS);
	assert_int_equal(word_of(&v, 0), SODA_STORE_EMPTY);
	close_view(&v);
	soda_node_leave(&m);
}

/* The system has no memory: the store makes do with less, and keeps what is pinned. */
static void test_pins_and_less_memory(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);

	pin(&m, 0, 100);
	fill_range(m.object, 0, 200);
	for (int i = 0; i < 40; i++) {
		atomic_store(&fail_with, -ENOSPC);
		atomic_store(&fail_writes, 1);
		fill(m.object, 200 + (uint32_t)i);
	}
	assert_int_equal(stats().limited, 40);
	assert_true(stats().capacity >= (100 + 64) * CHUNK);
	need(m.object, &v, 240, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 100), 100);
	assert_true(stats().used <= stats().capacity);
	close_view(&v);
	soda_node_leave(&m);
}

/* Chunks that are brought ahead of all programs */

static void bring(struct soda_node_object *o, uint32_t chunk)
{
	assert_true(soda_node_claim(o, chunk));
	memset(data, (int)chunk & 0xff, sizeof(data));
	assert_int_equal(soda_node_filled(o, chunk, data, 0), 0);
}

static void touch(const struct view *v, uint32_t chunk)
{
	atomic_store(&soda_store_touched(v->map, CHUNKS)[chunk], 1);
}

static struct soda_node_news news_of(struct soda_node_object *o)
{
	struct soda_node_news news;

	soda_node_take_news(o, &news);
	return news;
}

static void test_brought_ahead(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);
	uint64_t offsets[8];

	assert_int_equal(soda_node_lacks(m.object, 4096, 2 * CHUNK), 3 * CHUNK);
	for (uint32_t i = 0; i < 4; i++)
		bring(m.object, i);
	assert_int_equal(soda_node_lacks(m.object, 0, 5 * CHUNK), CHUNK);
	assert_int_equal(soda_node_lacks(m.object, file.bytes, CHUNK), 0);
	assert_int_equal(word_of(&v, 3), SODA_STORE_READY);
	assert_true(holds_byte(&m, 3));
	assert_false(soda_node_claim(m.object, 3)); /* nothing is brought twice */
	assert_int_equal(soda_node_touched(m.object, offsets, 8), 0);
	assert_int_equal(news_of(m.object).asked, 0);
	touch(&v, 1);
	touch(&v, 2);
	assert_int_equal(stats().bytes_used, 2 * CHUNK); /* before anybody has looked, too */
	assert_int_equal(soda_node_touched(m.object, offsets, 1), 1);
	assert_int_equal(offsets[0], CHUNK);
	assert_int_equal(soda_node_touched(m.object, offsets, 8), 1);
	assert_int_equal(offsets[0], 2 * CHUNK);
	assert_int_equal(soda_node_touched(m.object, offsets, 8), 0);
	assert_int_equal(soda_node_ask(m.object, 3, NULL), SODA_NODE_READY); /* used, too */
	fill(m.object, 9);
	assert_int_equal(news_of(m.object).used, 3 * CHUNK);
	assert_int_equal(news_of(m.object).used, 0);
	assert_int_equal(stats().ahead, 4);
	assert_int_equal(stats().bytes_used, 3 * CHUNK);
	assert_int_equal(stats().fills, 5);
	close_view(&v);
	soda_node_leave(&m);
}

/* A program that comes while the chunk is on its way waits for it, as for another program's. */
static void test_late_for_what_is_ahead(void **state)
{
	struct soda_node_member m = join(&file);
	struct waiter w[2] = { { .w.told = tell }, { .w.told = tell } };

	assert_true(soda_node_claim(m.object, 7));
	assert_int_equal(soda_node_ask(m.object, 7, &w[0].w), SODA_NODE_WAITS);
	assert_int_equal(soda_node_filled(m.object, 7, NULL, -EIO), -EIO);
	assert_int_equal(await_told(&w[0]), 1);
	assert_int_equal(stats().bytes_used, 0);
	assert_int_equal(stats().ahead, 0);
	assert_true(soda_node_claim(m.object, 7));
	assert_int_equal(soda_node_ask(m.object, 7, &w[1].w), SODA_NODE_WAITS);
	assert_int_equal(soda_node_filled(m.object, 7, data, 0), 0);
	assert_int_equal(w[1].told, 2);
	assert_int_equal(stats().bytes_used, CHUNK);
	assert_int_equal(news_of(m.object).asked, CHUNK);
	soda_node_leave(&m);
}

/*
 * What nobody touches goes by the list `trial`, and is counted as useless; what was touched stays
 * as what was asked for.
 */
static void test_ahead_and_useless(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);
	struct soda_node_news news;

	for (uint32_t i = 0; i < 32; i++)
		bring(m.object, i);
	for (uint32_t i = 0; i < 8; i++)
		touch(&v, i);
	fill_range(m.object, 32, ROOM + 16);
	assert_int_equal(count_ready(&v, 0, 8), 8);
	assert_int_equal(count_ready(&v, 8, 24), 0);
	assert_int_equal(stats().useless, 16);
	assert_int_equal(stats().bytes_useless, 16 * CHUNK);
	assert_int_equal(stats().bytes_used, 8 * CHUNK);
	news = news_of(m.object);
	assert_int_equal(news.used, 8 * CHUNK);
	assert_int_equal(news.unused, 16 * CHUNK);
	assert_int_equal(news.asked, (ROOM + 16 - 32 + 8) * CHUNK);
	/* one that nobody had does not come back when it is asked for */
	need(m.object, &v, 8, 16);
	for (int lap = 0; lap < 2; lap++)
		need(m.object, &v, 32, CHUNKS);
	assert_int_equal(count_ready(&v, 8, 16), 0);
	close_view(&v);
	soda_node_leave(&m);
}

/* Brought ahead again before anybody has looked at the first time: it is one chunk, and counted so.
 */
static void test_ahead_again(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);
	uint64_t offsets[4];

	bring(m.object, 0);
	assert_int_equal(soda_node_ask(m.object, 0, NULL), SODA_NODE_READY);
	for (int lap = 0; lap < 8; lap++)
		need(m.object, &v, 1, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 1), 0);
	assert_int_equal(stats().bytes_used, CHUNK);
	bring(m.object, 0);
	touch(&v, 0);
	assert_int_equal(stats().bytes_used, 2 * CHUNK);
	assert_int_equal(soda_node_touched(m.object, offsets, 4), 1);
	assert_int_equal(stats().bytes_used, 2 * CHUNK);
	assert_int_equal(news_of(m.object).used, 2 * CHUNK);
	close_view(&v);
	soda_node_leave(&m);
}

/* Pinned, it stays though nobody touches it; and it may be brought for a pin. */
static void test_ahead_and_pinned(void **state)
{
	struct soda_node_member m = join(&file);
	struct view v = view_of(&m);
	uint64_t offsets[4];

	bring(m.object, 0);
	bring(m.object, 1);
	pin(&m, 0, 4);
	bring(m.object, 2);
	touch(&v, 1);
	assert_int_equal(soda_node_touched(m.object, offsets, 4), 1);
	for (int lap = 0; lap < 2; lap++)
		need(m.object, &v, 4, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 3), 3);
	assert_int_equal(stats().useless, 0);
	assert_int_equal(unpin(&m, 0, 4), 1);
	for (int lap = 0; lap < 8; lap++)
		need(m.object, &v, 4, CHUNKS);
	assert_int_equal(count_ready(&v, 0, 1), 0);
	assert_int_equal(stats().useless, 2);
	close_view(&v);
	soda_node_leave(&m);
}

/* So many chunks may wait for somebody to touch them, and no more. */
static void test_ahead_is_bounded(void **state)
{
	struct soda_node_name name = file;
	struct soda_node_member m;
	uint32_t n = 0;

	name.bytes = 2048 * CHUNK;
	m = join(&name);
	while (n < 2048 && soda_node_claim(m.object, n))
		n++;
	assert_int_equal(n, 1024);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(soda_node_filled(m.object, i, NULL, -ECANCELED), -ECANCELED);
	assert_false(soda_node_claim(m.object, n));
	for (int i = 0; i < 8; i++) /* those that are gone are found */
		assert_int_equal(soda_node_touched(m.object, (uint64_t[1]){ 0 }, 1), 0);
	assert_true(soda_node_claim(m.object, n));
	assert_int_equal(soda_node_filled(m.object, n, NULL, -ECANCELED), -ECANCELED);
	assert_int_equal(stats().used, 0);
	soda_node_leave(&m);
}

/* Threads ask, fill and wait; the accounts hold, and nobody is forgotten. */

enum { THREADS = 4, ROUNDS = 4000 };

static void *work(void *arg)
{
	struct soda_node_member m = join(&file);
	uint32_t seed = (uint32_t)(uintptr_t)arg * 7919 + 1;
	char *mine = calloc(1, CHUNK);
	struct soda_why mine_why;
	struct view v = view_of(&m);

	for (int i = 0; i < ROUNDS; i++) {
		struct waiter w = { .w.told = tell };
		uint32_t chunk = (seed = seed * 1664525 + 1013904223) % CHUNKS;

		if ((seed >> 17) % 4 == 0 && soda_node_claim(m.object, CHUNKS - 1 - chunk))
			soda_node_filled(m.object, CHUNKS - 1 - chunk, mine,
					 seed >> 21 & 7 ? 0 : -EIO);
		if ((seed >> 18) % 4 == 0)
			soda_node_touched(m.object, (uint64_t[4]){ 0 }, 4);
		if (seed >> 16 & 1)
			soda_node_pin(&m, chunk * (uint64_t)CHUNK, 4096, &mine_why);
		else
			soda_node_unpin(&m, (chunk & ~63u) * (uint64_t)CHUNK, 63 * CHUNK);
		hold(&v, (uint32_t)i % 16, chunk);
		switch (soda_node_ask(m.object, chunk, &w.w)) {
		case SODA_NODE_FILL:
			soda_node_filled(m.object, chunk, mine, seed >> 20 & 7 ? 0 : -EIO);
			break;
		case SODA_NODE_WAITS:
			assert_int_not_equal(await_told(&w), 0);
			break;
		default:
			break;
		}
	}
	close_view(&v);
	free(mine);
	soda_node_leave(&m);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(stats().used <= stats().capacity);
	assert_int_equal(stats().members, 0);
	assert_int_equal(stats().pinned, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* An index from elsewhere: nobody waits for such a chunk, and nothing behind the others is touched.
 */
static void test_no_such_chunk(void **state)
{
	struct soda_node_member m = join(&file);
	struct waiter w = { .told = 0 };

	for (uint64_t i = CHUNKS; i <= UINT32_MAX; i = 2 * i + 1) {
		assert_int_equal(soda_node_ask(m.object, (uint32_t)i, &w.w), SODA_NODE_NONE);
		assert_false(soda_node_claim(m.object, (uint32_t)i));
	}
	assert_int_equal(soda_node_lacks(m.object, file.bytes, CHUNK), 0);
	assert_int_equal(stats().waits, 0);
	assert_int_equal(soda_node_chunk_bytes(m.object), CHUNK);
	soda_node_leave(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_filled_once),
		CASE(test_whole_chunks_only),
		CASE(test_a_fill_that_fails),
		CASE(test_the_oldest_go),
		CASE(test_generations),
		CASE(test_touched_ones_stay),
		CASE(test_what_comes_back_stays),
		CASE(test_what_is_left_goes),
		CASE(test_a_loop_finds_a_part),
		CASE(test_alone_and_in_company),
		CASE(test_held_ones_stay),
		CASE(test_a_list_is_held),
		CASE(test_all_are_held),
		CASE(test_nonsense_in_the_map),
		CASE(test_users_have_shares),
		CASE(test_a_place_twice),
		CASE(test_what_is_left_behind),
		CASE(test_less_memory),
		CASE(test_no_memory),
		CASE(test_what_is_refused),
		CASE(test_many_objects),
		CASE(test_descriptors),
		CASE(test_pinned_ones_stay),
		CASE(test_the_last_asker_counts),
		CASE(test_pins_are_bounded),
		CASE(test_many_pins),
		CASE(test_pinned_on_the_way),
		CASE(test_pins_and_less_memory),
		CASE(test_brought_ahead),
		CASE(test_late_for_what_is_ahead),
		CASE(test_ahead_and_useless),
		CASE(test_ahead_again),
		CASE(test_ahead_and_pinned),
		CASE(test_ahead_is_bounded),
		CASE(test_no_such_chunk),
		CASE(test_threads),
	};

	return cmocka_run_group_tests_name("dpu_store", tests, NULL, NULL);
}
