/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/store/node_store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wait.h"

enum {
#ifdef SODA_SIMULATION
	LEAST = 16 << 10, /* stores have few chunks there */
#else
	LEAST = 4 << 20, /* bytes beside pinned ones: with less it does not make do */
#endif
	WRITES_MAX = 8,		 /* attempts to write a chunk where the system gives no memory */
	DESCRIPTORS_MAX = 16384, /* and a quarter of what the process may have */
};

/* Memory */

static int write_memory(int fd, const void *data, uint32_t bytes, uint64_t at)
{
	for (uint32_t done = 0; done < bytes;) {
		ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + done));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO;
		done += n > 0 ? (uint32_t)n : 0;
	}
	return 0;
}

static int punch_memory(int fd, uint64_t at, uint64_t bytes)
{
	int ret;

	do
		ret = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
				(off_t)bytes);
	while (ret && errno == EINTR);
	return ret ? -errno : 0;
}

const struct soda_node_memory soda_node_memory = { .write = write_memory, .punch = punch_memory };

/* Asking and filling */

uint32_t soda_node_chunk_bytes(const struct soda_node_object *o)
{
	return o->name.chunk_bytes;
}

uint32_t soda_node_chunk(const struct soda_node_object *o, uint64_t offset, uint64_t bytes)
{
	uint64_t index = offset / o->name.chunk_bytes;

	if (offset % o->name.chunk_bytes || index >= o->chunks_n ||
	    bytes != soda_node_bytes(o, (uint32_t)index))
		return UINT32_MAX;
	return (uint32_t)index;
}

static enum soda_node_answer ask_locked(struct soda_node_object *o, struct soda_node_chunk *c,
					struct soda_node_waiter *w)
{
	switch ((enum soda_node_state)c->state) {
	case SODA_NODE_CHUNK_READY:
		o->store->stats.hits++;
		if (c->ahead)
			soda_node_use_locked(c);
		return SODA_NODE_READY;
	case SODA_NODE_CHUNK_EMPTY:
		soda_node_begin_locked(o, c);
		o->news.asked += soda_node_bytes(o, soda_node_index(c));
		return SODA_NODE_FILL;
	default:
		o->store->stats.waits++;
		w->next = c->waiters;
		c->waiters = w;
		return SODA_NODE_WAITS;
	}
}

enum soda_node_answer soda_node_ask(struct soda_node_object *o, uint32_t chunk,
				    struct soda_node_waiter *w)
{
	enum soda_node_answer answer;

	if (chunk >= o->chunks_n)
		return SODA_NODE_NONE;
	pthread_mutex_lock(&o->store->lock);
	answer = ask_locked(o, &o->chunks[chunk], w);
	pthread_mutex_unlock(&o->store->lock);
	if (answer == SODA_NODE_FILL)
		soda_node_make_room(o->store, o->user);
	return answer;
}

/* The system has less memory than the budget says: so has the store from now on. */
static void settle_for_less(struct soda_node_store *store)
{
	bool tell;
	uint64_t capacity;

	pthread_mutex_lock(&store->lock);
	store->stats.limited++;
	if (store->stats.capacity > store->stats.used)
		store->stats.capacity = store->stats.used;
	store->stats.capacity -= store->stats.capacity / 16;
	if (store->stats.capacity < store->stats.pinned + LEAST)
		store->stats.capacity = store->stats.pinned + LEAST;
	capacity = store->stats.capacity;
	tell = !store->told_limit;
	store->told_limit = true;
	pthread_mutex_unlock(&store->lock);
	if (tell)
		soda_log_warning("the node's store goes on with %llu MiB, because the system gives "
				 "no memory for more: choose a smaller --store, or give the agent "
				 "more",
				 (unsigned long long)capacity >> 20);
}

static int write_chunk(struct soda_node_object *o, uint32_t index, const void *data)
{
	struct soda_node_store *store = o->store;
	const struct soda_node_part *part = soda_node_part(&o->chunks[index]);
	uint64_t at = soda_node_part_offset(&o->chunks[index]);
	uint32_t bytes = soda_node_bytes(o, index);
	int ret = -ENOMEM;

	for (int i = 0; i < WRITES_MAX; i++) {
		soda_node_make_pages(part->view, at, bytes);
		ret = store->memory->write(part->fd, data, bytes, at);
		if (ret != -ENOMEM && ret != -ENOSPC)
			break;
		settle_for_less(store);
		if (!soda_node_evict(store, o->user))
			break;
	}
	return ret;
}

/* Counted, and said once. */
static void count_passed(struct soda_node_store *store, int err)
{
	bool tell;

	pthread_mutex_lock(&store->lock);
	store->stats.passed++;
	tell = !store->told_passed;
	store->told_passed = true;
	pthread_mutex_unlock(&store->lock);
	if (tell)
		soda_log_warning("the node's store cannot keep what its programs read (%s): each "
				 "keeps as much as its own page buffer has; give the agent more "
				 "memory, or choose a smaller --store",
				 soda_strerror(err));
}

/* Pages of a fill that failed half-way must not be taken for what is there. */
static void forget_part(struct soda_node_object *o, uint32_t index)
{
	const struct soda_node_chunk *c = &o->chunks[index];
	int ret = o->store->memory->punch(soda_node_part(c)->fd, soda_node_part_offset(c),
					  soda_node_bytes(o, index));

	if (ret)
		soda_log_error("the node's store cannot give memory back: %s", soda_strerror(ret));
}

int soda_node_filled(struct soda_node_object *o, uint32_t chunk, const void *data, int err)
{
	struct soda_node_store *store = o->store;
	struct soda_node_chunk *c = &o->chunks[chunk];
	struct soda_node_waiter *waiters = NULL;
	int ret = err ? err : write_chunk(o, chunk, data);

	if (ret && !err) {
		forget_part(o, chunk);
		count_passed(store, ret);
	}
	pthread_mutex_lock(&store->lock);
	if (ret) {
		store->stats.fills_failed++;
		soda_node_empty_locked(c);
	} else {
		store->stats.fills++;
		store->stats.bytes_filled += soda_node_bytes(o, chunk);
		waiters = c->waiters;
		soda_node_arrive_locked(c);
		c->waiters = NULL;
	}
	pthread_mutex_unlock(&store->lock);
	while (waiters) {
		struct soda_node_waiter *next = waiters->next;

		waiters->told(waiters, true);
		waiters = next;
	}
	return ret;
}

/* Start, end */

static void *tell_again(void *arg)
{
	struct soda_node_store *store = arg;

	pthread_mutex_lock(&store->lock);
	while (!store->stop || store->again) {
		struct soda_node_waiter *w = store->again;

		if (!w) {
			pthread_cond_wait(&store->work, &store->lock);
			continue;
		}
		store->again = w->next;
		pthread_mutex_unlock(&store->lock);
		w->told(w, false);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* Connections need the others. */
static unsigned most_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur > DESCRIPTORS_MAX * 4)
		return DESCRIPTORS_MAX;
	return (unsigned)limit.rlim_cur / 4;
}

int soda_node_store_create(uint64_t capacity, const struct soda_node_memory *memory,
			   struct soda_node_store **store_p)
{
	struct soda_node_store *store;
	int ret;

	if (capacity < SODA_NODE_MIN)
		return -EINVAL;
	store = calloc(1, sizeof(*store));
	if (!store)
		return -ENOMEM;
	store->memory = memory;
	store->stats.capacity = capacity;
	store->descriptors_max = most_descriptors();
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->work, NULL);
	ret = -pthread_create(&store->thread, NULL, tell_again, store);
	if (ret) {
		pthread_cond_destroy(&store->work);
		pthread_mutex_destroy(&store->lock);
		free(store);
		return ret;
	}
	pthread_setname_np(store->thread, "soda-store");
	*store_p = store;
	return 0;
}

void soda_node_store_destroy(struct soda_node_store *store)
{
	struct soda_node_user *u;

	if (!store)
		return;
	pthread_mutex_lock(&store->lock);
	store->stop = true;
	pthread_cond_signal(&store->work);
	pthread_mutex_unlock(&store->lock);
	soda_wait_join(store->thread, "the thread of the node's store to end");
	while (store->objects) {
		struct soda_node_object *o = store->objects;

		store->objects = o->next;
		soda_node_free_object(o);
	}
	while ((u = store->users)) {
		store->users = u->next;
		free(u);
	}
	pthread_cond_destroy(&store->work);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

void soda_node_stats(struct soda_node_store *store, struct soda_node_stats *stats_p)
{
	pthread_mutex_lock(&store->lock);
	*stats_p = store->stats;
	for (const struct soda_node_object *o = store->objects; o; o = o->next) {
		stats_p->bytes_used += soda_node_touched_yet_locked(o);
		stats_p->folios += o->parts[0].view != NULL;
	}
	stats_p->pinned_most = store->stats.capacity / SODA_NODE_PINS_PART;
	pthread_mutex_unlock(&store->lock);
}
