/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/messages/jobs.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/wait.h"

enum { BOTH = 1 << SODA_MSG_PUSHES | 1 << SODA_MSG_PULLS };

static int __attribute__((format(printf, 3, 4)))
refuse(struct soda_why *why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}

/* Life */

void soda_msg_jobs_init(struct soda_msg_jobs *all, uint64_t budget)
{
	*all = (struct soda_msg_jobs){ .budget = budget };
	pthread_mutex_init(&all->lock, NULL);
}

void soda_msg_jobs_destroy(struct soda_msg_jobs *all)
{
	assert(!all->n && !all->reserved && !all->list);
	pthread_mutex_destroy(&all->lock);
}

static void unlist(struct soda_msg_jobs *all, struct soda_msg_job *job)
{
	pthread_mutex_lock(&all->lock);
	for (struct soda_msg_job **at = &all->list; *at; at = &(*at)->next) {
		if (*at == job) {
			*at = job->next;
			break;
		}
	}
	pthread_mutex_unlock(&all->lock);
}

static void destroy(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks_n; i++)
		soda_inbox_destroy(&job->ranks[i].inbox);
	munmap(job->memory, job->memory_bytes);
	pthread_cond_destroy(&job->changed);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

/* Bytes of one rank's inbox in a new job: as many as may be, of what is left. 0: too little is. */
static uint64_t inbox_bytes(const struct soda_msg_jobs *all, uint32_t ranks)
{
	uint64_t bytes = SODA_MSG_INBOX_MOST;

	while (bytes >= SODA_MSG_INBOX_LEAST && bytes * ranks > all->budget - all->reserved)
		bytes /= 2;
	return bytes >= SODA_MSG_INBOX_LEAST ? bytes : 0;
}

static struct soda_msg_job *make(const struct soda_wire_msg_join *join, const char *name,
				 size_t name_bytes, const struct soda_peer_info *who, uint64_t each)
{
	static const uint8_t none[SODA_MSG_KEY_BYTES];
	struct soda_msg_job *job = calloc(1, sizeof(*job) + join->ranks * sizeof(job->ranks[0]));
	uint64_t bytes = each * join->ranks;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!job || memory == MAP_FAILED) {
		if (memory != MAP_FAILED)
			munmap(memory, bytes);
		free(job);
		return NULL;
	}
	memcpy(job->name, name, name_bytes);
	memcpy(job->key, join->key, sizeof(job->key));
	job->keyed = memcmp(join->key, none, sizeof(none)) != 0;
	job->local = who->local;
	job->uid = who->uid;
	job->ranks_n = join->ranks;
	job->memory = memory;
	job->memory_bytes = bytes;
	pthread_mutex_init(&job->lock, NULL);
	soda_cond_init(&job->changed);
	for (uint32_t i = 0; i < join->ranks; i++)
		soda_inbox_init(&job->ranks[i].inbox, job->memory + i * each, each);
	return job;
}

static struct soda_msg_job *find_locked(const struct soda_msg_jobs *all, const char *name,
					size_t bytes)
{
	struct soda_msg_job *job = all->list;

	while (job && (strlen(job->name) != bytes || memcmp(job->name, name, bytes) != 0))
		job = job->next;
	return job;
}

/*
 * Who knows a job's key belongs to it.  Without a key its ranks are one user's processes on this
 * machine, or come over a network, where users are not known.
 */
static int check_same(const struct soda_msg_job *job, const struct soda_wire_msg_join *join,
		      const struct soda_peer_info *who, struct soda_why *why)
{
	bool same =
		job->keyed || (job->local == who->local && (!who->local || job->uid == who->uid));

	if (memcmp(job->key, join->key, sizeof(job->key)) != 0 || !same)
		return refuse(why, -EACCES,
			      "messages: the job %s is another one, of another key or user",
			      job->name);
	if (job->ranks_n != join->ranks)
		return refuse(why, -EINVAL,
			      "messages: the job %s has %u ranks, and rank %u says %u", job->name,
			      job->ranks_n, join->rank, join->ranks);
	return 0;
}

static int take_place(struct soda_msg_job *job, const struct soda_wire_msg_join *join,
		      const struct soda_peer_info *who, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[join->rank];
	int ret = 0;

	pthread_mutex_lock(&job->lock);
	if (r->roles & 1u << join->role) {
		ret = refuse(why, -EBUSY, "messages: rank %u of the job %s %s (pid %d)", join->rank,
			     job->name,
			     r->left ? "has left, and others have not" : "is there already",
			     (int)r->pid);
	} else {
		r->roles |= 1u << join->role;
		r->pid = who->local ? who->pid : 0;
		job->come += r->roles == BOTH;
		pthread_cond_broadcast(&job->changed);
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}

static int join_locked(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		       const char *name, size_t name_bytes, const struct soda_peer_info *who,
		       struct soda_msg_job **job_p, struct soda_why *why)
{
	struct soda_msg_job *job = find_locked(all, name, name_bytes);
	int ret = 0;

	if (!job) {
		uint64_t each = inbox_bytes(all, join->ranks);

		if (!each)
			return refuse(why, -ENOSPC,
				      "messages: %u ranks need %llu KiB of the agent's"
				      " --msg-memory, and %llu KiB are left",
				      join->ranks,
				      (unsigned long long)join->ranks *
					      (SODA_MSG_INBOX_LEAST >> 10),
				      (unsigned long long)(all->budget - all->reserved) >> 10);
		job = make(join, name, name_bytes, who, each);
		if (!job)
			return -ENOMEM;
		job->next = all->list;
		all->list = job;
		all->n++;
		all->reserved += job->memory_bytes;
	} else {
		ret = check_same(job, join, who, why);
	}
	if (ret == 0)
		ret = take_place(job, join, who, why);
	if (ret < 0)
		return ret;
	job->clients++;
	*job_p = job;
	return 0;
}

int soda_msg_job_join(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		      const char *name, size_t name_bytes, const struct soda_peer_info *who,
		      struct soda_msg_job **job_p, struct soda_why *why)
{
	int ret;

	if (!soda_wire_name_ok(name, name_bytes))
		return refuse(why, -EINVAL, "messages: not a name of a job");
	if (!join->ranks || join->ranks > SODA_MSG_RANKS || join->rank >= join->ranks ||
	    (join->role != SODA_MSG_PUSHES && join->role != SODA_MSG_PULLS))
		return refuse(why, -EINVAL, "messages: rank %u of %u is impossible", join->rank,
			      join->ranks);
	pthread_mutex_lock(&all->lock);
	ret = join_locked(all, join, name, name_bytes, who, job_p, why);
	pthread_mutex_unlock(&all->lock);
	return ret;
}

void soda_msg_job_put(struct soda_msg_jobs *all, struct soda_msg_job *job)
{
	bool last;

	pthread_mutex_lock(&all->lock);
	last = --job->clients == 0;
	if (last) {
		for (struct soda_msg_job **at = &all->list; *at; at = &(*at)->next) {
			if (*at == job) {
				*at = job->next;
				break;
			}
		}
		all->n--;
		all->reserved -= job->memory_bytes;
	}
	pthread_mutex_unlock(&all->lock);
	if (last)
		destroy(job);
}

/* Ends */

static void wake_all(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks_n; i++)
		soda_inbox_wake(&job->ranks[i].inbox);
}

static int broken_locked(const struct soda_msg_job *job, struct soda_why *why)
{
	*why = job->why;
	return -ECANCELED;
}

/* Break the job, for the reason in its `why`. Its name is free for another one. Unlocks it. */
static void break_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job)
{
	atomic_store(&job->broken, true);
	atomic_fetch_add(&all->broken_n, 1);
	pthread_cond_broadcast(&job->changed);
	pthread_mutex_unlock(&job->lock);
	soda_log_info("%s", job->why.text); /* constant from here on */
	wake_all(job);
	unlist(all, job);
}

static void say_gone_locked(struct soda_msg_job *job)
{
	uint32_t i = 0;
	char pid[32] = "";

	while (i + 1 < job->ranks_n && !job->ranks[i].left)
		i++;
	if (job->ranks[i].pid)
		snprintf(pid, sizeof(pid), " (pid %d)", (int)job->ranks[i].pid);
	snprintf(job->why.text, sizeof(job->why.text),
		 "messages: rank %u%s of the job %.120s has gone, and others have not ended", i,
		 pid, job->name);
}

/* Whether something is under way that needs all ranks. */
static bool busy_locked(const struct soda_msg_job *job)
{
	return job->pushed || job->finished || job->reduce.n;
}

void soda_msg_job_leave(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool over;

	pthread_mutex_lock(&job->lock);
	if (r->left || atomic_load(&job->broken)) {
		r->left = true;
		pthread_mutex_unlock(&job->lock);
		return;
	}
	r->left = true;
	job->left++;
	over = job->left == job->ranks_n;
	if (!over && (!job->phase || r->ended != job->phase || busy_locked(job))) {
		say_gone_locked(job);
		break_unlock(all, job);
		return;
	}
	pthread_mutex_unlock(&job->lock);
	if (over)
		unlist(all, job);
}

/*
 * A rank begins, or goes on with, something that needs all of them: not possible where one has
 * left. Unlocks where it fails.
 */
static int check_all_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job,
			    struct soda_why *why)
{
	if (!atomic_load(&job->broken) && !job->left)
		return 0;
	if (atomic_load(&job->broken)) {
		broken_locked(job, why);
		pthread_mutex_unlock(&job->lock);
		return -ECANCELED;
	}
	say_gone_locked(job);
	*why = job->why;
	break_unlock(all, job);
	return -ECANCELED;
}

/* Waiting */

static struct timespec in_ms(uint32_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static struct timespec until(uint32_t ms)
{
	return in_ms(ms < SODA_MSG_AWAIT_MS ? ms : SODA_MSG_AWAIT_MS);
}

int soda_msg_job_await(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t wait_ms,
		       struct soda_wire_msg_missing *missing_p, struct soda_why *why)
{
	struct timespec end = until(wait_ms);
	uint32_t i = 0;
	int ret = 0;

	pthread_mutex_lock(&job->lock);
	while (job->come < job->ranks_n && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
	while (i < job->ranks_n && job->ranks[i].roles == BOTH)
		i++;
	*missing_p = (struct soda_wire_msg_missing){ job->ranks_n - job->come, i };
	if (atomic_load(&job->broken))
		ret = broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Routing */

/* Whether a packet before the i-th, for the same rank, was refused: then so is this one. */
static bool refused_before(const uint32_t *ranks, const uint8_t *taken, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (!taken[k] && ranks[k] == ranks[i])
			return true;
	return false;
}

/*
 * Put what has not been taken yet, each where it belongs, and for each rank in the order of the
 * PUSH, which the parts of a large message need.  Returns how many were.
 */
static uint32_t put_packets(struct soda_msg_job *job, uint32_t rank, const uint8_t *body,
			    const struct soda_wire_msg_push *push, uint8_t *taken,
			    struct soda_msg_routed *routed)
{
	const uint8_t *at = body + SODA_WIRE_MSG_PUSH_BYTES;
	uint32_t ranks[SODA_MSG_PACKETS], n = 0;

	for (uint32_t i = 0; i < push->packets; i++) {
		struct soda_wire_msg_packet p;

		soda_wire_get_msg_packet(at, SODA_MSG_PACKET_MAX, &p); /* checked before */
		at += SODA_WIRE_MSG_PACKET_BYTES;
		ranks[i] = p.rank;
		if (!taken[i] && !refused_before(ranks, taken, i) &&
		    soda_inbox_put(&job->ranks[p.rank].inbox, rank, &p, at)) {
			taken[i] = 1;
			n++;
			routed->messages += p.messages;
			routed->bytes += p.bytes;
		}
		at += p.bytes;
	}
	routed->packets += n;
	return n;
}

static int check_ranks(const struct soda_msg_job *job, const uint8_t *body,
		       const struct soda_wire_msg_push *push, struct soda_why *why)
{
	const uint8_t *at = body + SODA_WIRE_MSG_PUSH_BYTES;

	for (uint32_t i = 0; i < push->packets; i++) {
		struct soda_wire_msg_packet p;

		soda_wire_get_msg_packet(at, SODA_MSG_PACKET_MAX, &p);
		if (p.rank >= job->ranks_n)
			return refuse(why, -EINVAL, "messages: there is no rank %u in the job %s",
				      p.rank, job->name);
		at += SODA_WIRE_MSG_PACKET_BYTES + p.bytes;
	}
	return 0;
}

int soda_msg_job_route(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       const uint8_t *body, const struct soda_wire_msg_push *push, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct soda_msg_routed routed = { 0 };
	struct timespec end;
	uint32_t rooms;
	int ret = check_ranks(job, body, push, why);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (job->ranks[rank].finished) {
		pthread_mutex_unlock(&job->lock);
		return refuse(why, -EINVAL, "messages: rank %u has finished", rank);
	}
	job->pushed = true;
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	memset(taken, 0, push->packets);
	if (!put_packets(job, rank, body, push, taken, &routed) && push->wait_ms) {
		/* an inbox that refused counts in `rooms` when it has room again */
		end = until(push->wait_ms);
		pthread_mutex_lock(&job->lock);
		while (job->rooms == rooms && !atomic_load(&job->broken))
			if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
				break;
		pthread_mutex_unlock(&job->lock);
		put_packets(job, rank, body, push, taken, &routed);
	}
	routed.refused = push->packets - routed.packets;
	*routed_p = routed;
	return 0;
}

static void await_news(struct soda_msg_job *job, struct soda_inbox *in,
		       const struct soda_wire_msg_pull *pull)
{
	struct timespec end = until(pull->wait_ms);

	pthread_mutex_lock(&in->lock);
	while (!(pull->room && soda_inbox_has_locked(in)) &&
	       atomic_load(&job->reduced) == pull->known && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&in->news, &in->lock, &end))
			break;
	pthread_mutex_unlock(&in->lock);
}

int soda_msg_job_pull(struct soda_msg_job *job, uint32_t rank,
		      const struct soda_wire_msg_pull *pull, uint8_t *out,
		      struct soda_wire_msg_pulled *pulled_p, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool ended = false, made_room = false;
	uint32_t bytes = 0;
	int ret = 0;

	await_news(job, &r->inbox, pull);
	if (pull->room)
		bytes = soda_inbox_take(&r->inbox, out, pull->room, &ended, &made_room);
	pthread_mutex_lock(&job->lock);
	if (made_room) {
		job->rooms++;
		pthread_cond_broadcast(&job->changed);
	}
	r->ended += ended;
	*pulled_p = (struct soda_wire_msg_pulled){ ended, atomic_load(&job->reduced), job->result };
	if (atomic_load(&job->broken))
		ret = broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret < 0 ? ret : (int)bytes;
}

/* Phases and collectives */

int soda_msg_job_finish(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	int ret;

	pthread_mutex_lock(&job->lock);
	ret = check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (r->finished || r->ended != job->phase) {
		pthread_mutex_unlock(&job->lock);
		return refuse(why, -EINVAL, "messages: rank %u has finished already", rank);
	}
	r->finished = true;
	if (++job->finished == job->ranks_n) {
		/* each rank's PUSHes were over before its FINISH: all messages are in inboxes */
		job->phase++;
		job->finished = 0;
		job->pushed = false;
		for (uint32_t i = 0; i < job->ranks_n; i++) {
			job->ranks[i].finished = false;
			soda_inbox_end(&job->ranks[i].inbox);
		}
	}
	pthread_mutex_unlock(&job->lock);
	return 0;
}

static void reduce_locked(struct soda_msg_job *job, const struct soda_wire_msg_reduce *r)
{
	int64_t mine = (int64_t)r->value, all = (int64_t)job->reduce.value;

	if (!job->reduce.n) {
		job->reduce.op = r->op;
		job->reduce.value = r->value;
	} else if (r->op == SODA_MSG_OP_SUM) {
		job->reduce.value += r->value; /* as unsigned numbers, which wrap around */
	} else if (r->op == SODA_MSG_OP_MAX && mine > all) {
		job->reduce.value = r->value;
	}
	if (++job->reduce.n < job->ranks_n)
		return;
	job->result = job->reduce.value;
	job->reduce.n = 0;
	atomic_fetch_add(&job->reduced, 1);
}

int soda_msg_job_reduce(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			const struct soda_wire_msg_reduce *r, struct soda_why *why)
{
	bool done;
	int ret;

	if (r->op < SODA_MSG_OP_BARRIER || r->op > SODA_MSG_OP_MAX)
		return refuse(why, -EINVAL, "messages: there is no collective %u", r->op);
	pthread_mutex_lock(&job->lock);
	ret = check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (r->number != job->ranks[rank].reduced + 1 ||
	    r->number != atomic_load(&job->reduced) + 1) {
		pthread_mutex_unlock(&job->lock);
		return refuse(why, -EINVAL, "messages: not the next collective");
	}
	if (job->reduce.n && r->op != job->reduce.op) {
		static const char *const names[] = { "", "barrier", "sum", "maximum" };

		snprintf(job->why.text, sizeof(job->why.text),
			 "messages: rank %u of the job %.120s asks for a %s where others ask for a "
			 "%s",
			 rank, job->name, names[r->op], names[job->reduce.op]);
		*why = job->why;
		break_unlock(all, job);
		return -ECANCELED;
	}
	job->ranks[rank].reduced++;
	reduce_locked(job, r);
	done = !job->reduce.n;
	pthread_mutex_unlock(&job->lock);
	if (done)
		wake_all(job);
	return 0;
}
