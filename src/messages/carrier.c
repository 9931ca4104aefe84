/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender brings packets to the agent, then says that this rank has finished, or takes part in a
 * collective; the receiver asks for packets.  Each has a connection of its own, so that what comes
 * never waits for what goes, and on it up to SODA_MSG_AHEAD PUSHes, or PULLs, that have no answer
 * yet.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/failure.h"
#include "messages/job.h"
#include "wire/field.h"

enum { ROOM = SODA_WIRE_MAX_CONTROL - SODA_WIRE_MSG_PULLED_BYTES };

/* Calls */

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
		ret = soda_msg_connect(job, job->join[role - 1], job->join_bytes,
				       SODA_MSG_LINK_CONNECT_MS, &conn, why);
		if (ret == 0)
			return set_conn(job, role, conn) ? 0 : -ENOTCONN;
		if (!soda_call_lost(ret) && ret != -ECONNREFUSED && ret != -ENOENT && ret != -EBUSY)
			return ret;
		nanosleep(&pause, NULL);
	}
	return -ENOTCONN;
}

/*
 * A call has failed.  True: there is another connection, on which it is to be made again, with all
 * that had no answer; *until_ns_p: for so long, from the first loss on, 0 before that.  False: the
 * job has an error.
 */
static bool bear(struct soda_msg_job *job, enum soda_msg_role role, int err, struct soda_why *why,
		 uint64_t *until_ns_p)
{
	if (err != -ETIMEDOUT && soda_call_lost(err)) {
		if (!*until_ns_p)
			*until_ns_p = soda_msg_now_ns() + SODA_MSG_PATIENCE_MS * 1000000ull;
		err = come_back(job, role, *until_ns_p, why);
	}
	if (err < 0)
		soda_msg_lose(job, err, why);
	return err == 0;
}

int soda_msg_call(struct soda_msg_job *job, enum soda_msg_role role, enum soda_messages_msg type,
		  const void *body, size_t bytes, void *reply, size_t capacity, size_t *got_p,
		  int patience_ms)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_why why;
	uint64_t until_ns = 0;
	int ret;

	do {
		*got_p = 0;
		why.text[0] = 0;
		ret = soda_conn_call(*conn_of(job, role), (enum soda_msg)type, &iov, 1, reply,
				     capacity, got_p, SODA_MSG_CALL_MS + patience_ms, &why);
	} while (ret < 0 && bear(job, role, ret, &why, &until_ns));
	return ret;
}

/* Calls of the role's connection that have no answer. */
static unsigned under_way(struct soda_msg_job *job, enum soda_msg_role role)
{
	const struct soda_conn *conn = *conn_of(job, role);

	return conn ? soda_conn_submitted(conn) : 0;
}

/* Answers that nobody wants any more: the end follows. */
static void skip_answers(struct soda_msg_job *job, enum soda_msg_role role)
{
	uint8_t *answer = malloc(SODA_WIRE_MAX_CONTROL);
	struct soda_why why;

	while (under_way(job, role))
		soda_conn_collect(*conn_of(job, role), answer, answer ? SODA_WIRE_MAX_CONTROL : 0,
				  NULL, SODA_MSG_GOODBYE_MS, &why);
	free(answer);
}

static void lose_nonsense(struct soda_msg_job *job)
{
	struct soda_why why = { "the agent's answer makes no sense" };

	soda_msg_lose(job, -ECONNABORTED, &why);
}

/* Sender */

static bool empty_locked(struct soda_msg_job *job)
{
	if (soda_gathers_due_locked(job) != UINT64_MAX)
		return false;
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
 * next_ns: when an open slot is due.  Where none is open the thread that opens one wakes the
 * sender. until_ns: to be awake then, too.
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

/* Parts of large messages go where their lanes have free slots. */
static void put_parts_locked(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (soda_lane_open_locked(lane))
		soda_lane_close_locked(job, rank);
	while (lane->large && soda_lane_used_locked(job, rank) < job->lane_slots) {
		uint32_t size = soda_lane_part_size(job, rank, job->packet_bytes);
		uint8_t *slot = soda_lane_slot(job, rank, lane->tail);

		soda_lane_put_locked(job, rank, soda_lane_load_part_locked(job, rank, size, slot));
		soda_lane_pass_part_locked(job, rank, size);
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

	if (all || soda_gathers_due_locked(job) <= now)
		soda_gathers_empty_locked(job);
	*next_ns_p = soda_gathers_due_locked(job);
	for (uint32_t i = 0; i < job->ranks; i++) {
		uint64_t due = soda_lane_close_due_locked(job, i, now, all);

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

/* Send what has been made. 0, or the connection's error. */
static int send_flights(struct soda_msg_job *job, struct soda_why *why)
{
	struct soda_flights *all = job->flights;
	int ret = 0;

	while (all->sent != all->made && ret == 0) {
		struct soda_flight *f = soda_flight(all, all->sent + 1);

		ret = soda_conn_submit_call(job->push_conn, (enum soda_msg)SODA_MSG_MESSAGES_PUSH,
					    f->parts, f->parts_n, SODA_MSG_CALL_MS, why);
		all->sent += ret == 0;
	}
	return ret;
}

/*
 * Send what has been made, and, if it is to, await the answer to the oldest one. On another
 * connection all that have no answer are sent again. The lock is released meanwhile.
 */
static void carry_unlock(struct soda_msg_job *job, bool collect)
{
	struct soda_flights *all = job->flights;
	uint8_t taken[SODA_MSG_PACKETS];
	struct soda_why why;
	uint64_t until_ns = 0;
	size_t n;
	int ret;

	pthread_mutex_unlock(&job->lock);
	do {
		n = 0;
		why.text[0] = 0;
		all->sent = under_way(job, SODA_MSG_PUSHES) ? all->sent : all->answered;
		ret = send_flights(job, &why);
		if (ret == 0 && collect)
			ret = soda_conn_collect(job->push_conn, taken, sizeof(taken), &n,
						SODA_MSG_CALL_MS + SODA_MSG_ROOM_MS, &why);
	} while (ret < 0 && bear(job, SODA_MSG_PUSHES, ret, &why, &until_ns));
	pthread_mutex_lock(&job->lock);
	if (ret < 0 || !collect || job->error)
		return;
	if (soda_flights_settle_locked(job, all, taken, n) < 0) {
		pthread_mutex_unlock(&job->lock);
		lose_nonsense(job);
		pthread_mutex_lock(&job->lock);
	}
}

static void send_loads(struct soda_msg_job *job)
{
	struct soda_flights *all = job->flights;
	uint64_t next_ns = UINT64_MAX;

	while (!job->stop && !job->error) {
		/* a collective does not wait behind packets that have no room */
		bool asked = job->collective.state == SODA_COLLECTIVE_ASKED;

		if (all->made == all->answered && say_something(job))
			continue;
		if (!asked && soda_flights_load_locked(job, all, &next_ns)) {
			job->stats.sent_calls++;
			job->stats.sent_bytes += soda_flight(all, all->made)->bytes;
			carry_unlock(job, false);
		} else if (all->made != all->answered) {
			carry_unlock(job, true);
		} else {
			sleep_locked(job, next_ns, UINT64_MAX);
		}
	}
}

/* The thread of this role ends. The lock is held, and released. */
static void stop_unlock(struct soda_msg_job *job, enum soda_msg_role role)
{
	pthread_mutex_unlock(&job->lock);
	skip_answers(job, role);
	pthread_mutex_lock(&job->lock);
	job->stopped++;
	pthread_cond_broadcast(&job->news);
	pthread_mutex_unlock(&job->lock);
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
	stop_unlock(job, SODA_MSG_PUSHES);
	return NULL;
}

/* Receiver */

/* What the agent says of collectives. */
static void take_collective_locked(struct soda_msg_job *job,
				   const struct soda_wire_msg_pulled *pulled)
{
	if (pulled->collective == job->collective.done)
		return;
	job->collective.done = pulled->collective;
	job->collective.value = pulled->value;
	soda_msg_news_locked(job);
}

/* Take an answer in. The batch at batch_tail has it. True: it has brought something. */
static bool take_answer_locked(struct soda_msg_job *job, size_t bytes,
			       const struct soda_wire_msg_pulled *pulled)
{
	struct soda_batch *b = &job->batches[job->batch_tail % SODA_MSG_BATCHES];
	bool brings = bytes > SODA_WIRE_MSG_PULLED_BYTES || pulled->ended;

	b->bytes = (uint32_t)bytes;
	b->ended = pulled->ended;
	job->arrived.at += bytes - SODA_WIRE_MSG_PULLED_BYTES;
	job->arrived.ended += b->ended;
	if (brings) {
		job->batch_tail++;
		job->stats.received_calls++;
		job->stats.received_bytes += bytes;
		soda_msg_news_locked(job);
	}
	take_collective_locked(job, pulled);
	return brings;
}

static void put_pull(const struct soda_msg_job *job, uint32_t room, uint32_t wait_ms, uint8_t *body)
{
	struct soda_wire_msg_pull ask = { .at = job->arrived.at,
					  .wait_ms = wait_ms,
					  .room = room,
					  .known = job->collective.done,
					  .ended = job->arrived.ended };

	soda_wire_put_msg_pull(body, &ask);
}

/* A PULL with no room, for a collective. The lock is released meanwhile, and so below. */
static void ask_collective_unlock(struct soda_msg_job *job, uint32_t wait_ms)
{
	uint8_t body[SODA_WIRE_MSG_PULL_BYTES], answer[SODA_WIRE_MSG_PULLED_BYTES];
	struct soda_wire_msg_pulled pulled;
	size_t got;
	int ret;

	put_pull(job, 0, wait_ms, body);
	pthread_mutex_unlock(&job->lock);
	ret = soda_msg_call(job, SODA_MSG_PULLS, SODA_MSG_MESSAGES_PULL, body, sizeof(body), answer,
			    sizeof(answer), &got, SODA_MSG_AWAIT_MS);
	if (ret == 0 && soda_wire_get_msg_pulled(answer, got, &pulled) < 0) {
		lose_nonsense(job);
		ret = -EPROTO;
	}
	pthread_mutex_lock(&job->lock);
	if (ret == 0)
		take_collective_locked(job, &pulled);
}

/* The receiver, without rings. */
struct receiver {
	uint32_t brought;  /* the last answers brought something: so many in a row */
	uint64_t until_ns; /* the connection is lost: for so long another one is tried; 0: not */
};

/* One PULL more is under way. */
static void ask_unlock(struct soda_msg_job *job, struct receiver *r)
{
	uint8_t body[SODA_WIRE_MSG_PULL_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_why why = { "" };
	int ret;

	put_pull(job, ROOM, SODA_MSG_AWAIT_MS, body);
	pthread_mutex_unlock(&job->lock);
	ret = soda_conn_submit_call(job->pull_conn, (enum soda_msg)SODA_MSG_MESSAGES_PULL, &iov, 1,
				    SODA_MSG_CALL_MS, &why);
	if (ret < 0)
		bear(job, SODA_MSG_PULLS, ret, &why, &r->until_ns);
	pthread_mutex_lock(&job->lock);
}

/*
 * The answer to the oldest one.  As long as answers bring something several are asked for; one
 * where nothing comes, because the end of the job waits for it.
 */
static void collect_unlock(struct soda_msg_job *job, struct receiver *r)
{
	struct soda_batch *b = &job->batches[job->batch_tail % SODA_MSG_BATCHES];
	struct soda_wire_msg_pulled pulled;
	struct soda_why why = { "" };
	size_t got = 0;
	int ret;

	pthread_mutex_unlock(&job->lock);
	ret = soda_conn_collect(job->pull_conn, b->data, sizeof(b->data), &got,
				SODA_MSG_CALL_MS + SODA_MSG_AWAIT_MS, &why);
	if (ret < 0)
		bear(job, SODA_MSG_PULLS, ret, &why, &r->until_ns);
	else if (soda_wire_get_msg_pulled(b->data, got, &pulled) < 0)
		lose_nonsense(job);
	pthread_mutex_lock(&job->lock);
	if (ret < 0 || job->error)
		return;
	r->until_ns = 0;
	r->brought = take_answer_locked(job, got, &pulled) ? r->brought + 1 : 0;
}

static void receive_batches(struct soda_msg_job *job)
{
	struct receiver r = { 0 };

	while (!job->stop && !job->error) {
		unsigned room = SODA_MSG_BATCHES - (job->batch_tail - job->batch_head);
		unsigned asked = under_way(job, SODA_MSG_PULLS);

		if (asked < soda_flights_most(r.brought) && asked < room)
			ask_unlock(job, &r);
		else if (asked)
			collect_unlock(job, &r);
		else if (soda_msg_asks_locked(job)) /* who waits for a collective need not pull */
			ask_collective_unlock(job, SODA_MSG_ROOM_MS);
		else
			pthread_cond_wait(&job->room, &job->lock);
	}
}

void *soda_msg_receiver_main(void *arg)
{
	struct soda_msg_job *job = arg;

	pthread_setname_np(pthread_self(), "soda-msg-recv");
	pthread_mutex_lock(&job->lock);
	if (!soda_msg_has_rings(job))
		receive_batches(job);
	while (!job->stop && !job->error) /* while it waits the agent serves the rings */
		ask_collective_unlock(job, SODA_MSG_AWAIT_MS);
	stop_unlock(job, SODA_MSG_PULLS);
	return NULL;
}
