/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions that transports call.  Each body from a peer is decoded and checked here or in
 * the function that it is passed to; a request that is refused is counted, answered with a reason,
 * and logged, at most ten times a second.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tracepoint.h"
#include "mem_server/base/counters.h"
#include "mem_server/life/server.h"
#include "mem_server/store/handed.h"
#include "wire/field.h"
#include "wire/pool.h"

#define NOTES_A_SECOND 10

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

static struct soda_mem_server *server_of(const struct soda_client *client)
{
	return (struct soda_mem_server *)((char *)client->all -
					  offsetof(struct soda_mem_server, clients));
}

/* Give the peer a sentence, if there is an error and no reason yet. Returns r. */
static int explained(int r, struct soda_why *why)
{
	if (r && !*why->text)
		soda_server_why(why, "%s", soda_strerror(r));
	return r;
}

static int hello(void *svc, struct soda_peer *peer, const struct soda_wire_hello *said,
		 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		 void **client_p, struct soda_why *why)
{
	struct soda_mem_server *server = svc;
	struct soda_tenant *tenant = info->proved ? info->proved->tenant : NULL;
	int r;

	*why = (struct soda_why){ "" };
	r = soda_client_hello(&server->clients, peer, said, info, welcome, client_p, why);
	explained(r, why);
	if (!r)
		return 0;
	soda_count_add(SODA_COUNT_hellos_refused, 1);
	if (tenant)
		atomic_fetch_add(&tenant->refused, 1);
	if (may_note())
		soda_log_info("%s%s%s: refused: %s", info->address, tenant ? " of tenant " : "",
			      tenant ? tenant->name : "", why->text);
	return r;
}

/*
 * An open has failed with r, for lack of room: wait for clients that are leaving, or about to close
 * memory.  refunds: soda_store_refunds() before the attempt.  True: another attempt may succeed.
 */
static bool await_room(struct soda_client *client, int r, uint64_t refunds)
{
	bool left = false;

	if (r == -EBUSY || r == -ENOSPC || r == -EDQUOT)
		left = soda_clients_await_leaving(client->all, SODA_SERVER_LEAVING_MS);
	if (r == -ENOSPC || r == -EDQUOT)
		return soda_handed_await(client->all->pool->store, refunds) || left;
	return left;
}

static int open_when_there_is_room(struct soda_client *client, const struct soda_wire_open *open,
				   const char *name, bool shares, struct soda_wire_opened *opened,
				   struct soda_reply *reply)
{
	uint64_t end = soda_now_ms() + SODA_SERVER_LEAVING_MS, refunds;
	int r;

	do {
		refunds = soda_store_refunds(client->all->pool->store);
		reply->why = (struct soda_why){ "" };
		r = soda_region_open(&client->regions, open, name, shares, opened, &reply->share,
				     &reply->why);
	} while (r && soda_now_ms() < end && await_room(client, r, refunds));
	return r;
}

static int open_region(struct soda_client *client, const void *body, size_t bytes, bool shares,
		       struct soda_reply *reply)
{
	struct soda_wire_opened opened;
	struct soda_wire_open open;
	const char *name;
	int r = soda_wire_get_open(body, bytes, &open, &name);

	if (!r && soda_clients_draining(client->all)) {
		soda_server_why(&reply->why, "the server is shutting down");
		r = -ESHUTDOWN;
	}
	if (!r && atomic_load(&client->all->moving)) {
		soda_server_why(&reply->why,
				"the server is drained (soda pool drain) and takes nothing new");
		r = -ESHUTDOWN;
	}
	if (!r)
		r = open_when_there_is_room(client, &open, name, shares, &opened, reply);
	if (r) {
		soda_count_add(SODA_COUNT_opens_refused, 1);
		return r;
	}
	soda_wire_put_opened(reply->body, &opened);
	reply->bytes = SODA_WIRE_OPENED_BYTES;
	return 0;
}

static int write_stats(struct soda_client *client, size_t bytes, struct soda_reply *reply)
{
	struct soda_mem_server *server = server_of(client);
	struct soda_server_view view = { .server = server };
	long n;

	if (client->tenant &&
	    soda_tenant_role(&server->tenants, client->tenant) != SODA_ROLE_OPERATOR)
		view.of = client->tenant;
	n = bytes ? -EPROTO
		  : soda_metrics_json(soda_server_walk_view, &view, (char *)reply->body,
				      SODA_WIRE_MAX_CONTROL);

	if (n < 0)
		return (int)n;
	reply->bytes = (size_t)n;
	return 0;
}

static int list_regions(struct soda_client *client, const uint8_t *body, size_t bytes,
			struct soda_reply *reply)
{
	enum { ROOM = SODA_WIRE_MAX_CONTROL / SODA_WIRE_LISTED_BYTES };
	struct soda_wire_listed list[64];
	uint32_t from, total = 0;

	if (bytes != SODA_WIRE_REGION_BYTES)
		return -EPROTO;
	from = (uint32_t)(body[0] | body[1] << 8);
	while (from <= UINT16_MAX && total + 64 <= ROOM) {
		unsigned n = soda_region_list(&client->regions, (uint16_t)from, list, 64);

		for (unsigned i = 0; i < n; i++, total++)
			soda_wire_put_listed(reply->body + (size_t)total * SODA_WIRE_LISTED_BYTES,
					     &list[i]);
		from = n == 64 ? list[n - 1].region_id + 1u : UINT16_MAX + 1u;
	}
	reply->bytes = (size_t)total * SODA_WIRE_LISTED_BYTES;
	return 0;
}

static int leave(struct soda_client *client, const uint8_t *body, size_t bytes)
{
	if (bytes == 0)
		soda_client_bye(client);
	else if (bytes == 1 && body[0] == SODA_WIRE_BYE_LATER)
		soda_client_bye_later(client);
	else
		return -EPROTO;
	return 0;
}

/* CLOSE, SYNC and NAME begin with a region id. */
static int call_region(struct soda_client *client, enum soda_msg type, const uint8_t *body,
		       size_t bytes, struct soda_why *why)
{
	uint16_t id;

	if (bytes < SODA_WIRE_REGION_BYTES ||
	    (type != SODA_MSG_NAME && bytes > SODA_WIRE_REGION_BYTES))
		return -EPROTO;
	id = (uint16_t)(body[0] | body[1] << 8);
	if (type == SODA_MSG_CLOSE)
		return soda_region_close(&client->regions, id, why);
	if (type == SODA_MSG_SYNC)
		return soda_region_sync(&client->regions, id, why);
	return soda_region_name(&client->regions, id, (const char *)body + SODA_WIRE_REGION_BYTES,
				bytes - SODA_WIRE_REGION_BYTES, why);
}

/*
 * PUBLISH begins with a region id.  A name may be that of a program that ends: wait for its end,
 * as an OPEN does.
 */
static int publish(struct soda_client *client, const uint8_t *body, size_t bytes,
		   struct soda_reply *reply)
{
	uint64_t end = soda_now_ms() + SODA_SERVER_LEAVING_MS;
	struct soda_wire_opened opened;
	int r;

	if (bytes < SODA_WIRE_REGION_BYTES)
		return -EPROTO;
	do {
		reply->why = (struct soda_why){ "" };
		r = soda_region_publish(&client->regions, (uint16_t)(body[0] | body[1] << 8),
					(const char *)body + SODA_WIRE_REGION_BYTES,
					bytes - SODA_WIRE_REGION_BYTES, &opened, &reply->why);
	} while (r == -EEXIST && soda_now_ms() < end &&
		 soda_clients_await_leaving(client->all, SODA_SERVER_LEAVING_MS));
	if (r)
		return r;
	soda_wire_put_opened(reply->body, &opened);
	reply->bytes = SODA_WIRE_OPENED_BYTES;
	return 0;
}

static int discard(struct soda_client *client, const void *body, size_t bytes, struct soda_why *why)
{
	struct soda_wire_discard d;
	int r = soda_wire_get_discard(body, bytes, &d);

	return r ? r : soda_region_discard(&client->regions, &d, why);
}

/* POOL, of a file's content. */
static int describe_content(struct soda_client *client, const uint8_t *body, size_t bytes,
			    struct soda_reply *reply)
{
	struct soda_wire_content content;
	struct soda_wire_open ask;
	const char *name;
	int r = soda_wire_get_open(body, bytes, &ask, &name);

	if (!r)
		r = soda_region_content(&client->regions, &ask, name, &content, &reply->why);
	if (r)
		return r;
	soda_wire_put_content(reply->body + SODA_WIRE_MEMBER_BYTES, &content);
	reply->bytes = SODA_WIRE_MEMBER_BYTES + SODA_WIRE_CONTENT_BYTES;
	return 0;
}

/* TOKEN, asked by a DPU agent for its client. */
static int give_token(struct soda_client *client, const void *body, size_t bytes,
		      struct soda_reply *reply)
{
	struct soda_wire_token token;
	int r = bytes == SODA_WIRE_TOKEN_ASK_BYTES
			? soda_client_token(client, soda_wire_get_u32(body), &token, &reply->why)
			: -EPROTO;

	if (r)
		return r;
	soda_wire_put_token(reply->body, &token);
	reply->bytes = SODA_WIRE_TOKEN_ANSWER_BYTES;
	return 0;
}

/* What an operator asks of this server. */
static int operate(struct soda_client *client, enum soda_wire_pool_ask ask, struct soda_why *why)
{
	if (ask == SODA_WIRE_POOL_TELL || ask == SODA_WIRE_POOL_CONTENT)
		return 0;
	if (ask == SODA_WIRE_POOL_MEMBERS) {
		soda_server_why(why, "a memory server stands in front of no others");
		return -ENOTSUP;
	}
	if (ask == SODA_WIRE_POOL_SPREAD)
		return soda_clients_spread(client, why);
	return soda_clients_move(client, ask == SODA_WIRE_POOL_DRAIN, why);
}

/* POOL: what the program says is kept for the statistics; the answer says what this server is. */
static int tell_pool(struct soda_client *client, const void *body, size_t bytes,
		     struct soda_reply *reply)
{
	const struct soda_mem_server *server = server_of(client);
	struct soda_wire_member member = { .capacity = server->store.capacity };
	struct soda_wire_tell tell;
	int r = soda_wire_get_tell(body, bytes, &tell);

	if (!r)
		r = operate(client, (enum soda_wire_pool_ask)tell.ask, &reply->why);
	if (r)
		return r;
	reply->bytes = SODA_WIRE_MEMBER_BYTES;
	if (tell.ask == SODA_WIRE_POOL_CONTENT)
		r = describe_content(client, (const uint8_t *)body + SODA_WIRE_TELL_BYTES,
				     bytes - SODA_WIRE_TELL_BYTES, reply);
	else
		soda_client_told(client, &tell);
	if (r)
		return r;
	if (atomic_load(&client->all->moving))
		member.flags = SODA_WIRE_MEMBER_DRAINS;
	else if (soda_clients_spreading(client->all))
		member.flags = SODA_WIRE_MEMBER_SPREADS;
	member.free_bytes = soda_store_free_bytes(client->all->pool->store);
	if (server->domain)
		strcpy(member.domain, server->domain); /* not longer: main.c has checked it */
	soda_wire_put_member(reply->body, &member);
	return 0;
}

/* KEY: the transport makes a key from the shared memory. */
static int share_region(struct soda_client *client, const uint8_t *body, size_t bytes, bool shares,
			struct soda_reply *reply)
{
	if (!shares) {
		soda_server_why(&reply->why, "this transport has no keys");
		return -ENOTSUP;
	}
	if (bytes != SODA_WIRE_REGION_BYTES)
		return -EPROTO;
	return soda_region_share(&client->regions, (uint16_t)(body[0] | body[1] << 8),
				 &reply->share, &reply->why);
}

static int dispatch(struct soda_client *client, enum soda_msg type, const void *body, size_t bytes,
		    bool shares, struct soda_reply *reply)
{
	switch (type) {
	case SODA_MSG_OPEN:
		return open_region(client, body, bytes, shares, reply);
	case SODA_MSG_CLOSE:
	case SODA_MSG_SYNC:
	case SODA_MSG_NAME:
		return call_region(client, type, body, bytes, &reply->why);
	case SODA_MSG_KEY:
		return share_region(client, body, bytes, shares, reply);
	case SODA_MSG_STATS:
		return write_stats(client, bytes, reply);
	case SODA_MSG_LIST:
		return list_regions(client, body, bytes, reply);
	case SODA_MSG_DISCARD:
		return discard(client, body, bytes, &reply->why);
	case SODA_MSG_POOL:
		return tell_pool(client, body, bytes, reply);
	case SODA_MSG_PUBLISH:
		return publish(client, body, bytes, reply);
	case SODA_MSG_TOKEN:
		return give_token(client, body, bytes, reply);
	case SODA_MSG_BYE:
		return leave(client, body, bytes);
	case SODA_MSG_ADVISE:
		soda_server_why(&reply->why,
				"caching advice needs a DPU agent, and none is in use");
		return -ENOTSUP;
	case SODA_MSG_PING:
		memmove(reply->body, body, bytes);
		reply->bytes = bytes;
		return 0;
	default:
		if (type < SODA_MSG_SERVICES)
			return -EPROTO;
		soda_server_why(&reply->why, "this is a memory server, without further services");
		return -ENOTSUP;
	}
}

static int call(void *arg, enum soda_msg type, const void *body, size_t bytes, bool shares,
		struct soda_reply *reply)
{
	struct soda_client *client = arg;
	int r;

	reply->bytes = 0;
	reply->share = (struct soda_share){ .fd = -1 };
	reply->why = (struct soda_why){ "" };
	r = dispatch(client, type, body, bytes, shares, reply);
	if (!r)
		return 0;
	explained(r, &reply->why);
	soda_count_add(SODA_COUNT_calls_refused, 1);
	if (may_note())
		soda_log_info("client %016llx: request %d refused: %s",
			      (unsigned long long)client->id, (int)type, reply->why.text);
	return r;
}

static int translate(void *arg, bool write, uint16_t region_id, uint64_t page_offset, uint32_t size,
		     struct soda_span *span)
{
	struct soda_client *client = arg;
	int r = soda_region_acquire(&client->regions, write, region_id, page_offset, size, span);

	SODA_TP_ACCESS(client->id, region_id, page_offset, size, write);
	if (r)
		soda_count_add(SODA_COUNT_requests_bad, 1);
	else
		span->since_ns = soda_now_ns();
	return r;
}

static void release(void *arg, bool write, const struct soda_span *span, bool landed)
{
	struct soda_client *client = arg;

	if (!write || landed)
		soda_count_record(write ? SODA_TIMES_WRITE : SODA_TIMES_READ,
				  soda_now_ns() - span->since_ns);
	if (client->tenant && (!write || landed))
		soda_tenant_count(client->tenant, write, span->bytes);
	if (write && landed) {
		soda_count_add(SODA_COUNT_writes, 1);
		soda_count_add(SODA_COUNT_bytes_written, span->bytes);
	} else if (!write) {
		soda_count_add(SODA_COUNT_reads, 1);
		soda_count_add(SODA_COUNT_bytes_read, span->bytes);
	}
	soda_region_release(&client->regions, span, write, write && landed);
}

static void gone(void *arg, struct soda_peer *peer)
{
	soda_client_gone(arg, peer);
}

static void rejected(void *svc, const char *address, const char *why)
{
	soda_count_add(SODA_COUNT_peers_rejected, 1);
	if (may_note())
		soda_log_info("%s: connection closed: %s", address, why);
}

const struct soda_service soda_server_service = {
	.hello = hello,
	.call = call,
	.translate = translate,
	.release = release,
	.gone = gone,
	.rejected = rejected,
};
