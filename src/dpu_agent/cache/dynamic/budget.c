/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/budget.h"

#include "base/limits.h"

#define PART_NS (SODA_BUDGET_WINDOW_MS * SODA_MS_NS / SODA_BUDGET_PARTS)

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t permille(uint64_t bytes, unsigned n)
{
	return bytes / 1000 * n + bytes % 1000 * n / 1000;
}

/* The window. */

static void subtract(struct soda_budget_sums *from, const struct soda_budget_sums *what)
{
	from->asked -= what->asked;
	from->given -= what->given;
	from->bought -= what->bought;
	from->unused -= what->unused;
}

static void add(struct soda_budget_sums *to, const struct soda_budget_sums *what)
{
	to->asked += what->asked;
	to->given += what->given;
	to->bought += what->bought;
	to->unused += what->unused;
}

static void window_add(struct soda_budget_window *w, const struct soda_budget_sums *what)
{
	add(&w->all, what);
	add(&w->parts[w->part_now % SODA_BUDGET_PARTS], what);
}

void soda_budget_window_look(struct soda_budget_window *w, uint64_t now_ns)
{
	uint64_t now = now_ns / PART_NS;

	if (now >= w->part_now + SODA_BUDGET_PARTS) {
		*w = (struct soda_budget_window){ .part_now = now };
		return;
	}
	while (w->part_now < now) {
		struct soda_budget_sums *part = &w->parts[++w->part_now % SODA_BUDGET_PARTS];

		subtract(&w->all, part);
		*part = (struct soda_budget_sums){ 0 };
	}
}

double soda_budget_surplus(const struct soda_budget_sums *sums)
{
	if (!sums->asked)
		return 0;
	return ((double)sums->bought - (double)sums->given) / (double)sums->asked;
}

/* The pool. */

void soda_budget_pool_init(struct soda_budget_pool *pool, uint64_t entry_bytes)
{
	*pool = (struct soda_budget_pool){ .entry_bytes = entry_bytes,
					   .bytes = SODA_BUDGET_POOL * entry_bytes,
					   .reserve = SODA_BUDGET_RESERVE * entry_bytes };
}

static void reserve_take_in(struct soda_budget_pool *pool, uint64_t bytes)
{
	pool->reserve = smaller(pool->reserve + bytes, SODA_BUDGET_RESERVE * pool->entry_bytes);
}

/* What the pool has no room for goes to the reserve. */
static void pool_take_in(struct soda_budget_pool *pool, uint64_t bytes)
{
	uint64_t repaid = smaller(pool->owed, bytes), room;

	pool->owed -= repaid;
	bytes -= repaid;
	room = SODA_BUDGET_POOL * pool->entry_bytes - pool->bytes;
	pool->bytes += smaller(bytes, room);
	reserve_take_in(pool, bytes - smaller(bytes, room));
}

void soda_budget_ruled(struct soda_budget_pool *pool, uint64_t bytes)
{
	uint64_t paid = smaller(pool->bytes, bytes);

	pool->bytes -= paid;
	pool->owed += bytes - paid;
}

void soda_budget_ruled_given(struct soda_budget_pool *pool, uint64_t bytes)
{
	pool->owed -= smaller(pool->owed, bytes);
}

/* An owner. */

static void credit(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t bytes)
{
	uint64_t repaid = smaller(b->lent, bytes);

	b->lent -= repaid;
	pool_take_in(pool, repaid);
	bytes -= repaid;
	repaid = smaller(b->lent_reserve, bytes);
	b->lent_reserve -= repaid;
	reserve_take_in(pool, repaid);
	b->own += bytes - repaid;
}

static bool has_shown_itself(const struct soda_budget *b, const struct soda_budget_pool *pool)
{
	return b->shown >= SODA_BUDGET_SHOWN * pool->entry_bytes;
}

/* More than the owner may have saved goes to the pool; who has not shown itself saves a line. */
static void bound(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns)
{
	uint64_t most;

	soda_budget_window_look(&b->window, now_ns);
	most = permille(b->window.all.asked, SODA_BUDGET_SAVED);
	if (!has_shown_itself(b, pool))
		most = smaller(most, SODA_BUDGET_LINE * pool->entry_bytes);
	if (b->own > most) {
		pool_take_in(pool, b->own - most);
		b->own = most;
	}
}

/* What is left of the owner's line; the pool may have less. */
static uint64_t line(const struct soda_budget *b, const struct soda_budget_pool *pool)
{
	uint64_t most = SODA_BUDGET_LINE * pool->entry_bytes;

	return most > b->lent ? most - b->lent : 0;
}

/* Likewise of what its trust is worth; the reserve may have less. */
static uint64_t trusted(const struct soda_budget *b)
{
	uint64_t most = b->trust / SODA_BUDGET_TRUST_USED;

	return most > b->lent_reserve ? most - b->lent_reserve : 0;
}

/* What could be lent to it now. */
static uint64_t loan(const struct soda_budget *b, const struct soda_budget_pool *pool)
{
	return smaller(line(b, pool), pool->bytes) + smaller(trusted(b), pool->reserve);
}

uint64_t soda_budget_left(const struct soda_budget *b, const struct soda_budget_pool *pool)
{
	return b->ended ? 0 : b->own + loan(b, pool);
}

/* What has been used, and what was wasted: the reserve takes the loss of what it lent for that. */
static void judge(struct soda_budget *b, const struct soda_budget_pool *pool, uint64_t used,
		  uint64_t unused)
{
	uint64_t most = SODA_BUDGET_TRUST * SODA_BUDGET_TRUST_USED * pool->entry_bytes;

	b->trust = smaller(b->trust + used, most);
	b->trust -= smaller(b->trust, unused * SODA_BUDGET_TRUST_WASTE);
	b->lent_reserve -= smaller(b->lent_reserve, unused);
}

static void forget_turns(struct soda_budget *b)
{
	b->asked = b->shown = b->turn_asked = b->trust = 0;
	b->turn_used[0] = b->turn_used[1] = 0;
	b->turn_poor[0] = b->turn_poor[1] = false;
}

static void end(struct soda_budget *b, struct soda_budget_pool *pool)
{
	if (has_shown_itself(b, pool))
		b->ends_unshown = 0;
	b->hold = SODA_BUDGET_HOLD * pool->entry_bytes
		  << smaller(b->ends_unshown, SODA_BUDGET_HOLD_DOUBLED);
	b->ends_unshown++;
	b->ends++;
	pool->ends++;
	forget_turns(b);
	b->ended = true;
}

static void let_in(struct soda_budget *b, const struct soda_budget_pool *pool)
{
	if (b->asked < b->hold || b->own + loan(b, pool) < pool->entry_bytes)
		return;
	forget_turns(b);
	b->ended = false;
}

static void turn(struct soda_budget *b, struct soda_budget_pool *pool)
{
	if (b->turn_poor[0] && b->turn_poor[1] &&
	    b->turn_used[0] + b->turn_used[1] < pool->entry_bytes) {
		end(b, pool);
		return;
	}
	b->turn_asked = 0;
	b->turn_used[1] = b->turn_used[0];
	b->turn_poor[1] = b->turn_poor[0];
	b->turn_used[0] = 0;
	b->turn_poor[0] = false;
}

/* The reserve first, so that the pool is left to newcomers. */
static void pay(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t own, uint64_t lent)
{
	uint64_t reserve = smaller(lent, smaller(trusted(b), pool->reserve));

	b->own -= own;
	b->lent_reserve += reserve;
	pool->reserve -= reserve;
	b->lent += lent - reserve;
	pool->bytes -= lent - reserve;
}

/* What had paid back and was not given: bought a second time, and owed where it cannot be paid. */
static void charge(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t bytes)
{
	uint64_t own = smaller(b->own, bytes), lent = smaller(bytes - own, loan(b, pool));

	pay(b, pool, own, lent);
	soda_budget_ruled(pool, bytes - own - lent);
}

void soda_budget_note(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
		      const struct soda_budget_news *news)
{
	struct soda_budget_sums sums = { news->asked, news->given, news->failed, news->unused };

	soda_budget_window_look(&b->window, now_ns);
	soda_budget_window_look(&pool->window, now_ns);
	window_add(&b->window, &sums);
	window_add(&pool->window, &sums);
	credit(b, pool, news->given + permille(news->asked, SODA_BUDGET_OWN));
	pool_take_in(pool, permille(news->asked, SODA_BUDGET_REFILL));
	charge(b, pool, news->failed);
	judge(b, pool, news->used, news->unused);
	bound(b, pool, now_ns);
	b->used += news->used;
	b->unused += news->unused;
	b->shown += news->used;
	b->asked += news->asked;
	b->turn_asked += news->asked;
	b->turn_used[0] += news->used;
	if (b->ended)
		let_in(b, pool);
	else if (b->turn_asked >= SODA_BUDGET_TURN * pool->entry_bytes)
		turn(b, pool);
}

static void count_bought(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
			 uint64_t bytes)
{
	struct soda_budget_sums sums = { .bought = bytes };

	soda_budget_window_look(&b->window, now_ns);
	soda_budget_window_look(&pool->window, now_ns);
	window_add(&b->window, &sums);
	window_add(&pool->window, &sums);
}

bool soda_budget_buy(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
		     uint64_t bytes)
{
	uint64_t own, rest;

	bound(b, pool, now_ns);
	if (b->ended)
		return false;
	own = smaller(b->own, bytes);
	rest = bytes - own;
	if (rest > line(b, pool) + trusted(b)) {
		b->turn_poor[0] = true;
		return false;
	}
	if (rest > loan(b, pool)) /* others have it: no fault of this owner */
		return false;
	pay(b, pool, own, rest);
	count_bought(b, pool, now_ns, bytes);
	return true;
}

void soda_budget_buy_anyway(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
			    uint64_t bytes)
{
	uint64_t own;

	bound(b, pool, now_ns);
	own = smaller(b->own, bytes);
	pay(b, pool, own, smaller(bytes - own, loan(b, pool)));
	count_bought(b, pool, now_ns, bytes);
}

/* The part of the window that it was bought in may be over: it counts as given. */
void soda_budget_refund(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
			uint64_t bytes)
{
	struct soda_budget_sums sums = { .given = bytes };

	soda_budget_window_look(&pool->window, now_ns);
	credit(b, pool, bytes);
	bound(b, pool, now_ns);
	window_add(&b->window, &sums);
	window_add(&pool->window, &sums);
}

void soda_budget_leave(struct soda_budget *b, struct soda_budget_pool *pool)
{
	pool_take_in(pool, b->own);
	b->own = b->lent = b->lent_reserve = 0;
}
