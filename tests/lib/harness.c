/* SPDX-License-Identifier: BSD-3-Clause */
/* What the children of cases share. */
#include "lib/harness.h"

#include <ctype.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_CHECK_FAILED = 99, THREADS_MAX = 64 };

/* Which cases run */

/* Settings that make another way of a program; others of the tests' own say which seeds, and so on.
 */
static bool is_of_a_way(const char *setting)
{
	static const char *const not [] = { "DRAW=",   "ONLY=",	  "SEED=",    "SEEDS=", "PATIENCE=",
					    "PAUSES=", "GRAPHS=", "NO_HEAP=", "LOSSES=" };
	static const char *const also[] = { "SODA_MODE=", "SODA_SEAL=", "SODA_MECHANISMS=" };

	for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++)
		if (!strncmp(setting, also[i], strlen(also[i])))
			return true;
	if (strncmp(setting, "SODA_TEST_", 10))
		return false;
	for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++)
		if (!strncmp(setting + 10, not [i], strlen(not [i])))
			return false;
	return true;
}

/* A number of the way that the program runs, in whatever order its settings are; 0: no other way.
 */
static uint32_t number_of_way(void)
{
	extern char **environ;
	uint32_t all = 0;

	for (char **setting = environ; *setting; setting++) {
		uint32_t hash = 2166136261u; /* FNV-1a */

		if (!is_of_a_way(*setting))
			continue;
		for (const char *c = *setting; *c; c++)
			hash = (hash ^ (uint8_t)*c) * 16777619u;
		hash = (hash ^ hash >> 16) * 0x85ebca6bu;
		all += hash ^ hash >> 13;
	}
	return all;
}

uint64_t drawn_number(void)
{
	const char *draw = getenv("SODA_TEST_DRAW");

	return draw ? strtoull(draw, NULL, 10) : 0;
}

static bool is_drawn(uint32_t way, size_t number)
{
	return !getenv("SODA_TEST_DRAW") || !way || (number + way % 3 + drawn_number()) % 3 == 0;
}

int run_cases(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction set_up,
	      CMFixtureFunction tear_down)
{
	const char *only = getenv("SODA_TEST_ONLY");
	struct CMUnitTest *wanted = calloc(n, sizeof(*wanted));
	uint32_t way = number_of_way();
	size_t wanted_n = 0;
	int failed = 0;

	for (size_t i = 0; wanted && i < n; i++)
		if (only ? !fnmatch(only, tests[i].name, 0) : is_drawn(way, i))
			wanted[wanted_n++] = tests[i];
	if (!wanted || (only && !wanted_n)) {
		fprintf(stderr, "%s: no case is called %s\n", group, only ? only : "so");
		failed = 1;
	}
	if (!only && wanted_n < n)
		printf("DRAWN: %zu of %zu cases (SODA_TEST_DRAW)\n", wanted_n, n);
	fflush(stdout);
	if (wanted_n)
		failed = _cmocka_run_group_tests(group, wanted, wanted_n, set_up, tear_down);
	free(wanted);
	return failed;
}

_Noreturn void check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	dprintf(STDERR_FILENO, "%s:%d: %s: %s [last error: %s]\n", file, line, cond, text,
		soda_last_error());
	_exit(EXIT_CHECK_FAILED);
}

void start(const struct soda_config *cfg)
{
	int ret = soda_init(cfg);

	CHECK(ret == 0, "soda_init: %s", strerror(-ret));
}

void *alloc_checked(size_t bytes)
{
	void *p = soda_alloc(bytes, 0);

	CHECK(p, "soda_alloc of %zu: %s", bytes, strerror(errno));
	return p;
}

enum { PATTERN_WORDS = 64 };

void fill_pattern(uint64_t *words, size_t bytes, unsigned round)
{
	for (size_t i = 0; i < bytes / sizeof(*words); i += PATTERN_WORDS)
		words[i] = mix(i, round);
}

void check_pattern(const uint64_t *words, size_t bytes, unsigned round)
{
	for (size_t i = 0; i < bytes / sizeof(*words); i += PATTERN_WORDS)
		CHECK_EQ(words[i], mix(i, round));
}

uint64_t *patterned_object(const char *server, const char *buffer, unsigned threads, size_t bytes)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *words;

	cfg.server = server;
	cfg.buffer = buffer;
	cfg.threads = threads;
	start(&cfg);
	words = alloc_checked(bytes);
	fill_pattern(words, bytes, 0);
	return words;
}

void expect_file_refused(const char *name, size_t bytes, unsigned flags, const char *word)
{
	double until = now_seconds() + 20;
	size_t got;
	void *p;

	while (!(p = soda_alloc_file(name, bytes, flags, &got)) && errno == EBUSY &&
	       !strstr(soda_last_error(), word) && now_seconds() < until)
		sleep_ms(20);
	CHECK(!p, "%s was given, not refused with \"%s\"", name, word);
	CHECK(strstr(soda_last_error(), word), "%s", soda_last_error());
}

struct soda_stats stats_now(void)
{
	struct soda_stats s;

	CHECK_EQ(soda_get_stats(&s, sizeof(s)), 0);
	return s;
}

/* The largest number in a text; 64K is one of 65536. */
static size_t largest_number(const char *text)
{
	size_t most = 0;

	while (*text) {
		char *end;
		size_t n;

		if (!isdigit((unsigned char)*text)) {
			text++;
			continue;
		}
		n = strtoull(text, &end, 10);
		n <<= *end == 'K' ? 10 : 0;
		if (n > most)
			most = n;
		text = end;
	}
	return most;
}

void set_buffer(struct soda_config *cfg, size_t bytes, char text[32])
{
	snprintf(text, 32, "%zu", bytes);
	cfg->buffer = text;
}

size_t smallest_buffer(struct soda_config cfg)
{
	size_t bytes;

	cfg.buffer = "4096";
	CHECK_EQ(soda_init(&cfg), -EINVAL);
	bytes = largest_number(soda_last_error());
	CHECK(bytes > 4096, "no number of bytes in: %s", soda_last_error());
	return bytes;
}

static sigjmp_buf touch_jump;

static void touch_handler(int sig)
{
	siglongjmp(touch_jump, sig);
}

int touch_signal(volatile uint64_t *word, bool store)
{
	struct sigaction act = { .sa_handler = touch_handler }, old_bus, old_segv;
	int sig;

	sigaction(SIGBUS, &act, &old_bus);
	sigaction(SIGSEGV, &act, &old_segv);
	sig = sigsetjmp(touch_jump, 1);
	if (!sig) {
		if (store)
			*word = 1;
		else
			(void)*word;
	}
	sigaction(SIGBUS, &old_bus, NULL);
	sigaction(SIGSEGV, &old_segv, NULL);
	return sig;
}

struct worker {
	pthread_t thread;
	void (*fn)(void *arg, unsigned index);
	void *arg;
	unsigned index;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	w->fn(w->arg, w->index);
	return NULL;
}

void run_threads(unsigned n, void (*fn)(void *arg, unsigned index), void *arg)
{
	struct worker workers[THREADS_MAX];

	CHECK(n <= THREADS_MAX);
	for (unsigned i = 0; i < n; i++) {
		workers[i] = (struct worker){ .fn = fn, .arg = arg, .index = i };
		CHECK_EQ(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
}

void pin_to_processor(unsigned index)
{
	cpu_set_t all, one;
	int cpu = -1;

	CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	index %= (unsigned)CPU_COUNT(&all);
	for (unsigned seen = 0; seen <= index; seen += CPU_ISSET(cpu, &all) ? 1 : 0)
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void sleep_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

enum { TEXT = 16, TEXT_PAGE = 4096 };

static void text_at(size_t at, const char *mark, uint64_t round, char out[TEXT])
{
	const uint64_t other[2] = { at, round };

	memcpy(out, at / TEXT_PAGE % 2 && round ? (const void *)other : mark, TEXT);
}

void fill_text(char *data, size_t bytes, const char mark[TEXT], uint64_t round)
{
	char text[TEXT];

	for (size_t i = 0; i < bytes; i += TEXT) {
		text_at(i, mark, round, text);
		memcpy(data + i, text, bytes - i < TEXT ? bytes - i : TEXT);
	}
}

void check_text(const char *data, size_t bytes, const char mark[TEXT], uint64_t round)
{
	char text[TEXT];

	for (size_t i = 0; i < bytes; i += TEXT) {
		text_at(i, mark, round, text);
		CHECK(!memcmp(data + i, text, bytes - i < TEXT ? bytes - i : TEXT),
		      "byte %zu is not of round %llu", i, (unsigned long long)round);
	}
}
