/* SPDX-License-Identifier: BSD-3-Clause */
/* One point: requests of one size, a number of them under way at a time; and how it is printed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "soda/bench/transport/transport.h"

#define REGION_BYTES (64ull << 20)
#define SPIN_NS 50000

enum { SAMPLES_MAX = 1 << 16, TIMEOUT_MS = 20000, DONE_MAX = 64 };

double soda_transport_seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int connect_one(const struct soda_transport_link *l, const char *address,
		       enum soda_conn_kind kind, uint32_t depth, struct soda_wire_welcome *w,
		       struct soda_conn **conn_p, struct soda_why *why)
{
	const struct soda_wire_hello hello = { .chunk_bytes = 65536,
					       .uid = getuid(),
					       .gid = getgid(),
					       .pid = (uint32_t)getpid(),
					       .client_id = w->client_id,
					       .secret = w->secret,
					       .epoch = 1 };
	const struct soda_conn_options opt = {
		.kind = kind, .depth = depth, .timeout_ms = TIMEOUT_MS, .in_place = l->in_place
	};

	return soda_conn_connect(address, &hello, &opt, conn_p, w, why);
}

int soda_transport_control(const char *address, struct soda_wire_welcome *w,
			   struct soda_conn **conn_p, struct soda_why *why)
{
	const struct soda_transport_link l = { .in_place = true };

	*w = (struct soda_wire_welcome){ .version = 0 };
	return connect_one(&l, address, SODA_CONN_CONTROL, 0, w, conn_p, why);
}

int soda_transport_link_open(struct soda_transport_link *l, const char *address, uint32_t max_bytes,
			     uint32_t max_depth, struct soda_why *why)
{
	const struct soda_wire_open open = { .region_id = 1, .bytes = REGION_BYTES };
	struct soda_wire_welcome w = { 0 };
	struct soda_wire_opened opened;
	int ret;

	*l = (struct soda_transport_link){ .max_bytes = max_bytes, .in_place = true };
	ret = soda_transport_control(address, &w, &l->control, why);
	if (ret == 0)
		ret = soda_conn_open_region(l->control, &open, "", &opened, &l->mr, TIMEOUT_MS,
					    why);
	if (ret == 0)
		ret = connect_one(l, address, SODA_CONN_DATA, max_depth, &w, &l->data, why);
	if (ret == 0) {
		l->buffers = aligned_alloc(4096, (size_t)max_bytes * max_depth);
		ret = l->buffers ? 0 : -ENOMEM;
	}
	if (ret == 0)
		memset(l->buffers, 1, (size_t)max_bytes * max_depth);
	else
		soda_transport_link_close(l);
	return ret;
}

void soda_transport_link_close(struct soda_transport_link *l)
{
	soda_conn_close(l->data);
	soda_conn_unmap_region(&l->mr);
	soda_conn_leave(l->control, TIMEOUT_MS); /* the server has its memory back at once */
	free(l->buffers);
	*l = (struct soda_transport_link){ 0 };
}

static int post(struct soda_transport_link *l, const struct soda_transport_point *p, uint64_t i)
{
	uint64_t offset = i % (REGION_BYTES / p->bytes) * p->bytes;
	uint8_t *at = l->buffers + i % p->depth * l->max_bytes;

	return p->request == SODA_TRANSPORT_WRITE
		       ? soda_conn_post_write(l->data, &l->mr, offset, p->bytes, at, i)
		       : soda_conn_post_read(l->data, &l->mr, offset, p->bytes, at, i);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

void soda_transport_percentiles(float *us, uint32_t n, struct soda_transport_result *r)
{
	if (!n)
		return;
	qsort(us, n, sizeof(*us), compare);
	r->median_us = us[n / 2];
	r->p99_us = us[(uint64_t)n * 99 / 100];
}

/* Collect requests that have ended, and post as many anew. Returns how many, or negative errno. */
static int turn(struct soda_transport_link *l, const struct soda_transport_point *p,
		uint64_t *posted, bool go_on)
{
	struct soda_done done[DONE_MAX];
	int n = soda_conn_poll(l->data, done, DONE_MAX, TIMEOUT_MS * 1000000ll, SPIN_NS), ret = 0;

	if (n <= 0)
		return n ? n : -ETIMEDOUT;
	for (int i = 0; i < n && ret == 0; i++) {
		ret = done[i].status;
		if (ret == 0 && go_on)
			ret = post(l, p, (*posted)++);
	}
	if (ret == 0 && go_on)
		ret = soda_conn_flush(l->data, true);
	return ret ? ret : n;
}

int soda_transport_measure(struct soda_transport_link *l, const struct soda_transport_point *p,
			   double seconds, struct soda_transport_result *result_p)
{
	float *us = p->depth == 1 ? malloc(SAMPLES_MAX * sizeof(*us)) : NULL;
	double start = soda_transport_seconds(CLOCK_MONOTONIC),
	       cpu = soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID), t = start, last;
	struct soda_transport_result r = { 0 };
	uint64_t posted = 0;
	uint32_t samples = 0;
	int ret = 0;

	while (posted < p->depth && ret == 0)
		ret = post(l, p, posted++);
	if (ret == 0)
		ret = soda_conn_flush(l->data, true);
	while (ret >= 0 && r.requests < posted) {
		last = t;
		ret = turn(l, p, &posted, t - start < seconds);
		t = soda_transport_seconds(CLOCK_MONOTONIC);
		r.requests += ret > 0 ? (uint64_t)ret : 0;
		if (us && samples < SAMPLES_MAX)
			us[samples++] = (float)((t - last) * 1e6);
	}
	r.seconds = t - start;
	r.cpu_seconds = soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	if (us)
		soda_transport_percentiles(us, samples, &r);
	free(us);
	*result_p = r;
	return ret < 0 ? ret : 0;
}

static const char *const names[SODA_TRANSPORT_REQUESTS] = { "READ", "WRITE", "SEND" };

static double gb_a_second(const struct soda_transport_point *p,
			  const struct soda_transport_result *r)
{
	return r->seconds > 0 ? (double)r->requests * p->bytes / 1e9 / r->seconds : 0;
}

void soda_transport_head(void)
{
	printf("%-8s %-5s %8s %5s %8s %9s %9s %9s\n", "", "", "bytes", "depth", "GB/s", "median us",
	       "p99 us", "CPU-s/GB");
}

static void print_row(const struct soda_transport_place *place,
		      const struct soda_transport_point *p, const struct soda_transport_result *r,
		      double theirs)
{
	double gb = (double)r->requests * p->bytes / 1e9, rate = gb_a_second(p, r);

	printf("%-8s %-5s %8u %5u %8.3f", place->transport, names[p->request], p->bytes, p->depth,
	       rate);
	if (p->depth == 1)
		printf(" %9.1f %9.1f", r->median_us, r->p99_us);
	else
		printf(" %9s %9s", "-", "-");
	printf(" %9.2f", gb > 0 ? r->cpu_seconds / gb : 0);
	if (place->server_node >= 0)
		printf("  node %d, memory on %d", place->client_node, place->server_node);
	if (theirs > 0 && p->depth == 1)
		printf("  perftest %.1f us, %.2f of it", theirs, r->median_us / theirs);
	else if (theirs > 0)
		printf("  perftest %.3f GB/s, %.2f of it", theirs, rate / theirs);
	putchar('\n');
	fflush(stdout);
}

static json_t *row(const struct soda_transport_place *place, const struct soda_transport_point *p,
		   const struct soda_transport_result *r, double theirs)
{
	json_t *o =
		json_pack("{s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:f}", "transport", place->transport,
			  "request", names[p->request], "bytes", (int)p->bytes, "depth",
			  (int)p->depth, "requests", (json_int_t)r->requests, "seconds", r->seconds,
			  "cpu_seconds", r->cpu_seconds, "gb_a_second", gb_a_second(p, r));

	if (p->depth == 1) {
		json_object_set_new(o, "median_us", json_real(r->median_us));
		json_object_set_new(o, "p99_us", json_real(r->p99_us));
	}
	if (place->server_node >= 0) {
		json_object_set_new(o, "client_node", json_integer(place->client_node));
		json_object_set_new(o, "server_node", json_integer(place->server_node));
	}
	if (theirs > 0)
		json_object_set_new(o, p->depth == 1 ? "perftest_us" : "perftest_gb_a_second",
				    json_real(theirs));
	return o;
}

void soda_transport_row(const struct soda_transport_place *place,
			const struct soda_transport_point *p, const struct soda_transport_result *r,
			double theirs, json_t *rows)
{
	if (rows)
		json_array_append_new(rows, row(place, p, r, theirs));
	else
		print_row(place, p, r, theirs);
}
