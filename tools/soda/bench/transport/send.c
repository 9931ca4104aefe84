/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SEND: messages of the control plane that the server echoes.  A control connection has one of them
 * under way, so that a depth is a number of clients, each with a thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "soda/bench/transport/transport.h"

enum { SAMPLES_MAX = 1 << 14, TIMEOUT_MS = 20000 };

struct team {
	pthread_mutex_t gate; /* held until all threads are there */
	uint32_t bytes;
	double seconds;
	bool off; /* not all are; guarded by gate */
};

struct sender {
	struct team *team;
	struct soda_conn *conn;
	pthread_t thread;
	uint64_t requests;
	uint32_t samples;
	double end;
	int err;
	uint8_t *out, *in;
	float us[SAMPLES_MAX];
};

static int echo(struct sender *s)
{
	struct iovec body = { s->out, s->team->bytes };
	size_t bytes = 0;
	int ret = soda_conn_call(s->conn, SODA_MSG_PING, &body, 1, s->in, s->team->bytes, &bytes,
				 TIMEOUT_MS, NULL);

	if (ret == 0 && (bytes != s->team->bytes || s->in[bytes - 1] != s->out[bytes - 1]))
		ret = -EPROTO;
	return ret;
}

static void *run(void *arg)
{
	struct sender *s = arg;
	double start, t, last;

	pthread_mutex_lock(&s->team->gate);
	s->err = s->team->off ? -ECANCELED : 0;
	pthread_mutex_unlock(&s->team->gate);
	t = start = soda_transport_seconds(CLOCK_MONOTONIC);
	while (s->err == 0 && (t - start < s->team->seconds || s->requests == 0)) {
		last = t;
		s->err = echo(s);
		t = soda_transport_seconds(CLOCK_MONOTONIC);
		s->requests++;
		if (s->samples < SAMPLES_MAX)
			s->us[s->samples++] = (float)((t - last) * 1e6 / 2);
	}
	s->end = t;
	return NULL;
}

static int prepare(struct sender *s, struct team *team, const char *address, struct soda_why *why)
{
	struct soda_wire_welcome w;

	s->team = team;
	s->out = malloc(team->bytes);
	s->in = malloc(team->bytes);
	if (!s->out || !s->in)
		return -ENOMEM;
	memset(s->out, 0x5a, team->bytes);
	return soda_transport_control(address, &w, &s->conn, why);
}

static void forget(struct sender *s)
{
	struct soda_why why;

	if (s->conn)
		soda_conn_call(s->conn, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, TIMEOUT_MS, &why);
	soda_conn_close(s->conn);
	free(s->out);
	free(s->in);
}

/* How many threads were started. */
static uint32_t start_all(struct sender *senders, uint32_t n)
{
	uint32_t started = 0;

	while (started < n &&
	       !pthread_create(&senders[started].thread, NULL, run, &senders[started]))
		started++;
	return started;
}

static int measure(struct team *team, struct sender *senders, uint32_t n,
		   struct soda_transport_result *r)
{
	double cpu, start, end = 0;
	uint32_t started;
	int ret = 0;

	pthread_mutex_init(&team->gate, NULL);
	pthread_mutex_lock(&team->gate);
	started = start_all(senders, n);
	team->off = started < n;
	cpu = soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID);
	start = soda_transport_seconds(CLOCK_MONOTONIC);
	pthread_mutex_unlock(&team->gate);
	for (uint32_t i = 0; i < started; i++) {
		pthread_join(senders[i].thread, NULL);
		ret = ret ? ret : senders[i].err;
		r->requests += senders[i].requests;
		end = senders[i].end > end ? senders[i].end : end;
	}
	pthread_mutex_destroy(&team->gate);
	r->seconds = end - start;
	r->cpu_seconds = soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	if (n == 1)
		soda_transport_percentiles(senders[0].us, senders[0].samples, r);
	return started < n ? -EAGAIN : ret;
}

int soda_transport_send(const char *address, const struct soda_transport_point *p, double seconds,
			struct soda_transport_result *result_p, struct soda_why *why)
{
	struct team team = { .bytes = p->bytes, .seconds = seconds };
	struct sender *senders = calloc(p->depth, sizeof(*senders));
	struct soda_transport_result r = { 0 };
	int ret = senders ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < p->depth && ret == 0; i++)
		ret = prepare(&senders[i], &team, address, why);
	if (ret == 0)
		ret = measure(&team, senders, p->depth, &r);
	for (uint32_t i = 0; senders && i < p->depth; i++)
		forget(&senders[i]);
	free(senders);
	*result_p = r;
	return ret;
}
