/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/run/advice.h"

#include <stdio.h>

#include "base/conf/conf.h"

enum {
	MUCH = 64 << 20,    /* local memory that is worth a word */
	SMALL = 64 << 10,   /* the threshold that is offered */
	LITTLE_PCT = 5,	    /* of their time: threads that wait less have nothing to gain */
	CHUNK_LEAST = 4096, /* SODA_CHUNK */
	FAR_NS = 500000,    /* a fetch that an agent's cache could make shorter */
	ALONE = 3,	    /* chunks that were waited for, for each that was fetched ahead */
	ROUND = 1 << 20,    /* offered sizes are whole MiB */
};

uint64_t soda_run_threads_ns(uint64_t lived_ns, uint64_t cpu_ns, uint64_t waited_ns,
			     uint32_t threads)
{
	uint64_t lives = lived_ns * (threads ? threads : 1), known = cpu_ns + waited_ns, ns;

	known = known > lived_ns ? known : lived_ns;
	ns = lives < known ? lives : known;
	return ns > waited_ns ? ns : waited_ns;
}

static bool waits(const struct soda_run_facts *f)
{
	return f->waited_ns > f->threads_ns / 100 * LITTLE_PCT;
}

/* Conditions */

static bool no_large_blocks(const struct soda_run_facts *f)
{
	return !f->data && f->local >= MUCH && f->threshold > SMALL && !f->small_blocks;
}

static bool many_small_blocks(const struct soda_run_facts *f)
{
	return f->data && f->local >= MUCH && f->local > f->data && f->threshold > SMALL &&
	       !f->small_blocks;
}

static bool handler(const struct soda_run_facts *f)
{
	return f->data && f->handler && waits(f);
}

static bool comes_back(const struct soda_run_facts *f)
{
	return waits(f) && f->buffer < f->data && f->fetched + f->written > f->data / 4;
}

static bool in_vain(const struct soda_run_facts *f)
{
	return waits(f) && f->useless > f->ahead / 3 && f->ahead > f->demanded / 3;
}

static bool no_order(const struct soda_run_facts *f)
{
	return waits(f) && f->fetched >= f->data && f->demanded > f->ahead * ALONE &&
	       f->chunk_bytes > CHUNK_LEAST;
}

static bool far(const struct soda_run_facts *f)
{
	return waits(f) && f->remote && f->fetch_p50_ns >= FAR_NS && f->fetched >= f->data;
}

/* Sentences */

static void say_no_large_blocks(const struct soda_run_facts *f, char *out)
{
	char local[16];

	snprintf(out, SODA_RUN_ADVICE_TEXT,
		 "the program has up to %s in blocks that are smaller than --threshold: with "
		 "--threshold 64K more of them go to fabric memory, with --threshold auto and "
		 "--local SIZE all that local memory has no room for",
		 soda_format_size(f->local, local));
}

static void say_handler(const struct soda_run_facts *f, char *out)
{
	(void)f;
	snprintf(out, SODA_RUN_ADVICE_TEXT,
		 "handler mode costs two wake-ups a fault: without SODA_MODE=handler threads "
		 "serve their own faults, which mostly takes less time");
}

static uint64_t whole(uint64_t bytes)
{
	return (bytes + ROUND - 1) / ROUND;
}

static void say_comes_back(const struct soda_run_facts *f, char *out)
{
	const char *option = f->small_blocks ? "--local and --mem" : "--mem";
	uint64_t all = whole(f->data + f->data / 8), twice = whole(2 * f->buffer);
	char now[16];

	soda_format_size(f->buffer, now);
	if (twice < all)
		snprintf(out, SODA_RUN_ADVICE_TEXT,
			 "data that had left local memory came back: give a larger page buffer, "
			 "%s %lluM in place of %s; with %lluM all of the data stay here",
			 option, (unsigned long long)twice, now, (unsigned long long)all);
	else
		snprintf(out, SODA_RUN_ADVICE_TEXT,
			 "data that had left local memory came back: give a larger page buffer; "
			 "with %s %lluM in place of %s all of the data stay here",
			 option, (unsigned long long)all, now);
}

static void say_in_vain(const struct soda_run_facts *f, char *out)
{
	snprintf(out, SODA_RUN_ADVICE_TEXT,
		 "%llu of %llu chunks that were fetched ahead left again unused: let streams run "
		 "less far ahead, with SODA_PREFETCH=8, or not at all, with SODA_PREFETCH=off",
		 (unsigned long long)f->useless, (unsigned long long)f->ahead);
}

static void say_no_order(const struct soda_run_facts *f, char *out)
{
	char chunk[16];

	snprintf(out, SODA_RUN_ADVICE_TEXT,
		 "threads waited for most chunks one by one, because the program touches its data "
		 "in no order: with SODA_CHUNK=4K in place of %s less travels for each touch, and "
		 "madvise(MADV_WILLNEED) fetches ahead what the program knows it will need",
		 soda_format_size(f->chunk_bytes, chunk));
}

static void say_far(const struct soda_run_facts *f, char *out)
{
	snprintf(out, SODA_RUN_ADVICE_TEXT,
		 "half of the fetches took %llu us and more: a DPU agent with a cache near this "
		 "machine (--dpu) can answer sooner",
		 (unsigned long long)f->fetch_p50_ns / 1000);
}

/* Where no rule fires: why there is nothing to change. */
static void say_nothing(const struct soda_run_facts *f, char *out)
{
	const char *why = "most of the waits were for first touches of data";

	if (!f->data)
		why = "the program has no large blocks, and little memory";
	else if (!waits(f))
		why = "threads waited for far memory less than a twentieth of their time";

	snprintf(out, SODA_RUN_ADVICE_TEXT, "nothing to change: %s", why);
}

/* The first ones that fire are said. */
static const struct rule {
	const char *name;
	bool (*fires)(const struct soda_run_facts *facts);
	void (*say)(const struct soda_run_facts *facts, char *out);
} rules[] = {
	{ "threshold", no_large_blocks, say_no_large_blocks },
	{ "mode", handler, say_handler },
	{ "buffer", comes_back, say_comes_back },
	{ "prefetch", in_vain, say_in_vain },
	{ "chunk", no_order, say_no_order },
	{ "agent", far, say_far },
	{ "threshold", many_small_blocks, say_no_large_blocks },
};

size_t soda_run_advise(const struct soda_run_facts *facts,
		       struct soda_run_advice out[SODA_RUN_ADVICE_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && n < SODA_RUN_ADVICE_MAX; i++) {
		if (!rules[i].fires(facts))
			continue;
		out[n].rule = rules[i].name;
		rules[i].say(facts, out[n++].text);
	}
	if (n)
		return n;
	out[0].rule = "none";
	say_nothing(facts, out[0].text);
	return 1;
}
