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

/* The next part of a large message, as a packet of its own. */
static void load_part_locked(struct soda_msg_job *job, uint32_t rank, struct load *load)
{
	enum { HEADS = SODA_WIRE_MSG_PACKET_BYTES + 8 };
	const struct soda_lane *lane = &job->lanes[rank];
	uint32_t size = lane->large_bytes - lane->large_at, whole;
	uint8_t *at = job->body + load->bytes;
	struct soda_wire_msg_packet p = { .rank = rank };

	if (size > SODA_MSG_PACKET_MAX - HEADS)
		size = SODA_MSG_PACKET_MAX - HEADS;
	whole = (size + 7) & ~7u;
	if (!has_room(load, HEADS + whole))
		return;
	p.bytes = 8 + whole;
	p.messages = lane->large_at + size == lane->large_bytes;
	soda_wire_put_msg_packet(at, &p);
	soda_wire_put_u32(at + SODA_WIRE_MSG_PACKET_BYTES, SODA_MSG_PART | size);
	soda_wire_put_u32(at + SODA_WIRE_MSG_PACKET_BYTES + 4, lane->large_bytes);
	memcpy(at + HEADS, lane->large + lane->large_at, size);
	memset(at + HEADS + size, 0, whole - size);
	load->bytes += HEADS + whole;
	load->of[load->packets].rank = rank;
	load->of[load->packets++].part = size;
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

		if (soda_lane_open_locked(lane)) {
			uint64_t due = lane->since_ns + job->flush_ns;

			if (all || due <= now)
				soda_lane_close_locked(job, rank);
			else if (due < *next_ns_p)
				*next_ns_p = due;
		}
		load_slots_locked(job, rank, load);
		if (lane->large)
			load_part_locked(job, rank, load);
	}
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
		lane->large_at += load->of[i].part;
		if (lane->large_at == lane->large_bytes) {
			free(lane->large);
			lane->large = NULL;
		}
	}
	if (job->waiting)
		pthread_cond_broadcast(&job->news);
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

static bool empty_locked(const struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks; i++)
		if (job->lanes[i].head != job->lanes[i].tail || job->lanes[i].messages ||
		    job->lanes[i].large)
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

static void sleep_locked(struct soda_msg_job *job, uint64_t until_ns)
{
	struct timespec t = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };

	if (until_ns != UINT64_MAX) {
		pthread_cond_timedwait(&job->work, &job->lock, &t);
		return;
	}
	job->sleeping = 1;
	pthread_cond_wait(&job->work, &job->lock);
	job->sleeping = 0;
}

static void stopped(struct soda_msg_job *job)
{
	job->stopped++;
	pthread_cond_broadcast(&job->news);
	pthread_mutex_unlock(&job->lock);
}

void *soda_msg_sender_main(void *arg)
{
	struct soda_msg_job *job = arg;
	struct load load;
	uint64_t next_ns;
	uint32_t first = 0;

	pthread_setname_np(pthread_self(), "soda-msg-send");
	pthread_mutex_lock(&job->lock);
	while (!job->stop && !job->error) {
		/* a collective does not wait behind packets that have no room */
		if (say_something(job))
			continue;
		load_locked(job, first, &load, &next_ns);
		if (load.packets) {
			first = (load.of[0].rank + 1) % job->ranks;
			send_load_unlock(job, &load);
		} else {
			sleep_locked(job, next_ns);
		}
	}
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
	if (job->waiting)
		pthread_cond_broadcast(&job->news);
}

static void receive_unlock(struct soda_msg_job *job, bool room)
{
	struct soda_batch *b = &job->batches[job->batch_tail % SODA_MSG_BATCHES];
	uint8_t head[SODA_WIRE_MSG_PULLED_BYTES], body[SODA_WIRE_MSG_PULL_BYTES];
	struct soda_wire_msg_pull ask = { .at = job->arrived.at,
					  .wait_ms = room ? SODA_MSG_AWAIT_MS : SODA_MSG_ROOM_MS,
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
		if (job->waiting)
			pthread_cond_broadcast(&job->news);
	}
}

void *soda_msg_receiver_main(void *arg)
{
	struct soda_msg_job *job = arg;

	pthread_setname_np(pthread_self(), "soda-msg-recv");
	pthread_mutex_lock(&job->lock);
	while (!job->stop && !job->error) {
		bool room = job->batch_tail - job->batch_head < SODA_MSG_BATCHES;

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
