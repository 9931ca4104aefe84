/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that are cut, slow, silent or refuse, by the `fault` transport and a
 * seed (SODA_TEST_SEED replays one).  The oracle: no wrong byte, no hang, the right
 * code, and dirty data stays until it has been written.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 160, THREADS = 4 };

static struct world world;

/* The rules of src/transport/fault/rules.h, and the seed in them. */
struct storm {
	const char *rules;
	unsigned seed;
	unsigned timeout_ms;
	char address[384];
};

static uint64_t *begin(const struct storm *s, unsigned threads)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *fam;
	char text[32];

	cfg.server = s->address;
	cfg.threads = threads;
	cfg.fault_timeout_ms = s->timeout_ms;
	cfg.prefetch_chunks = SODA_OFF;
	set_buffer(&cfg, smallest_buffer(cfg) + 16 * CHUNK, text);
	start(&cfg);
	fam = alloc_checked(CHUNKS * CHUNK);
	return fam;
}

static void run(void (*child)(const void *arg), struct storm s, unsigned seed, struct outcome *out)
{
	struct trial t = { .child = child, .arg = &s, .seconds = 300 };

	s.seed = seed;
	if (s.timeout_ms == 0)
		s.timeout_ms = 20000;
	snprintf(s.address, sizeof(s.address), "fault+%s?%s&seeds=%u", world.address, s.rules,
		 seed);
	trial_run(&t, out);
	if (WEXITSTATUS(out->status))
		print_error("rules %s, seed %u (SODA_TEST_SEED)\n", s.rules, seed);
}

/* fn for some seeds, or the one that is asked for. */
static void seeds(void (*child)(const void *arg), struct storm s)
{
	const char *only = getenv("SODA_TEST_SEED");
	unsigned from = only ? (unsigned)atoi(only) : 1, to = only ? from : 3;

	for (unsigned seed = from; seed <= to; seed++) {
		struct outcome out;

		run(child, s, seed, &out);
		expect_exit(&out, 0);
	}
}

/* Owners of every THREADS-th word, as in test_threads.c. */
struct field {
	uint64_t *words;
	uint32_t *counts;
};

static void modify(void *arg, unsigned thread)
{
	struct field *f = arg;
	struct dice d = { .state = thread + 1 };

	for (int i = 0; i < 3000; i++) {
		size_t word = dice_roll(&d) % (CHUNKS * CHUNK_WORDS / THREADS) * THREADS + thread;

		CHECK(f->words[word] == (f->counts[word] ? mix(word, f->counts[word]) : 0),
		      "word %zu after %u stores: %llx", word, f->counts[word],
		      (unsigned long long)f->words[word]);
		f->words[word] = mix(word, ++f->counts[word]);
	}
}

static void child_storm(const void *arg)
{
	struct field f = { .words = begin(arg, THREADS) };

	f.counts = calloc(CHUNKS * CHUNK_WORDS, sizeof(*f.counts));
	run_threads(THREADS, modify, &f);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i++)
		CHECK(f.words[i] == (f.counts[i] ? mix(i, f.counts[i]) : 0),
		      "word %zu after %u stores: %llx", i, f.counts[i],
		      (unsigned long long)f.words[i]);
	free(f.counts);
}

static void child_cut(const void *arg)
{
	child_storm(arg);
	CHECK(stats_now().reconnects > 0, "no connection was lost: nothing was tested");
}

static void test_cut(void **state)
{
	seeds(child_cut, (struct storm){ .rules = "do=cut&after=50&rate=1&count=1" });
}

static void test_delay(void **state)
{
	seeds(child_storm, (struct storm){ .rules = "do=delay&ms=3&rate=5" });
}

static void test_cut_and_delay(void **state)
{
	seeds(child_cut, (struct storm){ .rules = "do=delay&ms=2&rate=10&do=cut&rate=1&count=2" });
}

/* An answer that never comes: SIGBUS in time or, by another connection, the right data. */
static void child_silence(const void *arg)
{
	const struct storm *s = arg;
	uint64_t *fam = begin(s, 1);
	unsigned failed = 0;

	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512)
		fam[i] = mix(i, 0);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512) {
		double begin_s = now_seconds();

		if (touch_signal(&fam[i], false)) {
			failed++;
			continue;
		}
		CHECK(now_seconds() - begin_s < s->timeout_ms / 1000. + 2, "took %.1f s",
		      now_seconds() - begin_s);
		CHECK_EQ(fam[i], mix(i, 0));
	}
	CHECK(failed < 40, "%u touches failed for one lost answer", failed);
	CHECK(failed || stats_now().reconnects, "no answer was lost: nothing was tested");
}

static void test_lost_answer(void **state)
{
	const char *transport = getenv("SODA_TEST_TRANSPORT");

	if (transport && !strcmp(transport, "shm")) {
		puts("SKIP: on shm a READ is a copy out of mapped memory: there is no answer to "
		     "lose");
		skip();
	}
	seeds(child_silence,
	      (struct storm){ .rules = "do=drop&on=read&after=30&count=1", .timeout_ms = 1500 });
}

/* A read that the server refuses is SIGBUS and a line, never zeros. */
static void child_refused_read(const void *arg)
{
	uint64_t *fam = begin(arg, 1);
	unsigned failed = 0;

	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512)
		fam[i] = mix(i, 0);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512) {
		if (touch_signal(&fam[i], false))
			failed++;
		else
			CHECK_EQ(fam[i], mix(i, 0));
	}
	/* errors: one for each, and on shm nothing travels that could be refused */
	CHECK_EQ(stats_now().errors, failed);
	CHECK(failed > 0 || !strstr(((const struct storm *)arg)->address, "tcp"), "nothing failed");
}

static void test_refused_read(void **state)
{
	seeds(child_refused_read,
	      (struct storm){ .rules = "do=fail&on=read&after=40&count=2", .timeout_ms = 1500 });
}

/*
 * PIN has asked for nothing wrong and has room: whatever word the server refuses the READ with, it
 * is an I/O error.
 */
static void child_refused_pin(const void *arg)
{
	const struct storm *s = arg;
	uint64_t *fam = begin(s, 1);
	int ret;

	for (size_t i = 0; i < 8 * CHUNK_WORDS; i++)
		fam[i] = mix(i, 0);
	CHECK_EQ(soda_advise(fam, 8 * CHUNK, SODA_COLD), 0);
	ret = soda_advise(fam, 8 * CHUNK, SODA_PIN);
	if (!ret && !strstr(s->address, "tcp")) /* on shm nothing travels that could be refused */
		return;
	CHECK_EQ(ret, -EIO);
	CHECK(strstr(soda_last_error(), "PIN"), "%s", soda_last_error());
	CHECK_EQ(soda_advise(fam, 8 * CHUNK, SODA_UNPIN), 0);
}

static void test_refused_pin(void **state)
{
	static const char *const rules[] = { "do=fail&on=read&status=1&count=1",
					     "do=fail&on=read&status=13&count=1" };

	for (size_t i = 0; i < 2; i++) {
		struct storm s = { .rules = rules[i] };
		struct outcome out;

		run(child_refused_pin, s, 1, &out);
		expect_exit(&out, 0);
	}
}

/* As long as the file is there, no write goes through. */
static char trigger[128];

static void child_refused_write(const void *arg)
{
	uint64_t *fam = begin(arg, 1);
	int ret;

	for (size_t i = 0; i < 8 * CHUNK_WORDS; i++)
		fam[i] = mix(i, 0);
	ret = soda_sync(fam, 8 * CHUNK);
	CHECK(ret < 0, "sync of data that could not be written: %d", ret);
	CHECK(soda_last_error()[0], "no sentence");
	for (size_t i = 0; i < 8 * CHUNK_WORDS; i++)
		CHECK_EQ(fam[i], mix(i, 0));
	turn_pass();
	turn_await();
	CHECK_EQ(soda_sync(fam, 8 * CHUNK), 0);
	CHECK_EQ(soda_advise(fam, 8 * CHUNK, SODA_COLD), 0);
	for (size_t i = 0; i < 8 * CHUNK_WORDS; i++)
		CHECK_EQ(fam[i], mix(i, 0));
}

static void remove_trigger(const void *arg)
{
	if (!turn_await())
		return;
	unlink(trigger);
	turn_pass();
}

static void test_refused_write(void **state)
{
	struct storm s = { .timeout_ms = 2000 };
	struct trial t = { .child = child_refused_write, .during = remove_trigger, .arg = &s };
	struct outcome out;

	snprintf(trigger, sizeof(trigger), "%s/no-writes", world.dir);
	fclose(fopen(trigger, "w"));
	snprintf(s.address, sizeof(s.address), "fault+%s?do=fail&on=write&while=%s", world.address,
		 trigger);
	trial_run(&t, &out);
	expect_exit(&out, 0);
}

/* One call without an answer: the next ones have theirs, and no byte is lost. */
static void child_call_without_answer(const void *arg)
{
	const struct storm *s = arg;
	uint64_t *fam = begin(s, 1);
	double begin_s;

	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512)
		fam[i] = mix(i, 0);
	fclose(fopen(trigger, "w"));
	begin_s = now_seconds();
	CHECK(!soda_alloc(CHUNK, 0) && errno == ETIMEDOUT, "%s", soda_last_error());
	CHECK(now_seconds() - begin_s < s->timeout_ms / 1000. + 5, "took %.1f s",
	      now_seconds() - begin_s);
	CHECK(access(trigger, F_OK), "nothing was tested");
	soda_free(alloc_checked(CHUNK));
	CHECK_EQ(soda_sync(fam, CHUNKS * CHUNK), 0);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512)
		CHECK_EQ(fam[i], mix(i, 0));
}

static void test_call_without_answer(void **state)
{
	struct storm s = { .timeout_ms = 2000 };
	struct trial t = { .child = child_call_without_answer, .arg = &s };
	struct outcome out;

	snprintf(trigger, sizeof(trigger), "%s/no-answer", world.dir);
	snprintf(s.address, sizeof(s.address), "fault+%s?do=drop&on=call&once=%s", world.address,
		 trigger);
	trial_run(&t, &out);
	expect_exit(&out, 0);
}

/*
 * A program that ends while its connections are lost, and cannot be made anew just then: it says
 * BYE all the same, so that the server has its memory back at once, and not after its grace time.
 */
static void child_ends_away(const void *arg)
{
	uint64_t *fam = begin(arg, 1);

	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 512)
		fam[i] = mix(i, 0);
	CHECK_EQ(soda_sync(fam, CHUNKS * CHUNK), 0);
	fclose(fopen(trigger, "w"));
	soda_alloc(CHUNK, 0); /* loses the connections; it has no answer within its time */
	turn_pass();
	exit(0); /* nothing but the runtime's own end */
}

static void remove_soon(const void *arg)
{
	if (!turn_await())
		return;
	usleep(300000);
	unlink(trigger);
}

static void test_ends_away(void **state)
{
	struct storm s = { .timeout_ms = 1500 };
	struct trial t = { .child = child_ends_away, .during = remove_soon, .arg = &s };
	struct outcome out;

	snprintf(trigger, sizeof(trigger), "%s/no-way", world.dir);
	snprintf(s.address, sizeof(s.address), "fault+%s?do=cut&on=call,connect&while=%s",
		 world.address, trigger);
	peer_await_none(world.address, "used_bytes"); /* of the tests before */
	trial_run(&t, &out);
	expect_exit(&out, 0);
	for (int i = 0; i < 1000 && peer_stat_of(world.address, "used_bytes"); i++)
		usleep(10000);
	assert_int_equal(peer_stat_of(world.address, "used_bytes"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut),	      cmocka_unit_test(test_delay),
		cmocka_unit_test(test_cut_and_delay), cmocka_unit_test(test_lost_answer),
		cmocka_unit_test(test_refused_read),  cmocka_unit_test(test_refused_pin),
		cmocka_unit_test(test_refused_write), cmocka_unit_test(test_call_without_answer),
		cmocka_unit_test(test_ends_away),
	};

	return WORLD_RUN("connection", &world, true, tests);
}
