/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon.h"

#include <errno.h>

#include "fuzz.h"

static int translate(void *client, bool write, uint16_t region_id, uint64_t page_offset,
		     uint32_t size, struct soda_span *span)
{
	struct fuzz_daemon *d = client;

	FUZZ_MUST(size && size <= SODA_WIRE_MAX_DATA && size % SODA_WIRE_PAGE == 0);
	if (region_id != 1 || soda_wire_check_range(page_offset, size, FUZZ_REGION_BYTES) < 0)
		return -EINVAL;
	*span = (struct soda_span){ .memory = d->memory + page_offset * SODA_WIRE_PAGE,
				    .hold = d,
				    .bytes = size };
	d->holds++;
	return 0;
}

static int reserve(void *client, struct soda_peer *peer, uint16_t region_id, uint64_t page_offset,
		   uint32_t size, struct soda_span *span)
{
	struct fuzz_daemon *d = client;
	int ret = d->no_memory ? -EAGAIN : translate(d, true, region_id, page_offset, size, span);

	FUZZ_MUST(peer->client == client);
	if (ret < 0)
		return ret;
	span->memory = malloc(size); /* of its own: what is written beyond it is seen */
	FUZZ_MUST(span->memory);
	span->hold = span->memory;
	return 0;
}

static void release(void *client, bool write, const struct soda_span *span, bool landed)
{
	struct fuzz_daemon *d = client;

	FUZZ_MUST(d->holds > 0 && span->bytes);
	d->holds--;
	if (write && span->hold != d)
		free(span->hold);
}

static void request(void *client, struct soda_request *rq)
{
	struct fuzz_daemon *d = client;

	FUZZ_MUST(rq->client == client && rq->bytes && rq->bytes <= SODA_WIRE_MAX_DATA &&
		  rq->bytes % SODA_WIRE_PAGE == 0 && rq->offset % SODA_WIRE_PAGE == 0);
	FUZZ_MUST(d->waiting_n < FUZZ_REQUESTS_MAX);
	if (rq->write) /* all of the data are there */
		for (uint32_t i = 0; i < rq->bytes; i += SODA_WIRE_PAGE)
			d->memory[0] ^= rq->data[i];
	d->waiting[d->waiting_n++] = rq;
}

static void doorbell(void *client, struct soda_peer *peer)
{
	FUZZ_MUST(peer->client == client);
}

/* Nobody is let in: connections are made without it. */
static int hello(void *svc, struct soda_peer *peer, const struct soda_wire_hello *said,
		 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		 void **client_p, struct soda_why *why)
{
	FUZZ_MUST(said->magic == SODA_WIRE_MAGIC && said->version == SODA_WIRE_VERSION);
	soda_why_set(why, "nobody is let in");
	return -ESTALE;
}

static void gone(void *client, struct soda_peer *peer)
{
	struct fuzz_daemon *d = client;

	FUZZ_MUST(!d->gone);
	d->gone = true;
}

static void rejected(void *svc, const char *address, const char *why)
{
	FUZZ_MUST(why && *why);
	((struct fuzz_daemon *)svc)->rejected++;
}

static const struct soda_service one_sided_service = {
	.translate = translate,
	.release = release,
	.gone = gone,
	.rejected = rejected,
};

static const struct soda_service two_sided_service = {
	.hello = hello,
	.release = release,
	.gone = gone,
	.rejected = rejected,
	.reserve = reserve,
	.request = request,
	.doorbell = doorbell,
};

void fuzz_daemon_init(struct fuzz_daemon *d, bool one_sided)
{
	memset(d, 0, offsetof(struct fuzz_daemon, memory));
	d->listener.ops = one_sided ? &one_sided_service : &two_sided_service;
	d->listener.svc = d;
	d->listener.opt.max_connections = 4;
	pthread_mutex_init(&d->listener.lock, NULL);
	pthread_cond_init(&d->listener.left, NULL);
}

static struct soda_request *take_out(struct soda_request **list, unsigned *n, unsigned i)
{
	struct soda_request *rq;

	if (!*n)
		return NULL;
	i %= *n;
	rq = list[i];
	memmove(list + i, list + i + 1, (*n - i - 1) * sizeof(*list));
	--*n;
	return rq;
}

/* A WRITE's memory that reserve gave is the daemon's from its request on. */
static void forget_data(struct fuzz_daemon *d, struct soda_request *rq)
{
	if (!rq->hold)
		return;
	free(rq->hold);
	d->holds--;
}

bool fuzz_daemon_answer(struct fuzz_daemon *d, unsigned i, int status)
{
	struct soda_request *rq = take_out(d->waiting, &d->waiting_n, i);
	struct soda_span span;
	int ret;

	if (!rq)
		return false;
	if (rq->write) {
		d->done[d->done_n++] = rq;
		soda_request_done(rq, status, NULL);
		return true;
	}
	ret = status ? status
		     : translate(d, false, rq->region_id, rq->offset / SODA_WIRE_PAGE, rq->bytes,
				 &span);
	soda_request_done(rq, ret, ret < 0 ? NULL : &span);
	return true;
}

bool fuzz_daemon_free(struct fuzz_daemon *d, unsigned i)
{
	struct soda_request *rq = take_out(d->done, &d->done_n, i);

	if (!rq)
		return false;
	forget_data(d, rq);
	soda_request_free(rq);
	return true;
}

void fuzz_daemon_check_end(struct fuzz_daemon *d)
{
	FUZZ_MUST(d->gone && !d->waiting_n && !d->done_n && !d->holds);
	FUZZ_MUST(!d->listener.peers && !d->listener.peers_n);
	pthread_mutex_destroy(&d->listener.lock);
	pthread_cond_destroy(&d->listener.left);
}
