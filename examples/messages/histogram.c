/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A histogram whose counters are spread over ranks: each rank draws keys, and tells the owner of
 * each key's counter, by a message of 8 bytes.  The first of these programs to read.
 *   soda msg run -n 4 -- histogram [-u] [KEYS]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

enum { COUNTERS = 1 << 16 };

static uint32_t counts[COUNTERS]; /* those of key % COUNTERS that are ours */
static uint32_t serial[COUNTERS];

static void take(void *arg, const struct soda_message *m)
{
	uint64_t key;

	memcpy(&key, m->data, sizeof(key));
	counts[key % COUNTERS]++;
}

static void count_all(struct ranks *r, uint64_t keys)
{
	for (uint64_t i = 0; i < keys; i++) {
		uint64_t key = random_bits(r->rank, i);

		ranks_push(r, (unsigned)(key % COUNTERS % r->n), &key, sizeof(key));
	}
	ranks_finish(r);
}

/* Count all ranks' keys once more, alone. How many of this rank's counters are wrong. */
static int64_t compare(const struct ranks *r, uint64_t keys)
{
	int64_t wrong = 0;

	for (unsigned rank = 0; rank < r->n; rank++)
		for (uint64_t i = 0; i < keys; i++)
			serial[random_bits(rank, i) % COUNTERS]++;
	for (unsigned c = 0; c < COUNTERS; c++)
		wrong += counts[c] != (c % r->n == r->rank ? serial[c] : 0);
	return wrong;
}

static bool get_options(int argc, char **argv, uint64_t *keys_p)
{
	bool unverified = argc > 1 && !strcmp(argv[1], "-u");
	char *end;

	argc -= unverified;
	argv += unverified;
	*keys_p = argc > 1 ? strtoull(argv[1], &end, 10) : 1000000;
	if (argc <= 1 || (argc == 2 && *argv[1] && !*end))
		return unverified;
	fputs("Usage: soda msg run -n RANKS -- histogram [-u] [KEYS]\n"
	      "KEYS are of each rank. -u: do not verify the result.\n",
	      stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	struct ranks r;
	bool unverified;
	uint64_t keys;
	double seconds;
	char what[64];

	unverified = get_options(argc, argv, &keys);
	ranks_start(&r, "histogram", take, NULL);
	ranks_ready(&r);
	count_all(&r, keys);
	seconds = ranks_seconds(&r);
	snprintf(what, sizeof(what), "%" PRIu64 " keys", keys * r.n);
	return ranks_report(&r, what, seconds, unverified ? -1 : compare(&r, keys));
}
