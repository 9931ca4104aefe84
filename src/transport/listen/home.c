/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/listen/home.h"

#include <stdbool.h>
#include <sys/socket.h>

#include "base/lock.h"

void soda_homes_init(struct soda_homes *all, unsigned workers)
{
	cpu_set_t *set = &all->may_use;
	unsigned n = 0;

	all->n = 0;
	atomic_flag_clear(&all->exchanging);
	if (workers < 2 || workers > SODA_HOMES_MAX ||
	    sched_getaffinity(0, sizeof(*set), set) < 0 || (unsigned)CPU_COUNT(set) != workers)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < workers; cpu++) {
		if (!CPU_ISSET(cpu, set))
			continue;
		atomic_init(&all->cpu[n], cpu);
		atomic_init(&all->wants[n], -1);
		atomic_init(&all->busy_ns[n], 0);
		n++;
	}
	all->n = n;
}

void soda_home_init(struct soda_home *h, struct soda_homes *all, unsigned self)
{
	*h = (struct soda_home){ .all = all, .self = self, .candidate = -1, .bound = -1 };
}

/* relaxed, here and below: a time that is read late delays a decision, and no more */
static bool all_busy(const struct soda_homes *all, uint64_t now_ns, uint64_t within_ns)
{
	for (unsigned i = 0; i < all->n; i++) {
		uint64_t at = atomic_load_explicit(&all->busy_ns[i], memory_order_relaxed);

		if (!at || (now_ns > at && now_ns - at > within_ns))
			return false;
	}
	return true;
}

/* Which worker has the processor, or n. */
static unsigned owner_of(const struct soda_homes *all, int cpu)
{
	unsigned i = 0;

	while (i < all->n && atomic_load_explicit(&all->cpu[i], memory_order_relaxed) != cpu)
		i++;
	return i;
}

/*
 * Exchange processors with the worker that has `cpu`, if that one's client is not there either.
 * Where it is, two clients share a processor, which is for the kernel to end.
 */
static void exchange(struct soda_home *h, int cpu)
{
	struct soda_homes *all = h->all;
	unsigned other;

	if (atomic_flag_test_and_set(&all->exchanging))
		return; /* at the next look, then */
	other = owner_of(all, cpu);
	if (other < all->n && atomic_load(&all->wants[other]) >= 0) {
		atomic_store(&all->cpu[other], atomic_load(&all->cpu[h->self]));
		atomic_store(&all->cpu[h->self], cpu);
		atomic_store(&all->wants[h->self], -1);
		atomic_store(&all->wants[other], -1);
	}
	atomic_flag_clear(&all->exchanging);
}

/*
 * The client counts as being elsewhere once it was there at two looks in a row: the kernel moves
 * it, too, and may just be bringing it here.
 */
static void follow(struct soda_home *h, int client_cpu)
{
	struct soda_homes *all = h->all;
	bool elsewhere = client_cpu >= 0 && client_cpu != atomic_load(&all->cpu[h->self]);
	bool stays = elsewhere && client_cpu == h->candidate;

	h->candidate = elsewhere ? client_cpu : -1;
	atomic_store(&all->wants[h->self], stays ? client_cpu : -1);
	if (stays)
		exchange(h, client_cpu);
}

int soda_home_decide(struct soda_home *h, uint64_t now_ns, int client_cpu)
{
	struct soda_homes *all = h->all;

	if (h->self >= all->n)
		return -1;
	if (now_ns - h->looked_ns <= SODA_HOME_BUSY_NS)
		atomic_store_explicit(&all->busy_ns[h->self], now_ns, memory_order_relaxed);
	h->looked_ns = now_ns;
	follow(h, client_cpu);
	return all_busy(all, now_ns, h->bound < 0 ? SODA_HOME_BUSY_NS : SODA_HOME_LEAVE_NS)
		       ? atomic_load(&all->cpu[h->self])
		       : -1;
}

int soda_home_cpu_of(int fd)
{
	int cpu = -1;
	socklen_t bytes = sizeof(cpu);

	return getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &bytes) < 0 ? -1 : cpu;
}

/*
 * Whether the thread still has the mask that it was given here, or was started with.  If not,
 * somebody else has decided where it is to run (taskset), or a processor has been taken away.
 */
static bool mask_is_ours(const struct soda_home *h)
{
	cpu_set_t now;

	if (sched_getaffinity(0, sizeof(now), &now) < 0)
		return false;
	return h->bound < 0 ? CPU_EQUAL(&now, &h->all->may_use)
			    : CPU_COUNT(&now) == 1 && CPU_ISSET(h->bound, &now);
}

/* A processor that was taken away from the daemon meanwhile: the worker stays where it may be. */
static void bind_to(struct soda_home *h, int cpu)
{
	cpu_set_t set = h->all->may_use;

	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
	}
	if (sched_setaffinity(0, sizeof(set), &set) == 0)
		h->bound = cpu;
}

void soda_home_look(struct soda_home *h, int client_cpu)
{
	int cpu;

	h->requests = 0;
	if (h->left || h->self >= h->all->n)
		return;
	cpu = soda_home_decide(h, soda_now_ns(), client_cpu);
	if (cpu == h->bound)
		return;
	h->left = !mask_is_ours(h);
	if (!h->left)
		bind_to(h, cpu);
}
