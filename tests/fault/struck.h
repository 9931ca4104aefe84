/* SPDX-License-Identifier: BSD-3-Clause */
/* A program and its server, to which something happens: what the tests of that share. */
#ifndef SODA_TEST_STRUCK_H
#define SODA_TEST_STRUCK_H

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 128, RESIDENT = 4 };

/* An object of which the first chunks are resident and dirty and the last ones never written. */
struct object {
	uint64_t *words;
	size_t remote; /* a chunk that is only on the server */
	size_t blank;  /* one that was never touched */
};

/* In the child: it has started with this time for a fault and enum soda_on_error. */
struct object struck_object(unsigned timeout_ms, unsigned on_error);
void check_resident(const struct object *o);
/* The word's touch ends as `sig` between the two times. */
void check_touch(uint64_t *word, int sig, double least_s, double most_s);
/*
 * The touch lasts as long as the parent holds it up, least_s, and gives that value.  One that began
 * too late for that, as the child had no processor, ends the child: struck_run_held tries again.
 */
void check_held_touch(uint64_t *word, uint64_t want, double least_s, double most_s);
/* What the parent does is noticed when a connection breaks, which takes a moment. */
void let_parent_act(void);

/* The server, while struck_run runs the child, and `during` beside it. */
extern struct world struck_world;
void struck_run(void (*child)(const void *arg), void (*during)(const void *arg),
		struct outcome *out);
/* For a child that calls check_held_touch. */
void struck_run_held(void (*child)(const void *arg), void (*during)(const void *arg),
		     struct outcome *out);

#endif
