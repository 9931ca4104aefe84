/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender brings packets to the agent, then says that this rank has finished, or takes part in a
 * collective; the receiver asks for packets.  Each has a connection of its own, so that what comes
 * never waits for what goes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/failure.h"
#include "messages/job.h"
#include "wire/field.h"

enum { ROOM = SODA_WIRE_MAX_CONTROL - SODA_WIRE_MSG_PULLED_BYTES };

/* What a PUSH carries: packets of lanes, and parts of large messages. */
struct load {
	uint32_t packets, bytes;
	struct {
		uint32_t rank;
		uint32_t part; /* bytes of its large message; 0: the packet of slot head + `nth` */
		uint32_t nth;
	} of[SODA_MSG_PACKETS];
};

/* Sender */

/* Room for a packet of so many bytes. */
static bool has_room(const struct load *load, uint32_t bytes)
{
	return load->packets < SODA_MSG_PACKETS && load->bytes + bytes <= SODA_WIRE_MAX_CONTROL;
}

static void load_slots_locked(struct soda_msg_job *job, uint32_t rank, struct load *load)
{
	struct soda_lane *lane = &job->lanes[rank];

	for (uint32_t i = lane->head; i != lane->tail; i++) {
		uint32_t bytes = lane->bytes[i % SODA_LANE_SLOTS];

		if (!has_room(load, bytes))
			return;
		memcpy(job->body + load->bytes, soda_lane_slot(job, rank, i), bytes);
		load->bytes += bytes;
		load->of[load->packets].rank = rank;
		load->of[load->packets].part = 0;
		load->of[load->packets++].nth = i - lane->head;
	}
}

enum { PART_HEADS = SODA_WIRE_MSG_PACKET_BYTES + 8 };

/* Bytes of a large message in its next part, in a packet of at most `most`. */
static uint32_t part_size(const struct soda_lane *lane, uint32_t most)
{
	uint32_t left = lane->large_bytes - lane->large_at;

	return left < most - PART_HEADS ? left : most - PART_HEADS;
}

/* That part, as a packet of its own. Returns its bytes. */
static uint32_t put_part(const struct soda_lane *lane, uint32_t rank, uint32_t size, uint8_t *at)
{
	uint32_t whole = (size + 7) & ~7u;
	struct soda_wire_msg_packet p = { .rank = rank, .bytes = 8 + whole };

	p.messages = lane->large_at + size == lane->large_bytes;
	soda_wire_put_msg_packet(at, &p);
	soda_wire_put_u32(at + SODA_WIRE_MSG_PACKET_BYTES, SODA_MSG_PART | size);
	soda_wire_put_u32(at + SODA_WIRE_MSG_PACKET_BYTES + 4, lane->large_bytes);
	memcpy(at + PART_HEADS, lane->large + lane->large_at, size);
	memset(at + PART_HEADS + size, 0, whole - size);
	return PART_HEADS + whole;
}

/* So many bytes more of it have been sent. */
static void pass_part(struct soda_lane *lane, uint32_t size)
{
	lane->large_at += size;
	if (lane->large_at == lane->large_bytes) {
		free(lane->large);
		lane->large = NULL;
	}
}

static void load_part_locked(struct soda_msg_job *job, uint32_t rank, struct load *load)
{
	const struct soda_lane *lane = &job->lanes[rank];
	uint32_t size = part_size(lane, SODA_MSG_PACKET_MAX);

	if (!has_room(load, PART_HEADS + ((size + 7) & ~7u)))
		return;
	load->bytes += put_part(lane, rank, size, job->body + load->bytes);
	load->of[load->packets].rank = rank;
	load->of[load->packets++].part = size;
}

/* Close what is open and due, or all. When what is left open is due. */
static uint64_t close_due_locked(struct soda_msg_job *job, uint32_t rank, uint64_t now, bool all)
{
	const struct soda_lane *lane = &job->lanes[rank];
	uint64_t due = lane->since_ns + job->flush_ns;

	if (!soda_lane_open_locked(lane))
		return UINT64_MAX;
	if (!all && due > now)
		return due;
	soda_lane_close_locked(job, rank);
	return UINT64_MAX;
}

/*
 * Fill a PUSH, beginning with the lane behind that which was first in the last one.  *next_ns_p:
 * when an open slot is due.  What is open and not due stays.
 */
static void load_locked(struct soda_msg_job *job, uint32_t first, struct load *load,
			uint64_t *next_ns_p)
{
	uint64_t now = soda_msg_now_ns();
	bool all = job->flush || job->finish;

	load->packets = 0;
	load->bytes = SODA_WIRE_MSG_PUSH_BYTES;
	*next_ns_p = UINT64_MAX;
	for (uint32_t i = 0; i < job->ranks; i++) {
		uint32_t rank = (first + i) % job->ranks;
		struct soda_lane *lane = &job->lanes[rank];

		uint64_t due = close_due_locked(job, rank, now, all);

		*next_ns_p = due < *next_ns_p ? due : *next_ns_p;
		load_slots_locked(job, rank, load);
		if (lane->large)
			load_part_locked(job, rank, load);
	}
	soda_quick_open_locked(&job->quick);
	job->flush = false;
}

/* Of a lane only the first ones are taken, or a wrong one would leave it. */
static bool in_order(const struct load *load, const uint8_t *taken)
{
	for (uint32_t i = 1; i < load->packets; i++)
		if (taken[i] && load->of[i].rank == load->of[i - 1].rank && !taken[i - 1])
			return false;
	return true;
}

/* Packets that were taken leave their lanes. */
static void unload_locked(struct soda_msg_job *job, const struct load *load, const uint8_t *taken)
{
	for (uint32_t i = 0; i < load->packets; i++) {
		struct soda_lane *lane = &job->lanes[load->of[i].rank];

		job->stats.refused += !taken[i];
		if (!taken[i])
			continue;
		if (!load->of[i].part) {
			lane->head++;
			continue;
		}
		pass_part(lane, load->of[i].part);
	}
	soda_msg_news_locked(job);
}

static struct soda_conn **conn_of(struct soda_msg_job *job, enum soda_msg_role role)
{
	return role == SODA_MSG_PUSHES ? &job->push_conn : &job->pull_conn;
}

/* The connection, or none, in place of the thread's own. False: the job is being ended. */
static bool set_conn(struct soda_msg_job *job, enum soda_msg_role role, struct soda_conn *conn)
{
	struct soda_conn *old;
	bool goes_on;

	pthread_mutex_lock(&job->lock);
	old = *conn_of(job, role);
	*conn_of(job, role) = conn;
	goes_on = !job->silent && !job->stop;
	pthread_mutex_unlock(&job->lock);
	soda_conn_close(old);
	return goes_on;
}

/*
 * The connection is lost: make it again, for as long as the agent waits for that. 0; -ENOTCONN: in
 * vain; the agent's refusal.
 */
static int come_back(struct soda_msg_job *job, enum soda_msg_role role, uint64_t until_ns,
		     struct soda_why *why)
{
	const struct timespec pause = { .tv_nsec = SODA_MSG_LINK_RETRY_MS * 1000000 };
	struct soda_conn *conn = NULL;
	int ret;

	if (!set_conn(job, role, NULL))
		return -ENOTCONN;
	while (soda_msg_now_ns() < until_ns) {
		ret = soda_msg_connect(job->agent, job->join[role - 1], job->join_bytes,
				       SODA_MSG_LINK_CONNECT_MS, &conn, why);
		if (ret == 0)
			return set_conn(job, role, conn) ? 0 : -ENOTCONN;
		if (!soda_call_lost(ret) && ret != -ECONNREFUSED && ret != -ENOENT && ret != -EBUSY)
			return ret;
		nanosleep(&pause, NULL);
	}
	return -ENOTCONN;
}

int soda_msg_call(struct soda_msg_job *job, enum soda_msg_role role, enum soda_messages_msg type,
		  const void *body, size_t bytes, void *reply, size_t capacity, size_t *got_p,
		  int patience_ms)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_why why = { "" };
	uint64_t until_ns = 0;
	int ret;

	do {
		*got_p = 0;
		why.text[0] = 0;
		ret = soda_conn_call(*conn_of(job, role), (enum soda_msg)type, &iov, 1, reply,
				     capacity, got_p, SODA_MSG_CALL_MS + patience_ms, &why);
		if (ret == -ETIMEDOUT || !soda_call_lost(ret))
			break;
		if (!until_ns)
			until_ns = soda_msg_now_ns() + SODA_MSG_PATIENCE_MS * 1000000ull;
		ret = come_back(job, role, until_ns, &why);
	} while (ret == 0);
	if (ret < 0)
		soda_msg_lose(job, ret, &why);
	return ret;
}

static void lose_nonsense(struct soda_msg_job *job)
{
	struct soda_why why = { "the agent's answer makes no sense" };

	soda_msg_lose(job, -ECONNABORTED, &why);
}

static void send_load_unlock(struct soda_msg_job *job, const struct load *load)
{
	struct soda_wire_msg_push push = { job->push_number + 1, SODA_MSG_ROOM_MS, load->packets };
	uint8_t taken[SODA_MSG_PACKETS];
	size_t got;
	int ret;

	job->stats.sent_calls++;
	job->stats.sent_bytes += load->bytes;
	pthread_mutex_unlock(&job->lock);
	soda_wire_put_msg_push(job->body, &push);
	ret = soda_msg_call(job, SODA_MSG_PUSHES, SODA_MSG_MESSAGES_PUSH, job->body, load->bytes,
			    taken, sizeof(taken), &got, SODA_MSG_ROOM_MS);
	if (ret == 0 && (got != load->packets || !in_order(load, taken)))
		lose_nonsense(job);
	job->push_number += ret == 0;
	pthread_mutex_lock(&job->lock);
	if (!job->error)
		unload_locked(job, load, taken);
}

static bool empty_locked(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks; i++)
		if (soda_lane_used_locked(job, i) || job->lanes[i].messages || job->lanes[i].large)
			return false;
	return true;
}

/* FINISH, or the collective, where it is time. The lock is held again then. False: neither. */
static bool say_something(struct soda_msg_job *job)
{
	uint8_t body[SODA_WIRE_MSG_REDUCE_BYTES];
	size_t got;

	if (job->collective.state == SODA_COLLECTIVE_ASKED) {
		job->collective.state = SODA_COLLECTIVE_SENT;
		soda_wire_put_msg_reduce(body, &job->collective.ask);
		pthread_mutex_unlock(&job->lock);
		soda_msg_call(job, SODA_MSG_PUSHES, SODA_MSG_MESSAGES_REDUCE, body, sizeof(body),
			      NULL, 0, &got, 0);
	} else if (job->finish && !job->finish_sent && empty_locked(job)) {
		job->finish_sent = true;
		soda_wire_put_u32(body, job->phase);
		pthread_mutex_unlock(&job->lock);
		soda_msg_call(job, SODA_MSG_PUSHES, SODA_MSG_MESSAGES_FINISH, body,
			      sizeof(uint32_t), NULL, 0, &got, 0);
	} else {
		return false;
	}
	pthread_mutex_lock(&job->lock);
	return true;
}

/*
 * next_ns: when an open slot is due.  Where none is open whoever opens one wakes the sender.
 * until_ns: to be awake then, too.
 */
static void sleep_locked(struct soda_msg_job *job, uint64_t next_ns, uint64_t until_ns)
{
	uint64_t due = next_ns < until_ns ? next_ns : until_ns;
	struct timespec t = { (time_t)(due / 1000000000), (long)(due % 1000000000) };

	job->sleeping = next_ns == UINT64_MAX;
	if (due == UINT64_MAX)
		pthread_cond_wait(&job->work, &job->lock);
	else
		pthread_cond_timedwait(&job->work, &job->lock, &t);
	job->sleeping = 0;
}

static void stopped(struct soda_msg_job *job)
{
	job->stopped++;
	pthread_cond_broadcast(&job->news);
	pthread_mutex_unlock(&job->lock);
}

/* Parts of large messages go where their lanes have free slots. */
static void put_parts_locked(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (soda_lane_open_locked(lane))
		soda_lane_close_locked(job, rank);
	while (lane->large && soda_lane_used_locked(job, rank) < job->lane_slots) {
		uint32_t size = part_size(lane, job->packet_bytes);

		soda_lane_put_locked(
			job, rank,
			put_part(lane, rank, size, soda_lane_slot(job, rank, lane->tail)));
		pass_part(lane, size);
		if (!lane->large)
			soda_msg_news_locked(job);
	}
}

/*
 * With rings the sender carries nothing: it closes what is due, and puts parts.  Returns whether it
 * waits for the agent to take something.  *next_ns_p: when it has something to do otherwise.
 */
static bool tend_rings_locked(struct soda_msg_job *job, uint64_t *next_ns_p)
{
	bool all = job->flush || job->finish, waits = job->finish && !job->finish_sent;
	uint64_t now = soda_msg_now_ns();

	*next_ns_p = UINT64_MAX;
	for (uint32_t i = 0; i < job->ranks; i++) {
		uint64_t due = close_due_locked(job, i, now, all);

		*next_ns_p = due < *next_ns_p ? due : *next_ns_p;
		if (job->lanes[i].large)
			put_parts_locked(job, i);
		waits |= job->lanes[i].large != NULL;
	}
	soda_quick_open_locked(&job->quick);
	job->flush = false;
	return waits;
}

/* Say that this rank is there, though it makes no calls. */
static void beat_locked(struct soda_msg_job *job)
{
	uint8_t body[4], reply[SODA_WIRE_MSG_MISSING_BYTES];
	size_t got;

	pthread_mutex_unlock(&job->lock);
	soda_wire_put_u32(body, 0);
	soda_msg_call(job, SODA_MSG_PUSHES, SODA_MSG_MESSAGES_AWAIT, body, sizeof(body), reply,
		      sizeof(reply), &got, 0);
	pthread_mutex_lock(&job->lock);
}

static void listen_locked(struct soda_msg_job *job, bool listens)
{
	if (listens && !job->listening)
		soda_rings_begin_sleep(&job->rings);
	else if (!listens && job->listening)
		soda_rings_end_sleep(&job->rings);
	job->listening = listens;
}

/* Until the agent has news, which are listened to before the last look; or as sleep_locked(). */
static void sleep_listening_locked(struct soda_msg_job *job, uint32_t word, uint64_t next_ns)
{
	uint64_t now = soda_msg_now_ns();

	if (!job->listening) {
		listen_locked(job, true);
		return;
	}
	job->sleeping = next_ns == UINT64_MAX;
	pthread_mutex_unlock(&job->lock);
	soda_rings_sleep(&job->rings, word, next_ns > now ? next_ns - now : 0);
	pthread_mutex_lock(&job->lock);
	job->sleeping = 0;
}

static void tend_rings(struct soda_msg_job *job)
{
	const uint64_t beat = SODA_MSG_BEAT_MS * 1000000ull;
	uint64_t next_ns, beat_ns = soda_msg_now_ns() + beat;

	while (!job->stop && !job->error) {
		uint32_t word = soda_rings_word(&job->rings);
		bool waits;

		if (soda_msg_now_ns() >= beat_ns) {
			beat_locked(job);
			beat_ns = soda_msg_now_ns() + beat;
			continue;
		}
		if (say_something(job))
			continue;
		waits = tend_rings_locked(job, &next_ns);
		if (job->finish && !job->finish_sent && empty_locked(job))
			continue;
		listen_locked(job, job->listening && waits);
		if (waits)
			sleep_listening_locked(job, word, next_ns);
		else
			sleep_locked(job, next_ns, beat_ns);
	}
	listen_locked(job, false);
}

static void send_loads(struct soda_msg_job *job)
{
	struct load load;
	uint64_t next_ns;
	uint32_t first = 0;

	while (!job->stop && !job->error) {
		/* a collective does not wait behind packets that have no room */
		if (say_something(job))
			continue;
		load_locked(job, first, &load, &next_ns);
		if (load.packets) {
			first = (load.of[0].rank + 1) % job->ranks;
			send_load_unlock(job, &load);
		} else {
			sleep_locked(job, next_ns, UINT64_MAX);
		}
	}
}

void *soda_msg_sender_main(void *arg)
{
	struct soda_msg_job *job = arg;

	pthread_setname_np(pthread_self(), "soda-msg-send");
	pthread_mutex_lock(&job->lock);
	if (soda_msg_has_rings(job))
		tend_rings(job);
	else
		send_loads(job);
	stopped(job);
	return NULL;
}

/* Receiver */

/* Take an answer in. The batch at batch_tail has it. */
static void take_answer_locked(struct soda_msg_job *job, size_t bytes)
{
	struct soda_batch *b = &job->batches[job->batch_tail % SODA_MSG_BATCHES];
	struct soda_wire_msg_pulled pulled;

	soda_wire_get_msg_pulled(b->data, bytes, &pulled);
	b->bytes = (uint32_t)bytes;
	b->ended = pulled.ended;
	job->arrived.at += bytes - SODA_WIRE_MSG_PULLED_BYTES;
	job->arrived.ended += b->ended;
	if (bytes > SODA_WIRE_MSG_PULLED_BYTES || b->ended) {
		job->batch_tail++;
		job->stats.received_calls++;
		job->stats.received_bytes += bytes;
	}
	if (pulled.collective != job->collective.done) {
		job->collective.done = pulled.collective;
		job->collective.value = pulled.value;
	}
	soda_msg_news_locked(job);
}

static void receive_unlock(struct soda_msg_job *job, bool room)
{
	struct soda_batch *b = &job->batches[job->batch_tail % SODA_MSG_BATCHES];
	uint8_t head[SODA_WIRE_MSG_PULLED_BYTES], body[SODA_WIRE_MSG_PULL_BYTES];
	struct soda_wire_msg_pull ask = { .at = job->arrived.at,
					  .wait_ms = room || soda_msg_has_rings(job)
							     ? SODA_MSG_AWAIT_MS
							     : SODA_MSG_ROOM_MS,
					  .room = room ? ROOM : 0,
					  .known = job->collective.done,
					  .ended = job->arrived.ended };
	struct soda_wire_msg_pulled pulled;
	size_t got;
	int ret;

	pthread_mutex_unlock(&job->lock);
	soda_wire_put_msg_pull(body, &ask);
	ret = soda_msg_call(job, SODA_MSG_PULLS, SODA_MSG_MESSAGES_PULL, body, sizeof(body),
			    room ? b->data : head, room ? sizeof(b->data) : sizeof(head), &got,
			    SODA_MSG_AWAIT_MS);
	if (ret == 0 && soda_wire_get_msg_pulled(room ? b->data : head, got, &pulled) < 0) {
		lose_nonsense(job);
		ret = -EPROTO;
	}
	pthread_mutex_lock(&job->lock);
	if (ret == 0 && room) {
		take_answer_locked(job, got);
	} else if (ret == 0 && pulled.collective != job->collective.done) {
		job->collective.done = pulled.collective;
		job->collective.value = pulled.value;
		soda_msg_news_locked(job);
	}
}

void *soda_msg_receiver_main(void *arg)
{
	struct soda_msg_job *job = arg;

	pthread_setname_np(pthread_self(), "soda-msg-recv");
	pthread_mutex_lock(&job->lock);
	while (!job->stop && !job->error) {
		bool room = job->batch_tail - job->batch_head < SODA_MSG_BATCHES;

		if (soda_msg_has_rings(job)) { /* while this waits the agent serves the rings */
			receive_unlock(job, false);
			continue;
		}
		/* who waits for a collective need not pull */
		if (room || soda_msg_asks_locked(job))
			receive_unlock(job, room);
		else
			pthread_cond_wait(&job->room, &job->lock);
		if (job->error)
			break;
	}
	stopped(job);
	return NULL;
}
