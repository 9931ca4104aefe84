/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/flow.h"

#include "base/lock.h"

void soda_flow_init(struct soda_flow *flow)
{
	*flow = (struct soda_flow){ .weight = 1 };
	pthread_mutex_init(&flow->lock, NULL);
}

void soda_flow_destroy(struct soda_flow *flow)
{
	pthread_mutex_destroy(&flow->lock);
}

void soda_flow_set(struct soda_flow *flow, uint64_t bytes_per_s, uint64_t requests_per_s,
		   uint32_t weight)
{
	pthread_mutex_lock(&flow->lock);
	flow->bytes_per_s = bytes_per_s;
	flow->requests_per_s = requests_per_s;
	/* what the former rate has left to wait for counts no more */
	flow->bytes_until_ns = flow->requests_until_ns = 0;
	pthread_mutex_unlock(&flow->lock);
	atomic_store(&flow->weight, weight ? weight : 1);
	atomic_store(&flow->limited, bytes_per_s || requests_per_s);
}

/* How long until a rate's past is at most a burst ahead. */
static uint64_t ahead(uint64_t until_ns, uint64_t now_ns)
{
	uint64_t from = now_ns + SODA_FLOW_BURST_NS;

	return until_ns > from ? until_ns - from : 0;
}

static uint64_t later(uint64_t until_ns, uint64_t now_ns, uint64_t cost, uint64_t per_s)
{
	if (!per_s)
		return 0;
	return (until_ns > now_ns ? until_ns : now_ns) + cost * 1000000000u / per_s;
}

uint64_t soda_flow_take(struct soda_flow *flow, uint32_t bytes, uint64_t now_ns)
{
	uint64_t wait, other;

	if (!atomic_load_explicit(&flow->limited, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&flow->lock);
	wait = ahead(flow->bytes_until_ns, now_ns);
	other = ahead(flow->requests_until_ns, now_ns);
	wait = wait > other ? wait : other;
	if (!wait) {
		flow->bytes_until_ns =
			later(flow->bytes_until_ns, now_ns, bytes, flow->bytes_per_s);
		flow->requests_until_ns =
			later(flow->requests_until_ns, now_ns, 1, flow->requests_per_s);
	}
	pthread_mutex_unlock(&flow->lock);
	return wait < SODA_FLOW_PATIENCE_NS ? wait : SODA_FLOW_PATIENCE_NS;
}

static void set_waits(struct soda_flow_share *share, bool waits)
{
	if (share->waits == waits)
		return;
	share->waits = waits;
	atomic_fetch_add_explicit(&share->flow->waits, waits ? 1 : UINT32_MAX,
				  memory_order_relaxed);
}

void soda_flow_share_rest(struct soda_flow_share *share)
{
	set_waits(share, false);
}

/* What a flow did not ask for while others waited it does not get later. */
static void begin_to_wait(struct soda_flow_share *share, uint64_t least)
{
	struct soda_flow *flow = share->flow;
	uint64_t got = atomic_load_explicit(&flow->got, memory_order_relaxed);

	if (share->waits)
		return;
	while (!atomic_load_explicit(&flow->waits, memory_order_relaxed) && got < least &&
	       !atomic_compare_exchange_weak_explicit(&flow->got, &got, least, memory_order_relaxed,
						      memory_order_relaxed))
		;
	set_waits(share, true);
}

static void begin_turn(struct soda_flow_share *share, uint64_t round, uint64_t least)
{
	uint64_t got = atomic_load_explicit(&share->flow->got, memory_order_relaxed);
	int64_t turn = (int64_t)SODA_FLOW_TURN *
		       atomic_load_explicit(&share->flow->weight, memory_order_relaxed);

	if (share->waits && least && got > least + SODA_FLOW_AHEAD)
		turn /= SODA_FLOW_SHORT;
	/* the rest of a turn does not add up; what was taken beyond it counts */
	share->left = (share->left < 0 ? share->left : 0) + turn;
	share->round = round;
}

uint64_t soda_flow_share_take(struct soda_flow_share *share, uint64_t round, bool alone,
			      uint64_t least, uint32_t bytes)
{
	uint64_t cost = (uint64_t)bytes + SODA_FLOW_REQUEST, wait;

	if (share->round != round)
		begin_turn(share, round, least);
	if (alone) {
		share->left = 0;
	} else if (share->left <= 0) {
		share->waited_in = round;
		begin_to_wait(share, least);
		return 1;
	}
	if (atomic_load_explicit(&share->flow->limited, memory_order_relaxed)) {
		wait = soda_flow_take(share->flow, bytes, soda_now_ns());
		if (wait) {
			atomic_fetch_add_explicit(&share->flow->delayed, 1, memory_order_relaxed);
			return wait > 1 ? wait : 2;
		}
	}
	share->left -= (int64_t)cost;
	atomic_fetch_add_explicit(
		&share->flow->got,
		cost / atomic_load_explicit(&share->flow->weight, memory_order_relaxed),
		memory_order_relaxed);
	return 0;
}
