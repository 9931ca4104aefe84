/* SPDX-License-Identifier: BSD-3-Clause */
#include "struck.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BEGAN_LATE = 75, TRIES = 5 }; /* a child's status */

struct world struck_world;

struct object struck_object(unsigned timeout_ms, unsigned on_error)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct object o = { .remote = CHUNKS / 2, .blank = CHUNKS };

	cfg.server = struck_world.address;
	cfg.buffer = "2M";
	cfg.threads = 1;
	cfg.prefetch_chunks = SODA_OFF;
	cfg.fault_timeout_ms = timeout_ms;
	cfg.on_error = on_error;
	start(&cfg);
	o.words = alloc_checked((CHUNKS + 8) * CHUNK);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i++)
		o.words[i] = mix(i, 0);
	CHECK_EQ(soda_advise(o.words, CHUNKS * CHUNK, SODA_COLD), 0);
	for (size_t c = 0; c < RESIDENT; c++)
		o.words[c * CHUNK_WORDS] = mix(c * CHUNK_WORDS, 1);
	return o;
}

void check_resident(const struct object *o)
{
	for (size_t c = 0; c < RESIDENT; c++) {
		CHECK_EQ(o->words[c * CHUNK_WORDS], mix(c * CHUNK_WORDS, 1));
		CHECK_EQ(o->words[c * CHUNK_WORDS + 1], mix(c * CHUNK_WORDS + 1, 0));
	}
}

void check_touch(uint64_t *word, int sig, double least_s, double most_s)
{
	double begin = now_seconds(), took;
	int got = touch_signal(word, false);

	took = now_seconds() - begin;
	CHECK(got == sig, "signal %d, expected %d", got, sig);
	CHECK(took >= least_s && took <= most_s, "after %.2f s, expected %.1f to %.1f", took,
	      least_s, most_s);
}

void check_held_touch(uint64_t *word, uint64_t want, double least_s, double most_s)
{
	double begin = now_seconds(), took;
	int got = touch_signal(word, false);

	took = now_seconds() - begin;
	CHECK_EQ(got, 0);
	CHECK_EQ(*word, want);
	CHECK(took <= most_s, "after %.2f s, expected at most %.1f", took, most_s);
	if (took < least_s)
		_exit(BEGAN_LATE);
}

void let_parent_act(void)
{
	turn_pass();
	turn_await();
	sleep_ms(200);
}

void struck_run(void (*child)(const void *arg), void (*during)(const void *arg),
		struct outcome *out)
{
	struct trial t = { .child = child, .during = during };

	world_open(&struck_world, WORLD_DEFAULT, NULL);
	trial_run(&t, out);
	world_close_noisy(&struck_world);
}

void struck_run_held(void (*child)(const void *arg), void (*during)(const void *arg),
		     struct outcome *out)
{
	for (int i = 0; i < TRIES; i++) {
		struck_run(child, during, out);
		if (!WIFEXITED(out->status) || WEXITSTATUS(out->status) != BEGAN_LATE)
			return;
	}
}
