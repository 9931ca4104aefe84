/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs.  The client counts its own reconnections, and the server wants a higher epoch with each
 * HELLO; the agent may have to reconnect in between.  The epoch that the agent says to the server
 * is the client's epoch followed by 16 bits of the agent's own count: so the client's next epoch is
 * higher than all that the agent has said, even if the agent was restarted and has forgotten them.
 * While the agent remembers, each epoch is higher than the last one, also where that attempt
 * failed: HELLOs overlap, and the server tells a client whose epoch it has already seen to begin
 * anew.
 */
#include "dpu_agent/paging/upstream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "client/call.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/sealed_files.h"
#include "dpu_agent/session/tenants.h"
#include "pool/erasure.h"

static struct soda_session *session_of(const struct soda_server *server)
{
	return server->owner;
}

/* Set hello.epoch to one less than the next epoch; soda_server_attempt() adds one. */
static void choose_epoch(struct soda_session *s)
{
	struct soda_server *server = &soda_pager(s)->server;
	uint64_t first;

	pthread_mutex_lock(&s->lock);
	first = s->epoch
		<< SODA_AGENT_EPOCH_SHIFT; /* no bit is lost: HELLOs are checked for that */
	pthread_mutex_unlock(&s->lock);
	if (server->hello.epoch + 1 < first)
		server->hello.epoch = first - 1;
}

static int connect_channels(struct soda_session *s, struct soda_why *why)
{
	struct soda_pager *p = soda_pager(s);

	for (unsigned i = 0; i < p->channels_n; i++) {
		const struct soda_conn_options opt = { .kind = SODA_CONN_DATA,
						       .depth = SODA_CHANNEL_DEPTH,
						       .deep = i >= soda_paging(s)->channels,
						       .timeout_ms = p->server.connect_ms,
						       .identity = soda_server_identity(&p->server),
						       .client_key = p->server.client_key,
						       .place = soda_server_place(&p->server) };
		struct soda_wire_welcome w;
		struct soda_conn *conn;
		int ret = soda_conn_connect(p->server.address, &p->server.hello, &opt, &conn, &w,
					    why);

		if (ret < 0)
			return ret;
		soda_channel_connect(&p->channels[i], conn);
		if (soda_paging(s)->async && i <= soda_paging(s)->channels)
			ret = soda_completer_watch(&soda_paging(s)->completers, &p->channels[i]);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* Drop the READs, and without async WRITEs, that were not posted yet. */
static void drop_queue(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *queue, *gate;

	pthread_mutex_lock(&s->lock);
	queue = p->queue;
	p->queue = NULL;
	p->queue_end = &p->queue;
	gate = soda_gate_take_all_locked(s);
	pthread_mutex_unlock(&s->lock);
	soda_forward_drop_tasks(queue);
	soda_forward_drop_tasks(gate);
}

/* End transfers that were under way: drops READs; the write list still has its WRITEs. */
static void take_back(struct soda_transfer *list)
{
	while (list) {
		struct soda_transfer *next = list->next;

		soda_sealing_release(list);
		if (list->writes) {
			free(list);
		} else if (list->ended) {
			list->ended(list, -ECONNRESET);
		} else {
			list->next = NULL;
			soda_forward_drop_transfers(list);
		}
		list = next;
	}
}

static void close_channels(struct soda_server *server)
{
	struct soda_session *s = session_of(server);
	struct soda_pager *p = soda_pager(s);

	pthread_mutex_lock(&s->lock);
	s->up = s->broken = false;
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < p->channels_n; i++)
		soda_channel_abort(&p->channels[i]);
	for (unsigned i = 0; i < p->channels_n; i++) {
		soda_completer_forget(&p->channels[i]);
		take_back(soda_channel_disconnect(&p->channels[i]));
	}
	soda_writes_restart(s);
	soda_writes_unkeep(s);
	drop_queue(s);
	/* what was under way has made room, and no answer will come that tells others of the
	 * server's */
	if (soda_paging(s)->async)
		soda_schedule_run(s, NULL);
}

/* Regions */

/* The first region with the number *id_p or a higher one, which *id_p becomes; NULL: none. */
static struct soda_paging_region *next_region(struct soda_session *s, unsigned *id_p)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_paging_region *r = NULL;

	pthread_mutex_lock(&s->lock);
	for (unsigned id = *id_p; id < p->regions_end && !r; id++)
		if ((r = p->regions[id]))
			*id_p = id;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Add r, which is filled in, to the session. */
static void add_region(struct soda_session *s, struct soda_paging_region *r)
{
	struct soda_pager *p = soda_pager(s);
	uint16_t id = r->mr.region_id;

	soda_caches_open(s, r);
	pthread_mutex_lock(&s->lock);
	p->regions[id] = r;
	if (id >= p->regions_end)
		p->regions_end = id + 1u;
	pthread_mutex_unlock(&s->lock);
}

/* The state of what an earlier instance of the agent has sealed. */
static int find_sealing(struct soda_session *s, struct soda_paging_region *r, struct soda_why *why)
{
	struct soda_sealer *sealer = &soda_paging(s)->sealer;
	uint64_t client = soda_pager(s)->server.hello.client_id;
	int ret;

	if (!(r->flags & SODA_WIRE_SEALED_BY_AGENT))
		return soda_sealing_begin(sealer, client, r->mr.region_id, r->bytes, true,
					  &r->sealing, why);
	ret = soda_sealed_files_measure(r);
	return ret ? ret
		   : soda_sealing_find_file(sealer, client, r->mr.region_id, r->bytes, &r->sealing,
					    why);
}

/*
 * What an earlier instance of the agent has sealed, and nothing else that may be written, is sealed
 * by this one.  What an agent before this one seals is plain here.
 */
static int learn_sealing(struct soda_session *s, const struct soda_wire_listed *l,
			 struct soda_paging_region *r, struct soda_why *why)
{
	struct soda_sealer *sealer = &soda_paging(s)->sealer;
	uint64_t client = soda_pager(s)->server.hello.client_id;
	bool sealed = l->flags & SODA_WIRE_SEALED, plain = l->flags & SODA_WIRE_READ_ONLY;
	bool file = l->flags & SODA_WIRE_SEALED_BY_AGENT;

	if (s->sealed && !sealer->on)
		return 0;
	if (file && sealer->on && !sealer->files)
		snprintf(why->text, sizeof(why->text),
			 "this program has a file that the agent before this one has sealed: start "
			 "it with the same --seal-key-file");
	else if (sealed && !sealer->on)
		snprintf(why->text, sizeof(why->text),
			 "what this program has was sealed by the agent before this one: start it "
			 "with --seal, and the same --seal-state");
	else if (sealer->on && !sealed &&
		 (!plain || soda_sealing_exists(sealer, client, l->region_id)))
		snprintf(why->text, sizeof(why->text),
			 "this agent seals (--seal), and what the server has of this program's "
			 "region %u is not sealed: start the program anew",
			 l->region_id);
	else
		return sealed ? find_sealing(s, r, why) : 0;
	return -EACCES;
}

/* Add a region that the client opened through an earlier instance of the agent. */
static int learn_region(struct soda_session *s, const struct soda_wire_listed *l,
			struct soda_why *why)
{
	struct soda_mr mr = { .bytes = (l->bytes + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE *
				       SODA_WIRE_PAGE,
			      .region_id = l->region_id,
			      .writable = !(l->flags & SODA_WIRE_READ_ONLY) };
	struct soda_paging_region *r;
	int ret;

	if (!l->bytes || l->bytes > UINT64_MAX / 2)
		return -EPROTO;
	pthread_mutex_lock(&s->lock);
	r = soda_region_find_locked(s, l->region_id);
	pthread_mutex_unlock(&s->lock);
	if (r)
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct soda_paging_region){
		.mr = mr,
		.bytes = mr.bytes,
		.flags = l->flags,
		.file_id = l->file_id,
		.generation = l->generation,
	};
	ret = learn_sealing(s, l, r, why);
	if (ret < 0) {
		free(r);
		return ret;
	}
	if (!l->file_id) {
		r->charged = r->mr.bytes;
		soda_quota_note(s->tenant, r->charged);
	}
	add_region(s, r);
	return 0;
}

static int learn_regions(struct soda_session *s, struct soda_conn *control, struct soda_why *why)
{
	uint8_t *reply = malloc(SODA_WIRE_MAX_CONTROL);
	uint32_t from = 0;
	int ret = reply ? 0 : -ENOMEM;

	while (ret == 0 && from <= UINT16_MAX) {
		uint8_t id[2] = { (uint8_t)from, (uint8_t)(from >> 8) };
		struct iovec body = { id, sizeof(id) };
		struct soda_wire_listed l;
		size_t bytes = 0;

		ret = soda_conn_call(control, SODA_MSG_LIST, &body, 1, reply, SODA_WIRE_MAX_CONTROL,
				     &bytes, (int)soda_paging(s)->opt->timeout_ms, why);
		if (ret == 0 && bytes % SODA_WIRE_LISTED_BYTES)
			ret = -EPROTO;
		if (ret < 0 || !bytes)
			break;
		for (size_t at = 0; ret == 0 && at < bytes; at += SODA_WIRE_LISTED_BYTES) {
			soda_wire_get_listed(reply + at, &l);
			ret = l.region_id < from ? -EPROTO : learn_region(s, &l, why);
			from = l.region_id + 1u;
		}
	}
	free(reply);
	return ret;
}

/* The region is not found any more, but requests and prefetch workers may still hold it. */
static void await_let_go(struct soda_session *s, struct soda_paging_region *r)
{
	struct soda_wait wait;

	soda_wait_begin(&wait, "a region of a client that the server has forgotten");
	pthread_mutex_lock(&s->lock);
	while (r->holds)
		soda_wait_turn(&wait, &s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	soda_wait_end(&wait);
}

void soda_upstream_forget_regions(struct soda_session *s, bool kept)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_paging_region *r;

	for (unsigned id = 0; (r = next_region(s, &id)); id++) {
		pthread_mutex_lock(&s->lock);
		p->regions[id] = NULL;
		s->untold -= soda_region_untold_locked(s, r);
		if (p->said.region == r)
			p->said.region = NULL;
		pthread_mutex_unlock(&s->lock);
		soda_caches_close(s, r);
		await_let_go(s, r);
		soda_caches_free(s, r);
		soda_paging_store_leave(r);
		soda_conn_unmap_region(&r->mr);
		if (!s->leaving)
			soda_sealing_note_end(r->sealing);
		soda_sealing_end(r->sealing, kept);
		soda_quota_refund(s->tenant, r->charged);
		free(r);
	}
}

/* The server does not know the client any more: drop its WRITEs and its regions. */
static void lose_all(struct soda_session *s)
{
	if (soda_writes_acknowledged(s))
		soda_session_bury(s);
	soda_writes_discard(s, NULL, true);
	soda_upstream_forget_regions(s, false);
}

/* The flags of our number that come from the server's. */
static void show(struct soda_session *s, uint32_t flags)
{
	pthread_mutex_lock(&s->lock);
	s->shows = flags;
	s->of_pool = s->of_pool || flags;
	pthread_mutex_unlock(&s->lock);
}

/* In front of a pool: to the client we are as the agent is.  Where we seal, we keep and encode. */
static void show_pool(struct soda_session *s, uint32_t agent)
{
	bool codes =
		soda_paging(s)->sealer.on ? soda_erasure_built() : agent & SODA_WIRE_AGENT_CODES;

	show(s, SODA_WIRE_AGENT_POOL | (codes ? SODA_WIRE_AGENT_CODES : 0));
}

/* Which member the session is for, if its client does not know yet: the agent names that first. */
static int learn_member(struct soda_session *s, const char *list, struct soda_why *why)
{
	struct soda_members members;

	if (atomic_load(&s->member))
		return 0;
	if (soda_members_parse(list, &members, why))
		return -EPROTO;
	atomic_store(&s->member, soda_members_hash(members.address[0]));
	soda_pager(s)->server.hello.features |= (uint32_t)atomic_load(&s->member)
						<< SODA_FEATURE_MEMBER_SHIFT;
	return 0;
}

/*
 * One server is the one that the client means, or no member of a pool's: an agent may have been
 * here before it.
 */
static int check_single(struct soda_session *s, struct soda_why *why)
{
	uint16_t member = atomic_load(&s->member);

	show(s, 0);
	return !member || member == soda_session_place(s)->tag
		       ? 0
		       : soda_session_no_member(s->all, why);
}

/*
 * Whether this agent may use the server that it has met, which may be another agent.  One that
 * acknowledges WRITEs before its own server has them would lose data that this agent takes for
 * stored, and tells programs so.
 */
static int accepts(struct soda_server *server, struct soda_conn *control,
		   const struct soda_wire_welcome *welcome, struct soda_why *why)
{
	struct soda_session *s = session_of(server);
	uint32_t agent = welcome->agent;
	char members[SODA_MEMBERS_TEXT_MAX + 1] = "";
	int ret = 0;

	atomic_store(&soda_paging(s)->server_is_agent, agent != 0);
	if (agent & SODA_WIRE_AGENT_EARLY) {
		snprintf(why->text, sizeof(why->text),
			 "%.80s is an agent that cannot acknowledge late what another agent writes:"
			 " start the same release of soda-dpu-agent in both places",
			 soda_session_server(s));
		return -ENOTSUP;
	}
	if (agent && s->all->servers.pool) {
		snprintf(why->text, sizeof(why->text),
			 "%.150s is a DPU agent: the members of a pool are memory servers",
			 soda_session_server(s));
		return -ENOTSUP;
	}
	if (agent & SODA_WIRE_AGENT_POOL)
		ret = soda_call_members(control, members, sizeof(members),
					(int)soda_paging(s)->opt->timeout_ms, why);
	if (ret)
		return ret;
	if (!members[0])
		return check_single(s, why);
	show_pool(s, agent);
	return learn_member(s, members, why);
}

/* Whether a region lacks its shared memory, which a server passes only when a region is opened. */
static bool has_unmapped(struct soda_session *s)
{
	const char *shm = "shm://";
	struct soda_paging_region *r;

	if (strncmp(soda_session_server(s), shm, strlen(shm)))
		return false;
	for (unsigned id = 0; (r = next_region(s, &id)); id++)
		if (!r->mr.map)
			return true;
	return false;
}

/* Get new keys to the regions' memory: keys end with the connection that they came on. */
static int renew_regions(struct soda_session *s, struct soda_conn *control, struct soda_why *why)
{
	struct soda_paging_region *r;
	int ret = 0;

	for (unsigned id = 0; ret == 0 && (r = next_region(s, &id)); id++)
		ret = soda_conn_renew_region(control, &r->mr, (int)soda_paging(s)->opt->timeout_ms,
					     why);
	return ret;
}

/* Agree with the server about the client's regions. */
static int come_to_terms(struct soda_session *s, struct soda_conn *control, bool known,
			 struct soda_why *why)
{
	int ret = known ? learn_regions(s, control, why) : 0;

	if (ret == 0 && known)
		ret = renew_regions(s, control, why);
	if (ret == 0 && has_unmapped(s)) {
		snprintf(
			why->text, sizeof(why->text),
			"the agent was restarted, and cannot map again what %.120s shares: use tcp",
			soda_session_server(s));
		ret = -ESTALE;
	}
	return ret;
}

/* The session's hooks. */

static int meet(struct soda_server *server, struct soda_conn *control, enum soda_server_met met,
		struct soda_why *why)
{
	struct soda_session *s = session_of(server);
	int ret;

	if (met == SODA_MET_FORGOTTEN)
		lose_all(s);
	ret = come_to_terms(s, control, server->welcome.known, why);
	return ret < 0 ? ret : connect_channels(s, why);
}

static void come_up(struct soda_server *server)
{
	struct soda_session *s = session_of(server);
	struct soda_pager *p = soda_pager(s);
	const struct soda_conn *writes = p->channels[soda_paging(s)->channels].conn;
	bool passes = s->shows && soda_paging(s)->async && !soda_paging(s)->sealer.on;

	p->orphan_since_ms = 0;
	soda_schedule_enter(s);
	pthread_mutex_lock(&s->lock);
	p->secret = server->hello.secret;
	p->keeps = passes && soda_conn_keeps(writes);
	p->codes = passes && soda_conn_codes(writes);
	s->up = true;
	pthread_mutex_unlock(&s->lock);
}

static void fail(struct soda_server *server, int err)
{
	soda_session_break(session_of(server), err);
}

static const struct soda_server_hooks hooks = {
	.accepts = accepts,
	.met = meet,
	.up = come_up,
	.away = close_channels,
	.failed = fail,
};

void soda_upstream_init(struct soda_session *s)
{
	soda_server_init(&soda_pager(s)->server, soda_session_server(s), SODA_CONNECT_MS, &hooks,
			 s);
	soda_server_identify(&soda_pager(s)->server, soda_session_place(s)->identity);
}

/* The client may have found the server at another address. */
static void follow(struct soda_session *s)
{
	struct soda_server *server = &soda_pager(s)->server;
	const struct soda_dpu_server *place = soda_session_place(s);

	if (!strcmp(server->address, place->address))
		return;
	soda_log_info("client %016llx: %s is to be found at %s from now on",
		      (unsigned long long)s->id, server->address, place->address);
	soda_server_identify(server, place->identity);
	soda_server_move(server, place->address);
}

static int connect_as(struct soda_session *s, enum soda_server_as as, struct soda_why *why)
{
	int ret;

	follow(s);
	choose_epoch(s);
	ret = soda_server_attempt(&soda_pager(s)->server, as, why);
	if (ret < 0)
		return ret;
	soda_sealed_files_learn(s);
	if (soda_paging(s)->async)
		soda_forward_writes(s);
	return ret;
}

int soda_upstream_connect(struct soda_session *s, struct soda_why *why)
{
	return connect_as(s, SODA_AS_ANYBODY, why);
}

int soda_upstream_reconnect(struct soda_session *s, struct soda_why *why)
{
	return connect_as(s, SODA_AS_KNOWN, why);
}

void soda_upstream_disconnect(struct soda_session *s)
{
	soda_server_down(&soda_pager(s)->server);
}

int soda_upstream_call(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		       int body_n, struct soda_why *why)
{
	return soda_call(&soda_pager(s)->server, type, body, body_n, NULL, 0, NULL,
			 (int)soda_paging(s)->opt->timeout_ms, why);
}

void soda_upstream_leave(struct soda_session *s)
{
	uint32_t timeout_ms = soda_paging(s)->opt->timeout_ms;
	struct soda_why why;

	soda_call(&soda_pager(s)->server, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL,
		  (int)(timeout_ms < SODA_DPU_BYE_MS ? timeout_ms : SODA_DPU_BYE_MS), &why);
}

int soda_upstream_ask(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t reply_bytes, struct soda_why *why)
{
	size_t got = 0;
	int ret = soda_call(&soda_pager(s)->server, type, body, body_n, reply, reply_bytes, &got,
			    (int)soda_paging(s)->opt->timeout_ms, why);

	return ret == -EMSGSIZE || (ret == 0 && got != reply_bytes) ? -EPROTO : ret;
}

int soda_upstream_pass(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		       int body_n, struct soda_reply *reply)
{
	size_t got = 0;
	int ret = soda_call(&soda_pager(s)->server, type, body, body_n, reply->body,
			    SODA_WIRE_MAX_CONTROL, &got, (int)soda_paging(s)->opt->timeout_ms,
			    &reply->why);

	reply->bytes = ret < 0 ? 0 : got;
	return ret == -EMSGSIZE ? -EPROTO : ret;
}

struct opening {
	const struct soda_wire_open *open;
	const char *name;
	struct soda_wire_opened *opened;
	struct soda_mr *mr;
};

static int open_call(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		     struct soda_why *why)
{
	struct opening *o = arg;

	return soda_conn_open_region(control, o->open, o->name, o->opened, o->mr, timeout_ms, why);
}

/* Of a program, that the agent does not seal: why. */
static int refuse_to_seal(const struct soda_wire_open *open, struct soda_why *why)
{
	const char *text = "the DPU agent seals what programs write (--seal), and has no key for "
			   "files: give it --seal-key-file, open it READ_ONLY, or use an agent "
			   "without --seal";

	if (open->flags & SODA_WIRE_SEALED_BY_AGENT || open->flags == SODA_WIRE_SEALED)
		text = "two agents in a row seal: start one of them without --seal";
	else if (open->flags & SODA_WIRE_SEALED)
		text = "the DPU agent seals (--seal), and this file is sealed by its program: use "
		       "an agent without --seal";
	else if (open->flags & SODA_WIRE_PRIVATE)
		text = "the DPU agent seals what programs write (--seal), and files that are "
		       "opened PRIVATE are not sealed: use an agent without --seal";
	snprintf(why->text, sizeof(why->text), "%s", text);
	return -ENOTSUP;
}

/*
 * --seal: anonymous regions are sealed, and files with --seal-key-file.  An anonymous region is
 * new, so that it is zeros, whatever the server has there; what a file is is read once it is open.
 */
static int begin_sealing(struct soda_session *s, struct soda_wire_open *open,
			 struct soda_paging_region *r, struct soda_why *why)
{
	const uint32_t modes = SODA_WIRE_READ_ONLY | SODA_WIRE_WRITABLE;
	struct soda_sealer *sealer = &soda_paging(s)->sealer;
	uint64_t pages = open->bytes / SODA_WIRE_PAGE + (open->bytes % SODA_WIRE_PAGE != 0);

	if (!sealer->on)
		return 0;
	if (sealer->files && open->flags & modes && !(open->flags & ~(modes | SODA_WIRE_CREATE)))
		return soda_sealed_files_ask(s, open, why);
	if (open->flags & SODA_WIRE_READ_ONLY)
		return 0;
	if (open->flags)
		return refuse_to_seal(open, why);
	if (pages > UINT32_MAX || !pages) {
		snprintf(why->text, sizeof(why->text), "a sealed object has 1 byte to 16 TiB");
		return -EINVAL;
	}
	open->flags = SODA_WIRE_SEALED;
	return soda_sealing_begin(sealer, soda_pager(s)->server.hello.client_id, open->region_id,
				  pages * SODA_WIRE_PAGE, false, &r->sealing, why);
}

/* The table of a sealed region ends where the program's size does. */
static int check_opened(const struct soda_paging_region *r, const struct soda_wire_open *open)
{
	uint64_t left = open->bytes % SODA_WIRE_PAGE;

	return r->sealing && !open->name_bytes &&
			       r->mr.bytes > open->bytes + (left ? SODA_WIRE_PAGE - left : 0)
		       ? -EPROTO
		       : 0;
}

/* To the tenant's quota, where it is memory. r->charged is what is to be refunded. */
static int charge(struct soda_session *s, const struct soda_wire_open *open,
		  struct soda_paging_region *r, struct soda_why *why)
{
	int ret = open->name_bytes ? 0 : soda_quota_charge(s->tenant, open->bytes, why);

	r->charged = ret || open->name_bytes ? 0 : open->bytes;
	return ret;
}

/*
 * OPEN at the server.  What is to be read, and is not sealed, is opened as it is, where that is
 * allowed: only the server knows which of both a file is.
 */
static int open_there(struct soda_session *s, const struct soda_wire_open *asked, struct opening *o,
		      struct soda_wire_open *open, struct soda_why *why)
{
	int timeout_ms = (int)soda_paging(s)->opt->timeout_ms;
	int ret = soda_call_once(&soda_pager(s)->server, open_call, o, timeout_ms, why);

	if (ret != -EINVAL || !(open->flags & SODA_WIRE_SEALED_BY_AGENT) ||
	    open->flags & SODA_WIRE_WRITABLE)
		return ret;
	if (soda_paging(s)->sealer.files &&
	    soda_paging(s)->opt->seal_files == SODA_SEAL_FILES_REQUIRE) {
		snprintf(why->text, sizeof(why->text),
			 "it is not sealed, and this agent reads only what is: --seal-files");
		return ret;
	}
	*open = *asked;
	why->text[0] = 0;
	return soda_call_once(&soda_pager(s)->server, open_call, o, timeout_ms, why);
}

/* The server has opened it: what r is to the program. */
static int take_opened(struct soda_session *s, struct soda_paging_region *r,
		       const struct soda_wire_open *asked, const struct soda_wire_open *open,
		       struct soda_wire_opened *opened_p, struct soda_why *why)
{
	uint8_t id[2] = { (uint8_t)open->region_id, (uint8_t)(open->region_id >> 8) };
	struct iovec body = { id, sizeof(id) };
	struct soda_why ignored;
	int ret;

	r->flags = open->flags & ~(uint32_t)SODA_WIRE_CREATE;
	r->file_id = opened_p->file_id;
	r->generation = opened_p->generation;
	r->bytes = r->mr.bytes;
	if (!soda_paging(s)->sealer.on || !(open->flags & SODA_WIRE_SEALED_BY_AGENT))
		return check_opened(r, open);
	ret = soda_sealed_files_open(s, r, asked->bytes, opened_p, why);
	if (ret < 0) {
		soda_upstream_call(s, SODA_MSG_CLOSE, &body, 1, &ignored);
		soda_conn_unmap_region(&r->mr);
	}
	return ret;
}

int soda_upstream_open(struct soda_session *s, const struct soda_wire_open *asked, const char *name,
		       struct soda_wire_opened *opened_p, struct soda_why *why)
{
	struct soda_paging_region *r =
		calloc(1, sizeof(*r)); /* before OPEN: an open region must be added */
	char text[SODA_WIRE_MAX_NAME + 1];
	struct soda_wire_open sent = *asked, *open = &sent;
	struct opening opening = { open, text, opened_p, r ? &r->mr : NULL };
	int ret;

	if (!r)
		return -ENOMEM;
	memcpy(text, name, open->name_bytes);
	text[open->name_bytes] = 0;
	ret = charge(s, open, r, why);
	if (ret == 0)
		ret = begin_sealing(s, open, r, why);
	if (ret == 0)
		ret = open_there(s, asked, &opening, open, why);
	if (ret == 0)
		ret = take_opened(s, r, asked, open, opened_p, why);
	if (ret < 0) {
		soda_sealing_end(r->sealing, false);
		soda_quota_refund(s->tenant, r->charged);
		free(r);
		return ret;
	}
	add_region(s, r);
	return 0;
}

bool soda_upstream_stuck(struct soda_session *s)
{
	uint64_t now = soda_now_ns();

	for (unsigned i = 0; i < soda_pager(s)->channels_n; i++) {
		const struct soda_channel *c = &soda_pager(s)->channels[i];

		if (atomic_load(&c->under_way) &&
		    now > atomic_load(&c->progress_ns) +
				    soda_paging(s)->opt->timeout_ms * 1000000ull)
			return true;
	}
	return false;
}
