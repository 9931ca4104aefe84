/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stack that a fault takes, where a thread has an alternate stack for its signal handlers of
 * the 8 KiB that SIGSTKSZ used to be: the kernel's frame, and what the library needs beside it.
 * Each page is stored to, in a buffer much smaller than the object, so that faults evict, help with
 * write-back, and fetch again.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	CHUNK_WORDS = CHUNK / 8,
	CHUNKS = 512,
	GIVEN = 8192,	/* the alternate stack */
	BELOW = 131072, /* what lies below it, painted as well */
	BESIDE = 2048,	/* docs/limits.md: beside the kernel's frame */
	PAINT = 0xa5,
	LAPS = 3,
};

static struct world world;
static const char *volatile in_handler;

/* How much of the stack a handler finds taken. */
static void note_frame(int sig)
{
	in_handler = __builtin_frame_address(0);
}

struct stack {
	unsigned char *low, *top;
	size_t frame; /* of the kernel */
};

static struct stack painted(void)
{
	struct sigaction act = { .sa_handler = note_frame, .sa_flags = SA_ONSTACK };
	stack_t ss = { .ss_size = GIVEN };
	struct stack s;

	s.low = mmap(NULL, BELOW + GIVEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	CHECK(s.low != MAP_FAILED);
	s.top = s.low + BELOW + GIVEN;
	ss.ss_sp = s.low + BELOW;
	CHECK_EQ(sigaltstack(&ss, NULL), 0);
	CHECK_EQ(sigaction(SIGUSR1, &act, NULL), 0);
	CHECK_EQ(pthread_kill(pthread_self(), SIGUSR1), 0);
	s.frame = (size_t)(s.top - (const unsigned char *)in_handler);
	CHECK(s.frame < GIVEN, "the kernel's frame has %zu bytes", s.frame);
	memset(s.low, PAINT, BELOW + GIVEN);
	return s;
}

static size_t taken(const struct stack *s)
{
	const unsigned char *at = s->low;

	while (at < s->top && *at == PAINT)
		at++;
	return (size_t)(s->top - at);
}

static uint64_t *fam;

static void lap(void *arg, unsigned index)
{
	struct stack s = painted();
	size_t words = CHUNKS * CHUNK_WORDS / 2, first = index * words, used;

	for (unsigned round = 0; round < LAPS; round++)
		for (size_t i = 0; i < words; i += 512) {
			size_t at = first + (round & 1 ? words - 512 - i : i);

			CHECK(round == 0 || fam[at] == mix(at, round - 1));
			fam[at] = mix(at, round);
		}
	used = taken(&s);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	CHECK(used > s.frame / 2, "the alternate stack was not used: %zu", used);
	CHECK(used <= s.frame + BESIDE, "%zu bytes beside the kernel's %zu", used - s.frame,
	      s.frame);
	CHECK(used <= GIVEN);
#else
	(void)used;
#endif
}

static void child(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	pin_to_processor(0); /* as many threads as processors: they send what is dirty themselves */
	cfg.server = world.address;
	cfg.buffer = "4M";
	cfg.threads = 2;
	start(&cfg);
	fam = alloc_checked(CHUNKS * CHUNK);
	run_threads(2, lap, NULL);
	CHECK(stats_now().bytes_written_back > 0);
	soda_free(fam);
}

/* May: signals | has an alternate stack of 8 KiB | served */
static void test_beside_the_frame(void **state)
{
	const char *mode = getenv("SODA_MODE");

	if (mode && !strcmp(mode, "handler")) {
		print_message("SKIP: handler mode serves no faults in the program's threads\n");
		skip();
	}
	expect_passes(child, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_the_frame),
	};

	return WORLD_RUN("stack", &world, false, tests);
}
