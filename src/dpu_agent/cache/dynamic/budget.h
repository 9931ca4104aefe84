/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What may be fetched ahead, in bytes, so that the agent never moves much more than its programs
 * ask for.  What is fetched ahead is bought: an owner pays for every byte when the fetch begins,
 * and a byte that a program asks for and gets from the cache, which the program would have fetched
 * else, pays back one: at the request, also where that has to wait for the fetch to end.  So what
 * has been paid and not come back is what the agent has moved beyond its programs' requests:
 * entries that are still there and young, and waste.
 *
 *   asked for by programs --2 %--> the owner's own credit <--pays back-- given from the cache
 *            |                        |        ^ |
 *            0.5 %                    buys     | what is over its bound
 *            v                        v        | v
 *   pool and reserve --lend, some entries--> a fetch ahead
 *
 *   own credit   2 % of what the owner is asked for; kept of it is at most 0.5 % of what the owner
 *                was asked for within the last seconds (what was saved long ago is no licence),
 *                and at most two entries until it has shown itself.
 *   pool         the agent's start-up allowance, of a few entries in all, for owners that have no
 *                credit of their own yet.  An owner may owe it a line of two entries.  What comes
 *                back to an owner repays the pool first.  What an owner that is gone owed is lost;
 *                0.5 % of all demand fills the pool again.
 *   reserve      likewise, of more entries, for owners of which little is wasted: a busy link wants
 *                several entries of each stream under way, and the end of every stream wastes some.
 *                An owner's *trust* says how much it may owe the reserve.  SODA_BUDGET_TRUST_USED
 *                bytes used give a byte of trust, and a byte wasted takes away what
 *                SODA_BUDGET_TRUST_WASTE bytes used have given.  So a scan has all of it after 56
 *                entries, and who wastes 3 % of what it uses has none.  What is wasted of a loan of
 *                the reserve is the reserve's loss, so that a scan goes on after its waste has come
 *                to light.  The reserve is filled when the pool is full.
 *
 * Nobody can buy what it cannot pay.  So in any time the bytes fetched ahead, less those given from
 * the cache, are at most
 *
 *     2.5 % of the demand of that time
 *   + 0.5 % of the demand of the SODA_BUDGET_WINDOW_MS before it  (own credit that was saved)
 *   + SODA_BUDGET_POOL + SODA_BUDGET_RESERVE entries              (the pool; the reserve)
 *
 * which is 3 % of demand and the start-up allowance wherever the demand of one such window is not
 * far above that of the next; the reserve is risked only by owners that have used four times what
 * they may owe it.  Owners do not pay for one another: one that wastes all it has loses its own
 * credit, its line, and its trust.
 *
 * An owner is ended when over two turns (of SODA_BUDGET_TURN entries of its own demand) it could
 * not pay what it wanted and less than one entry of what it had bought was used.  (Turns are
 * counted in demand, so that a program that computes for a while loses nothing.)  While ended
 * nothing is bought; what is under way arrives and stays, and pays back if it is asked for after
 * all.  It is let in again after some demand, twice as much each time that it is ended without
 * having shown itself, once it can pay an entry.  That try is paid by what it has earned meanwhile.
 *
 * What is loaded into the static cache because a rule of the operator says so was asked for by no
 * program: the pool owes it, and lends nothing until demand, and requests answered from those
 * ranges, have made it good.  What a program asks for (SODA_STATIC_CACHE) is that program's demand.
 *
 * No lock, no clock: both are the caller's.
 */
#ifndef SODA_DPU_BUDGET_H
#define SODA_DPU_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum {
	SODA_BUDGET_WINDOW_MS = 4000, /* "the last seconds"... */
	SODA_BUDGET_PARTS = 8,	      /* ...in so many parts */
	SODA_BUDGET_PERMILLE = 30,    /* of demand, in all; of it: */
	SODA_BUDGET_OWN = 20,	      /* earned by an owner */
	SODA_BUDGET_SAVED = 5,	      /* of a window's demand: most that an owner may have saved */
	SODA_BUDGET_REFILL = 5,	      /* for the pool */

	/* in entries of the cache */
	SODA_BUDGET_POOL = 8,
	SODA_BUDGET_RESERVE = 16,
	SODA_BUDGET_LINE = 2,	      /* that an owner may owe the pool */
	SODA_BUDGET_TRUST = 14,	      /* most that an owner may owe the reserve */
	SODA_BUDGET_SHOWN = 8,	      /* used: it has shown itself */
	SODA_BUDGET_TURN = 32,	      /* of demand */
	SODA_BUDGET_HOLD = 64,	      /* of demand, from an end to the next try */
	SODA_BUDGET_HOLD_DOUBLED = 6, /* times, at most */

	/* bytes used that are worth a byte of trust, and those that a wasted byte takes away */
	SODA_BUDGET_TRUST_USED = 4,
	SODA_BUDGET_TRUST_WASTE = 32,
};
_Static_assert(SODA_BUDGET_OWN + SODA_BUDGET_SAVED + SODA_BUDGET_REFILL == SODA_BUDGET_PERMILLE,
	       "what is earned, saved and filled up is what there is");

/* Bytes. */
struct soda_budget_sums {
	uint64_t asked;	 /* by programs: demand, hits included */
	uint64_t given;	 /* of them, from the cache */
	uint64_t bought; /* fetched ahead */
	uint64_t unused; /* dropped without having been asked for */
};

/* The sums of the last SODA_BUDGET_WINDOW_MS. Zeroed is the start. */
struct soda_budget_window {
	uint64_t part_now; /* number of the newest part since the clock's start */
	struct soda_budget_sums all, parts[SODA_BUDGET_PARTS];
};

/* Of all owners. */
struct soda_budget_pool {
	uint64_t entry_bytes;
	uint64_t bytes;	  /* that can be lent now */
	uint64_t reserve; /* likewise, to owners with trust */
	uint64_t owed;	  /* for what rules loaded; bytes is 0 then */
	uint64_t ends;	  /* times that an owner was ended */
	struct soda_budget_window window;
};

/* Of one owner. Zeroed is the start. */
struct soda_budget {
	uint64_t own;	       /* credit */
	uint64_t lent;	       /* by the pool, and not repaid */
	uint64_t lent_reserve; /* by the reserve, likewise */
	uint64_t trust;	       /* in bytes used; see above */
	struct soda_budget_window window;
	bool ended;
	uint64_t used, unused; /* of what was bought, so far */
	uint64_t shown;	       /* used since it was let in */
	uint64_t asked;	       /* since it was let in or ended; see hold */
	uint64_t hold;	       /* demand from the last end to the next try */
	unsigned ends_unshown; /* in a row */
	uint64_t ends;	       /* in all */
	uint64_t turn_asked;   /* of this turn */
	uint64_t turn_used[2]; /* of this turn and of the one before */
	bool turn_poor[2];     /* likewise: it could not pay what it wanted */
};

/* What has happened to an owner since the last time, in bytes. */
struct soda_budget_news {
	uint64_t asked, given;
	uint64_t failed; /* counted as given, and not given after all: a fetch has failed */
	uint64_t used;	 /* of what was bought, asked for the first time */
	uint64_t unused; /* of what was bought, dropped without that */
};

void soda_budget_pool_init(struct soda_budget_pool *pool, uint64_t entry_bytes);

/* now_ns, in all of these: a clock that does not go back. */

/* Credit for what has happened; a turn may end, and the owner with it, or it is let in again. */
void soda_budget_note(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
		      const struct soda_budget_news *news);
/*
 * Pay for a fetch that is about to begin, of at most an entry.  False: it cannot be paid, or the
 * owner is ended; nothing has been paid.
 */
bool soda_budget_buy(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
		     uint64_t bytes);
/* Where the budget is only shown: what can be paid is paid, and nobody is ended. */
void soda_budget_buy_anyway(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
			    uint64_t bytes);
/* A fetch that was bought was never asked of the server. */
void soda_budget_refund(struct soda_budget *b, struct soda_budget_pool *pool, uint64_t now_ns,
			uint64_t bytes);
/* The owner is gone: what it owed is lost to the pool, what it had goes there. */
void soda_budget_leave(struct soda_budget *b, struct soda_budget_pool *pool);

/* What could be bought now. */
uint64_t soda_budget_left(const struct soda_budget *b, const struct soda_budget_pool *pool);

/* A rule has had so much loaded; programs were given so much of what rules had loaded. */
void soda_budget_ruled(struct soda_budget_pool *pool, uint64_t bytes);
void soda_budget_ruled_given(struct soda_budget_pool *pool, uint64_t bytes);

/*
 * The last seconds up to now_ns; and bytes moved beyond what was asked for, as a share of that:
 * negative where the cache saves more than it takes, 0 where nothing was asked.
 */
void soda_budget_window_look(struct soda_budget_window *w, uint64_t now_ns);
double soda_budget_surplus(const struct soda_budget_sums *sums);

#endif
