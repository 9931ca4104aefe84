/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of four servers of 256 MiB: objects larger than any of them, ranges over several slabs, a
 * member that is away or has lost its memory, and lists that are refused.
 */
#include <signal.h>
#include <stdio.h>

#include "lib/harness.h"
#include "lib/world.h"

enum {
	SERVERS = 4,
	PAGE = 4096,
	SLAB = 2 << 20,
	SMALL = 64 << 20,
	SLABS = 16,	/* an object's, a part of which is away */
	FAULT_MS = 2000 /* a server that is there answers in less, also beside much work */
};
enum { STATIC = 32 << 20 }; /* more than the agent's static cache has: meson.build */

static struct world worlds[SERVERS];
static char list[SERVERS * 160];
static struct front front;

static const char *const capacity[] = { "--capacity", "256M", NULL };

static void open_pool(void)
{
	list[0] = '\0';
	for (int i = 0; i < SERVERS; i++) {
		world_open(&worlds[i], i == 1 ? WORLD_SHM : WORLD_TCP, capacity);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%.128s", i ? "," : "",
			 worlds[i].address);
	}
	front_open(&front, list);
}

static void close_pool(int noisy)
{
	front_close(&front);
	for (int i = 0; i < SERVERS; i++)
		if (i == noisy)
			world_close_noisy(&worlds[i]);
		else
			world_close(&worlds[i]);
}

static struct soda_config config(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = front.address;
	cfg.buffer = "32M";
	cfg.threads = 2;
	return cfg;
}

/* One word of each page, at another place in each. */
static uint64_t *word_of(char *p, size_t page)
{
	return (uint64_t *)(p + page * PAGE + page % 512 * 8);
}

static uint64_t value_of(size_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15u;
}

static void store(char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes / PAGE; i++)
		*word_of(p, i) = value_of(i);
}

static void verify(char *p, size_t from, size_t bytes)
{
	for (size_t i = from / PAGE; i < (from + bytes) / PAGE; i++)
		CHECK(*word_of(p, i) == value_of(i), "page %zu", i);
}

static void child_large(const void *arg)
{
	const size_t bytes = 900ul << 20;
	struct soda_config cfg = config();
	char *p;

	start(&cfg);
	p = alloc_checked(bytes);
	store(p, bytes);
	for (size_t i = 0, page = 1; i < 20000; i++) {
		page = (page * 6364136223846793005u + 1442695040888963407u) % (bytes / PAGE);
		CHECK(*word_of(p, page) == value_of(page), "page %zu", page);
	}
	verify(p, 0, bytes);
	soda_free(p);
	p = alloc_checked(bytes); /* what was freed is free on the servers, too */
	for (size_t i = 0; i < bytes / PAGE; i += 1024)
		CHECK_EQ(*word_of(p, i), 0);
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_larger_than_any(void **state)
{
	open_pool();
	expect_passes(child_large, NULL);
	close_pool(-1);
}

/* The heap's regions lie on the pool as well: a block larger than any server, and zeros later. */
static void child_heap(const void *arg)
{
	const size_t large = 300ul << 20;
	struct soda_config cfg = config();
	char *p, *small[64];

	start(&cfg);
	for (size_t i = 0; i < 64; i++) {
		small[i] = soda_malloc(1 << 20);
		CHECK(small[i] != NULL, "block %zu", i);
		store(small[i], 1 << 20);
	}
	p = soda_malloc(large);
	CHECK(p != NULL, "a block of %zu bytes", large);
	store(p, large);
	verify(p, 0, large);
	for (size_t i = 0; i < 64; i++) {
		verify(small[i], 0, 1 << 20);
		soda_free(small[i]);
	}
	soda_free(p);
	p = soda_calloc(large / PAGE, PAGE);
	CHECK(p != NULL, "zeros");
	for (size_t i = 0; i < large / PAGE; i += 16)
		CHECK_EQ(*word_of(p, i), 0);
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_heap(void **state)
{
	open_pool();
	expect_passes(child_heap, NULL);
	close_pool(-1);
}

/* Calls with a range that lies in several slabs. */
static void child_ranges(const void *arg)
{
	struct soda_config cfg = config();
	size_t at = 3 * SLAB - 16 * PAGE, n = SLAB + 32 * PAGE;
	char *p;

	setenv("SODA_SLAB", "2M", 1);
	start(&cfg);
	p = alloc_checked(SMALL + 5 * PAGE);
	CHECK_EQ(soda_set_name(p, "striped"), 0);
	store(p, SMALL + 5 * PAGE);
	CHECK_EQ(soda_sync(p + at, n), 0);
	CHECK_EQ(soda_sync(p, SMALL + 5 * PAGE), 0);
	CHECK_EQ(soda_sync(p + SLAB, SMALL + 5 * PAGE), -EINVAL); /* behind its end */
	CHECK_EQ(soda_advise(p, SMALL + 5 * PAGE, SODA_COLD), 0);
	CHECK_EQ(soda_advise(p, SMALL, SODA_SEQUENTIAL), 0);
	CHECK_EQ(soda_prefetch(p + at, n), 0);
	CHECK_EQ(soda_hold(p + at + 8 * PAGE, 16 * PAGE), 0);
	CHECK_EQ(soda_unhold(p + at + 8 * PAGE, 16 * PAGE), 0);
	CHECK_EQ(soda_advise(p + at, n, SODA_PIN), 0);
	CHECK(stats_now().pinned_bytes >= n, "the range is pinned");
	CHECK_EQ(soda_advise(p + at, n, SODA_UNPIN), 0);
	verify(p, 0, SMALL + 5 * PAGE);
	CHECK_EQ(soda_advise(p + at, n, SODA_DISCARD), 0);
	for (size_t i = at / PAGE; i < (at + n) / PAGE; i++)
		CHECK_EQ(*word_of(p, i), 0);
	verify(p, 0, at);
	verify(p, at + n, SMALL + 5 * PAGE - at - n);
	CHECK_EQ(soda_try_free(p + SLAB), -EINVAL); /* a slab is no object */
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_ranges(void **state)
{
	open_pool();
	expect_passes(child_ranges, NULL);
	close_pool(-1);
}

/*
 * Ranges over several slabs in the static cache of the agent before the pool, all of them or
 * nothing; of objects with redundancy, which have to be written, nothing.
 */
static void child_caches(const void *arg)
{
	struct soda_config cfg = config();
	char *p, *large, *copied;

	setenv("SODA_SLAB", "2M", 1);
	start(&cfg);
	p = alloc_checked(4 * SLAB);
	large = alloc_checked(STATIC);
	copied = soda_alloc(4 * SLAB, SODA_MIRROR(2));
	CHECK(copied != NULL, "%s", soda_last_error());
	store(p, 4 * SLAB);
	store(large, STATIC);
	store(copied, 4 * SLAB);
	CHECK_EQ(soda_advise(p + PAGE, 3 * SLAB, SODA_STATIC_CACHE), 0);
	CHECK_EQ(soda_advise(p, 4 * SLAB, SODA_COLD), 0);
	verify(p, 0, 4 * SLAB);
	CHECK_EQ(touch_signal(word_of(p, 1), true), SIGSEGV);
	CHECK_EQ(touch_signal(word_of(p, 2 * SLAB / PAGE), true), SIGSEGV);
	CHECK_EQ(soda_advise(large, STATIC, SODA_STATIC_CACHE), -ENOSPC);
	store(large, STATIC); /* none of its slabs is kept there */
	CHECK_EQ(soda_advise(copied, 4 * SLAB, SODA_STATIC_CACHE), -ENOTSUP);
	CHECK(strstr(soda_last_error(), "redundancy"), "%s", soda_last_error());
	CHECK_EQ(soda_advise(copied, 4 * SLAB, SODA_NO_CACHE), 0);
	CHECK_EQ(soda_advise(copied, 4 * SLAB, SODA_DYNAMIC_CACHE), 0);
	CHECK_EQ(soda_advise(p, 4 * SLAB, SODA_DYNAMIC_CACHE), 0);
	store(p, 4 * SLAB);
	verify(p, 0, 4 * SLAB);
	verify(large, 0, STATIC);
	verify(copied, 0, 4 * SLAB);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_caches(void **state)
{
	front_required();
	open_pool();
	expect_passes(child_caches, NULL);
	close_pool(-1);
}

/* How many slabs cannot be read; the others must be right, and come at once. */
static unsigned unreadable(char *p)
{
	unsigned n = 0;

	for (size_t slab = 0; slab < SLABS; slab++) {
		uint64_t *word = word_of(p, slab * (SLAB / PAGE) + 7);
		double from = now_seconds();

		if (touch_signal(word, false)) {
			n++;
			continue;
		}
		CHECK(now_seconds() - from < FAULT_MS / 1000.0, "slab %zu waited", slab);
		CHECK(*word == value_of(slab * (SLAB / PAGE) + 7), "slab %zu", slab);
	}
	return n;
}

static void child_away(const void *arg)
{
	struct soda_config cfg = config();
	unsigned away, gone;
	char *p, *q;

	setenv("SODA_SLAB", "2M", 1);
	cfg.fault_timeout_ms = FAULT_MS;
	start(&cfg);
	p = alloc_checked(SLABS * SLAB);
	CHECK_EQ(soda_set_name(p, "table"), 0);
	store(p, SLABS * SLAB);
	CHECK_EQ(soda_sync(p, SLABS * SLAB), 0);
	CHECK_EQ(soda_advise(p, SLABS * SLAB, SODA_COLD), 0);
	CHECK_EQ(unreadable(p), 0);
	CHECK_EQ(soda_advise(p, SLABS * SLAB, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await());
	away = unreadable(p);
	CHECK(away > 0 && away < SLABS, "%u slabs are away", away);
	turn_pass();
	CHECK(turn_await());
	while (!stats_now().reconnects)
		sleep_ms(10);
	gone = unreadable(p);
	CHECK_EQ(gone, away);
	q = alloc_checked(SMALL); /* the member is one again */
	store(q, SMALL);
	verify(q, 0, SMALL);
	CHECK(soda_sync(p, SLABS * SLAB) == -EIO);
	soda_free(p);
	soda_free(q);
	CHECK_EQ(soda_shutdown(), 0);
}

static void lose_a_member(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&worlds[2]);
	turn_pass();
	if (!turn_await())
		return;
	world_restart(&worlds[2]);
	turn_pass();
}

static void test_member_away(void **state)
{
	struct trial t = { .child = child_away, .during = lose_a_member };
	struct outcome out;
	char said[160];

	open_pool();
	trial_run(&t, &out);
	expect_exit(&out, 0);
	expect_says(&out, "table: ");
	snprintf(said, sizeof(said), "are lost with %s", worlds[2].address);
	expect_says(&out, said);
	close_pool(2);
}

/* The last of the members is away when the program ends, and comes back meanwhile. */
static void child_ends(const void *arg)
{
	struct soda_config cfg = config();
	char *p;

	start(&cfg);
	p = alloc_checked(SMALL);
	store(p, SMALL);
	soda_free(p);
	turn_pass();
	CHECK(turn_await());
	sleep_ms(100); /* its keeper has seen it go */
	turn_pass();
	CHECK_EQ(soda_shutdown(), 0);
}

static void come_back_late(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&worlds[SERVERS - 1]);
	turn_pass();
	if (!turn_await())
		return;
	sleep_ms(200);
	world_restart(&worlds[SERVERS - 1]);
}

static void test_ends_while_away(void **state)
{
	struct trial t = { .child = child_ends, .during = come_back_late };
	struct outcome out;

	open_pool();
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool(SERVERS - 1);
}

/* An agent that is started anew with a longer list brings its servers to programs that run. */
static void child_more(const void *arg)
{
	struct soda_config cfg = config();
	char *p, *q = NULL;

	start(&cfg);
	p = alloc_checked(SMALL);
	store(p, SMALL);
	CHECK(!soda_alloc(600ul << 20, 0), "two servers have 512M");
	turn_pass();
	CHECK(turn_await());
	for (int i = 0; i < 300 && !q; i++) {
		sleep_ms(100);
		q = soda_alloc(600ul << 20, 0);
	}
	CHECK(q != NULL, "%s", soda_last_error());
	store(q, SMALL);
	verify(p, 0, SMALL);
	verify(q, 0, SMALL);
	CHECK_EQ(soda_shutdown(), 0);
}

/* Without the server on shm, whose memory a new agent cannot map. */
static void list_of(char to[sizeof(front.list)], bool all)
{
	snprintf(to, sizeof(front.list), "%.128s,%.128s%s%.128s", worlds[0].address,
		 worlds[2].address, all ? "," : "", all ? worlds[3].address : "");
}

static void name_all(const void *arg)
{
	if (!turn_await())
		return;
	front_kill(&front);
	list_of(front.list, true);
	front_restart(&front);
	turn_pass();
}

static void test_longer_list(void **state)
{
	struct trial t = { .child = child_more, .during = name_all };
	struct outcome out;
	char two[sizeof(front.list)];

	front_required();
	open_pool();
	front_close(&front);
	list_of(two, false);
	front_open(&front, two);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool(-1);
}

struct refusal {
	const char *list, *says, *mode;
};

/*
 * Two members answer in each other's place: neither knows what the other one has, which is not lost
 * for that.
 */

static void child_swapped(const void *arg)
{
	struct soda_config cfg = config();
	char *p;

	setenv("SODA_SLAB", "2M", 1);
	cfg.fault_timeout_ms = FAULT_MS;
	start(&cfg);
	p = alloc_checked(SMALL);
	store(p, SMALL);
	CHECK_EQ(soda_sync(p, SMALL), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* each has its place again */
	while (soda_sync(p, SMALL))
		sleep_ms(10);
	CHECK_EQ(soda_advise(p, SMALL, SODA_COLD), 0);
	verify(p, 0, SMALL);
	CHECK_EQ(soda_shutdown(), 0);
}

static const char *socket_of(int member)
{
	return worlds[member].address + strlen("shm://");
}

static void swap_sockets(void)
{
	char aside[160];

	snprintf(aside, sizeof(aside), "%.140s.aside", socket_of(0));
	assert_int_equal(rename(socket_of(0), aside), 0);
	assert_int_equal(rename(socket_of(1), socket_of(0)), 0);
	assert_int_equal(rename(aside, socket_of(1)), 0);
}

/*
 * Whether each has met the program by the other one's address, and so as somebody new.  A
 * client that asks for statistics is somebody new, too.
 */
static bool both_were_met(unsigned asked)
{
	bool first = world_stat(worlds[0].address, "clients_opened") >= asked + 2;
	bool second = world_stat(worlds[1].address, "clients_opened") >= asked + 2;

	return first && second;
}

/* Until the program has noticed, and made its connections anew. */
static void halt_both(void)
{
	for (int i = 0; i < 2; i++)
		process_halt(worlds[i].server.pid);
	sleep_ms(FAULT_MS + 2000);
	for (int i = 0; i < 2; i++)
		kill(worlds[i].server.pid, SIGCONT);
}

static void swap_members(const void *arg)
{
	if (!turn_await())
		return;
	swap_sockets();
	for (unsigned look = 0; !both_were_met(look + 1) && look < LOOKS; look++) {
		if (look % 40 == 0)
			halt_both();
		sleep_ms(50);
	}
	swap_sockets();
	turn_pass();
}

static void test_swapped(void **state)
{
	struct trial t = { .child = child_swapped, .during = swap_members };
	char two[2 * sizeof(worlds[0].address) + 2];
	struct outcome out;

	if (getenv("SODA_TEST_POOL_AGENT")) {
		print_message("SKIP: it is the agent that goes to the servers\n");
		skip();
	}
	for (int i = 0; i < 2; i++)
		world_open(&worlds[i], WORLD_SHM, capacity);
	snprintf(two, sizeof(two), "%s,%s", worlds[0].address, worlds[1].address);
	front_open(&front, two);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	expect_says(&out, "another server of the pool answers there");
	front_close(&front);
	world_close_noisy(&worlds[0]);
	world_close_noisy(&worlds[1]);
}

/* A '!' at the end of what is said: nothing comes behind it. */
static void check_says(const char *says)
{
	const char *got = soda_last_error();
	size_t n = strlen(says), all = strlen(got);

	if (says[n - 1] != '!')
		CHECK(strstr(got, says), "%s", got);
	else
		CHECK(all >= n - 1 && !strncmp(got + all - (n - 1), says, n - 1), "%s", got);
}

static void child_refused(const void *arg)
{
	const struct refusal *r = arg;
	struct soda_config cfg = config();

	cfg.server = r->list;
	cfg.mode = r->mode ? SODA_MODE_HANDLER : SODA_MODE_AUTO;
	CHECK(soda_init(&cfg) < 0);
	check_says(r->says);
}

static void test_bad_lists(void **state)
{
	char twice[512], again[512], away[512];
	struct refusal cases[] = {
		{ twice, "twice", NULL },
		{ again, "are the same server", NULL },
		{ away, "tcp://127.0.0.1:1", NULL },
		{ away, "the pool's other 2 servers have 512 MiB free", NULL },
		{ "tcp://127.0.0.1:1,tcp://127.0.0.1:2", "nor can be used tcp://127.0.0.1:2",
		  NULL },
		/* nothing is cut in a word, and nothing said of others that there are not */
		{ "tcp://127.0.0.1:1,tcp://127.0.0.1:2",
		  "is the server running there?; nor can be used tcp://127.0.0.1:2!", NULL },
		{ "tcp://127.0.0.1:1,tcp://127.0.0.1:2,tcp://127.0.0.1:3,tcp://127.0.0.1:4,"
		  "tcp://127.0.0.1:5,tcp://127.0.0.1:6",
		  "tcp://127.0.0.1:4, ...!", NULL },
		{ "tcp://127.0.0.1:1,,", "empty place", NULL },
		{ front.address, "mode handler", "handler" },
	};

	open_pool();
	snprintf(twice, sizeof(twice), "%s,%s", worlds[0].address, worlds[0].address);
	snprintf(again, sizeof(again), "%s,tcp://localhost%s", worlds[0].address,
		 strrchr(worlds[0].address, ':'));
	snprintf(away, sizeof(away), "%s,tcp://127.0.0.1:1,%s", worlds[0].address,
		 worlds[3].address);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_passes(child_refused, &cases[i]);
	close_pool(-1);
}

static void child_too_much(const void *arg)
{
	struct soda_config cfg = config();
	char *p;

	start(&cfg);
	CHECK(!soda_alloc(1100ul << 20, 0));
	CHECK(strstr(soda_last_error(), "have 1073741824 bytes free"), "%s", soda_last_error());
	CHECK(!soda_open_published("a", NULL));
	CHECK(strstr(soda_last_error(), "lie on one server"), "%s", soda_last_error());
	CHECK(!soda_alloc_file("a", 0, SODA_READ_ONLY, NULL));
	CHECK(strstr(soda_last_error(), "No such file"), "%s", soda_last_error());
	p = alloc_checked(1000ul << 20); /* nothing is left of what could not be had */
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_too_much(void **state)
{
	open_pool();
	expect_passes(child_too_much, NULL);
	close_pool(-1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_larger_than_any), cmocka_unit_test(test_heap),
		cmocka_unit_test(test_ranges),		cmocka_unit_test(test_caches),
		cmocka_unit_test(test_member_away),	cmocka_unit_test(test_ends_while_away),
		cmocka_unit_test(test_longer_list),	cmocka_unit_test(test_bad_lists),
		cmocka_unit_test(test_too_much),	cmocka_unit_test(test_swapped),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
