/* SPDX-License-Identifier: BSD-3-Clause */
/* One point of `soda bench transport`, as a line or an object. */
#include <stdio.h>

#include "bench_transport.h"

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
