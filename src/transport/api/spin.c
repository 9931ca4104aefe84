/* SPDX-License-Identifier: BSD-3-Clause */
/* The decision of spin.h. */
#include "transport/api/spin.h"

#include <sched.h>

#include "base/lock.h"

enum {
	PREEMPTED_NS = 20000, /* a gap between two looks: somebody else needed the processor */
	CREDIT_MAX = 8,
	CREDIT_PREEMPTED = 4, /* a pre-emption costs as much as so many fruitless polls */
	PENALTY_MIN = 16,
	PENALTY_MAX = 4096,
	RECOUNT = 1024,
};

static unsigned count_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

void soda_spin_init(struct soda_spin *s, _Atomic unsigned *pollers)
{
	*s = (struct soda_spin){ .pollers = pollers,
				 .processors = count_processors(),
				 .until_recount = RECOUNT,
				 .credit = CREDIT_MAX / 2,
				 .penalty = PENALTY_MIN };
}

bool soda_spin_begin(struct soda_spin *s, uint64_t limit_ns)
{
	if (s->until_recount-- == 0) {
		s->processors = count_processors();
		s->until_recount = RECOUNT;
	}
	if (s->processors < 2)
		return false;
	if (s->skip) {
		s->skip--;
		return false;
	}
	/* a thread that looks needs a second processor, for the thread that it waits for */
	if (s->pollers &&
	    atomic_fetch_add_explicit(s->pollers, 1, memory_order_relaxed) >= s->processors / 2) {
		atomic_fetch_sub_explicit(s->pollers, 1, memory_order_relaxed);
		return false;
	}
	s->limit_ns = limit_ns;
	s->active = true;
	s->begin_ns = s->last_ns = soda_now_ns();
	return true;
}

static void lose(struct soda_spin *s, int credits)
{
	s->credit -= credits;
	if (s->credit > 0)
		return;
	s->credit = 1; /* one trial after the pause */
	s->skip = s->penalty;
	if (s->penalty < PENALTY_MAX)
		s->penalty *= 2;
}

void soda_spin_end(struct soda_spin *s, bool found)
{
	if (!s->active)
		return;
	s->active = false;
	if (s->pollers)
		atomic_fetch_sub_explicit(s->pollers, 1, memory_order_relaxed);
	if (!found) {
		lose(s, 1);
		return;
	}
	if (s->credit < CREDIT_MAX)
		s->credit++;
	else
		s->penalty = PENALTY_MIN;
}

bool soda_spin_until(struct soda_spin *s, uint64_t limit_ns, bool (*look)(void *arg), void *arg)
{
	bool found = false;

	if (!soda_spin_begin(s, limit_ns))
		return false;
	do {
		for (int i = 0; i < 16; i++)
			soda_cpu_relax();
		found = look(arg);
	} while (!found && soda_spin_again(s));
	soda_spin_end(s, found);
	return found;
}

void soda_spin_progress(struct soda_spin *s)
{
	s->begin_ns = s->last_ns = soda_now_ns();
}

bool soda_spin_again(struct soda_spin *s)
{
	uint64_t now = soda_now_ns();
	bool preempted = now - s->last_ns > PREEMPTED_NS;

	s->last_ns = now;
	if (!preempted && now - s->begin_ns < s->limit_ns)
		return true;
	if (preempted)
		lose(s, CREDIT_PREEMPTED - 1);
	soda_spin_end(s, false);
	return false;
}
