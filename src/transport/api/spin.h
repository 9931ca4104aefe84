/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether to look for something by busy-waiting before one sleeps, for both
 * ends.  Waking a halted core costs some 40 us each way on a virtual machine,
 * against 22 us for a whole answer between two cores that are awake; but on a
 * loaded machine, or with one processor, looking only takes time from the thread
 * that is to answer.  So: never with one processor, and only as long as it mostly pays.
 * A look that ends without success, and much more a thread that was pre-empted
 * while it looked, costs credit; without credit looking pauses, for twice as many
 * times each time it happens.
 *
 * One thread at a time; async-signal-safe.
 */
#ifndef SODA_SPIN_H
#define SODA_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct soda_spin {
	_Atomic unsigned *pollers; /* threads of a group that look now, or NULL */
	unsigned processors;	   /* that this thread may run on */
	unsigned until_recount;	   /* spins until `processors` is determined again */
	int credit;
	uint32_t skip;	  /* spins to forgo before the next trial */
	uint32_t penalty; /* how many to forgo next time */
	bool active;
	uint64_t begin_ns, last_ns, limit_ns;
};

/* pollers (may be NULL): at most every other processor's worth of threads look at once. */
void soda_spin_init(struct soda_spin *s, _Atomic unsigned *pollers);

/* May we look, for at most limit_ns? True: until soda_spin_again says no, or soda_spin_end. */
bool soda_spin_begin(struct soda_spin *s, uint64_t limit_ns);
/* Found nothing yet: go on? False: soda_spin_end(s, false) has been done. */
bool soda_spin_again(struct soda_spin *s);
/* A part came in: look on, as if from the beginning. */
void soda_spin_progress(struct soda_spin *s);
/* Done; found: it paid. */
void soda_spin_end(struct soda_spin *s, bool found);
/* Begin, look again and again, end. Whether look has found something. */
bool soda_spin_until(struct soda_spin *s, uint64_t limit_ns, bool (*look)(void *arg), void *arg);

#endif
