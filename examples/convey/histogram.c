/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A histogram by conveyors: counters are spread over PEs, and each PE sends the place of each
 * counter that it adds to.  As written for any library of conveyors, but for the include.
 *   soda msg run -n 4 -- histogram [ITEMS [COUNTERS]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <soda_convey.h>

struct histogram {
	int64_t pe, pes;
	uint64_t items, counters; /* of each PE */
	uint64_t *counts;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185u;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44du;
	return x ^ x >> 33;
}

/* Counter number `item` that a PE adds to: all PEs can say it. */
static uint64_t drawn(const struct histogram *h, int64_t pe, uint64_t item)
{
	return mix(mix((uint64_t)pe + 1) + item) % (h->counters * (uint64_t)h->pes);
}

static int count(struct histogram *h, convey_t *c)
{
	uint64_t i = 0, place, counter;
	int ret;

	ret = convey_begin(c, sizeof(place), 0);
	while (ret >= 0 && (ret = convey_advance(c, i == h->items)) > 0) {
		for (; i < h->items; i++) {
			counter = drawn(h, h->pe, i);
			place = counter / (uint64_t)h->pes;
			ret = convey_push(c, &place, (int64_t)(counter % (uint64_t)h->pes));
			if (ret != convey_OK)
				break;
		}
		while (ret >= 0 && (ret = convey_pull(c, &place, NULL)) == convey_OK)
			h->counts[place]++;
	}
	return ret;
}

/* How many of this PE's counters are not as one PE alone counts. */
static int64_t wrong(const struct histogram *h)
{
	uint64_t *all = calloc(h->counters, sizeof(*all)), counter;
	int64_t n = 0;

	for (int64_t pe = 0; all && pe < h->pes; pe++) {
		for (uint64_t i = 0; i < h->items; i++) {
			counter = drawn(h, pe, i);
			all[counter / (uint64_t)h->pes] +=
				counter % (uint64_t)h->pes == (uint64_t)h->pe;
		}
	}
	for (uint64_t i = 0; all && i < h->counters; i++)
		n += all[i] != h->counts[i];
	free(all);
	return all ? n : 1;
}

static int run(struct histogram *h, convey_t *c)
{
	struct timespec from, to;
	double s;
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &from);
	ret = count(h, c);
	clock_gettime(CLOCK_MONOTONIC, &to);
	s = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
	if (ret < 0) {
		fprintf(stderr, "histogram: %s\n", convey_error_string(c, ret));
		return 1;
	}
	convey_reset(c);
	if (wrong(h)) {
		fprintf(stderr, "histogram: PE %" PRId64 " has other counters\n", h->pe);
		return 1;
	}
	if (!h->pe)
		printf("histogram: %" PRId64 " PEs, %" PRIu64 " items in %.3f s, %.1f million/s: "
		       "as computed by one process\n",
		       h->pes, h->items * (uint64_t)h->pes, s,
		       (double)(h->items * (uint64_t)h->pes) / s * 1e-6);
	return 0;
}

int main(int argc, char **argv)
{
	struct histogram h = { .pe = soda_convey_pe(), .pes = soda_convey_pes() };
	convey_t *c;
	int ret;

	h.items = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
	h.counters = argc > 2 ? strtoull(argv[2], NULL, 10) : 1 << 16;
	if (h.pe < 0 || h.pes < 1 || argc > 3 || !h.counters) {
		fputs("Usage: soda msg run -n PES -- histogram [ITEMS [COUNTERS]], of each PE\n",
		      stderr);
		return 2;
	}
	h.counts = calloc(h.counters, sizeof(*h.counts));
	c = convey_new(SIZE_MAX, 0, NULL, 0);
	if (!c || !h.counts)
		return 1;
	ret = run(&h, c);
	if (!ret && convey_free(c) != convey_OK)
		ret = 1;
	free(h.counts);
	return ret;
}
