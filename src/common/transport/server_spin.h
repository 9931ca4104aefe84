/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether and how long a data worker looks for the next request before it
 * sleeps.  Waking a sleeping core costs some 40 us each way on a virtual machine,
 * against 22 us for a whole answer between two cores that are awake; on a loaded
 * machine, or with one processor, looking only takes time from whoever would
 * send the request.  So a worker polls only for a client that says that it polls
 * too, for a short time, as long as it mostly pays.
 */
#ifndef SODA_SERVER_SPIN_H
#define SODA_SERVER_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct soda_spin {
	_Atomic unsigned *pollers; /* of the listener: how many of its workers poll now */
	unsigned processors;	   /* that this thread may run on */
	unsigned until_recount;	   /* spins until `processors` is determined again */
	int credit;		   /* polls that found something, less those that did not */
	uint32_t skip;		   /* spins to forgo before the next trial */
	uint32_t penalty;	   /* how many to forgo next time */
	bool polling;
	uint64_t begin_ns, last_ns;
};

void soda_spin_init(struct soda_spin *s, _Atomic unsigned *pollers);

/* A request of a polling client has been answered: may we look for the next one? */
bool soda_spin_begin(struct soda_spin *s);
/* Found nothing yet: go on looking? False: soda_spin_end(s, false) has been done. */
bool soda_spin_again(struct soda_spin *s);
/* Done; found: a request came in. */
void soda_spin_end(struct soda_spin *s, bool found);

#endif
