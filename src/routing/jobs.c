/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of jobs: who makes one, finds it, comes back to it, and when it is freed.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
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
#include "routing/jobs_impl.h"

const struct soda_msg_tuning soda_msg_tuning_usual = { .inbox_bytes = SODA_MSG_INBOX_MOST,
						       .transfer_bytes = SODA_MSG_TRANSFER,
						       .wait_us = SODA_MSG_LINK_FLUSH_US };

/*
 * Take a client out of the list whose time is over, or NULL.  One: where the lock is released, who
 * comes back and is lost again uses the link of another one.  *next_ns_p: when the next one's is.
 */
static struct soda_msg_away *take_overdue_locked(struct soda_msg_jobs *all, uint64_t *next_ns_p)
{
	uint64_t now = soda_now_ns();

	*next_ns_p = UINT64_MAX;
	for (struct soda_msg_away **at = &all->away; *at; at = &(*at)->next) {
		struct soda_msg_away *a = *at;

		if (all->stopping || a->until_ns <= now) {
			*at = a->next;
			return a;
		}
		if (a->until_ns < *next_ns_p)
			*next_ns_p = a->until_ns;
	}
	return NULL;
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
		if (a) { /* in its job, to which it has a reference */
			struct soda_msg_job *job = a->job;

			a->job = NULL;
			pthread_mutex_unlock(&all->lock);
			soda_msg_job_leave(all, job, a->rank);
			soda_msg_job_put(job, true);
			pthread_mutex_lock(&all->lock);
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

static int make_own(struct soda_job_pair **own_p)
{
	struct soda_job_pair *own = soda_secret_new(sizeof(*own));
	int ret = own ? soda_job_pair_draw(own) : -ENOMEM;

	if (ret < 0)
		soda_secret_free(own, sizeof(*own));
	else
		*own_p = own;
	return ret;
}

int soda_msg_jobs_challenge(struct soda_msg_jobs *all, struct soda_wire_msg_challenge *c_p,
			    struct soda_why *why)
{
	struct soda_wire_msg_challenge c;
	int ret;

	pthread_mutex_lock(&all->lock);
	ret = all->own ? 0 : make_own(&all->own);
	if (ret == 0)
		memcpy(c.router, all->own->shown, sizeof(c.router));
	pthread_mutex_unlock(&all->lock);
	if (ret == 0)
		ret = soda_random(c.nonce, sizeof(c.nonce));
	if (ret < 0)
		return soda_msg_refuse(why, ret, "messages: the agent cannot check a job's key: %s",
				       ret == -ENOTSUP ? "it needs OpenSSL (Debian: libssl3)"
						       : soda_strerror(ret));
	*c_p = c;
	return 0;
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
	assert(!all->reserved.all && !all->list && !all->away);
	soda_shares_free(&all->reserved);
	soda_secret_free(all->own, sizeof(*all->own));
	sem_destroy(&all->turns);
	pthread_cond_destroy(&all->changed);
	pthread_cond_destroy(&all->fewer);
	pthread_mutex_destroy(&all->lock);
}

void soda_msg_job_unlist(struct soda_msg_jobs *all, struct soda_msg_job *job)
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

uint64_t soda_msg_jobs_left_locked(const struct soda_msg_jobs *all, uint32_t tenant)
{
	const struct soda_msg_owners *owners = &all->owners;
	uint32_t tenants = owners->tenants ? owners->tenants(owners->arg) : 0;

	return soda_shares_left(&all->reserved, all->budget,
				(struct soda_holder){ tenant, tenants });
}

/*
 * Bytes of one rank's inbox in a new job: as many as may be, of what is left for its tenant, and
 * beside which all ranks may have rings, if they can.  0: too little is left.
 */
static uint64_t inbox_bytes(const struct soda_msg_jobs *all, uint32_t ranks, uint64_t left,
			    bool local)
{
	uint64_t bytes = all->tuning.inbox_bytes;
	uint64_t rings = local ? ranks * soda_msg_rings_bytes(ranks) : 0;

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
		l->relayed.at = l->last_relayed;
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
	memcpy(job->grant, join->grant, sizeof(job->grant));
	job->keyed = memcmp(join->key, none, sizeof(none)) != 0;
	job->local = who->local;
	job->tenant = who->tenant;
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
		r->pushed.at = r->last_pushed;
	}
	if (find_hops(job, place) < 0) {
		destroy(job);
		return NULL;
	}
	return job;
}

static struct soda_msg_job *find_locked(const struct soda_msg_jobs *all, uint32_t tenant,
					const char *name, size_t bytes)
{
	struct soda_msg_job *job = all->list;

	while (job && (job->tenant != tenant || strlen(job->name) != bytes ||
		       memcmp(job->name, name, bytes) != 0))
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
		return soda_msg_refuse(
			why, -EACCES, "messages: the job %s is another one, of another key or user",
			job->name);
	if (job->ranks_n != join->ranks)
		return soda_msg_refuse(why, -EINVAL,
				       "messages: the job %s has %u ranks, and rank %u says %u",
				       job->name, job->ranks_n, join->rank, join->ranks);
	if (job->shape != soda_wire_msg_shape(join, place) || job->here != join->here)
		return soda_msg_refuse(
			why, -EINVAL,
			"messages: rank %u of the job %.120s names other agents, or other "
			"places of ranks, than the first rank here has",
			join->rank, job->name);
	return 0;
}

static int take_place(struct soda_msg_job *job, const struct soda_wire_msg_join *join,
		      const struct soda_peer_info *who, const void *owner, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[join->rank];
	int ret = 0;

	pthread_mutex_lock(&job->lock);
	if (r->roles & 1u << join->role) {
		ret = soda_msg_refuse(
			why, -EBUSY, "messages: rank %u of the job %s %s (pid %d)", join->rank,
			job->name, r->left ? "has left, and others have not" : "is there already",
			(int)r->pid);
	} else {
		r->roles |= 1u << join->role;
		r->life[join->role - 1] = join->life;
		r->owner[join->role - 1] = owner;
		r->pid = who->local ? who->pid : 0;
		job->come += r->roles == SODA_MSG_BOTH;
		pthread_cond_broadcast(&job->changed);
		if (job->come == job->here_n)
			soda_msg_job_kick_links(job);
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
		return soda_msg_refuse(why, -ESTALE,
				       "messages: the job has ended while rank %u was away",
				       join->rank);
	pthread_mutex_lock(&job->lock);
	same = r->life[join->role - 1] == join->life && !r->left;
	if (same)
		r->owner[join->role - 1] = owner;
	pthread_mutex_unlock(&job->lock);
	if (!same)
		return soda_msg_refuse(why, -ESTALE, "messages: rank %u has been away for too long",
				       join->rank);
	if (!end_away_locked(all, &r->away[join->role - 1])) {
		job->clients++;
		job->refs++;
	}
	atomic_fetch_add(&all->returned, 1);
	*job_p = job;
	return 0;
}

/* A new job, which is in the list. */
static int make_locked(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		       const struct soda_wire_msg_place *place, const struct soda_peer_info *who,
		       struct soda_msg_job **job_p, struct soda_why *why)
{
	uint64_t left = soda_msg_jobs_left_locked(all, who->tenant);
	uint64_t each = inbox_bytes(all, join->ranks, left, who->local);
	struct soda_msg_job *job;

	if (!each)
		return soda_msg_refuse(
			why, -ENOSPC,
			"messages: %u ranks need %llu KiB of the agent's"
			" --msg-memory, and %llu KiB are left%s",
			join->ranks, (unsigned long long)join->ranks * (SODA_MSG_INBOX_LEAST >> 10),
			(unsigned long long)left >> 10,
			left < all->budget - all->reserved.all
				? ", beside what is kept for other tenants"
				: "");
	if (soda_shares_prepare(&all->reserved, who->tenant))
		return -ENOMEM;
	job = make(all, join, place, who, each);
	if (!job)
		return -ENOMEM;
	soda_shares_take(&all->reserved, who->tenant, job->memory_bytes); /* prepared */
	job->next = all->list;
	all->list = job;
	all->n++;
	*job_p = job;
	return 0;
}

static int join_locked(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		       const struct soda_wire_msg_place *place, const struct soda_peer_info *who,
		       const void *owner, struct soda_msg_job **job_p, bool *made_p,
		       struct soda_why *why)
{
	struct soda_msg_job *job = find_locked(all, who->tenant, place->name, join->name_bytes);
	int ret = 0;

	*made_p = !job && !join->again;
	if (join->again) {
		ret = job ? check_same(job, join, place, who, why) : 0;
		return ret < 0 ? ret : return_locked(all, job, join, owner, job_p, why);
	}
	ret = job ? check_same(job, join, place, who, why)
		  : make_locked(all, join, place, who, &job, why);
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
		return soda_msg_refuse(why, -EINVAL, "messages: not a name of a job");
	if (!join->ranks || join->ranks > SODA_MSG_RANKS || join->rank >= join->ranks ||
	    (join->role != SODA_MSG_PUSHES && join->role != SODA_MSG_PULLS))
		return soda_msg_refuse(why, -EINVAL, "messages: rank %u of %u is impossible",
				       join->rank, join->ranks);
	if (place->places && place->places[join->rank] != join->here)
		return soda_msg_refuse(
			why, -EINVAL,
			"messages: rank %u belongs to the agent %u of its list, and says "
			"that this is the agent %u",
			join->rank, place->places[join->rank], join->here);
	end = soda_wait_until(SODA_MSG_GOODBYE_MS);
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
		return soda_msg_refuse(why, -EACCES,
				       "messages: the job %s is another one here, of another key",
				       job->name);
	if (!link->shape || job->shape != link->shape || job->ranks_n != link->ranks ||
	    job->agents != link->agents || job->here != link->to || !link_of(job, link->from))
		return soda_msg_refuse(
			why, -EINVAL,
			"messages: different lists of agents and ranks are known to the "
			"agents %u and %u of the job %.60s",
			link->from, link->to, job->name);
	return 0;
}

static int link_locked(struct soda_msg_jobs *all, const struct soda_wire_msg_link *link,
		       const char *name, size_t name_bytes, uint32_t tenant,
		       struct soda_msg_job **job_p, struct soda_msg_link **link_p,
		       struct soda_why *why)
{
	struct soda_msg_job *job = find_locked(all, tenant, name, name_bytes);
	struct soda_msg_link *l;
	bool same;
	int ret;

	if (!job)
		return soda_msg_refuse(why, -EBUSY, "messages: no rank of this job has come here");
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
		return soda_msg_refuse(why, -EBUSY,
				       "messages: the agent %u has begun the job %.120s once more",
				       l->agent, job->name);
	job->refs++;
	*job_p = job;
	*link_p = l;
	return 0;
}

int soda_msg_job_link(struct soda_msg_jobs *all, const struct soda_wire_msg_link *link,
		      const char *name, size_t name_bytes, uint32_t tenant,
		      struct soda_msg_job **job_p, struct soda_msg_link **link_p,
		      struct soda_why *why)
{
	int ret;

	pthread_mutex_lock(&all->lock);
	ret = link_locked(all, link, name, name_bytes, tenant, job_p, link_p, why);
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
		soda_shares_put(&all->reserved, job->tenant, job->memory_bytes + job->rings_bytes);
	} else if (closing) {
		pthread_mutex_lock(&job->lock);
		job->closing = true;
		soda_msg_job_kick_links(job);
		pthread_mutex_unlock(&job->lock);
	}
	if (last)
		destroy(job);
	pthread_cond_broadcast(&all->fewer);
	pthread_mutex_unlock(&all->lock);
}
