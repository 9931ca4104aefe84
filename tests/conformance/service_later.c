/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two-sided fake: requests take effect when they come in, in their order, and
 * are answered by other threads, late and in any order; the data of a WRITE are
 * looked at once more before it is freed, which is later still.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "service_fake.h"

enum { MAX_DELAY_US = 200, QUEUE = 4096 };

struct job {
	struct soda_request *rq;
	bool write;
	int status;
	struct soda_span span; /* READ */
	uint64_t sum;	       /* WRITE: of its data */
};

struct fake_later {
	pthread_t threads[FAKE_ANSWERERS];
	pthread_cond_t changed; /* with the fake's lock, which guards all of it */
	bool stop;
	unsigned seed;
	struct job jobs[QUEUE]; /* to be answered */
	unsigned jobs_n;
	unsigned fresh; /* came in since the doorbell: nobody looks at them before */
	struct job kept[FAKE_KEPT];
	unsigned kept_n;
	unsigned writes; /* whose memory we have given and not got back */
	struct soda_peer *paused[FAKE_PEERS];
	unsigned paused_n;
};

static uint64_t checksum(const uint8_t *data, uint32_t bytes)
{
	uint64_t sum = bytes;

	for (uint32_t i = 0; i < bytes; i += 61)
		sum = sum * 31 + data[i];
	return sum * 31 + data[bytes - 1];
}

static void give_back_locked(struct fake *f, void *hold)
{
	struct fake_later *l = f->later;

	free(hold);
	if (hold)
		l->writes--;
	for (; l->paused_n; l->paused_n--)
		soda_peer_resume(l->paused[l->paused_n - 1]);
}

static void finish_write_locked(struct fake *f, const struct job *j)
{
	if (checksum(j->rq->data, j->rq->bytes) != j->sum && !f->tolerant)
		f->bad++;
	give_back_locked(f, j->rq->hold);
	soda_request_free(j->rq);
}

/* Keep an answered WRITE; the one that was kept longest is freed. */
static void keep_locked(struct fake *f, const struct job *j)
{
	struct fake_later *l = f->later;

	if (l->kept_n == FAKE_KEPT) {
		finish_write_locked(f, &l->kept[0]);
		memmove(l->kept, l->kept + 1, sizeof(l->kept) - sizeof(l->kept[0]));
		l->kept_n--;
	}
	l->kept[l->kept_n++] = *j;
}

static bool take_locked(struct fake *f, struct job *j_p)
{
	struct fake_later *l = f->later;
	unsigned old = l->jobs_n - l->fresh, i;

	if (!old || f->stall)
		return false;
	i = (unsigned)rand_r(&l->seed) % old;
	*j_p = l->jobs[i];
	/* the order of the fresh ones behind does not matter either */
	l->jobs[i] = l->jobs[old - 1];
	l->jobs[old - 1] = l->jobs[--l->jobs_n];
	return true;
}

static void *answer_main(void *arg)
{
	struct fake *f = arg;
	struct fake_later *l = f->later;
	struct job j;

	pthread_mutex_lock(&f->lock);
	while (!l->stop) {
		unsigned pause;

		if (!take_locked(f, &j)) {
			pthread_cond_wait(&l->changed, &f->lock);
			continue;
		}
		pause = (unsigned)rand_r(&l->seed) % (4 * MAX_DELAY_US);
		pthread_mutex_unlock(&f->lock);
		if (pause < MAX_DELAY_US)
			usleep(pause);
		soda_request_done(j.rq, j.status, &j.span);
		pthread_mutex_lock(&f->lock);
		if (j.write)
			keep_locked(f, &j);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

void fake_start_answering(struct fake *f)
{
	f->later = calloc(1, sizeof(*f->later));
	assert(f->later);
	f->later->seed = 1;
	pthread_cond_init(&f->later->changed, NULL);
	for (int i = 0; i < FAKE_ANSWERERS; i++)
		if (pthread_create(&f->later->threads[i], NULL, answer_main, f))
			abort();
}

void fake_stall(struct fake *f, bool stall)
{
	pthread_mutex_lock(&f->lock);
	f->stall = stall;
	pthread_cond_broadcast(&f->later->changed);
	pthread_mutex_unlock(&f->lock);
}

void fake_stop_answering(struct fake *f)
{
	struct fake_later *l = f->later;

	pthread_mutex_lock(&f->lock);
	l->stop = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&f->lock);
	for (int i = 0; i < FAKE_ANSWERERS; i++)
		pthread_join(l->threads[i], NULL);
	f->bad += l->jobs_n; /* gone came before they were answered */
	for (unsigned i = 0; i < l->kept_n; i++)
		finish_write_locked(f, &l->kept[i]);
	f->bad += l->writes;
	pthread_cond_destroy(&l->changed);
	free(l);
	f->later = NULL;
}

/* What fake_translate holds, given back. */
static void unhold_locked(struct fake *f, const struct soda_span *span)
{
	((struct fake_region *)span->hold)->holds--;
	f->holds--;
}

int fake_later_reserve(void *client, struct soda_peer *peer, uint16_t region_id,
		       uint64_t page_offset, uint32_t size, struct soda_span *span)
{
	struct fake *f = client;
	struct fake_later *l = f->later;
	struct soda_span region;
	int ret = fake_translate(f, true, region_id, page_offset, size, &region);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&f->lock);
	unhold_locked(f, &region);
	if (l->writes == FAKE_WRITES) {
		assert(l->paused_n < FAKE_PEERS);
		l->paused[l->paused_n++] = peer;
		f->pauses++;
		ret = -EAGAIN;
	} else {
		l->writes++;
		*span = (struct soda_span){ .offset = page_offset * 4096, .bytes = size };
		span->memory = span->hold = malloc(size);
	}
	pthread_mutex_unlock(&f->lock);
	return ret;
}

void fake_later_gone(struct fake *f, struct soda_peer *peer)
{
	struct fake_later *l = f->later;

	pthread_mutex_lock(&f->lock);
	for (unsigned i = 0; i < l->paused_n; i++)
		if (l->paused[i] == peer)
			l->paused[i--] = l->paused[--l->paused_n];
	pthread_mutex_unlock(&f->lock);
}

void fake_later_release(void *client, bool write, const struct soda_span *span, bool landed)
{
	struct fake *f = client;

	pthread_mutex_lock(&f->lock);
	if (write) {
		f->bad += landed;
		f->torn++;
		give_back_locked(f, span->hold);
	} else {
		unhold_locked(f, span);
		f->reads++;
	}
	pthread_mutex_unlock(&f->lock);
}

static void store(struct fake *f, struct job *j)
{
	struct soda_span span;

	j->sum = checksum(j->rq->data, j->rq->bytes);
	j->status = fake_translate(f, true, j->rq->region_id, j->rq->offset / 4096, j->rq->bytes,
				   &span);
	if (j->status < 0)
		return;
	memcpy(span.memory, j->rq->data, j->rq->bytes);
	pthread_mutex_lock(&f->lock);
	unhold_locked(f, &span);
	f->writes++;
	pthread_mutex_unlock(&f->lock);
}

void fake_later_request(void *client, struct soda_request *rq)
{
	struct fake *f = client;
	struct job j = { .rq = rq, .write = rq->write };

	if (f->resigns && !rq->write) {
		soda_peer_close(rq->peer);
		soda_request_done(rq, -ECONNRESET, NULL);
		return;
	}
	if (rq->write)
		store(f, &j);
	else
		j.status = fake_translate(f, false, rq->region_id, rq->offset / 4096, rq->bytes,
					  &j.span);
	if (!rq->write && !j.status && rq->data && rq->offset / rq->bytes % 2) {
		/* into the memory that needs no further copy */
		memcpy(rq->data, j.span.memory, rq->bytes);
		j.span.memory = rq->data;
	}
	if (!rq->write && j.status < 0) {
		soda_request_done(rq, j.status, NULL); /* at once, for a change */
		return;
	}
	pthread_mutex_lock(&f->lock);
	f->bad += rq->client != f || !rq->arrived_ns;
	f->requests++;
	f->told += rq->told;
	f->stored += rq->stored;
	if (rq->stored && f->stores) {
		j.span.stored = true;
		j.span.memory = NULL; /* is not looked at */
	}
	if (rq->told)
		f->residency = rq->residency;
	assert(f->later->jobs_n < QUEUE);
	f->later->jobs[f->later->jobs_n++] = j;
	f->later->fresh++;
	pthread_mutex_unlock(&f->lock);
}

void fake_later_doorbell(void *client, struct soda_peer *peer)
{
	struct fake *f = client;

	pthread_mutex_lock(&f->lock);
	f->later->fresh = 0;
	pthread_cond_broadcast(&f->later->changed);
	pthread_mutex_unlock(&f->lock);
}
