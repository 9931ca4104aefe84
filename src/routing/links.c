/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way from this agent to the other agents of a job: a thread for each, which takes packets for
 * that agent's ranks out of their inboxes, and RELAYs them, many together.
 *
 *   wait     until a transfer is full, its first packet has waited for its time, a
 *            rank on the blocklist is to be tried again, or there is something to say
 *   load     packets of all ranks in turns, but of one on the blocklist the oldest alone
 *   RELAY    up to SODA_MSG_AHEAD of them before the first one is answered; on another connection
 *            where one is lost, all that have no answer again, with the same numbers;
 *            or an OFFER: where the packets lie in memory that the other agent has mapped (near.h),
 *            how far each of its ranks' rings is filled
 *   settle   packets that were taken leave their inboxes; ranks whose packets were not are on the
 *            blocklist
 *
 * A packet stays in its inbox until its RELAY is answered, so a connection may be lost at any time.
 * Where one is refused, so are those for the same rank in the RELAYs behind it
 * (soda_wire_msg_relay, ahead), and they are loaded again, in their order. For SODA_MSG_PATIENCE_MS
 * without an answer the job is broken off.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "routing/jobs.h"
#include "transport/api/transport.h"
#include "trust/identity.h"
#include "wire/field.h"

enum {
	NS_PER_MS = 1000000,
	TAKEN_MAX = SODA_MSG_RANKS * sizeof(uint64_t), /* the longest answer */
};

/* A rank at the other agent. */
struct target {
	uint32_t rank;
	uint32_t wait_ms;    /* not 0: on the blocklist, and tried again so much later */
	uint64_t retry_ns;   /* when */
	uint64_t loaded;     /* of its inbox, in bytes since the start */
	uint64_t stale;	     /* what RELAYs up to this one have for it will not be taken */
	uint32_t flying;     /* its packets in RELAYs that have no answer yet */
	uint64_t head, tail; /* of its inbox, as was offered */
};

/* A RELAY or an OFFER, until it is answered. */
struct flight {
	struct soda_wire_msg_relay relay;
	bool offers;
	uint64_t offered; /* bytes, of an OFFER */
	uint32_t bytes;	  /* of body */
	struct {
		uint32_t target, bytes;
	} of[SODA_MSG_PACKETS];
	uint8_t body[SODA_WIRE_MAX_CONTROL];
};

/* A link, as its thread has it. */
struct way {
	struct soda_msg_link *link;
	struct soda_msg_jobs *all;
	struct soda_conn *conn;
	struct soda_identity *identity;	 /* as whom; as long as conn */
	bool linked;			 /* it has been, at some time */
	bool asked;			 /* for the other agent's memory */
	bool kicked;			 /* there is something to say */
	bool last;			 /* nothing follows what has been made */
	uint64_t lost_ns;		 /* since when there is no answer; 0: there is */
	uint64_t said_ns;		 /* the last RELAY that was answered */
	struct soda_wire_msg_relay said; /* the last one that was made */
	/* the last RELAY that was answered, sent on this connection, made */
	uint64_t number, sent, made;
	uint32_t first; /* target whose turn is the first one */
	struct flight flights[SODA_MSG_AHEAD];
	struct target targets[];
};

static struct flight *flight(struct way *w, uint64_t number)
{
	return &w->flights[number % SODA_MSG_AHEAD];
}

/* Waiting */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the thread has something to do though nobody tells it. */
static uint64_t due_ns_locked(const struct way *w)
{
	const struct soda_msg_link *l = w->link;
	uint64_t due = w->said_ns + SODA_MSG_LINK_BEAT_MS * (uint64_t)NS_PER_MS;

	if (l->kick || l->fresh >= w->all->tuning.transfer_bytes)
		return 0;
	if (l->fresh)
		due = earlier(due, l->since_ns + w->all->tuning.wait_us * 1000ull);
	for (uint32_t i = 0; i < l->ranks_n; i++)
		if (w->targets[i].wait_ms)
			due = earlier(due, w->targets[i].retry_ns);
	return due;
}

/* What is there to be done is the caller's; what comes from here on is counted, and perhaps loaded
 * as well. */
static void take_work_locked(struct way *w)
{
	struct soda_msg_link *l = w->link;

	w->kicked |= l->kick;
	l->kick = false;
	l->fresh = 0;
}

static void await_work(struct way *w)
{
	struct soda_msg_link *l = w->link;
	uint64_t due;

	pthread_mutex_lock(&l->lock);
	while ((due = due_ns_locked(w)) > soda_now_ns()) {
		struct timespec t = { (time_t)(due / 1000000000), (long)(due % 1000000000) };

		pthread_cond_timedwait(&l->work, &l->lock, &t);
	}
	take_work_locked(w);
	pthread_mutex_unlock(&l->lock);
}

/* The same without waiting. False: there is nothing to be done. */
static bool find_work(struct way *w)
{
	struct soda_msg_link *l = w->link;
	bool due;

	pthread_mutex_lock(&l->lock);
	due = due_ns_locked(w) <= soda_now_ns();
	if (due)
		take_work_locked(w);
	pthread_mutex_unlock(&l->lock);
	return due;
}

static void pause_ms(struct way *w, uint32_t ms)
{
	struct soda_msg_link *l = w->link;
	uint64_t end = soda_now_ns() + ms * (uint64_t)NS_PER_MS;
	struct timespec t = { (time_t)(end / 1000000000), (long)(end % 1000000000) };

	pthread_mutex_lock(&l->lock);
	while (!l->kick && !pthread_cond_timedwait(&l->work, &l->lock, &t))
		;
	w->kicked |= l->kick;
	l->kick = false;
	pthread_mutex_unlock(&l->lock);
}

/* Loading */

/* What lies at the end of body, so many bytes, is for this target. */
static void note_packets(struct way *w, struct flight *f, uint32_t target, uint32_t bytes)
{
	uint32_t end = f->bytes + bytes;

	while (f->bytes != end) {
		struct soda_wire_msg_packet p;
		uint32_t i = f->relay.packets++;

		soda_wire_get_msg_packet(f->body + f->bytes, end - f->bytes, &p);
		p.to = w->targets[target].rank;
		soda_wire_put_msg_packet(f->body + f->bytes, &p);
		f->of[i].target = target;
		f->of[i].bytes = SODA_WIRE_MSG_PACKET_BYTES + p.bytes;
		f->bytes += f->of[i].bytes;
		w->targets[target].flying++;
	}
}

/* Packets for one rank. Returns how many bytes stay behind that may be sent next time. */
static uint64_t load_target(struct way *w, struct flight *f, uint32_t target, uint64_t now)
{
	struct target *t = &w->targets[target];
	struct soda_inbox *in = &w->link->job->ranks[t->rank].inbox;
	uint32_t most = SODA_MSG_PACKETS - f->relay.packets, bytes;
	uint64_t behind = 0;

	if (t->wait_ms && (t->retry_ns > now || t->flying))
		return 0;
	if (t->wait_ms && most > 1)
		most = 1;
	bytes = soda_inbox_look(in, t->loaded, f->body + f->bytes, sizeof(f->body) - f->bytes, most,
				&behind);
	t->loaded += bytes;
	note_packets(w, f, target, bytes);
	return t->wait_ms ? 0 : behind;
}

/* What lies in the memory of all ranks' packets: none of it is held up by another one's. */
static void load_offer(struct way *w, struct flight *f)
{
	struct soda_msg_link *l = w->link;
	bool blocked = true;

	f->offered = 0;
	for (uint32_t i = 0; i < l->ranks_n; i++) {
		struct target *t = &w->targets[i];

		soda_inbox_span(&l->job->ranks[t->rank].inbox, &t->head, &t->tail);
		soda_wire_put_u64(f->body + f->bytes, t->tail);
		f->bytes += sizeof(t->tail);
		f->offered += t->tail - t->head;
		blocked &= t->tail == t->head || t->wait_ms;
	}
	if (!blocked)
		f->relay.wait_ms = 0;
}

/* Packets of all ranks, in turns. */
static void load_packets(struct way *w, struct flight *f)
{
	struct soda_msg_link *l = w->link;
	uint64_t now = soda_now_ns(), behind = 0;
	bool blocked = true;

	for (uint32_t i = 0; i < l->ranks_n; i++)
		behind += load_target(w, f, (w->first + i) % l->ranks_n, now);
	w->first = (w->first + 1) % l->ranks_n;
	for (uint32_t i = 0; i < f->relay.packets; i++)
		blocked &= w->targets[f->of[i].target].wait_ms != 0;
	/* only where nothing else is held up may the other agent wait for room */
	if (!blocked || w->made != w->number)
		f->relay.wait_ms = 0;
	if (!behind)
		return;
	pthread_mutex_lock(&l->lock);
	if (!l->fresh)
		l->since_ns = now;
	l->fresh += behind;
	pthread_mutex_unlock(&l->lock);
}

/* Make the next RELAY, whose head says what there is to say. */
static struct flight *load(struct way *w, const struct soda_wire_msg_relay *head)
{
	struct flight *f = flight(w, w->made + 1);

	f->relay = *head;
	f->relay.packets = 0;
	f->bytes = SODA_WIRE_MSG_RELAY_BYTES;
	f->offers = soda_msg_link_is_near(w->link);
	if (f->offers)
		load_offer(w, f);
	else
		load_packets(w, f);
	/*
	 * The phase may have ended since the head was made: then there were no packets of it, and
	 * those that have been loaded are of the next one.
	 */
	f->relay.phase = soda_msg_link_phase(w->link);
	f->relay.number = w->made + 1;
	f->relay.ahead = (uint32_t)(w->made - w->number);
	soda_wire_put_msg_relay(f->body, &f->relay);
	return f;
}

/* Settling */

static void set_blocked(struct way *w, uint32_t target, bool blocked, uint64_t now)
{
	struct target *t = &w->targets[target];

	if (blocked != (t->wait_ms != 0))
		atomic_fetch_add(&w->all->relays.blocked, blocked ? 1 : -1);
	t->wait_ms = !blocked					 ? 0
		     : !t->wait_ms				 ? 1
		     : t->wait_ms * 2 < SODA_MSG_LINK_BLOCKED_MS ? t->wait_ms * 2
								 : SODA_MSG_LINK_BLOCKED_MS;
	t->retry_ns = now + t->wait_ms * (uint64_t)NS_PER_MS;
}

/* Of a target's packets the first ones are taken, and none that was loaded behind a refused one. */
static bool in_order(const struct way *w, const struct flight *f, const uint8_t *taken)
{
	for (uint32_t i = 0; i < f->relay.packets; i++) {
		uint32_t target = f->of[i].target;

		if (taken[i] && f->relay.number <= w->targets[target].stale)
			return false;
		if (taken[i] && i && target == f->of[i - 1].target && !taken[i - 1])
			return false;
	}
	return true;
}

/* What has become of a RELAY, or an OFFER. */
struct settled {
	uint64_t bytes; /* of packets that were taken */
	uint32_t packets, refused;
	bool room;  /* an inbox has some that had been asked in vain */
	bool freed; /* a rank is not blocked any more */
};

/* So many bytes for that rank were taken, and others, perhaps, were not: those are loaded again. */
static void settle_target(struct way *w, const struct flight *f, uint32_t target, uint64_t bytes,
			  bool refused, struct settled *all)
{
	struct target *t = &w->targets[target];
	uint64_t head;
	bool made_room;

	head = soda_inbox_drop(&w->link->job->ranks[t->rank].inbox, bytes, &made_room);
	all->room |= made_room;
	all->bytes += bytes;
	if (f->relay.number <= t->stale)
		return;
	if (refused) {
		t->loaded = head;
		t->stale = w->made;
	}
	all->freed |= !refused && t->wait_ms;
	set_blocked(w, target, refused, soda_now_ns());
}

static struct settled settle_packets(struct way *w, const struct flight *f, const uint8_t *taken)
{
	struct settled all = { 0 };

	for (uint32_t i = 0, k; i < f->relay.packets; i = k) {
		uint32_t target = f->of[i].target, refused = all.refused;
		uint64_t bytes = 0;

		for (k = i; k < f->relay.packets && f->of[k].target == target; k++) {
			bytes += taken[k] ? f->of[k].bytes : 0;
			all.refused += !taken[k];
		}
		w->targets[target].flying -= k - i;
		settle_target(w, f, target, bytes, all.refused != refused, &all);
	}
	all.packets = f->relay.packets - all.refused;
	return all;
}

static uint64_t taken_of(const uint8_t *taken, uint32_t target)
{
	return soda_wire_get_u64(taken + sizeof(uint64_t) * target);
}

static struct settled settle_offer(struct way *w, const struct flight *f, const uint8_t *taken)
{
	struct settled all = { 0 };

	for (uint32_t i = 0; i < w->link->ranks_n; i++) {
		const struct target *t = &w->targets[i];
		uint64_t at = taken_of(taken, i);

		if (t->head == t->tail)
			continue;
		all.refused += at != t->tail;
		settle_target(w, f, i, at - t->head, at != t->tail, &all);
	}
	return all;
}

/* Whether the answer can be: as many numbers, and none taken that was not offered. */
static bool is_answer(const struct way *w, const struct flight *f, const uint8_t *taken,
		      size_t bytes)
{
	if (!f->offers)
		return bytes == f->relay.packets && in_order(w, f, taken);
	if (bytes != sizeof(uint64_t) * w->link->ranks_n)
		return false;
	for (uint32_t i = 0; i < w->link->ranks_n; i++)
		if (taken_of(taken, i) - w->targets[i].head >
		    w->targets[i].tail - w->targets[i].head)
			return false;
	return true;
}

static bool has_packets(const struct flight *f)
{
	return f->offers ? f->offered : f->relay.packets;
}

/* What was taken leaves the inboxes. */
static void settle(struct way *w, const struct flight *f, const uint8_t *taken)
{
	struct settled all = f->offers ? settle_offer(w, f, taken) : settle_packets(w, f, taken);
	struct soda_msg_link *l = w->link;

	pthread_mutex_lock(&l->lock);
	l->pending -= all.bytes;
	if (all.freed && l->pending && !l->fresh) { /* of a rank that is not blocked any more */
		l->fresh = w->all->tuning.transfer_bytes;
		l->since_ns = soda_now_ns();
	}
	pthread_mutex_unlock(&l->lock);
	if (all.room)
		soda_msg_job_room(l->job);
	atomic_fetch_add(&w->all->relays.transfers, has_packets(f));
	atomic_fetch_add(&w->all->relays.near, has_packets(f) && f->offers);
	atomic_fetch_add(&w->all->relays.packets, all.packets);
	atomic_fetch_add(&w->all->relays.bytes, all.bytes);
	atomic_fetch_add(&w->all->relays.refused, all.refused);
}

/* The connection */

static void drop_conn(struct way *w)
{
	soda_conn_close(w->conn);
	w->conn = NULL;
	if (!w->lost_ns)
		w->lost_ns = soda_now_ns();
}

/* As whom this router comes to the other one. */
static int identify(struct way *w, struct soda_why *why)
{
	const struct soda_msg_owners *owners = &w->all->owners;

	soda_identity_free(w->identity);
	w->identity = NULL;
	return owners->identify ? owners->identify(owners->arg, w->link->address, &w->identity, why)
				: 0;
}

/* The job's name, to an agent with tenants behind its tenant's, which is not in that agent's words
 * what it is in ours.  Returns how many bytes. */
static size_t name_job(const struct way *w, char *out, size_t room)
{
	const struct soda_msg_owners *owners = &w->all->owners;
	const struct soda_msg_job *job = w->link->job;
	const char *tenant = w->identity ? owners->name(owners->arg, job->tenant) : NULL;

	/* of a tenant that was removed: what nobody's job is called, for names do not begin so */
	if (w->identity && !tenant)
		tenant = "";
	return (size_t)snprintf(out, room, "%s%s%s", tenant ? tenant : "", tenant ? "/" : "",
				job->name);
}

/* A job with a key: that its ranks here have shown it, by what the other agent has just drawn. */
static int prove_link(struct way *w, uint8_t *link, const struct iovec *name, struct soda_why *why)
{
	uint8_t body[sizeof(uint32_t)], reply[SODA_WIRE_MSG_CHALLENGE_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_wire_msg_challenge of;
	size_t n = 0;
	int ret;

	soda_wire_put_u32(body, SODA_MSG_VERSION);
	ret = soda_conn_call(w->conn, (enum soda_msg)SODA_MSG_MESSAGES_CHALLENGE, &iov, 1, reply,
			     sizeof(reply), &n, SODA_MSG_PATIENCE_MS, why);
	if (ret == 0)
		ret = soda_wire_get_msg_challenge(reply, n, &of);
	return ret < 0 ? ret
		       : soda_job_sign_link(w->link->job->all->own, of.nonce, link, name->iov_base,
					    name->iov_len);
}

static int say_link(struct way *w, struct soda_why *why)
{
	char name[SODA_WIRE_TENANT_MAX + 1 + SODA_WIRE_MAX_NAME + 1];
	const struct soda_msg_job *job = w->link->job;
	struct soda_wire_msg_link link = { .version = SODA_MSG_VERSION,
					   .ranks = job->ranks_n,
					   .agents = job->agents,
					   .from = job->here,
					   .to = w->link->agent,
					   .life = job->life,
					   .shape = job->shape };
	uint8_t body[SODA_WIRE_MSG_LINK_BYTES], reply[4];
	struct iovec iov[2] = { { body, sizeof(body) }, { name, name_job(w, name, sizeof(name)) } };
	size_t n;
	int ret = 0;

	memcpy(link.key, job->key, sizeof(link.key));
	memcpy(link.grant, job->grant, sizeof(link.grant));
	soda_wire_put_msg_link(body, &link);
	if (job->keyed)
		ret = prove_link(w, body, &iov[1], why);
	if (ret < 0)
		return ret;
	return soda_conn_call(w->conn, (enum soda_msg)SODA_MSG_MESSAGES_LINK, iov, 2, reply,
			      sizeof(reply), &n, SODA_MSG_PATIENCE_MS, why);
}

/*
 * On the same machine, the memory in which the other agent's packets for ranks here lie: before it
 * hears of this agent, and so of its ranks that have come.  0, also if it has none for this agent.
 */
static int ask_near(struct way *w, struct soda_why *why)
{
	uint8_t reply[SODA_WIRE_MSG_RINGS_BYTES];
	struct soda_msg_near_in *in = NULL;
	struct soda_wire_msg_rings sizes;
	size_t n = 0;
	int fd = -1, ret;

	w->asked = true;
	if (!strstr(w->link->address, "shm://"))
		return 0;
	ret = soda_conn_call_fd(w->conn, (enum soda_msg)SODA_MSG_MESSAGES_RINGS, NULL, 0, reply,
				sizeof(reply), &n, &fd, SODA_MSG_PATIENCE_MS, why);
	w->asked = !soda_call_lost(ret);
	if (ret == 0)
		ret = fd < 0 ? -EPROTO : soda_wire_get_msg_rings(reply, n, &sizes);
	else if (!soda_call_lost(ret))
		return 0; /* packets are sent */
	if (ret == 0)
		ret = soda_msg_near_map(fd, w->link->job->here_n, sizes.inbox_bytes, &in);
	if (fd >= 0)
		close(fd);
	if (ret == 0)
		soda_msg_link_take_near(w->link, in);
	else if (w->asked)
		snprintf(why->text, sizeof(why->text), "the memory of its packets: %s",
			 soda_strerror(ret));
	return ret;
}

static int make_conn_as(struct way *w, struct soda_why *why)
{
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = SODA_MSG_LINK_CONNECT_MS,
					       .calls = SODA_MSG_AHEAD,
					       .identity = w->identity };
	struct soda_wire_welcome welcome;
	int ret = soda_conn_join_with(w->link->address, &opt, &w->conn, &welcome, why);

	w->sent = w->number;
	if (ret < 0) {
		w->conn = NULL;
		return ret == -EINVAL || ret == -EPROTONOSUPPORT || ret == -ENOTSUP ||
				       ret == -EACCES /* it has tenants, for one */
			       ? ret
			       : -EAGAIN;
	}
	ret = say_link(w, why);
	if (ret == 0 && !w->asked)
		ret = ask_near(w, why);
	if (ret == 0) {
		atomic_fetch_add(&w->all->relays.again, w->linked);
		w->linked = true;
		return 0;
	}
	soda_conn_close(w->conn);
	w->conn = NULL;
	return soda_call_lost(ret) ? -EAGAIN : ret;
}

/* 0, or a negative errno: -EAGAIN may be tried again, and -EBUSY: the job is not there. */
static int make_conn(struct way *w, struct soda_why *why)
{
	int ret = identify(w, why);

	return ret < 0 ? ret : make_conn_as(w, why);
}

/* Break the job off. The sentence of a refusal is given without who has refused. */
static void fail(struct way *w, const char *what, const struct soda_why *why)
{
	static const char prefix[] = "messages: ";
	const struct soda_msg_link *l = w->link;
	const char *inner = strstr(why->text, prefix);
	char text[sizeof(why->text)];

	snprintf(text, sizeof(text), "messages: the agent %.60s of rank %u%s %s: %.120s",
		 l->address, l->first_rank, l->ranks_n > 1 ? " and others" : "", what,
		 inner ? inner + strlen(prefix) : why->text);
	soda_msg_job_fail(l->job, text);
}

/* Connected, or the next attempt is due. False: it is of no use. */
static bool connect_way(struct way *w)
{
	struct soda_why why = { "" };
	uint64_t silent_ns = w->lost_ns ? soda_now_ns() - w->lost_ns : 0;
	int ret = make_conn(w, &why);

	/* one that is lost again and again is lost, too */
	if (ret == 0 && silent_ns <= SODA_MSG_PATIENCE_MS * (uint64_t)NS_PER_MS)
		return true;
	if (ret != -EAGAIN && ret != -EBUSY && ret != -ECANCELED) {
		fail(w, "cannot be one of this job", &why);
		return false;
	}
	if (w->linked && soda_msg_link_left(w->link))
		return false; /* its ranks have left, and so may the agent */
	/* before it was linked for the first time the ranks know how long they wait */
	if (w->linked && silent_ns > SODA_MSG_PATIENCE_MS * (uint64_t)NS_PER_MS) {
		fail(w, "is lost", &why);
		return false;
	}
	pause_ms(w, SODA_MSG_LINK_RETRY_MS);
	return true;
}

/* A call has failed. False: so has the link. */
static bool bear(struct way *w, int err, const struct soda_why *why)
{
	if (err == -ECANCELED) {
		soda_msg_job_fail(w->link->job, why->text);
		return false;
	}
	if (!soda_call_lost(err)) {
		fail(w, "refuses packets", why);
		return false;
	}
	if (err == -ETIMEDOUT) {
		fail(w, "does not answer", why);
		return false;
	}
	if (w->lost_ns)
		pause_ms(w, SODA_MSG_LINK_RETRY_MS);
	drop_conn(w);
	return true;
}

/* Send the next one that has been made. False: the link is over. */
static bool send_relay(struct way *w)
{
	struct flight *f = flight(w, w->sent + 1);
	struct iovec iov = { f->body, f->bytes };
	enum soda_messages_msg type = f->offers ? SODA_MSG_MESSAGES_OFFER : SODA_MSG_MESSAGES_RELAY;
	struct soda_why why = { "" };
	int ret = soda_conn_submit_call(w->conn, (enum soda_msg)type, &iov, 1, SODA_MSG_PATIENCE_MS,
					&why);

	w->sent += ret == 0;
	return ret == 0 || bear(w, ret, &why);
}

/* Await the answer to the oldest one that has none. False: the link is over. */
static bool collect_answer(struct way *w)
{
	struct flight *f = flight(w, w->number + 1);
	uint8_t taken[TAKEN_MAX];
	struct soda_why why = { "" };
	size_t n = 0;
	int ret = soda_conn_collect(w->conn, taken, sizeof(taken), &n, SODA_MSG_PATIENCE_MS, &why);

	if (ret == 0 && !is_answer(w, f, taken, n)) {
		snprintf(why.text, sizeof(why.text), "its answer makes no sense");
		ret = -EPROTO;
	}
	if (ret < 0)
		return bear(w, ret, &why);
	w->lost_ns = 0;
	w->number++;
	w->said_ns = soda_now_ns();
	settle(w, f, taken);
	soda_msg_link_heard(w->link, &f->relay);
	return true;
}

/* Life */

/* Answers that nobody wants: a call follows, or the end. */
static void skip_answers(struct way *w)
{
	uint8_t taken[TAKEN_MAX];
	struct soda_why why;

	while (w->conn && soda_conn_submitted(w->conn))
		if (soda_call_lost(soda_conn_collect(w->conn, taken, sizeof(taken), NULL,
						     SODA_MSG_GOODBYE_MS, &why)))
			drop_conn(w);
}

/* 0: it has been said, or need not be; -EAGAIN. */
static int try_to_say_broken(struct way *w)
{
	struct soda_msg_job *job = w->link->job;
	struct iovec iov = { job->why.text, strlen(job->why.text) }; /* constant by now */
	struct soda_why why;
	int ret;

	skip_answers(w);
	ret = w->conn ? 0 : make_conn(w, &why);
	if (ret < 0)
		return ret == -EAGAIN ? ret : 0;
	ret = soda_conn_call(w->conn, (enum soda_msg)SODA_MSG_MESSAGES_BREAK, &iov, 1, NULL, 0,
			     NULL, SODA_MSG_GOODBYE_MS, &why);
	if (ret == 0 || !soda_call_lost(ret))
		return 0;
	drop_conn(w);
	return -EAGAIN;
}

static bool is_stopping(struct soda_msg_jobs *all)
{
	bool stopping;

	pthread_mutex_lock(&all->lock);
	stopping = all->stopping;
	pthread_mutex_unlock(&all->lock);
	return stopping;
}

/*
 * Tell the other agent why.  It may be out of reach now, and is waited for as ever: or its ranks
 * would hear that this agent is lost, and not who has gone.
 */
static void say_broken(struct way *w)
{
	uint64_t until_ns = soda_now_ns() + SODA_MSG_PATIENCE_MS * (uint64_t)NS_PER_MS;

	while (try_to_say_broken(w) < 0 && soda_now_ns() < until_ns && !is_stopping(w->all))
		pause_ms(w, SODA_MSG_LINK_RETRY_MS);
}

/* Whether the RELAY, if loaded now, would say more than the last one did. */
static bool has_more(struct way *w, const struct soda_wire_msg_relay *last)
{
	struct soda_wire_msg_relay now;

	return soda_msg_link_say(w->link, &now) == SODA_MSG_JOB_RUNS &&
	       (now.done != last->done || now.reduce.number > last->reduce.number);
}

static bool is_beat(const struct way *w)
{
	return soda_now_ns() - w->said_ns >= SODA_MSG_LINK_BEAT_MS * (uint64_t)NS_PER_MS;
}

/* Whether it would say more than the last RELAY did. */
static bool says_more(struct way *w)
{
	return has_more(w, &w->said);
}

/* Whether one more may be under way; of OFFERs, which say all that there is, one is. */
static bool may_load(struct way *w)
{
	return !w->last &&
	       w->made - w->number < (soda_msg_link_is_near(w->link) ? 1 : SODA_MSG_AHEAD);
}

/* Make a RELAY, if there is anything to say. */
static void load_next(struct way *w, enum soda_msg_state state,
		      const struct soda_wire_msg_relay *next)
{
	bool more = w->kicked || next->done != w->said.done || next->reduce.number;
	const struct flight *f = load(w, next);

	if (!has_packets(f) && !more && !is_beat(w))
		return;
	w->kicked = false;
	w->said = f->relay;
	w->made++;
	w->last = state != SODA_MSG_JOB_RUNS;
}

/* One turn. False: the link is over. */
static bool turn(struct way *w)
{
	enum soda_msg_state state;
	struct soda_wire_msg_relay next;
	bool idle = w->conn && w->made == w->number && !says_more(w);

	if (idle)
		await_work(w);
	state = soda_msg_link_say(w->link, &next);
	if (state == SODA_MSG_JOB_BROKEN) {
		say_broken(w);
		return false;
	}
	if (!w->conn)
		return (state == SODA_MSG_JOB_RUNS || w->linked) && connect_way(w);
	if (w->sent != w->made)
		return send_relay(w);
	if (may_load(w) && (idle || find_work(w) || says_more(w))) {
		load_next(w, state, &next);
		if (w->sent != w->made)
			return send_relay(w);
	}
	if (w->made == w->number)
		return true;
	return collect_answer(w) && !(w->last && w->made == w->number);
}

static void end_thread(struct soda_msg_jobs *all)
{
	pthread_t last = { 0 };
	bool has_last;

	pthread_mutex_lock(&all->lock);
	has_last = all->has_last;
	last = all->last;
	all->last = pthread_self();
	all->has_last = true;
	all->threads--;
	pthread_cond_broadcast(&all->fewer);
	pthread_mutex_unlock(&all->lock);
	if (has_last)
		pthread_join(last, NULL);
}

static void *way_main(void *arg)
{
	struct way *w = arg;
	struct soda_msg_jobs *all = w->all;

	pthread_setname_np(pthread_self(), "soda-msg-link");
	while (turn(w))
		;
	for (uint32_t i = 0; i < w->link->ranks_n; i++)
		if (w->targets[i].wait_ms)
			atomic_fetch_sub(&all->relays.blocked, 1);
	skip_answers(w);
	soda_conn_leave(w->conn, SODA_MSG_GOODBYE_MS);
	soda_msg_job_put(w->link->job, false);
	soda_identity_free(w->identity);
	free(w);
	end_thread(all);
	return NULL;
}

static struct way *make_way(struct soda_msg_link *l)
{
	struct way *w = calloc(1, sizeof(*w) + l->ranks_n * sizeof(w->targets[0]));
	uint32_t n = 0;

	if (!w)
		return NULL;
	w->link = l;
	w->all = l->job->all;
	for (uint32_t i = 0; i < l->job->ranks_n; i++)
		if (l->job->ranks[i].link == l)
			w->targets[n++].rank = i;
	return w;
}

void soda_msg_links_start(struct soda_msg_job *job)
{
	struct soda_msg_jobs *all = job->all;

	for (uint32_t i = 0; i < job->links_n; i++) {
		struct way *w = make_way(&job->links[i]);
		pthread_t thread;
		bool started;

		pthread_mutex_lock(&all->lock);
		started = w && !pthread_create(&thread, NULL, way_main, w);
		all->threads += started;
		job->refs += started;
		pthread_mutex_unlock(&all->lock);
		if (!started) {
			free(w);
			soda_msg_job_fail(job, "messages: the agent has no memory or no threads "
					       "left for a link to another agent");
			return;
		}
	}
}
