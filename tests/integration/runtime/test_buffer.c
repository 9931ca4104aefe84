/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page buffer as a hard limit: sizes from the smallest one on, instructions
 * that need four chunks at once, the count of resident memory against the
 * kernel's, and what the runtime takes for itself.
 */
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, MORE_MAX = 10 };

static struct world world;

/* A configuration with a buffer of the smallest size and `more` chunks. */
static struct soda_config tight(unsigned threads, unsigned more, char text[32])
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.chunk_bytes = CHUNK;
	cfg.threads = threads;
	set_buffer(&cfg, smallest_buffer(cfg) + (size_t)more * CHUNK, text);
	return cfg;
}

struct size_case {
	unsigned threads, more;
};

struct shared {
	uint64_t *words;
	size_t n;
	unsigned threads;
};

/* Each thread counts its own words up, all over the object. */
static void count_up(void *arg, unsigned thread)
{
	struct shared *s = arg;

	for (int round = 0; round < 2; round++)
		for (size_t w = thread; w < s->n; w += 64)
			s->words[w] += w + 1;
}

static void child_size(const void *arg)
{
	const struct size_case *c = arg;
	struct shared s = { .threads = c->threads };
	char text[32];
	struct soda_config cfg = tight(c->threads, c->more, text);
	struct soda_stats st;

	start(&cfg);
	s.n = strtoull(text, NULL, 10) / 8 * 2;
	s.words = alloc_checked(s.n * 8);
	run_threads(s.threads, count_up, &s);
	for (size_t w = 0; w < s.n; w++)
		CHECK_EQ(s.words[w], w % 64 < s.threads ? 2 * (w + 1) : 0);
	st = stats_now();
	CHECK(st.resident_peak_bytes <= strtoull(text, NULL, 10), "%llu",
	      (unsigned long long)st.resident_peak_bytes);
	soda_free(s.words);
}

static void test_smallest_to_ten_more(void **state)
{
	struct size_case c;

	for (c.threads = 1; c.threads <= 4; c.threads *= 4)
		for (c.more = 0; c.more <= MORE_MAX; c.more++)
			expect_passes(child_size, &c);
}

static void child_too_small(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32], number[32];
	size_t least;

	cfg.server = world.address;
	cfg.threads = 2;
	least = smallest_buffer(cfg);
	/* four chunks and one staging slot a thread, and not far from it */
	CHECK(least >= 2 * 5 * CHUNK && least <= 4 * 5 * CHUNK, "%zu", least);
	set_buffer(&cfg, least - 1, text);
	CHECK_EQ(soda_init(&cfg), -EINVAL);
	snprintf(number, sizeof(number), " need %zuK", least >> 10);
	CHECK(strstr(soda_last_error(), number), "%s not named", number);
	set_buffer(&cfg, least, text);
	start(&cfg);
	soda_free(alloc_checked(1));
}

static void test_below_smallest(void **state)
{
	expect_passes(child_too_small, NULL);
}

#ifdef __x86_64__
/* One instruction: source and destination each across the edge of two chunks. */
static void copy_word(void *to, const void *from)
{
	__asm__ volatile("movsq" : "+D"(to), "+S"(from) : : "memory");
}

static void cross_edges(void *arg, unsigned thread)
{
	struct shared *s = arg;
	char *base = (char *)s->words;
	size_t chunks = s->n / CHUNK_WORDS;
	struct dice d = { .state = thread + 1 };

	/* Sources are the even edges, destinations the odd ones that are this thread's. */
	for (size_t to = 1 + 2 * thread; to + 1 < chunks; to += 2 * s->threads) {
		size_t from = dice_roll(&d) % (chunks / 2) * 2;
		char *source = base + (from + (from == 0 ? 2 : 0)) * CHUNK - 4;
		char *target = base + to * CHUNK - 3;
		uint64_t want, got;

		memcpy(&want, source, 8);
		copy_word(target, source);
		memcpy(&got, target, 8);
		CHECK(got == want, "edge %zu to %zu: %llx, not %llx", from, to,
		      (unsigned long long)got, (unsigned long long)want);
	}
}

static void child_edges(const void *arg)
{
	const unsigned *threads = arg;
	char text[32];
	struct soda_config cfg = tight(*threads, 0, text);
	struct shared s = { .threads = *threads, .n = 256 * CHUNK_WORDS };

	start(&cfg);
	s.words = alloc_checked(s.n * 8);
	for (size_t w = 0; w < s.n; w++)
		s.words[w] = mix(w, 0);
	run_threads(s.threads, cross_edges, &s);
	soda_free(s.words);
}

static void test_instruction_across_edges(void **state)
{
	for (unsigned threads = 1; threads <= 4; threads *= 2)
		expect_passes(child_edges, &threads);
}
#else
static void test_instruction_across_edges(void **state)
{
	print_message("SKIP: movsq is of x86-64\n");
	skip();
}
#endif

/* Threads fault as fast as they can; the parent stops them and asks the kernel. */
struct pressure {
	uint64_t *words;
	size_t n, limit;
	atomic_bool stop;
};
static struct pressure *pressure; /* shared with the child */

static void press(void *arg, unsigned thread)
{
	struct dice d = { .state = thread + 1 };

	while (!atomic_load(&pressure->stop)) {
		volatile uint64_t *word = &pressure->words[dice_roll(&d) % pressure->n];

		if (d.state & 1)
			*word = 1;
		else
			(void)*word;
	}
}

static void child_press(const void *arg)
{
	char text[32];
	struct soda_config cfg = tight(4, MORE_MAX, text);

	start(&cfg);
	pressure->limit = strtoull(text, NULL, 10);
	pressure->n = 4 * pressure->limit / 8;
	pressure->words = alloc_checked(pressure->n * 8);
	turn_pass();
	run_threads(4, press, NULL);
	CHECK(stats_now().resident_peak_bytes <= pressure->limit, "counted %llu",
	      (unsigned long long)stats_now().resident_peak_bytes);
	turn_pass();
	turn_await();
	soda_free(pressure->words);
}

static size_t resident(void)
{
	uintptr_t fam = (uintptr_t)pressure->words;
	pid_t pid = child_stop();
	size_t bytes = pid ? smaps_rss(pid, fam, fam + pressure->n * 8) : 0;

	child_continue();
	return bytes;
}

/* With a DPU agent: what it alone has acknowledged, a quarter of the buffer or four chunks. */
static size_t kept_beside(size_t limit)
{
	size_t least = (size_t)4 * CHUNK;

	if (!getenv("SODA_TEST_AGENT"))
		return 0;
	return limit / 4 > least ? limit / 4 : least;
}

static void press_and_measure(const void *arg)
{
	size_t most = 0;

	if (!turn_await())
		return;
	for (int i = 0; i < 200; i++) {
		size_t bytes = resident();

		most = bytes > most ? bytes : most;
		sleep_ms(5);
	}
	atomic_store(&pressure->stop, true);
	turn_await();
	turn_pass();
	/* The lower bound shows that the right mappings were looked at. */
	assert_in_range(most, pressure->limit / 2, pressure->limit + kept_beside(pressure->limit));
}

static void test_resident_within_buffer(void **state)
{
	struct trial t = { .child = child_press, .during = press_and_measure };
	struct outcome out;

	pressure = shared_memory(sizeof(*pressure));
	trial_run(&t, &out);
	expect_quiet_success(&out);
}

/*
 * The runtime may count more than there is, never less.  Between the two looks
 * pages can only go: this is the only thread that brings any.
 */
static void child_count(const void *arg)
{
	char text[32];
	struct soda_config cfg = tight(2, MORE_MAX, text);
	size_t n = 64 * CHUNK;
	char *fam;

	cfg.prefetch_chunks = SODA_OFF;
	start(&cfg);
	fam = alloc_checked(n);
	for (size_t i = 0; i < n; i += 4096) {
		size_t counted, there;

		fam[i] = 1;
		if (i % (7 * 4096))
			continue;
		counted = stats_now().resident_bytes;
		there = smaps_rss(getpid(), (uintptr_t)fam, (uintptr_t)fam + n);
		CHECK(there <= counted, "%zu resident, %zu counted", there, counted);
	}
	soda_free(fam);
}

static void test_count_of_resident(void **state)
{
	expect_passes(child_count, NULL);
}

/*
 * What a sanitizer has read of its shadow, an eighth of the object and of the server's memory, is
 * memory, too, where the kernel has no shared page of zeros.
 */
#ifdef __SANITIZE_ADDRESS__
enum { SHADOW = 2 * (256 << 20) / 8 };
#else
enum { SHADOW = 0 };
#endif

/* All that the process has grown by: buffer, staging, tables. */
static void child_metadata(const void *arg)
{
	enum { FAM = 256 << 20, BUFFER = 8 << 20, OWN = 8 << 20 };
	struct soda_config cfg = SODA_CONFIG_INIT;
	size_t before = smaps_anonymous(getpid()), after;
	struct soda_stats st;
	char *fam;

	cfg.server = world.address;
	cfg.buffer = "8M";
	start(&cfg);
	fam = alloc_checked(FAM);
	for (size_t i = 0; i < FAM; i += CHUNK)
		fam[i] = 1;
	for (size_t i = 0; i < FAM; i += CHUNK)
		CHECK_EQ(fam[i], 1);
	st = stats_now();
	after = smaps_anonymous(getpid());
	CHECK_EQ(st.fam_bytes, FAM);
	CHECK(st.metadata_bytes > 0 && st.metadata_bytes < FAM / 1000 + OWN, "%llu",
	      (unsigned long long)st.metadata_bytes);
	CHECK(after - before < BUFFER + FAM / 1000 + OWN + SHADOW, "grown by %zu", after - before);
	soda_free(fam);
}

static void test_metadata(void **state)
{
	expect_passes(child_metadata, NULL);
}

/* With `ulimit -d`, which counts private memory that can be stored to: fewer addresses, no refusal.
 */
static void child_little_data(const void *arg)
{
	struct rlimit little = { 300 << 20, 300 << 20 };
	struct soda_config cfg = SODA_CONFIG_INIT;
	char *fam;

	CHECK_EQ(setrlimit(RLIMIT_DATA, &little), 0);
	cfg.server = world.address;
	cfg.buffer = "8M";
	start(&cfg);
	fam = alloc_checked(16 << 20);
	for (size_t i = 0; i < 16 << 20; i += CHUNK)
		fam[i] = (char)(i / CHUNK);
	for (size_t i = 0; i < 16 << 20; i += CHUNK)
		CHECK_EQ(fam[i], (char)(i / CHUNK));
	soda_free(fam);
}

static void test_little_data(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: a sanitizer's shadow is more than any limit of data\n");
	skip();
#endif
	expect_passes(child_little_data, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_smallest_to_ten_more),
		cmocka_unit_test(test_below_smallest),
		cmocka_unit_test(test_instruction_across_edges),
		cmocka_unit_test(test_resident_within_buffer),
		cmocka_unit_test(test_count_of_resident),
		cmocka_unit_test(test_metadata),
		cmocka_unit_test(test_little_data),
	};

	return WORLD_RUN("buffer", &world, false, tests);
}
