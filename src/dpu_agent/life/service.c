/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions that transports call.  A request of the control plane goes to the service that has
 * its type; one that is refused is counted, answered with a reason, and logged, at most ten times a
 * second. READs and WRITEs go to paging without a look-up.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward.h"

enum { NOTES_A_SECOND = 10 };

/* Whether to log a refusal now: peers can provoke any number of them. */
static bool may_note(void)
{
	static _Atomic uint64_t second;
	static _Atomic unsigned notes;
	uint64_t now = soda_now_ms() / 1000;

	if (atomic_exchange_explicit(&second, now, memory_order_relaxed) != now)
		atomic_store_explicit(&notes, 0, memory_order_relaxed);
	return atomic_fetch_add_explicit(&notes, 1, memory_order_relaxed) < NOTES_A_SECOND;
}

/* Give the peer a sentence, if there is an error and no reason yet. Returns ret. */
static int explained(int ret, struct soda_why *why)
{
	if (ret && !*why->text)
		snprintf(why->text, sizeof(why->text), "%s", soda_strerror(ret));
	return ret;
}

static int hello(void *svc, struct soda_peer *peer, const struct soda_wire_hello *said,
		 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		 void **client_p, struct soda_why *why)
{
	struct soda_tenant *tenant = info->proved ? info->proved->tenant : NULL;
	int ret;

	*why = (struct soda_why){ "" };
	ret = soda_session_hello(&((struct soda_dpu *)svc)->sessions, peer, said, info, welcome,
				 client_p, why);
	if (explained(ret, why) == 0)
		return 0;
	soda_count_add(SODA_COUNT_hellos_refused, 1);
	if (tenant)
		atomic_fetch_add(&tenant->refused, 1);
	if (may_note())
		soda_log_info("%s%s%s: refused: %s", info->address, tenant ? " of tenant " : "",
			      tenant ? tenant->name : "", why->text);
	return ret;
}

/* BYE. The keeper's hands bring to the server what the client has left. */
static int leave(struct soda_session *s, const uint8_t *body, size_t bytes)
{
	if (bytes > 1 || (bytes && body[0] != SODA_WIRE_BYE_LATER))
		return -EPROTO;
	pthread_mutex_lock(&s->lock);
	if (!s->leaving)
		s->leaving_since_ms = soda_now_ms();
	s->leaving = true;
	pthread_mutex_unlock(&s->lock);
	if (!bytes)
		soda_services_leave(s);
	return 0;
}

static int write_stats(struct soda_session *s, size_t bytes, struct soda_reply *reply)
{
	struct soda_dpu_view view = { .dpu = soda_dpu_of(s) };
	long n;

	if (s->tenant && soda_tenant_role(s->all->tenants, s->tenant) != SODA_ROLE_OPERATOR)
		view.of = s->tenant;
	n = bytes ? -EPROTO
		  : soda_metrics_json(soda_dpu_walk_view, &view, (char *)reply->body,
				      SODA_WIRE_MAX_CONTROL);

	if (n < 0)
		return (int)n;
	reply->bytes = (size_t)n;
	return 0;
}

static int dispatch(struct soda_session *s, enum soda_msg type, const void *body, size_t bytes,
		    bool shares, struct soda_reply *reply)
{
	switch (type) {
	case SODA_MSG_STATS:
		return write_stats(s, bytes, reply);
	case SODA_MSG_PING:
		memmove(reply->body, body, bytes);
		reply->bytes = bytes;
		return 0;
	case SODA_MSG_TOKEN:
		return soda_paging_token(s, body, bytes, reply);
	case SODA_MSG_BYE:
		return leave(s, body, bytes);
	default:
		return soda_services_call(s, type, body, bytes, shares, reply);
	}
}

static void begin(struct soda_session *s, struct soda_reply *reply)
{
	reply->bytes = 0;
	reply->share = (struct soda_share){ .fd = -1 };
	reply->why = (struct soda_why){ "" };
	soda_paging_heard(s);
}

/* Returns ret. */
static int refused(struct soda_session *s, enum soda_msg type, int ret, struct soda_reply *reply)
{
	/*
	 * Our connection to the server is lost: close the peer's, so that the peer comes back and
	 * asks again, instead of taking this for a refusal.
	 */
	if (soda_call_lost(ret)) {
		soda_session_break(s, ret);
		soda_session_expel(s, false, false);
	}
	explained(ret, &reply->why);
	soda_count_add(SODA_COUNT_calls_refused, 1);
	if (may_note())
		soda_log_info("client %016llx: request %d refused: %s", (unsigned long long)s->id,
			      (int)type, reply->why.text);
	return ret;
}

static int call(void *client, enum soda_msg type, const void *body, size_t bytes, bool shares,
		struct soda_reply *reply)
{
	struct soda_session *s = client;
	int ret;

	begin(s, reply);
	ret = dispatch(s, type, body, bytes, shares, reply);
	return ret == 0 ? 0 : refused(s, type, ret, reply);
}

static int stream(void *client, enum soda_msg type, struct soda_inflow *in,
		  struct soda_reply *reply)
{
	struct soda_session *s = client;
	int ret;

	begin(s, reply);
	ret = soda_services_stream(s, type, in, reply);
	/* an error of the client's own connection ends that, and is nobody's refusal */
	return ret == 0 || soda_call_lost(ret) ? ret : refused(s, type, ret, reply);
}

static int reserve(void *client, struct soda_peer *peer, uint16_t region_id, uint64_t page_offset,
		   uint32_t size, struct soda_span *span)
{
	return soda_writes_reserve(client, peer, region_id, page_offset, size, span);
}

static void release(void *client, bool write, const struct soda_span *span, bool landed)
{
	if (write)
		soda_writes_unreserve(client, span->hold, span->bytes);
	else
		soda_forward_sent(client, span);
}

static void request(void *client, struct soda_request *rq)
{
	soda_forward_request(client, rq);
}

static void doorbell(void *client, struct soda_peer *peer)
{
	soda_forward_doorbell(client);
}

static void gone(void *client, struct soda_peer *peer)
{
	soda_session_gone(client, peer);
}

static void rejected(void *svc, const char *address, const char *why)
{
	soda_count_add(SODA_COUNT_peers_rejected, 1);
	if (may_note())
		soda_log_info("%s: connection closed: %s", address, why);
}

const struct soda_service soda_dpu_service = {
	.hello = hello,
	.call = call,
	.stream = stream,
	.release = release,
	.gone = gone,
	.rejected = rejected,
	.reserve = reserve,
	.request = request,
	.doorbell = doorbell,
};
