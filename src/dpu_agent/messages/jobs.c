/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/messages/jobs.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "wire/field.h"

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

static struct timespec in_ms(uint32_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

/* Turns to route */

const struct soda_msg_tuning soda_msg_tuning_usual = { .inbox_bytes = SODA_MSG_INBOX_MOST,
						       .transfer_bytes = SODA_MSG_TRANSFER,
						       .wait_us = SODA_MSG_LINK_FLUSH_US };

/* Where not all threads may route at once; who has the turn waits for nothing but locks. */
static void begin_turn(struct soda_msg_jobs *all)
{
	while (all->tuning.threads && sem_wait(&all->turns) && errno == EINTR)
		;
}

static void end_turn(struct soda_msg_jobs *all)
{
	if (all->tuning.threads)
		sem_post(&all->turns);
}

/* Life */

/* Take clients out of the list whose time is over. *next_ns_p: when the next one's is. */
static struct soda_msg_away *take_overdue_locked(struct soda_msg_jobs *all, uint64_t *next_ns_p)
{
	struct soda_msg_away **at = &all->away, *overdue = NULL;
	uint64_t now = soda_now_ns();

	*next_ns_p = UINT64_MAX;
	while (*at) {
		struct soda_msg_away *a = *at;

		if (all->stopping || a->until_ns <= now) {
			*at = a->next;
			a->next = overdue;
			overdue = a;
			continue;
		}
		if (a->until_ns < *next_ns_p)
			*next_ns_p = a->until_ns;
		at = &a->next;
	}
	return overdue;
}

static void *watch_main(void *arg)
{
	struct soda_msg_jobs *all = arg;
	uint64_t next_ns;

	pthread_setname_np(pthread_self(), "soda-msg-watch");
	pthread_mutex_lock(&all->lock);
	while (!all->stopping || all->away) {
		struct soda_msg_away *a = take_overdue_locked(all, &next_ns);
		struct timespec t = { (time_t)(next_ns / 1000000000),
				      (long)(next_ns % 1000000000) };

		if (!a && next_ns == UINT64_MAX && !all->stopping)
			pthread_cond_wait(&all->changed, &all->lock);
		else if (!a && !all->stopping)
			pthread_cond_timedwait(&all->changed, &all->lock, &t);
		while (a) { /* in its job, to which it has a reference */
			struct soda_msg_away *next = a->next;
			struct soda_msg_job *job = a->job;

			a->job = NULL;
			pthread_mutex_unlock(&all->lock);
			soda_msg_job_leave(all, job, a->rank);
			soda_msg_job_put(job, true);
			pthread_mutex_lock(&all->lock);
			a = next;
		}
	}
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

int soda_msg_jobs_init(struct soda_msg_jobs *all, uint64_t budget,
		       const struct soda_msg_tuning *tuning)
{
	int ret;

	*all = (struct soda_msg_jobs){ .budget = budget, .tuning = *tuning };
	sem_init(&all->turns, 0, tuning->threads);
	while (all->tuning.inbox_bytes & (all->tuning.inbox_bytes - 1)) /* a ring's size */
		all->tuning.inbox_bytes &= all->tuning.inbox_bytes - 1;
	pthread_mutex_init(&all->lock, NULL);
	soda_cond_init(&all->fewer);
	soda_cond_init(&all->changed);
	ret = -pthread_create(&all->watch, NULL, watch_main, all);
	if (ret < 0) {
		sem_destroy(&all->turns);
		pthread_cond_destroy(&all->changed);
		pthread_cond_destroy(&all->fewer);
		pthread_mutex_destroy(&all->lock);
		all->budget = 0;
	}
	return ret;
}

void soda_msg_jobs_destroy(struct soda_msg_jobs *all)
{
	struct soda_wait wait;

	soda_wait_begin(&wait, "the links of messages' jobs to end");
	pthread_mutex_lock(&all->lock);
	all->stopping = true;
	pthread_cond_signal(&all->changed);
	while (all->n || all->threads)
		soda_wait_turn(&wait, &all->fewer, &all->lock);
	pthread_mutex_unlock(&all->lock);
	soda_wait_end(&wait);
	pthread_join(all->watch, NULL);
	if (all->has_last)
		pthread_join(all->last, NULL);
	assert(!all->reserved && !all->list && !all->away);
	sem_destroy(&all->turns);
	pthread_cond_destroy(&all->changed);
	pthread_cond_destroy(&all->fewer);
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
	for (uint32_t i = 0; i < job->ranks_n; i++) {
		soda_msg_rings_destroy(atomic_load(&job->ranks[i].inbox.rings));
		soda_inbox_destroy(&job->ranks[i].inbox);
	}
	for (uint32_t i = 0; i < job->links_n; i++) {
		soda_msg_near_destroy(&job->links[i].near_out);
		soda_msg_near_unmap(job->links[i].near_in);
		pthread_cond_destroy(&job->links[i].work);
		pthread_mutex_destroy(&job->links[i].lock);
	}
	free(job->links);
	free(job->addresses);
	munmap(job->memory, job->memory_bytes);
	pthread_cond_destroy(&job->changed);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

/* Of one rank's rings, what its inbox does not have. */
static uint64_t rings_bytes(uint32_t ranks)
{
	return soda_rings_out_bytes(ranks, soda_rings_slot_bytes(ranks));
}

/*
 * Bytes of one rank's inbox in a new job: as many as may be, of what is left, and beside which all
 * ranks may have rings, if they can.  0: too little is left.
 */
static uint64_t inbox_bytes(const struct soda_msg_jobs *all, uint32_t ranks, bool local)
{
	uint64_t bytes = all->tuning.inbox_bytes, left = all->budget - all->reserved;
	uint64_t rings = local ? ranks * rings_bytes(ranks) : 0;

	if (rings + (uint64_t)ranks * SODA_MSG_INBOX_LEAST <= left)
		left -= rings;
	while (bytes >= SODA_MSG_INBOX_LEAST && bytes * ranks > left)
		bytes /= 2;
	return bytes >= SODA_MSG_INBOX_LEAST ? bytes : 0;
}

/* The link to an agent; NULL: this agent. */
static struct soda_msg_link *link_of(const struct soda_msg_job *job, uint32_t agent)
{
	for (uint32_t i = 0; i < job->links_n; i++)
		if (job->links[i].agent == agent)
			return &job->links[i];
	return NULL;
}

/* The link that a rank of another agent is reached by, made with that agent's first one. */
static struct soda_msg_link *add_rank(struct soda_msg_job *job, uint32_t rank, uint32_t agent)
{
	struct soda_msg_link *l = link_of(job, agent);
	const char *address = job->addresses;

	if (!l) {
		l = &job->links[job->links_n++];
		for (uint32_t i = 0; i < agent; i++)
			address += strlen(address) + 1;
		*l = (struct soda_msg_link){
			.job = job, .agent = agent, .address = address, .first_rank = rank
		};
		l->relayed = (struct soda_msg_answers){ .window = SODA_MSG_AHEAD,
							.at = l->last_relayed };
		pthread_mutex_init(&l->lock, NULL);
		soda_cond_init(&l->work);
	}
	l->ranks_n++;
	return l;
}

/* Next hops. -ENOMEM. */
static int find_hops(struct soda_msg_job *job, const struct soda_wire_msg_place *place)
{
	job->here_n = job->ranks_n;
	if (!place->places)
		return 0;
	job->links = calloc(job->agents, sizeof(job->links[0]));
	job->addresses = malloc(place->address_bytes);
	if (!job->links || !job->addresses)
		return -ENOMEM;
	memcpy(job->addresses, place->addresses, place->address_bytes);
	job->here_n = 0;
	for (uint32_t i = 0; i < job->ranks_n; i++) {
		if (place->places[i] == job->here)
			job->here_n++;
		else
			job->ranks[i].link = add_rank(job, i, place->places[i]);
	}
	return 0;
}

static struct soda_msg_job *make(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
				 const struct soda_wire_msg_place *place,
				 const struct soda_peer_info *who, uint64_t each)
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
	job->all = all;
	memcpy(job->name, place->name, join->name_bytes);
	memcpy(job->key, join->key, sizeof(job->key));
	job->keyed = memcmp(join->key, none, sizeof(none)) != 0;
	job->local = who->local;
	job->uid = who->uid;
	job->ranks_n = join->ranks;
	job->agents = join->agents;
	job->here = join->here;
	job->life = join->life;
	job->shape = soda_wire_msg_shape(join, place);
	job->memory = memory;
	job->memory_bytes = bytes;
	pthread_mutex_init(&job->lock, NULL);
	soda_cond_init(&job->changed);
	for (uint32_t i = 0; i < join->ranks; i++) {
		struct soda_msg_rank *r = &job->ranks[i];

		soda_inbox_init(&r->inbox, job->memory + i * each, each);
		r->pushed = (struct soda_msg_answers){ .window = 1, .at = &r->last_pushed };
	}
	if (find_hops(job, place) < 0) {
		destroy(job);
		return NULL;
	}
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
		      const struct soda_wire_msg_place *place, const struct soda_peer_info *who,
		      struct soda_why *why)
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
	if (job->shape != soda_wire_msg_shape(join, place) || job->here != join->here)
		return refuse(why, -EINVAL,
			      "messages: rank %u of the job %.120s names other agents, or other "
			      "places of ranks, than the first rank here has",
			      join->rank, job->name);
	return 0;
}

/* There is something to say to all other agents. */
static void kick_links(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++) {
		struct soda_msg_link *l = &job->links[i];

		pthread_mutex_lock(&l->lock);
		l->kick = true;
		pthread_cond_signal(&l->work);
		pthread_mutex_unlock(&l->lock);
	}
}

static int take_place(struct soda_msg_job *job, const struct soda_wire_msg_join *join,
		      const struct soda_peer_info *who, const void *owner, struct soda_why *why)
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
		r->life[join->role - 1] = join->life;
		r->owner[join->role - 1] = owner;
		r->pid = who->local ? who->pid : 0;
		job->come += r->roles == BOTH;
		pthread_cond_broadcast(&job->changed);
		if (job->come == job->here_n)
			kick_links(job);
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* The client is not away any more, and its reference is the caller's. False: it was not. */
static bool end_away_locked(struct soda_msg_jobs *all, struct soda_msg_away *away)
{
	for (struct soda_msg_away **at = &all->away; *at; at = &(*at)->next) {
		if (*at == away) {
			*at = away->next;
			away->job = NULL;
			return true;
		}
	}
	return false;
}

/* A client comes back, perhaps before its older connection is known to be lost. */
static int return_locked(struct soda_msg_jobs *all, struct soda_msg_job *job,
			 const struct soda_wire_msg_join *join, const void *owner,
			 struct soda_msg_job **job_p, struct soda_why *why)
{
	struct soda_msg_rank *r = job ? &job->ranks[join->rank] : NULL;
	bool same;

	if (!job)
		return refuse(why, -ESTALE, "messages: the job has ended while rank %u was away",
			      join->rank);
	pthread_mutex_lock(&job->lock);
	same = r->life[join->role - 1] == join->life && !r->left;
	if (same)
		r->owner[join->role - 1] = owner;
	pthread_mutex_unlock(&job->lock);
	if (!same)
		return refuse(why, -ESTALE, "messages: rank %u has been away for too long",
			      join->rank);
	if (!end_away_locked(all, &r->away[join->role - 1])) {
		job->clients++;
		job->refs++;
	}
	atomic_fetch_add(&all->returned, 1);
	*job_p = job;
	return 0;
}

static int join_locked(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		       const struct soda_wire_msg_place *place, const struct soda_peer_info *who,
		       const void *owner, struct soda_msg_job **job_p, bool *made_p,
		       struct soda_why *why)
{
	struct soda_msg_job *job = find_locked(all, place->name, join->name_bytes);
	int ret = 0;

	*made_p = !job && !join->again;
	if (join->again) {
		ret = job ? check_same(job, join, place, who, why) : 0;
		return ret < 0 ? ret : return_locked(all, job, join, owner, job_p, why);
	}
	if (!job) {
		uint64_t each = inbox_bytes(all, join->ranks, who->local);

		if (!each)
			return refuse(why, -ENOSPC,
				      "messages: %u ranks need %llu KiB of the agent's"
				      " --msg-memory, and %llu KiB are left",
				      join->ranks,
				      (unsigned long long)join->ranks *
					      (SODA_MSG_INBOX_LEAST >> 10),
				      (unsigned long long)(all->budget - all->reserved) >> 10);
		job = make(all, join, place, who, each);
		if (!job)
			return -ENOMEM;
		job->next = all->list;
		all->list = job;
		all->n++;
		all->reserved += job->memory_bytes;
	} else {
		ret = check_same(job, join, place, who, why);
	}
	if (ret == 0)
		ret = take_place(job, join, who, owner, why);
	if (ret < 0)
		return ret;
	job->clients++;
	job->refs++;
	*job_p = job;
	return 0;
}

/* Whether there is a job that nobody can join any more, and whose memory will come back. */
static bool ending_locked(const struct soda_msg_jobs *all)
{
	unsigned listed = 0;

	for (const struct soda_msg_job *job = all->list; job; job = job->next)
		listed++;
	return all->n > listed;
}

int soda_msg_job_join(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		      const struct soda_wire_msg_place *place, const struct soda_peer_info *who,
		      const void *owner, struct soda_msg_job **job_p, bool *made_p,
		      struct soda_why *why)
{
	struct timespec end;
	int ret;

	if (!soda_wire_name_ok(place->name, join->name_bytes))
		return refuse(why, -EINVAL, "messages: not a name of a job");
	if (!join->ranks || join->ranks > SODA_MSG_RANKS || join->rank >= join->ranks ||
	    (join->role != SODA_MSG_PUSHES && join->role != SODA_MSG_PULLS))
		return refuse(why, -EINVAL, "messages: rank %u of %u is impossible", join->rank,
			      join->ranks);
	if (place->places && place->places[join->rank] != join->here)
		return refuse(why, -EINVAL,
			      "messages: rank %u belongs to the agent %u of its list, and says "
			      "that this is the agent %u",
			      join->rank, place->places[join->rank], join->here);
	end = in_ms(SODA_MSG_GOODBYE_MS);
	pthread_mutex_lock(&all->lock);
	do
		ret = join_locked(all, join, place, who, owner, job_p, made_p, why);
	while (ret == -ENOSPC && ending_locked(all) &&
	       !pthread_cond_timedwait(&all->fewer, &all->lock, &end));
	pthread_mutex_unlock(&all->lock);
	return ret;
}

bool soda_msg_job_owns(struct soda_msg_job *job, uint32_t rank, enum soda_msg_role role,
		       const void *owner)
{
	bool owns;

	pthread_mutex_lock(&job->lock);
	owns = job->ranks[rank].owner[role - 1] == owner;
	pthread_mutex_unlock(&job->lock);
	return owns;
}

/* Whether the process has ended, as far as this machine knows. */
static bool has_ended(pid_t pid)
{
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	bool ended = pid > 0 && fd < 0 && errno == ESRCH;

	if (fd >= 0) {
		ended = poll(&p, 1, 0) == 1;
		close(fd);
	}
	return ended;
}

bool soda_msg_job_lose(struct soda_msg_job *job, uint32_t rank, enum soda_msg_role role,
		       const void *owner)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	struct soda_msg_away *away = &r->away[role - 1];
	struct soda_msg_jobs *all = job->all;
	bool waits;

	pthread_mutex_lock(&all->lock);
	pthread_mutex_lock(&job->lock);
	waits = r->owner[role - 1] == owner && !r->left && !atomic_load(&job->broken) &&
		!all->stopping && !has_ended(r->pid);
	if (waits)
		r->owner[role - 1] = NULL;
	pthread_mutex_unlock(&job->lock);
	if (waits) {
		*away = (struct soda_msg_away){ all->away, job, rank,
						soda_now_ns() + SODA_MSG_PATIENCE_MS * 1000000ull };
		all->away = away;
		pthread_cond_signal(&all->changed);
	}
	pthread_mutex_unlock(&all->lock);
	return waits;
}

static int check_link(const struct soda_msg_job *job, const struct soda_wire_msg_link *link,
		      struct soda_why *why)
{
	if (memcmp(job->key, link->key, sizeof(job->key)) != 0)
		return refuse(why, -EACCES,
			      "messages: the job %s is another one here, of another key",
			      job->name);
	if (!link->shape || job->shape != link->shape || job->ranks_n != link->ranks ||
	    job->agents != link->agents || job->here != link->to || !link_of(job, link->from))
		return refuse(why, -EINVAL,
			      "messages: different lists of agents and ranks are known to the "
			      "agents %u and %u of the job %.60s",
			      link->from, link->to, job->name);
	return 0;
}

static int link_locked(struct soda_msg_jobs *all, const struct soda_wire_msg_link *link,
		       const char *name, size_t name_bytes, struct soda_msg_job **job_p,
		       struct soda_msg_link **link_p, struct soda_why *why)
{
	struct soda_msg_job *job = find_locked(all, name, name_bytes);
	struct soda_msg_link *l;
	bool same;
	int ret;

	if (!job)
		return refuse(why, -EBUSY, "messages: no rank of this job has come here");
	ret = check_link(job, link, why);
	if (ret < 0)
		return ret;
	l = link_of(job, link->from);
	pthread_mutex_lock(&job->lock);
	same = !l->life || l->life == link->life;
	if (same)
		l->life = link->life;
	pthread_mutex_unlock(&job->lock);
	if (!same) /* an older job of this name has not ended here */
		return refuse(why, -EBUSY,
			      "messages: the agent %u has begun the job %.120s once more", l->agent,
			      job->name);
	job->refs++;
	*job_p = job;
	*link_p = l;
	return 0;
}

int soda_msg_job_link(struct soda_msg_jobs *all, const struct soda_wire_msg_link *link,
		      const char *name, size_t name_bytes, struct soda_msg_job **job_p,
		      struct soda_msg_link **link_p, struct soda_why *why)
{
	int ret;

	pthread_mutex_lock(&all->lock);
	ret = link_locked(all, link, name, name_bytes, job_p, link_p, why);
	pthread_mutex_unlock(&all->lock);
	return ret;
}

void soda_msg_job_put(struct soda_msg_job *job, bool client)
{
	struct soda_msg_jobs *all = job->all;
	bool last, closing;

	pthread_mutex_lock(&all->lock);
	closing = client && --job->clients == 0;
	if (closing) {
		for (struct soda_msg_job **at = &all->list; *at; at = &(*at)->next) {
			if (*at == job) {
				*at = job->next;
				break;
			}
		}
	}
	last = --job->refs == 0;
	if (last) {
		all->n--;
		all->reserved -= job->memory_bytes + job->rings_bytes;
	} else if (closing) {
		pthread_mutex_lock(&job->lock);
		job->closing = true;
		kick_links(job);
		pthread_mutex_unlock(&job->lock);
	}
	if (last)
		destroy(job);
	pthread_cond_broadcast(&all->fewer);
	pthread_mutex_unlock(&all->lock);
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
	kick_links(job);
	pthread_mutex_unlock(&job->lock);
	soda_log_info("%s", job->why.text); /* constant from here on */
	wake_all(job);
	unlist(all, job);
}

/* The link of an agent of which a rank has left, or NULL. */
static const struct soda_msg_link *left_link_locked(const struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++)
		if (job->links[i].said.left)
			return &job->links[i];
	return NULL;
}

static void say_gone_locked(struct soda_msg_job *job)
{
	const struct soda_msg_link *l = job->left ? NULL : left_link_locked(job);
	uint32_t i = 0;
	char pid[32] = "";

	while (i + 1 < job->ranks_n && !job->ranks[i].left)
		i++;
	if (l)
		i = l->said.first_left;
	else if (job->ranks[i].pid)
		snprintf(pid, sizeof(pid), " (pid %d)", (int)job->ranks[i].pid);
	snprintf(job->why.text, sizeof(job->why.text),
		 "messages: rank %u%s of the job %.120s has gone, and others have not ended", i,
		 pid, job->name);
}

/* Whether something is under way that needs all ranks. */
static bool busy_locked(const struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++)
		for (unsigned k = 0; k < 2; k++)
			if (job->links[i].parts[k].number > atomic_load(&job->reduced))
				return true;
	return job->pushed || job->finished || job->reduce.n;
}

/* Who serves rings, and waits for room, sleeps on the rings' bell. */
static void wake_blocked_locked(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks_n; i++) {
		struct soda_msg_rings *rings = atomic_load(&job->ranks[i].inbox.rings);

		if (rings && atomic_load(&rings->blocked))
			soda_msg_rings_bell(rings);
	}
}

void soda_msg_job_room(struct soda_msg_job *job)
{
	pthread_mutex_lock(&job->lock);
	job->rooms++;
	pthread_cond_broadcast(&job->changed);
	wake_blocked_locked(job);
	pthread_mutex_unlock(&job->lock);
}

/* How far a rank with rings is. -EPROTO: what its program says of that cannot be. */
static int hear_rank(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool made_room;
	uint32_t ends;
	int ret;

	if (!soda_msg_job_has_rings(job, rank))
		return 0;
	ret = soda_inbox_hear(&r->inbox, &ends, &made_room);
	if (made_room)
		soda_msg_job_room(job);
	pthread_mutex_lock(&job->lock);
	r->ended = ends;
	pthread_mutex_unlock(&job->lock);
	return ret;
}

void soda_msg_job_leave(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool over;

	hear_rank(job, rank);
	pthread_mutex_lock(&job->lock);
	if (r->left || atomic_load(&job->broken)) {
		r->left = true;
		pthread_mutex_unlock(&job->lock);
		return;
	}
	r->left = true;
	job->left++;
	over = job->left == job->here_n;
	if (!over && (!job->phase || r->ended != job->phase || busy_locked(job))) {
		say_gone_locked(job);
		break_unlock(all, job);
		return;
	}
	kick_links(job);
	pthread_mutex_unlock(&job->lock);
	if (over)
		unlist(all, job);
}

void soda_msg_job_fail(struct soda_msg_job *job, const char *why)
{
	pthread_mutex_lock(&job->lock);
	if (atomic_load(&job->broken)) {
		pthread_mutex_unlock(&job->lock);
		return;
	}
	snprintf(job->why.text, sizeof(job->why.text), "%s", why);
	break_unlock(job->all, job);
}

/*
 * A rank begins, or goes on with, something that needs all of them: not possible where one has
 * left. Unlocks where it fails.
 */
static int check_all_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job,
			    struct soda_why *why)
{
	if (!atomic_load(&job->broken) && !job->left && !left_link_locked(job))
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

static struct timespec until(uint32_t ms)
{
	return in_ms(ms < SODA_MSG_AWAIT_MS ? ms : SODA_MSG_AWAIT_MS);
}

/* Ranks that have not come, here or to other agents, as far as these have said. */
static struct soda_wire_msg_missing missing_locked(const struct soda_msg_job *job)
{
	struct soda_wire_msg_missing m = { job->here_n - job->come, job->ranks_n };
	uint32_t i = 0;

	while (i < job->ranks_n && (job->ranks[i].link || job->ranks[i].roles == BOTH))
		i++;
	if (m.n)
		m.first = i;
	for (i = 0; i < job->links_n; i++) {
		const struct soda_msg_link *l = &job->links[i];
		uint32_t n = l->said.number ? l->said.missing : l->ranks_n;
		uint32_t first = l->said.number ? l->said.first_missing : l->first_rank;

		m.n += n;
		if (n && first < m.first)
			m.first = first;
	}
	return m;
}

int soda_msg_job_await(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t wait_ms,
		       struct soda_wire_msg_missing *missing_p, struct soda_why *why)
{
	struct timespec end = until(wait_ms);
	int ret = 0;

	pthread_mutex_lock(&job->lock);
	*missing_p = missing_locked(job);
	while (missing_p->n && !atomic_load(&job->broken)) {
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
		*missing_p = missing_locked(job);
	}
	if (atomic_load(&job->broken))
		ret = broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Routing */

/* Packets of a PUSH or a RELAY, and what has become of them. */
struct route {
	struct soda_msg_job *job;
	const struct soda_msg_link *link; /* where they come from; NULL: a PUSH, of `rank` */
	uint32_t rank;
	const uint8_t *body; /* the first packet */
	uint32_t packets;
	uint8_t *taken;
	uint16_t to[SODA_MSG_PACKETS]; /* whom they are for: of check_ranks() */
	/* ranks for which nothing may be put: packets of earlier RELAYs were refused */
	uint16_t held[SODA_MSG_AHEAD * SODA_MSG_PACKETS];
	uint32_t held_n;
	struct soda_msg_routed routed;
};

/* The packet at `at`, which was checked: *from_p and the rank that it is for. */
static uint32_t read_head(const struct route *r, const uint8_t *at, struct soda_wire_msg_packet *p,
			  uint32_t *from_p)
{
	soda_wire_get_msg_packet(at, SODA_MSG_PACKET_MAX, p);
	*from_p = r->link ? p->rank : r->rank;
	return r->link ? p->to : p->rank;
}

/* Whether a packet before the i-th, for the same rank, was refused: then so is this one. */
static bool refused_before(const struct route *r, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (!r->taken[k] && r->to[k] == r->to[i])
			return true;
	for (uint32_t k = 0; k < r->held_n; k++)
		if (r->held[k] == r->to[i])
			return true;
	return false;
}

/* So many bytes more, or fewer, wait for the link's thread. */
static void count_pending(struct soda_msg_link *l, int64_t bytes)
{
	uint64_t enough = l->job->all->tuning.transfer_bytes;

	pthread_mutex_lock(&l->lock);
	if (bytes > 0) {
		if (!l->fresh) {
			l->since_ns = soda_now_ns();
			pthread_cond_signal(&l->work);
		} else if (l->fresh < enough && l->fresh + bytes >= enough) {
			pthread_cond_signal(&l->work);
		}
		l->fresh += bytes;
	}
	l->pending += bytes;
	pthread_mutex_unlock(&l->lock);
}

static bool put_packet(struct route *r, uint32_t from, uint32_t to,
		       const struct soda_wire_msg_packet *p, const uint8_t *runs)
{
	struct soda_msg_rank *rank = &r->job->ranks[to];
	int64_t bytes = SODA_WIRE_MSG_PACKET_BYTES + p->bytes;

	if (rank->link) /* before its thread can see the packet */
		count_pending(rank->link, bytes);
	if (soda_inbox_put(&rank->inbox, from, p, runs))
		return true;
	if (rank->link)
		count_pending(rank->link, -bytes);
	return false;
}

/*
 * Put what has not been taken yet, each where it belongs, and for each rank in the order of the
 * call, which the parts of a large message need.  Returns how many were.
 */
static uint32_t put_packets(struct route *r)
{
	const uint8_t *at = r->body;
	uint32_t n = 0;

	begin_turn(r->job->all);
	for (uint32_t i = 0; i < r->packets; i++) {
		struct soda_wire_msg_packet p;
		uint32_t from;

		read_head(r, at, &p, &from);
		at += SODA_WIRE_MSG_PACKET_BYTES;
		if (!r->taken[i] && !refused_before(r, i) &&
		    put_packet(r, from, r->to[i], &p, at)) {
			r->taken[i] = 1;
			n++;
			r->routed.messages += p.messages;
			r->routed.bytes += p.bytes;
		}
		at += p.bytes;
	}
	end_turn(r->job->all);
	r->routed.packets += n;
	return n;
}

/* Whom they are for, and whether that can be. -EINVAL. */
static int check_ranks(struct route *r, struct soda_why *why)
{
	const struct soda_msg_job *job = r->job;
	const uint8_t *at = r->body;

	for (uint32_t i = 0; i < r->packets; i++) {
		struct soda_wire_msg_packet p;
		uint32_t from, to = read_head(r, at, &p, &from);

		if (to >= job->ranks_n || from >= job->ranks_n)
			return refuse(why, -EINVAL, "messages: there is no rank %u in the job %s",
				      to >= job->ranks_n ? to : from, job->name);
		if (r->link && (job->ranks[to].link || job->ranks[from].link != r->link))
			return refuse(why, -EINVAL,
				      "messages: a packet from rank %u for rank %u of the job "
				      "%.100s has come to the wrong agent",
				      from, to, job->name);
		r->to[i] = (uint16_t)to;
		at += SODA_WIRE_MSG_PACKET_BYTES + p.bytes;
	}
	return 0;
}

/* Until an inbox that refused has room again, which counts in `rooms`. */
static void await_room(struct soda_msg_job *job, uint32_t rooms, uint32_t wait_ms)
{
	struct timespec end = until(wait_ms);

	pthread_mutex_lock(&job->lock);
	while (job->rooms == rooms && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
	pthread_mutex_unlock(&job->lock);
}

/* Where nothing could be put, wait for room, and try once more. */
static void put_or_wait(struct route *r, uint32_t rooms, uint32_t wait_ms)
{
	if (put_packets(r) || !r->packets || !wait_ms)
		return;
	await_room(r->job, rooms, wait_ms);
	put_packets(r);
}

/*
 * Begin to answer the call of this number.  0; 1: it has been answered, and so it is again;
 * -EPROTO: another one is due.  A call that is being answered on a lost connection is waited for.
 */
static int begin_answer_locked(struct soda_msg_job *job, struct soda_msg_answers *all,
			       uint64_t number, uint32_t packets, uint8_t *taken)
{
	const struct soda_msg_answer *a = &all->at[number % all->window];

	while (all->busy)
		pthread_cond_wait(&job->changed, &job->lock); /* at most SODA_MSG_AWAIT_MS */
	if (number && number <= all->number && all->number - number < all->window &&
	    packets == a->n) {
		memcpy(taken, a->taken, packets);
		return 1;
	}
	if (number != all->number + 1)
		return -EPROTO;
	memset(taken, 0, packets);
	all->busy = true;
	return 0;
}

static void end_answer_locked(struct soda_msg_job *job, struct soda_msg_answers *all,
			      uint64_t number, const struct route *r)
{
	struct soda_msg_answer *a = &all->at[number % all->window];

	memcpy(a->taken, r->taken, r->packets);
	memcpy(a->to, r->to, r->packets * sizeof(r->to[0]));
	a->n = r->packets;
	all->number = number;
	all->busy = false;
	pthread_cond_broadcast(&job->changed);
}

/* The ranks of packets that RELAYs just before this one had, and that were refused. */
static void find_held_locked(struct route *r, const struct soda_msg_answers *all,
			     const struct soda_wire_msg_relay *relay)
{
	for (uint64_t k = relay->number - relay->ahead; k < relay->number; k++) {
		const struct soda_msg_answer *a = &all->at[k % all->window];

		for (uint32_t i = 0; i < a->n; i++)
			if (!a->taken[i])
				r->held[r->held_n++] = a->to[i];
	}
}

int soda_msg_job_route(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       const uint8_t *body, const struct soda_wire_msg_push *push, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct route r = { .job = job,
			   .rank = rank,
			   .body = body + SODA_WIRE_MSG_PUSH_BYTES,
			   .packets = push->packets,
			   .taken = taken };
	struct soda_msg_answers *answer = &job->ranks[rank].pushed;
	uint32_t rooms;
	int ret = check_ranks(&r, why);

	*routed_p = r.routed;
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	ret = begin_answer_locked(job, answer, push->number, push->packets, taken);
	if (ret == 0 && job->ranks[rank].finished) {
		answer->busy = false;
		ret = refuse(why, -EINVAL, "messages: rank %u has finished", rank);
	}
	if (ret) {
		pthread_mutex_unlock(&job->lock);
		return ret < 0 ? ret : 0;
	}
	job->pushed = true;
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	put_or_wait(&r, rooms, push->wait_ms);
	pthread_mutex_lock(&job->lock);
	end_answer_locked(job, answer, push->number, &r);
	pthread_mutex_unlock(&job->lock);
	r.routed.refused = push->packets - r.routed.packets;
	*routed_p = r.routed;
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
	int ret = soda_inbox_arrived(&r->inbox, pull->at, pull->ended, &made_room);

	if (ret < 0)
		return refuse(why, ret,
			      "messages: rank %u says that more has arrived than was sent", rank);
	if (made_room)
		soda_msg_job_room(job);
	await_news(job, &r->inbox, pull);
	if (pull->room)
		bytes = soda_inbox_show(&r->inbox, out, pull->room, &ended);
	pthread_mutex_lock(&job->lock);
	if (pull->ended + ended > r->ended)
		r->ended = pull->ended + ended;
	*pulled_p = (struct soda_wire_msg_pulled){ ended, atomic_load(&job->reduced), job->result };
	if (atomic_load(&job->broken))
		ret = broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret < 0 ? ret : (int)bytes;
}

/* Rings */

bool soda_msg_job_has_rings(const struct soda_msg_job *job, uint32_t rank)
{
	return atomic_load(&job->ranks[rank].inbox.rings) != NULL;
}

/* Take so much of the budget. False: it is not there. */
static bool reserve(struct soda_msg_jobs *all, struct soda_msg_job *job, uint64_t bytes)
{
	bool fits;

	pthread_mutex_lock(&all->lock);
	fits = bytes <= all->budget - all->reserved;
	if (fits) {
		all->reserved += bytes;
		job->rings_bytes += bytes;
	}
	pthread_mutex_unlock(&all->lock);
	return fits;
}

static void give_back(struct soda_msg_jobs *all, struct soda_msg_job *job, uint64_t bytes)
{
	pthread_mutex_lock(&all->lock);
	all->reserved -= bytes;
	job->rings_bytes -= bytes;
	pthread_mutex_unlock(&all->lock);
}

/* While the rank's other client has not come, nobody can push to it, and nobody pulls. */
static int make_rings_locked(struct soda_msg_job *job, uint32_t rank, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	struct soda_msg_rings *rings;
	int ret;

	if (r->roles == BOTH || r->left)
		return refuse(why, -EINVAL, "messages: rank %u asks for rings too late", rank);
	ret = soda_msg_rings_make(job->ranks_n, (uint32_t)r->inbox.size, &rings, why);
	if (ret == 0 && !soda_inbox_share(&r->inbox, rings)) {
		soda_msg_rings_destroy(rings);
		ret = refuse(why, -EINVAL, "messages: rank %u asks for rings too late", rank);
	}
	return ret;
}

static int make_rings(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		      struct soda_why *why)
{
	uint64_t bytes = rings_bytes(job->ranks_n);
	bool made = false;
	int ret = 0;

	if (!reserve(all, job, bytes))
		return refuse(why, -ENOSPC, "messages: no room for rings in --msg-memory");
	pthread_mutex_lock(&job->lock);
	if (!soda_msg_job_has_rings(job, rank)) {
		ret = make_rings_locked(job, rank, why);
		made = ret == 0;
	}
	pthread_mutex_unlock(&job->lock);
	if (!made)
		give_back(all, job, bytes);
	return ret;
}

int soda_msg_job_rings(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       enum soda_msg_role role, struct soda_msg_rings **rings_p,
		       struct soda_why *why)
{
	int ret = 0;

	if (role == SODA_MSG_PUSHES && !soda_msg_job_has_rings(job, rank))
		ret = make_rings(all, job, rank, why);
	if (ret == 0 && !soda_msg_job_has_rings(job, rank))
		ret = refuse(why, -ESTALE, "messages: rank %u has no rings in this job", rank);
	*rings_p = atomic_load(&job->ranks[rank].inbox.rings);
	return ret;
}

/* What the rank's program has written cannot be: there is no going on with it. */
static int break_scribbled(struct soda_msg_job *job, uint32_t rank, struct soda_why *why)
{
	char text[sizeof(why->text)];

	snprintf(text, sizeof(text),
		 "messages: what rank %u of the job %.120s has written into its rings makes no "
		 "sense",
		 rank, job->name);
	soda_msg_job_fail(job, text);
	pthread_mutex_lock(&job->lock);
	broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return -ECANCELED;
}

/*
 * Packets of one lane, as many as it has slots, unless their inbox is full. *blocked_p: it is. How
 * many; -EPROTO.
 */
static int take_lane(struct route *r, struct soda_msg_rings *rings, uint32_t to, bool *blocked_p)
{
	struct soda_wire_msg_packet p;
	const uint8_t *runs;
	int n = 0, ret = 0;

	while (n < (int)SODA_RING_SLOTS && (ret = soda_msg_rings_peek(rings, to, &p, &runs)) > 0) {
		if (!put_packet(r, r->rank, to, &p, runs)) {
			r->routed.refused++;
			*blocked_p = true;
			break;
		}
		soda_msg_rings_take(rings, to);
		r->routed.packets++;
		r->routed.messages += p.messages;
		r->routed.bytes += p.bytes;
		n++;
	}
	return ret < 0 ? ret : n;
}

/*
 * Whether the rank may push.  Its lanes had packets before this looks at `finished`: so they are
 * none of a phase that it has finished and that has ended meanwhile.
 */
static int check_pusher(struct soda_msg_job *job, uint32_t rank, struct soda_why *why)
{
	int ret;

	pthread_mutex_lock(&job->lock);
	ret = check_all_unlock(job->all, job, why);
	if (ret < 0)
		return ret;
	if (job->ranks[rank].finished)
		ret = refuse(why, -EINVAL, "messages: rank %u has finished", rank);
	else
		job->pushed = true;
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Once round the lanes. How many packets were taken; errors of soda_msg_job_serve(). */
static int take_lanes(struct route *r, struct soda_msg_rings *rings, bool *blocked_p,
		      struct soda_why *why)
{
	struct soda_msg_job *job = r->job;
	int n = 0, ret;

	*blocked_p = false;
	if (!soda_msg_rings_any(rings))
		return 0;
	ret = check_pusher(job, r->rank, why);
	if (ret < 0)
		return ret;
	begin_turn(job->all);
	for (uint32_t i = 0; i < job->ranks_n && ret >= 0; i++) {
		ret = take_lane(r, rings, (rings->first + i) % job->ranks_n, blocked_p);
		n += ret > 0 ? ret : 0;
	}
	end_turn(job->all);
	rings->first = (rings->first + 1) % job->ranks_n;
	if (n)
		soda_msg_rings_tell(rings);
	return ret == -EPROTO ? break_scribbled(job, r->rank, why) : ret < 0 ? ret : n;
}

/*
 * Who serves says that it is idle, and looks once more, before it sleeps; and it does not sleep
 * where that look has found an inbox full for the first time: who makes room did not know then.
 */
static int serve_until(struct route *r, struct soda_msg_rings *rings,
		       const struct soda_wire_msg_pull *pull, uint64_t end, struct soda_why *why)
{
	struct soda_msg_job *job = r->job;
	bool idle = false, blocked, was_blocked;
	int n = 0;

	atomic_store(&rings->blocked, false);
	while (n >= 0) {
		uint32_t seen = atomic_load(&rings->out->doorbell);
		uint64_t now;

		if (hear_rank(job, r->rank) < 0)
			return break_scribbled(job, r->rank, why);
		n = take_lanes(r, rings, &blocked, why);
		was_blocked = atomic_exchange(&rings->blocked, blocked);
		now = soda_now_ns();
		if (n < 0 || now >= end || atomic_load(&job->reduced) != pull->known ||
		    atomic_load(&job->broken))
			break;
		if (idle && !n && blocked <= was_blocked)
			soda_futex_wait_shared(&rings->out->doorbell, seen, (int64_t)(end - now));
		idle = !idle && !n;
		atomic_store(&rings->in->idle, idle); /* before the next look */
	}
	atomic_store(&rings->in->idle, 0);
	atomic_store(&rings->blocked, false);
	return n < 0 ? n : 0;
}

int soda_msg_job_serve(struct soda_msg_job *job, uint32_t rank,
		       const struct soda_wire_msg_pull *pull, struct soda_wire_msg_pulled *pulled_p,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct route r = { .job = job, .rank = rank };
	struct soda_msg_rings *rings = atomic_load(&job->ranks[rank].inbox.rings);
	uint32_t ms = pull->wait_ms < SODA_MSG_AWAIT_MS ? pull->wait_ms : SODA_MSG_AWAIT_MS;
	int ret;

	pthread_mutex_lock(&job->lock);
	while (rings->serving) /* on a connection that is lost: at most SODA_MSG_AWAIT_MS */
		pthread_cond_wait(&job->changed, &job->lock);
	rings->serving = true;
	pthread_mutex_unlock(&job->lock);
	ret = serve_until(&r, rings, pull, soda_now_ns() + ms * 1000000ull, why);
	*routed_p = r.routed;

	pthread_mutex_lock(&job->lock);
	rings->serving = false;
	pthread_cond_broadcast(&job->changed);
	*pulled_p = (struct soda_wire_msg_pulled){ 0, atomic_load(&job->reduced), job->result };
	if (ret == 0 && atomic_load(&job->broken))
		ret = broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Phases and collectives */

/*
 * The phase ends when all ranks here have finished, and each other agent has said that its ranks
 * have, behind their packets, and has heard the same from here: then all messages for ranks here
 * lie in their inboxes, and none for others' ranks here any more.
 */
static void end_phase_locked(struct soda_msg_job *job)
{
	if (job->finished != job->here_n)
		return;
	for (uint32_t i = 0; i < job->links_n; i++)
		if (job->links[i].said.done <= job->phase || job->links[i].heard_done <= job->phase)
			return;
	job->phase++;
	job->finished = 0;
	job->pushed = false;
	for (uint32_t i = 0; i < job->ranks_n; i++) {
		if (job->ranks[i].link)
			continue;
		job->ranks[i].finished = false;
		soda_inbox_end(&job->ranks[i].inbox);
	}
	pthread_cond_broadcast(&job->changed); /* RELAYs of the next phase may wait */
}

int soda_msg_job_finish(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			uint32_t phase, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	int ret;

	hear_rank(job, rank);
	pthread_mutex_lock(&job->lock);
	if (phase + 1 == job->phase || (phase == job->phase && r->finished)) {
		pthread_mutex_unlock(&job->lock); /* it has said so before */
		return 0;
	}
	ret = check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (phase != job->phase || r->ended != job->phase) {
		pthread_mutex_unlock(&job->lock);
		return refuse(why, -EINVAL, "messages: phase %u of rank %u is not under way", phase,
			      rank);
	}
	r->finished = true;
	if (++job->finished == job->here_n) {
		kick_links(job);
		end_phase_locked(job);
	}
	pthread_mutex_unlock(&job->lock);
	return 0;
}

static void add_part(struct soda_wire_msg_reduce *all, uint32_t op, uint64_t value)
{
	if (op == SODA_MSG_OP_SUM)
		all->value += value; /* as unsigned numbers, which wrap around */
	else if (op == SODA_MSG_OP_MAX && (int64_t)value > (int64_t)all->value)
		all->value = value;
}

/* Ranks ask for different collectives. rank: one of them. */
static void say_apart_locked(struct soda_msg_job *job, uint32_t rank, uint32_t op, uint32_t other)
{
	static const char *const names[] = { "", "barrier", "sum", "maximum" };

	snprintf(job->why.text, sizeof(job->why.text),
		 "messages: rank %u of the job %.120s asks for a %s where others ask for a %s",
		 rank, job->name, names[op], names[other]);
}

/*
 * A collective is complete when all ranks here have taken part, each other agent has said its
 * ranks' part, and has heard that of the ranks here.  1: it is now; 0; -ECANCELED: agents ask for
 * different ones, and the job's sentence says so.
 */
static int end_collective_locked(struct soda_msg_job *job)
{
	uint32_t number = atomic_load(&job->reduced) + 1;
	struct soda_wire_msg_reduce all = { number, job->reduce.op, job->reduce.value };

	if (job->reduce.n != job->here_n)
		return 0;
	for (uint32_t i = 0; i < job->links_n; i++) {
		const struct soda_msg_link *l = &job->links[i];
		const struct soda_wire_msg_reduce *part = &l->parts[number % 2];

		if (part->number != number || l->heard_reduce < number)
			return 0;
		if (part->op != all.op) {
			say_apart_locked(job, l->first_rank, part->op, all.op);
			return -ECANCELED;
		}
		add_part(&all, part->op, part->value);
	}
	job->result = all.value;
	job->reduce.n = 0;
	atomic_store(&job->reduced, number);
	return 1;
}

/* The same, and all that follows. Unlocks the job. 0, -ECANCELED. */
static int end_collective_unlock(struct soda_msg_job *job, struct soda_why *why)
{
	int ret = end_collective_locked(job);

	if (ret < 0) {
		if (why)
			*why = job->why;
		break_unlock(job->all, job);
		return ret;
	}
	pthread_mutex_unlock(&job->lock);
	if (ret)
		wake_all(job);
	return 0;
}

int soda_msg_job_reduce(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			const struct soda_wire_msg_reduce *r, struct soda_why *why)
{
	struct soda_wire_msg_reduce sum = { 0 };
	int ret;

	if (r->op < SODA_MSG_OP_BARRIER || r->op > SODA_MSG_OP_MAX)
		return refuse(why, -EINVAL, "messages: there is no collective %u", r->op);
	pthread_mutex_lock(&job->lock);
	if (r->number == job->ranks[rank].reduced && r->number) {
		pthread_mutex_unlock(&job->lock); /* it has taken part before */
		return 0;
	}
	ret = check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (r->number != job->ranks[rank].reduced + 1 ||
	    r->number != atomic_load(&job->reduced) + 1) {
		pthread_mutex_unlock(&job->lock);
		return refuse(why, -EINVAL, "messages: not the next collective");
	}
	if (job->reduce.n && r->op != job->reduce.op) {
		say_apart_locked(job, rank, r->op, job->reduce.op);
		*why = job->why;
		break_unlock(all, job);
		return -ECANCELED;
	}
	job->ranks[rank].reduced++;
	sum.value = job->reduce.n ? job->reduce.value : r->value;
	if (job->reduce.n)
		add_part(&sum, r->op, r->value);
	job->reduce.op = r->op;
	job->reduce.value = sum.value;
	if (++job->reduce.n == job->here_n)
		kick_links(job);
	return end_collective_unlock(job, why);
}

/* Other agents */

/* What the agent says of its ranks. -EPROTO: it cannot be so. */
static int hear_locked(struct soda_msg_job *job, struct soda_msg_link *l,
		       const struct soda_wire_msg_relay *relay)
{
	const struct soda_wire_msg_reduce *part = &relay->reduce;
	uint32_t reduced = atomic_load(&job->reduced);

	if (relay->missing > l->ranks_n || relay->left > l->ranks_n ||
	    (relay->missing && relay->first_missing >= job->ranks_n) ||
	    (relay->left && relay->first_left >= job->ranks_n) || relay->done < l->said.done ||
	    relay->done > job->phase + 2 || relay->phase > job->phase + 1)
		return -EPROTO;
	if (part->number && (part->number > reduced + 2 || part->op < SODA_MSG_OP_BARRIER ||
			     part->op > SODA_MSG_OP_MAX))
		return -EPROTO;
	if (part->number > l->parts[part->number % 2].number)
		l->parts[part->number % 2] = *part;
	l->said = *relay;
	pthread_cond_broadcast(&job->changed);
	end_phase_locked(job);
	return 0;
}

/*
 * The agent may have ended a phase that has not ended here yet: its packets of the next one wait
 * there until it has.  Returns whether they may be put.
 */
static bool await_phase_locked(struct soda_msg_job *job, const struct soda_wire_msg_relay *relay)
{
	struct timespec end = until(relay->wait_ms);

	while (job->phase < relay->phase && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
	return job->phase == relay->phase;
}

/* The RELAY's number, and what it says. As begin_answer_locked(). Unlocks the job if not 0. */
static int begin_relay_unlock(struct soda_msg_job *job, struct soda_msg_link *l,
			      const struct soda_wire_msg_relay *relay, uint8_t *taken,
			      struct soda_why *why)
{
	int ret = 0;

	if (atomic_load(&job->broken))
		ret = broken_locked(job, why);
	if (ret == 0)
		ret = begin_answer_locked(job, &l->relayed, relay->number, relay->packets, taken);
	if (ret == 0) {
		ret = hear_locked(job, l, relay);
		l->relayed.busy = ret == 0;
	}
	if (ret == -EPROTO)
		refuse(why, ret, "messages: what the agent %u says of the job %.120s cannot be",
		       l->agent, job->name);
	if (ret) {
		pthread_mutex_unlock(&job->lock);
		return ret;
	}
	if (relay->left && job->phase >= relay->phase && busy_locked(job)) {
		l->relayed.busy = false;
		say_gone_locked(job);
		*why = job->why;
		break_unlock(job->all, job);
		return -ECANCELED;
	}
	return 0;
}

int soda_msg_job_relay(struct soda_msg_job *job, struct soda_msg_link *link, const uint8_t *body,
		       const struct soda_wire_msg_relay *relay, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct route r = { .job = job,
			   .link = link,
			   .body = body + SODA_WIRE_MSG_RELAY_BYTES,
			   .packets = relay->packets,
			   .taken = taken };
	uint32_t rooms;
	bool now;
	int ret = check_ranks(&r, why);

	*routed_p = r.routed;
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = begin_relay_unlock(job, link, relay, taken, why);
	if (ret)
		return ret < 0 ? ret : 0;
	now = !relay->packets || await_phase_locked(job, relay);
	find_held_locked(&r, &link->relayed, relay);
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	if (now)
		put_or_wait(&r, rooms, relay->wait_ms);
	pthread_mutex_lock(&job->lock);
	end_answer_locked(job, &link->relayed, relay->number, &r);
	r.routed.refused = relay->packets - r.routed.packets;
	*routed_p = r.routed;
	return end_collective_unlock(job, why);
}

/* Packets that lie in the other agent's memory */

/* The rings of its ranks lie there from now on. False: something has been put already. */
static bool move_inboxes(struct soda_msg_job *job, const struct soda_msg_link *l)
{
	uint8_t *ring = l->near_out.rings;

	for (uint32_t i = 0; i < job->ranks_n; i++) {
		if (job->ranks[i].link != l)
			continue;
		if (!soda_inbox_move(&job->ranks[i].inbox, ring))
			return false; /* what has been moved is as good as where it was */
		ring += job->ranks[i].inbox.size;
	}
	return true;
}

static int make_near_locked(struct soda_msg_job *job, struct soda_msg_link *l, struct soda_why *why)
{
	int ret = l->near_out.rings ? 0
				    : soda_msg_near_make(l->ranks_n, job->ranks[0].inbox.size,
							 &l->near_out, why);

	if (ret == 0 && !l->near_out.used)
		l->near_out.used = move_inboxes(job, l);
	if (ret == 0 && !l->near_out.used)
		ret = refuse(why, -EINVAL,
			     "messages: the agent %u asks for packets' memory too late", l->agent);
	return ret;
}

int soda_msg_job_near(struct soda_msg_job *job, struct soda_msg_link *link,
		      const struct soda_peer_info *who, struct soda_wire_msg_rings *sizes_p,
		      int *fd_p, struct soda_why *why)
{
	int ret;

	/* who knows no key has not proved to belong to the job */
	if (!job->keyed && (!job->local || !who->local || who->uid != job->uid))
		return refuse(why, -EACCES,
			      "messages: the job %.120s has no key, and is another user's",
			      job->name);
	pthread_mutex_lock(&job->lock);
	ret = make_near_locked(job, link, why);
	if (ret == 0) {
		*sizes_p = (struct soda_wire_msg_rings){ SODA_MSG_PACKET_MAX,
							 (uint32_t)job->ranks[0].inbox.size };
		*fd_p = link->near_out.fd;
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Packets of one ring. How many, unless the rank's inbox is full; -EPROTO. */
static int take_ring(struct route *r, struct soda_msg_near_in *in, uint32_t ring, uint32_t to,
		     uint64_t tail)
{
	struct soda_msg_job *job = r->job;
	struct soda_wire_msg_packet p;
	const uint8_t *runs;
	int n = 0, ret;

	while ((ret = soda_msg_near_peek(in, ring, tail, &p, &runs)) > 0) {
		if (p.rank >= job->ranks_n || job->ranks[p.rank].link != r->link)
			return -EPROTO;
		if (!put_packet(r, p.rank, to, &p, runs))
			break;
		soda_msg_near_take(in, ring, &p);
		r->routed.packets++;
		r->routed.messages += p.messages;
		r->routed.bytes += p.bytes;
		n++;
	}
	return ret < 0 ? ret : n;
}

/* Of all rings. How many; -EPROTO. */
static int take_rings(struct route *r, struct soda_msg_near_in *in, const uint8_t *tails)
{
	uint32_t ring = 0;
	int n = 0, ret = 0;

	begin_turn(r->job->all);
	for (uint32_t i = 0; i < r->job->ranks_n && ret >= 0; i++) {
		if (r->job->ranks[i].link)
			continue;
		ret = take_ring(r, in, ring, i, soda_wire_get_u64(tails + 8 * (size_t)ring));
		n += ret > 0 ? ret : 0;
		ring++;
	}
	end_turn(r->job->all);
	return ret < 0 ? ret : n;
}

/* Whether a ring is filled further than it was taken. */
static bool offers_any(const struct soda_msg_near_in *in, const uint8_t *tails)
{
	for (uint32_t i = 0; i < in->ranks; i++)
		if (soda_wire_get_u64(tails + 8 * (size_t)i) != atomic_load(&in->taken[i]))
			return true;
	return false;
}

/* The same; where nothing could be taken, wait for room, and try once more. 0; -EPROTO. */
static int take_or_wait(struct route *r, struct soda_msg_near_in *in, const uint8_t *tails,
			uint32_t rooms, uint32_t wait_ms)
{
	int ret = take_rings(r, in, tails);

	if (ret == 0 && wait_ms) {
		await_room(r->job, rooms, wait_ms);
		ret = take_rings(r, in, tails);
	}
	return ret < 0 ? ret : 0;
}

/* How far each ring has been taken: zeros, where none are mapped. */
static void say_taken(const struct soda_msg_job *job, const struct soda_msg_near_in *in,
		      uint8_t *taken)
{
	for (uint32_t i = 0; i < job->here_n; i++)
		soda_wire_put_u64(taken + 8 * (size_t)i, in ? atomic_load(&in->taken[i]) : 0);
}

int soda_msg_job_offer(struct soda_msg_job *job, struct soda_msg_link *link,
		       const struct soda_wire_msg_relay *relay, const uint8_t *tails,
		       uint8_t *taken, struct soda_msg_routed *routed_p, struct soda_why *why)
{
	uint8_t none[SODA_MSG_PACKETS];
	struct route r = { .job = job, .link = link, .taken = none };
	struct soda_msg_near_in *in;
	uint32_t rooms;
	bool now;
	int ret;

	*routed_p = r.routed;
	pthread_mutex_lock(&job->lock);
	in = link->near_in;
	ret = begin_relay_unlock(job, link, relay, none, why);
	if (ret >= 0)
		say_taken(job, in, taken);
	if (ret)
		return ret < 0 ? ret : 0;
	now = in && offers_any(in, tails) && await_phase_locked(job, relay);
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	if (now)
		ret = take_or_wait(&r, in, tails, rooms, relay->wait_ms);
	pthread_mutex_lock(&job->lock);
	end_answer_locked(job, &link->relayed, relay->number, &r);
	say_taken(job, in, taken);
	*routed_p = r.routed;
	if (ret < 0) {
		pthread_mutex_unlock(&job->lock);
		return refuse(why, ret,
			      "messages: what the agent %u offers to the job %.120s makes no sense",
			      link->agent, job->name);
	}
	return end_collective_unlock(job, why);
}

uint32_t soda_msg_link_phase(struct soda_msg_link *l)
{
	uint32_t phase;

	pthread_mutex_lock(&l->job->lock);
	phase = l->job->phase;
	pthread_mutex_unlock(&l->job->lock);
	return phase;
}

bool soda_msg_link_is_near(struct soda_msg_link *l)
{
	bool near;

	pthread_mutex_lock(&l->job->lock);
	near = l->near_out.used;
	pthread_mutex_unlock(&l->job->lock);
	return near;
}

void soda_msg_link_take_near(struct soda_msg_link *l, struct soda_msg_near_in *near_in)
{
	pthread_mutex_lock(&l->job->lock);
	l->near_in = near_in;
	pthread_mutex_unlock(&l->job->lock);
}

enum soda_msg_state soda_msg_link_say(struct soda_msg_link *l, struct soda_wire_msg_relay *relay_p)
{
	struct soda_wire_msg_relay r = { .wait_ms = SODA_MSG_ROOM_MS };
	struct soda_msg_job *job = l->job;
	enum soda_msg_state state;
	uint32_t i = 0, k = 0;

	pthread_mutex_lock(&job->lock);
	state = atomic_load(&job->broken) ? SODA_MSG_JOB_BROKEN
		: job->closing		  ? SODA_MSG_JOB_ENDS
					  : SODA_MSG_JOB_RUNS;
	r.phase = job->phase;
	pthread_mutex_lock(&l->lock);
	r.done = job->phase + (job->finished == job->here_n && !l->pending);
	pthread_mutex_unlock(&l->lock);
	r.missing = job->here_n - job->come;
	r.left = job->left;
	while (r.missing && i < job->ranks_n && (job->ranks[i].link || job->ranks[i].roles == BOTH))
		i++;
	while (r.left && k < job->ranks_n && !job->ranks[k].left)
		k++;
	r.first_missing = i;
	r.first_left = k;
	if (job->reduce.n == job->here_n)
		r.reduce = (struct soda_wire_msg_reduce){ atomic_load(&job->reduced) + 1,
							  job->reduce.op, job->reduce.value };
	pthread_mutex_unlock(&job->lock);
	*relay_p = r;
	return state;
}

void soda_msg_link_heard(struct soda_msg_link *l, const struct soda_wire_msg_relay *relay)
{
	struct soda_msg_job *job = l->job;

	pthread_mutex_lock(&job->lock);
	l->heard_done = relay->done;
	if (relay->reduce.number)
		l->heard_reduce = relay->reduce.number;
	end_phase_locked(job);
	end_collective_unlock(job, NULL);
}

bool soda_msg_link_left(struct soda_msg_link *l)
{
	bool left;

	pthread_mutex_lock(&l->job->lock);
	left = l->said.left == l->ranks_n;
	pthread_mutex_unlock(&l->job->lock);
	return left;
}
