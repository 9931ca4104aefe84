/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a server that is away may have copies that count as current, and how long an attempt to
 * connect to it may take meanwhile.  Nothing but numbers: the keeper (session.c) says what it sees,
 * and when.
 *
 *   begin -> look -> attempted -> is_over? -> look -> ...
 *
 * A server is given up for its own silence alone.  So its last attempt must have begun after
 * another server had answered.  Before that the program's own way to all of them may be cut, or the
 * agent in front of them is away.  An attempt that ends without an answer does not count while the
 * server's last answer is younger than SODA_SILENT_MS, because a busy server is late as well.
 */
#ifndef SODA_HOST_ABSENCE_H
#define SODA_HOST_ABSENCE_H

#include <stdbool.h>
#include <stdint.h>

/* One server's; its keeper's. Times are soda_now_ns()'s. */
struct soda_absence {
	uint64_t since_ns; /* 0: it is UP */
	uint64_t heard_ns; /* its last answer before that */
	uint32_t most_ms;  /* so long its copies count as current */
	bool of_all;	   /* all servers were away at the last look */
	bool counts;	   /* the last attempt has failed, and another server had answered */
	bool late;	   /* it ended without an answer */
};

/* The server is away, as of now. */
void soda_absence_begin(struct soda_absence *a, uint64_t now_ns, uint64_t heard_ns);
/* Whether it is away because it was silent, and not because a connection has ended. */
bool soda_absence_was_silent(const struct soda_absence *a);
/* Since when another server must have answered for the next attempt to count. */
uint64_t soda_absence_others_since(const struct soda_absence *a);
/*
 * Whether all servers are away.  true: they were, and are no more.  Then this one is asked at once,
 * and has SODA_COPIES_RETURN_MS, as what cut all of them off has most likely ended.
 */
bool soda_absence_look(struct soda_absence *a, bool all_are_away, uint64_t now_ns);
/*
 * An attempt has failed with err.  others: another server had answered before it began, since
 * soda_absence_others_since().  connect_ms: the attempt's time; soon_ms: that of one for which
 * others wait.  Returns the time for the next attempt, at most most_ms.
 */
int soda_absence_attempted(struct soda_absence *a, int err, bool others, uint64_t now_ns,
			   int connect_ms, int soon_ms, int most_ms);
/* Whether the copies are to be given up, if another server has answered since a->since_ns. */
bool soda_absence_is_over(const struct soda_absence *a, uint64_t now_ns);

#endif
