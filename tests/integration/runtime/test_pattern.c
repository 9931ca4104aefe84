/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pattern check: every word of an object four times the buffer names its own
 * position and the round that wrote it.  Written, read, read and modified, in
 * order and not, by 1 to 8 threads, in every mode, over every transport, with
 * chunks of several sizes.
 */
#include <signal.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { PAGE_WORDS = 4096 / 8, THREADS_MAX = 8 };

struct pattern {
	const char *name;
	uint32_t mode;
	enum world_transport transport;
	size_t chunk;
	unsigned threads; /* set by the case for each of its runs */
	const char *server;
};

/* One run's object and how its words are shared out. */
struct field {
	uint64_t *words;
	size_t n;
	size_t chunk_words;
	unsigned threads;
	uint64_t round;
	bool random;
};

/* The i-th chunk that this thread visits: in order, or by an odd stride from its own start. */
static size_t visit(const struct field *f, unsigned thread, size_t i)
{
	size_t chunks = (f->n + f->chunk_words - 1) / f->chunk_words;

	if (!f->random)
		return i;
	return (i * 7919 + thread * (chunks / f->threads + 1)) % chunks;
}

/* Every thread owns each threads-th page of every chunk, so that chunks are shared. */
static void each_own_word(const struct field *f, unsigned thread,
			  void (*fn)(const struct field *f, size_t word))
{
	size_t chunks = (f->n + f->chunk_words - 1) / f->chunk_words;

	for (size_t i = 0; i < chunks; i++) {
		size_t begin = visit(f, thread, i) * f->chunk_words;
		size_t end = begin + f->chunk_words < f->n ? begin + f->chunk_words : f->n;

		for (size_t w = begin; w < end; w++)
			if (w / PAGE_WORDS % f->threads == thread)
				fn(f, w);
	}
}

static void write_word(const struct field *f, size_t word)
{
	f->words[word] = mix(word, f->round);
}

static void check_word(const struct field *f, size_t word)
{
	CHECK(f->words[word] == mix(word, f->round), "word %zu of %zu, round %llu: %llx", word,
	      f->n, (unsigned long long)f->round, (unsigned long long)f->words[word]);
}

static void modify_word(const struct field *f, size_t word)
{
	check_word(f, word);
	f->words[word] = mix(word, f->round + 1);
}

static void thread_write(void *arg, unsigned thread)
{
	each_own_word(arg, thread, write_word);
}

static void thread_check(void *arg, unsigned thread)
{
	each_own_word(arg, thread, check_word);
}

static void thread_modify(void *arg, unsigned thread)
{
	each_own_word(arg, thread, modify_word);
}

/* All threads read everything: chunks are wanted by several at once. */
static void thread_read_all(void *arg, unsigned thread)
{
	struct field f = *(struct field *)arg;

	for (size_t w = thread; w < f.n; w += 97)
		check_word(&f, w);
}

static void rounds(struct field *f)
{
	run_threads(f->threads, thread_write, f);
	run_threads(f->threads, thread_check, f);
	f->random = true;
	run_threads(f->threads, thread_check, f);
	run_threads(f->threads, thread_modify, f);
	f->round++;
	run_threads(f->threads, thread_read_all, f);
	f->random = false;
	run_threads(f->threads, thread_modify, f);
	f->round++;
	f->random = true;
	run_threads(f->threads, thread_write, f);
	run_threads(f->threads, thread_check, f);
}

static void child(const void *arg)
{
	const struct pattern *p = arg;
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct field f = { .chunk_words = p->chunk / 8, .threads = p->threads };
	struct soda_stats s;
	size_t buffer;
	char text[32];

	cfg.server = p->server;
	cfg.mode = p->mode;
	cfg.chunk_bytes = p->chunk;
	cfg.threads = p->threads;
	buffer = smallest_buffer(cfg) + 8 * p->chunk;
	set_buffer(&cfg, buffer, text);
	start(&cfg);
	/* 4 times the buffer, and an end in the middle of a chunk and of a page */
	f.n = buffer / 8 * 4 + f.chunk_words / 2 + 3;
	f.words = alloc_checked(f.n * 8);
	rounds(&f);
	s = stats_now();
	CHECK(s.fetches + s.prefetched >= f.n / f.chunk_words, "%llu fetched",
	      (unsigned long long)s.fetches);
	CHECK(s.bytes_written_back >= f.n * 8 / 2, "%llu",
	      (unsigned long long)s.bytes_written_back);
	CHECK(s.resident_peak_bytes <= s.buffer_bytes, "%llu resident, buffer %llu",
	      (unsigned long long)s.resident_peak_bytes, (unsigned long long)s.buffer_bytes);
	CHECK_EQ(s.mode, p->mode);
	CHECK_EQ(s.chunk_bytes, p->chunk);
	soda_free(f.words);
}

static void test_pattern(void **state)
{
	struct pattern p = *(struct pattern *)*state;
	struct world w;

	world_open(&w, p.transport, NULL);
	p.server = w.address;
	for (p.threads = 1; p.threads <= (p.chunk > (1 << 20) ? 2 : THREADS_MAX); p.threads *= 2)
		expect_passes(child, &p);
	world_close(&w);
}

#define PATTERN(m, t, c, text)                                                                     \
	{                                                                                          \
		.name = text, .mode = SODA_MODE_##m, .transport = WORLD_##t, .chunk = (c)          \
	}

static struct pattern patterns[] = {
	PATTERN(INLINE, TCP, 4096, "pattern_inline_tcp_4k"),
	PATTERN(INLINE, TCP, 65536, "pattern_inline_tcp_64k"),
	PATTERN(INLINE, TCP, 2 << 20, "pattern_inline_tcp_2m"),
	PATTERN(INLINE, SHM, 4096, "pattern_inline_shm_4k"),
	PATTERN(INLINE, SHM, 65536, "pattern_inline_shm_64k"),
	PATTERN(INLINE, SHM, 2 << 20, "pattern_inline_shm_2m"),
	PATTERN(HANDLER, TCP, 4096, "pattern_handler_tcp_4k"),
	PATTERN(HANDLER, TCP, 65536, "pattern_handler_tcp_64k"),
	PATTERN(HANDLER, TCP, 2 << 20, "pattern_handler_tcp_2m"),
	PATTERN(HANDLER, SHM, 4096, "pattern_handler_shm_4k"),
	PATTERN(HANDLER, SHM, 65536, "pattern_handler_shm_64k"),
	PATTERN(HANDLER, SHM, 2 << 20, "pattern_handler_shm_2m"),
};

int main(void)
{
	enum { N = sizeof(patterns) / sizeof(patterns[0]) };
	struct CMUnitTest tests[N];

	for (int i = 0; i < N; i++)
		tests[i] = (struct CMUnitTest){ .name = patterns[i].name,
						.test_func = test_pattern,
						.initial_state = &patterns[i] };
	return _cmocka_run_group_tests("pattern", tests, N, NULL, NULL);
}
