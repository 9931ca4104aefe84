/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replacement.  Of what a program does with a chunk the store sees when it maps the chunk first;
 * after that it sees nothing until it has evicted the chunk, and somebody asks for it again.  How
 * many others have arrived meanwhile says how often it is used, and where it comes:
 *
 *   trial     a short list: what was never here, or has been away for long.  A scan passes through
 *             it.  What a second program maps there is settled, too.
 *   settled   what came back while as many others arrived as there are chunks, or fewer; the
 *             sooner, the more laps it may go round before it is a victim.
 *
 * Of what comes back late one in LATE_ONE_IN is settled all the same: of a loop over more than the
 * store a part then stays.
 *
 * Ideas: 2Q (Johnson and Shasha, VLDB 1994), CLOCK, S3-FIFO (Yang et al., SOSP 2023), bimodal
 * insertion (Qureshi et al., ISCA 2007), as in the page buffer's own policy; what is new here is
 * that the mappings of several programs are seen.
 */
#include "dpu_agent/store/node_store_impl.h"

#include <pthread.h>

#include "base/log.h"

enum {
#ifdef SODA_SIMULATION
	BATCH = 4, /* stores have few chunks there */
#else
	BATCH = 16, /* chunks evicted at once: a hole in a row costs less than its parts */
#endif
	TRIAL_SHARE = 10,  /* the list `trial` may have a tenth of a user's chunks, */
	TRIAL_LEAST = 128, /* at least so many, but no more than a quarter */
	LATE_ONE_IN = 8,
};

static uint8_t laps_after(uint32_t away, uint64_t ready)
{
	return away < ready / 16 ? 7 : away < ready / 8 ? 3 : away < ready / 3 ? 1 : 0;
}

/* In which list the chunk belongs, which a program needs now, and for how long. */
static void judge_locked(struct soda_node_chunk *c)
{
	struct soda_node_user *u = c->object->user;
	uint32_t away = u->arrivals - c->left;

	c->settled = c->left && (away <= soda_node_ready(u) || u->arrivals % LATE_ONE_IN == 0);
	c->laps = c->settled ? laps_after(away, soda_node_ready(u)) : 0;
}

/* A chunk that is READY, and in no list: it becomes its list's newest, unless it is pinned. */
static void enlist_locked(struct soda_node_chunk *c)
{
	if (!c->pins)
		soda_node_link_newest_locked(c);
}

/* A program has used a chunk that was brought ahead and is in no list now: it is as any other. */
static void become_used_locked(struct soda_node_chunk *c)
{
	soda_node_count_used_locked(c);
	judge_locked(c);
}

/* The same of a READY chunk, wherever it is. */
void soda_node_use_locked(struct soda_node_chunk *c)
{
	if (!c->pins)
		soda_node_unlink_locked(c);
	become_used_locked(c);
	enlist_locked(c);
}

void soda_node_arrive_locked(struct soda_node_chunk *c)
{
	struct soda_node_object *o = c->object;
	struct soda_node_user *u = o->user;

	soda_node_take_touch(c); /* forget a touch that came when the chunk was leaving */
	c->state = SODA_NODE_CHUNK_READY;
	soda_node_publish(c, SODA_STORE_READY);
	if (!++u->arrivals)
		u->arrivals = 1;
	if (c->ahead) {
		o->store->stats.ahead++;
		o->store->stats.bytes_ahead += soda_node_bytes(o, soda_node_index(c));
	}
	c->settled = false;
	c->laps = 0;
	if (c->ahead && c->waiters)
		become_used_locked(c);
	else if (!c->ahead)
		judge_locked(c);
	enlist_locked(c);
}

/* Eviction */

struct batch {
	struct soda_node_chunk *chunks[BATCH];
	int n;
};

/* Programs' streams read ahead into trial: in a small store it is more than a tenth. */
static uint64_t trial_share(uint64_t ready)
{
	uint64_t least = ready / 4 < TRIAL_LEAST ? ready / 4 : TRIAL_LEAST;

	return ready / TRIAL_SHARE > least ? ready / TRIAL_SHARE : least;
}

/* How many chunks of each list may still be looked at: an eviction looks at each once. */
struct looks {
	uint64_t trial, settled;
};

static struct looks at_all_of(const struct soda_node_user *u)
{
	return (struct looks){ u->trial.n, u->settled.n };
}

/*
 * The next that may be a victim: of trial, as long as it has more than its share, else of settled;
 * of the other one where all of that list was looked at.  NULL: all of both was.
 */
static struct soda_node_chunk *next_locked(const struct soda_node_user *u, struct looks *looks)
{
	bool trial = u->trial.n > trial_share(soda_node_ready(u)) || !u->settled.n;
	uint64_t *left = trial ? &looks->trial : &looks->settled;

	if (!*left) {
		trial = !trial;
		left = trial ? &looks->trial : &looks->settled;
	}
	if (!*left)
		return NULL;
	--*left;
	return trial ? u->trial.oldest : u->settled.oldest;
}

/* Whether more than one program has joined: the stream of one alone passes what it brought itself.
 */
static bool has_company_locked(const struct soda_node_object *o)
{
	return o->members & (o->members - 1);
}

/*
 * Whether the chunk, which is in no list now, stays: another program has mapped it since it was
 * looked at last, or it has come back so soon that it may go round once more.  A program that is
 * alone maps by its stream what its own READs ahead have brought, which is one use and not two.
 */
static bool stays_locked(struct soda_node_chunk *c)
{
	enum soda_store_touch touched = soda_node_take_touch(c);

	if (touched && c->ahead) {
		become_used_locked(c);
		return true;
	}
	if (touched == SODA_STORE_TOUCHED || (touched && has_company_locked(c->object))) {
		c->settled = true;
		return true;
	}
	if (!c->laps)
		return false;
	c->laps--;
	return true;
}

/* Up to max chunks (BATCH or fewer) that are to go. any: whatever may speak for them. */
static void choose_locked(struct soda_node_user *u, struct batch *b, struct looks *looks, bool any,
			  int max)
{
	struct soda_node_chunk *c;

	b->n = 0;
	while (b->n < max && (c = next_locked(u, looks))) {
		soda_node_unlink_locked(c);
		if (!any && stays_locked(c)) {
			soda_node_link_newest_locked(c);
			continue;
		}
		c->state = SODA_NODE_CHUNK_CHOSEN;
		c->held = false;
		soda_node_publish(c, SODA_STORE_EMPTY);
		b->chunks[b->n++] = c;
	}
}

static void mark_held_of(struct soda_node_object *o, uint32_t member)
{
	_Atomic uint32_t *ring = soda_store_member(o->map, o->chunks_n, member);

	for (uint32_t i = 0; i < SODA_STORE_RINGS * SODA_STORE_LAST; i++) {
		uint32_t at = atomic_load(&ring[i]); /* seq_cst: see store_map.h */

		if (at && at <= o->chunks_n && o->chunks[at - 1].state == SODA_NODE_CHUNK_CHOSEN)
			o->chunks[at - 1].held = true;
	}
}

/* Which of the chosen are among some thread's last ones. */
static void mark_held_locked(struct batch *b)
{
	const struct soda_node_object *done = NULL;

	for (int i = 0; i < b->n; i++) {
		struct soda_node_object *o = b->chunks[i]->object;

		if (o == done)
			continue;
		for (uint32_t m = 0; m < SODA_STORE_MEMBERS; m++)
			if (o->members >> m & 1)
				mark_held_of(o, m);
		done = o;
	}
}

/* Those that are held stay; the others are EVICTING. */
static void keep_held_locked(struct soda_node_store *store, struct batch *b)
{
	int n = 0;

	for (int i = 0; i < b->n; i++) {
		struct soda_node_chunk *c = b->chunks[i];

		if (c->held) {
			store->stats.held++;
			c->state = SODA_NODE_CHUNK_READY;
			soda_node_publish(c, SODA_STORE_READY);
			soda_node_link_newest_locked(c);
			continue;
		}
		c->state = SODA_NODE_CHUNK_EVICTING;
		c->generation++;
		soda_node_publish(c, SODA_STORE_EMPTY);
		b->chunks[n++] = c;
	}
	b->n = n;
}

/*
 * Whose chunks go: the asker's, if it has its share of the budget; else those of the user that has
 * most.
 */
static struct soda_node_user *victim_locked(const struct soda_node_store *store,
					    struct soda_node_user *asker)
{
	struct soda_node_user *most = asker;

	if (soda_node_ready(asker) && asker->used >= store->stats.capacity / store->users_n)
		return asker;
	for (struct soda_node_user *u = store->users; u; u = u->next)
		if (soda_node_ready(u) && (!soda_node_ready(most) || u->used > most->used))
			most = u;
	return most;
}

/* Of what nobody holds a batch, if there is any. any: as in choose_locked. */
static void pick_free_locked(struct soda_node_store *store, struct soda_node_user *u,
			     struct batch *b, bool any)
{
	struct looks looks = at_all_of(u);

	b->n = 0;
	while (!b->n && (looks.trial || looks.settled)) {
		choose_locked(u, b, &looks, any, BATCH);
		mark_held_locked(b);
		keep_held_locked(store, b);
	}
}

/* What nobody holds, nor anything else speaks for; what nobody holds; the oldest, held or not. */
static void pick_locked(struct soda_node_store *store, struct soda_node_user *asker,
			struct batch *b)
{
	struct soda_node_user *u = victim_locked(store, asker);
	struct looks looks;

	pick_free_locked(store, u, b, false);
	if (!b->n)
		pick_free_locked(store, u, b, true);
	if (b->n)
		return;
	looks = at_all_of(u);
	choose_locked(u, b, &looks, true, 1);
	store->stats.forced += (uint64_t)b->n;
	keep_held_locked(store, b);
}

/* How many from the i-th on lie in a row in one memfd. */
static int run_at(const struct batch *b, int i)
{
	int n = 1;

	while (i + n < b->n && b->chunks[i + n] == b->chunks[i + n - 1] + 1 &&
	       b->chunks[i + n]->object == b->chunks[i]->object &&
	       soda_node_part(b->chunks[i + n]) == soda_node_part(b->chunks[i]))
		n++;
	return n;
}

/* Without the lock. How many were. */
static int punch(struct soda_node_store *store, struct batch *b, int *errs)
{
	int punched = 0;

	for (int i = 0, n; i < b->n; i += n) {
		const struct soda_node_chunk *last;
		uint64_t at = soda_node_offset(b->chunks[i]);
		int ret;

		n = run_at(b, i);
		last = b->chunks[i + n - 1];
		ret = store->memory->punch(
			soda_node_part(b->chunks[i])->fd, soda_node_part_offset(b->chunks[i]),
			soda_node_offset(last) +
				soda_node_bytes(last->object, soda_node_index(last)) - at);
		for (int k = i; k < i + n; k++)
			errs[k] = ret;
		punched += ret ? 0 : n;
		if (ret)
			soda_log_error("the node's store cannot give memory back: %s",
				       soda_strerror(ret));
	}
	return punched;
}

static struct soda_node_object *settle_evicted_locked(struct soda_node_store *store,
						      struct soda_node_chunk *c, int err)
{
	struct soda_node_waiter *waiters = c->waiters;

	if (!err) {
		store->stats.evictions++;
		store->stats.bytes_evicted += soda_node_bytes(c->object, soda_node_index(c));
		if (!soda_node_end_ahead_locked(c)) /* else it does not come back: nobody had it */
			c->left = c->object->user->arrivals;
		soda_node_empty_locked(c);
		return soda_node_drop_locked(c->object);
	}
	c->state = SODA_NODE_CHUNK_READY;
	c->waiters = NULL;
	enlist_locked(c);
	soda_node_publish(c, SODA_STORE_READY);
	soda_node_send_back_locked(store, waiters);
	return NULL;
}

int soda_node_evict(struct soda_node_store *store, struct soda_node_user *asker)
{
	struct soda_node_object *dead = NULL, *o;
	struct batch b;
	int errs[BATCH], n;

	pthread_mutex_lock(&store->lock);
	pick_locked(store, asker, &b);
	pthread_mutex_unlock(&store->lock);
	n = punch(store, &b, errs);
	pthread_mutex_lock(&store->lock);
	for (int i = 0; i < b.n; i++) {
		o = settle_evicted_locked(store, b.chunks[i], errs[i]);
		if (!o)
			continue;
		o->next = dead;
		dead = o;
	}
	pthread_mutex_unlock(&store->lock);
	while (dead) {
		o = dead->next;
		soda_node_free_object(dead);
		dead = o;
	}
	return n;
}

static bool is_over(struct soda_node_store *store)
{
	bool over;

	pthread_mutex_lock(&store->lock);
	over = store->stats.used > store->stats.capacity;
	pthread_mutex_unlock(&store->lock);
	return over;
}

void soda_node_make_room(struct soda_node_store *store, struct soda_node_user *asker)
{
	while (is_over(store) && soda_node_evict(store, asker))
		;
}
