/* SPDX-License-Identifier: BSD-3-Clause */
/* A PE of test_convey.c: what soda_convey.h promises, case by case.  Status 0: all of it was so. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <soda_convey.h>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #cond,                     \
				soda_msg_last_error());                                            \
			exit(99);                                                                  \
		}                                                                                  \
	} while (0)

enum { ITEMS = 5000 };

static convey_t *new_quiet(void)
{
	convey_t *c = convey_new(SIZE_MAX, 0, NULL, convey_opt_QUIET);

	CHECK(c);
	return c;
}

/* Until it is done, without an item. */
static void drain(convey_t *c)
{
	while (convey_advance(c, true) != convey_DONE)
		CHECK(convey_pull(c, NULL, NULL) == convey_FAIL);
}

/* Each function in each state that it is not for. */
static void case_states(void)
{
	convey_t *c = new_quiet();
	int64_t item = 7, from = -1;

	CHECK(convey_item_size(c) == 0);
	CHECK(convey_push(c, &item, 0) == -EINVAL && convey_pull(c, &item, &from) == -EINVAL);
	CHECK(convey_advance(c, true) == -EINVAL && convey_reset(c) == -EINVAL);
	CHECK(convey_unpull(c) == -EINVAL && !convey_apull(c, &from));
	CHECK(convey_begin(c, 0, 0) == -EMSGSIZE);
	CHECK(convey_begin(c, SODA_MSG_BYTES_MAX + 1, 0) == -EMSGSIZE);
	CHECK(convey_begin(c, sizeof(item), 0) == convey_OK);
	CHECK(convey_item_size(c) == sizeof(item));
	CHECK(convey_begin(c, sizeof(item), 0) == -EINVAL && convey_free(c) == -EINVAL);
	CHECK(convey_push(c, &item, -1) == -EINVAL);
	CHECK(convey_push(c, &item, soda_convey_pes()) == -EINVAL);
	CHECK(strstr(convey_error_string(c, -EINVAL), "no PE"));
	CHECK(convey_epush(c, 1, &item, 0) == -EMSGSIZE);
	CHECK(convey_unpull(c) == convey_FAIL && item == 7 && from == -1);
	drain(c);
	CHECK(convey_advance(c, false) == -EINVAL && convey_push(c, &item, 0) == -EINVAL);
	CHECK(convey_advance(c, true) == convey_DONE);
	CHECK(convey_pull(c, &item, &from) == convey_FAIL);
	CHECK(convey_reset(c) == convey_OK && convey_item_size(c) == 0);
	CHECK(convey_free(c) == convey_OK && convey_free(NULL) == convey_OK);
	CHECK(convey_free(new_quiet()) == convey_OK); /* unused, by all */
}

/* Item `i` of a PE in a phase of items of so many bytes. */
static void fill(unsigned char *item, size_t bytes, int64_t pe, uint64_t i)
{
	memset(item, (int)(pe * 31 + (int64_t)i), bytes);
	memcpy(item, &i, bytes < sizeof(i) ? bytes : sizeof(i));
}

/* Everything that this PE is sent, each item pulled, put back and pulled again now and then. */
static void phase(convey_t *c, size_t bytes, size_t align)
{
	int64_t pe = soda_convey_pe(), pes = soda_convey_pes(), from;
	unsigned char item[3000], want[3000], *found;
	uint64_t sent = 0, got = 0;
	int ret;

	CHECK(convey_begin(c, bytes, align) == convey_OK);
	while ((ret = convey_advance(c, sent == ITEMS)) > 0) {
		for (; sent < ITEMS; sent++) {
			fill(item, bytes, pe, sent);
			if (convey_push(c, item, (int64_t)(sent % (uint64_t)pes)) != convey_OK)
				break;
		}
		while ((found = convey_apull(c, &from)) != NULL) {
			uint64_t i = 0;

			CHECK(!((uintptr_t)found & (align - 1)));
			memcpy(&i, found, bytes < sizeof(i) ? bytes : sizeof(i));
			fill(want, bytes, from, bytes < sizeof(i) ? 0 : i);
			if (bytes >= sizeof(i))
				CHECK(!memcmp(found, want, bytes));
			CHECK(got % 7 || convey_unpull(c) == convey_OK);
			CHECK(got % 7 || convey_pull(c, item, NULL) == convey_OK);
			CHECK(got % 7 || bytes < sizeof(i) || !memcmp(item, want, bytes));
			got++;
		}
	}
	CHECK(ret == convey_DONE);
	for (int64_t from_pe = 0; from_pe < pes; from_pe++)
		got -= (uint64_t)(ITEMS + pes - 1 - pe) / (uint64_t)pes;
	CHECK(got == 0);
}

static void case_sizes(void)
{
	static const size_t sizes[][2] = { { 8, 8 }, { 3, 1 },	   { 64, 64 },	{ 24, 8 },
					   { 1, 1 }, { 2944, 32 }, { 1002, 2 }, { 320, 64 } };
	const size_t n = sizeof(sizes) / sizeof(sizes[0]);
	convey_t *c = new_quiet();

	for (size_t i = 0; i < n; i++) {
		phase(c, sizes[i][0], sizes[i][1]);
		CHECK(convey_statistic(c, convey_PUSHES) == ITEMS);
		CHECK(convey_statistic(c, convey_BEGINS) == 1);
		CHECK(convey_statistic(c, convey_UNPULLS) > 0);
		CHECK(convey_reset(c) == convey_OK);
	}
	CHECK(convey_statistic(c, convey_PUSHES) == 0);
	CHECK(convey_statistic(c, convey_PUSHES + convey_CUMULATIVE) == (int64_t)n * ITEMS);
	CHECK(convey_statistic(c, convey_COMMS) > 0 && convey_statistic(c, convey_BYTES) > 0);
	CHECK(convey_statistic(c, convey_SYNCS) == -1 && convey_statistic(c, -1) == -1);
	CHECK(convey_statistic(c, 99) == -1);
	CHECK(convey_features(c) == convey_STEADY);
	CHECK(convey_free(c) == convey_OK);
}

static void take_elastic(convey_t *c, uint64_t *got)
{
	convey_item_t item;

	while (convey_epull(c, &item) == convey_OK) {
		CHECK(item.from >= 0 && item.from < soda_convey_pes() && item.bytes <= 999);
		for (size_t i = 0; i < item.bytes; i++)
			CHECK(((unsigned char *)item.data)[i] == (unsigned char)item.bytes);
		++*got;
	}
}

/* Items of all sizes from 0 on. */
static void case_elastic(void)
{
	convey_t *c = convey_new_elastic(1000, SIZE_MAX, 0, NULL, convey_opt_QUIET);
	int64_t pes = soda_convey_pes(), all;
	unsigned char item[1001];
	uint64_t sent = 0, got = 0;
	int ret;

	CHECK(c && convey_features(c) == (convey_STEADY | convey_ELASTIC));
	CHECK(convey_begin(c, 0, 0) == convey_OK);
	CHECK(convey_epush(c, 1001, item, 0) == -EMSGSIZE);
	while ((ret = convey_advance(c, sent == ITEMS)) > 0) {
		for (; sent < ITEMS; sent++) {
			memset(item, (int)(sent % 1000), sent % 1000);
			if (convey_epush(c, sent % 1000, item, (int64_t)sent % pes) != convey_OK)
				break;
		}
		take_elastic(c, &got);
	}
	CHECK(ret == convey_DONE);
	while ((ret = soda_msg_sum(soda_convey_job(c), (int64_t)got, &all)) == -EINPROGRESS)
		soda_msg_wait(soda_convey_job(c), SODA_MSG_COLLECTIVE, -1);
	CHECK(ret == 0 && all == pes * ITEMS);
	CHECK(convey_reset(c) == convey_OK && convey_free(c) == convey_OK);
}

/* PE 0 has begun with items of another size. */
static void case_mismatch(void)
{
	convey_t *c = new_quiet();
	size_t bytes = soda_convey_pe() ? 8 : 16;
	char item[16] = "";
	int ret;

	CHECK(convey_begin(c, bytes, 0) == convey_OK);
	CHECK(convey_push(c, item, (soda_convey_pe() + 1) % soda_convey_pes()) == convey_OK);
	do {
		ret = convey_advance(c, false);
		if (ret == convey_OK)
			ret = convey_pull(c, item, NULL);
	} while (ret >= 0 && soda_convey_pe() < 2);
	if (soda_convey_pe() < 2)
		CHECK(ret == -EIO || ret == -ECANCELED);
	exit(3);
}

/* A PE that ends in the middle: the others are told, and do not wait. */
static void case_gone(void)
{
	convey_t *c = convey_new(SIZE_MAX, 0, NULL, 0);
	int64_t item = 0;
	int ret;

	CHECK(c && convey_begin(c, sizeof(item), 0) == convey_OK);
	/* all have begun; the first one ends without waiting for the others to hear that */
	while ((ret = soda_msg_barrier(soda_convey_job(c))) == -EINPROGRESS)
		soda_msg_wait(soda_convey_job(c), SODA_MSG_COLLECTIVE, -1);
	if (!soda_convey_pe())
		_Exit(4);
	while ((ret = convey_advance(c, true)) > 0)
		;
	CHECK(ret < 0 && ret != -EINVAL);
	exit(5);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "states", case_states },
		      { "sizes", case_sizes },
		      { "elastic", case_elastic },
		      { "mismatch", case_mismatch },
		      { "gone", case_gone } };

	for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		cases[i].run();
		return 0;
	}
	return 2;
}
