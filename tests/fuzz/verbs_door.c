/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The door of a verbs listener for fuzz_verbs.c: the real on_request(), in front of it librdmacm's
 * functions that answer, which only count, and behind it no connection.
 */
#include "daemon.h"
#include "fuzz.h"

static unsigned refused, let_in, acknowledged;

#include "transport/verbs/server/events.c"

void soda_verbs_serve(const struct soda_verbs_peer *from)
{
	let_in++;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	acknowledged++;
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
	const volatile uint8_t *at = data;

	for (uint8_t i = 0; i < bytes; i++)
		(void)at[i];
	refused++;
	return 0;
}

int fuzz_verbs_request(struct soda_listener *l, struct rdma_cm_event *event);

/* Every request is acknowledged, and either refused or let in. */
int fuzz_verbs_request(struct soda_listener *l, struct rdma_cm_event *event)
{
	struct soda_verbs_listener vl = { .base = l };

	refused = let_in = acknowledged = 0;
	on_request(&vl, event);
	FUZZ_MUST(acknowledged == 1 && refused + let_in == 1);
	return 0;
}
