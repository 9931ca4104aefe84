/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fault decorator does, and when.
 *
 *   fault+ADDRESS?do=ACTION&k=v...
 *
 * Each `do` begins a rule, up to FAULT_RULES; what follows belongs to it:
 *
 *   do=fail      the operation ends with an error; nothing travels
 *   do=delay     its completion is held back for `ms`
 *   do=drop      it is never answered (nor is any later one of the connection)
 *   do=cut       the connection is lost
 *   do=garble    likewise, by an answer that makes no sense (-EPROTO of the data's connection)
 *   on=OPS       read, write, call, connect, joined by commas; default read,write
 *   rate=P       of a hundred operations, at random; default 100
 *   seed=N       of the random numbers; default 1; the same for each connection
 *   seeds=N      the same, but each connection has its own, in the order in which the process
 *                connects: who comes back after a cut with as much to send as before would
 *                otherwise be cut at the same place for ever
 *   after=N      the first N operations of a connection are spared
 *   count=N      at most N times a connection
 *   while=FILE   only while the file exists
 *   once=FILE    when the file can be removed: once for each time it is made
 *   ms=N         of delay; default 10
 *   status=N     of fail: enum soda_status; default 7 (EIO)
 *
 * Counts are a connection's, for `connect` the process's.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_FAULT_RULES_H
#define SODA_FAULT_RULES_H

#include "transport/api/transport_impl.h"

enum { FAULT_RULES = 4 };

enum fault_action { FAULT_NONE, FAULT_FAIL, FAULT_DELAY, FAULT_DROP, FAULT_CUT, FAULT_GARBLE };

enum fault_op { FAULT_READ = 1, FAULT_WRITE = 2, FAULT_CALL = 4, FAULT_CONNECT = 8 };

struct fault_rule {
	enum fault_action action;
	unsigned ops; /* enum fault_op, joined */
	uint32_t rate_pct;
	uint64_t random; /* state */
	bool varies;	 /* from connection to connection */
	uint64_t after, count;
	uint64_t seen, done; /* operations; faults */
	uint32_t ms;
	int err; /* of fail: negative errno */
	char while_file[108], once_file[108];
};

struct fault_rules {
	unsigned n;
	struct fault_rule rule[FAULT_RULES];
};

/* text may be empty: no rules. 0, -EINVAL. */
int soda_fault_parse(const char *text, struct fault_rules *rules_p, struct soda_why *why);

/* The random numbers of the process's so many-th connection. */
void soda_fault_vary(struct fault_rules *rules, uint64_t connection);

/* What to do with this operation: the first rule that applies, or NULL. AS. */
const struct fault_rule *soda_fault_decide(struct fault_rules *rules, enum fault_op op);

#endif
