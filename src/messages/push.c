/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "messages/job.h"
#include "wire/field.h"

enum {
	RUN = 8,	       /* bytes before the messages of a run */
	QUICK_EMPTY = 1 << 16, /* messages of no bytes that are pushed without a look */
};

uint8_t *soda_lane_slot(struct soda_msg_job *job, uint32_t rank, uint32_t slot)
{
	return job->slots +
	       ((size_t)rank * SODA_LANE_SLOTS + slot % SODA_LANE_SLOTS) * job->slot_bytes;
}

bool soda_lane_open_locked(const struct soda_lane *lane)
{
	return lane->tail - lane->head < SODA_LANE_SLOTS && lane->messages;
}

static uint32_t padded(uint32_t bytes)
{
	return (bytes + 7) & ~7u;
}

/* End the open slot's last run: its count, and zeros up to a multiple of 8. */
static void end_run(struct soda_lane *lane, uint8_t *slot)
{
	uint32_t *bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];

	if (!lane->run)
		return;
	soda_wire_put_u32(slot + lane->run + 4, lane->run_count);
	memset(slot + *bytes, 0, padded(*bytes) - *bytes);
	*bytes = padded(*bytes);
	lane->run = 0;
}

/* Count what was pushed without the lock; the next message is not. */
static void settle(struct soda_msg_job *job, struct soda_lane *lane)
{
	struct soda_quick_run *quick = &lane->quick;
	uint32_t n = quick->armed - quick->left;

	quick->left = quick->armed = 0;
	if (!n)
		return;
	lane->bytes[lane->tail % SODA_LANE_SLOTS] += n * quick->size;
	lane->run_count += n;
	lane->messages += n;
	job->stats.pushed += n;
	job->stats.pushed_bytes += (uint64_t)n * quick->size;
}

void soda_lanes_settle_locked(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks; i++)
		settle(job, &job->lanes[i]);
}

void soda_lane_close_locked(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];
	uint8_t *slot = soda_lane_slot(job, rank, lane->tail);
	uint32_t *bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];
	struct soda_wire_msg_packet p = { .rank = rank };

	soda_quick_bar_locked(&job->quick, &soda_msg_known);
	settle(job, lane);
	p.messages = lane->messages;
	end_run(lane, slot);
	p.bytes = *bytes - SODA_WIRE_MSG_PACKET_BYTES;
	soda_wire_put_msg_packet(slot, &p);
	lane->messages = 0;
	soda_lane_put_locked(job, rank, *bytes);
}

void soda_lane_put_locked(struct soda_msg_job *job, uint32_t rank, uint32_t bytes)
{
	struct soda_lane *lane = &job->lanes[rank];

	lane->bytes[lane->tail % SODA_LANE_SLOTS] = bytes;
	if (soda_msg_has_rings(job)) {
		job->stats.sent_calls++;
		job->stats.sent_bytes += bytes;
		soda_rings_put(&job->rings, rank, lane->tail, bytes);
	}
	lane->tail++;
}

uint32_t soda_lane_used_locked(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (soda_msg_has_rings(job)) {
		uint32_t taken = soda_rings_taken(&job->rings, rank);

		/* an agent that says anything else is of no use, and is not followed */
		if (taken - lane->head <= lane->tail - lane->head)
			lane->head = taken;
	}
	return lane->tail - lane->head;
}

/* The lane has something to send, now or after the time that messages wait. */
static void wake_sender_locked(struct soda_msg_job *job, bool now)
{
	if (now || job->sleeping)
		soda_msg_work_locked(job);
}

/* How many messages of this size an open slot takes, of so many. */
static uint32_t count_fitting(const struct soda_msg_job *job, const struct soda_lane *lane,
			      uint32_t size, uint32_t count)
{
	uint32_t at = lane->bytes[lane->tail % SODA_LANE_SLOTS], most;

	if (!lane->run || lane->run_size != size)
		at = padded(at) + RUN;
	if (at + size > job->packet_bytes) /* which are whole words */
		return 0;
	if (count == 1) /* the usual case, without a division */
		return 1;
	most = size ? (job->packet_bytes - at) / size : UINT32_MAX - lane->messages;
	return count < most ? count : most;
}

static void begin_slot(struct soda_msg_job *job, struct soda_lane *lane)
{
	lane->bytes[lane->tail % SODA_LANE_SLOTS] = SODA_WIRE_MSG_PACKET_BYTES;
	lane->run = 0;
	lane->since_ns = soda_msg_now_ns();
	wake_sender_locked(job, false);
}

/* Messages of this size follow in the open slot. */
static void open_run(struct soda_lane *lane, uint8_t *slot, uint32_t size)
{
	uint32_t *bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];

	if (lane->run && lane->run_size == size)
		return;
	end_run(lane, slot);
	lane->run = *bytes;
	lane->run_size = size;
	lane->run_count = 0;
	soda_wire_put_u32(slot + *bytes, size);
	*bytes += RUN;
}

/*
 * The next messages of this size are pushed without the lock.  Not of the first one of a run, which
 * may be the last one.
 */
static void arm(struct soda_msg_job *job, struct soda_lane *lane, uint8_t *slot)
{
	uint32_t at = lane->bytes[lane->tail % SODA_LANE_SLOTS], size = lane->run_size;

	if (lane->run_count < 2 || size > SODA_QUICK_MOST ||
	    atomic_load_explicit(&job->quick.pusher, memory_order_relaxed) != &soda_msg_known)
		return;
	lane->quick.at = slot + at;
	lane->quick.size = size;
	lane->quick.left = size ? (job->packet_bytes - at) / size : QUICK_EMPTY;
	lane->quick.armed = lane->quick.left;
}

/*
 * Messages that fit into a slot, `count` of them, at least one, one behind the other: as many as
 * one slot takes.  How many, or -EAGAIN.
 */
static int push_small_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
			     uint32_t size, uint32_t count)
{
	struct soda_lane *lane = &job->lanes[rank];
	uint32_t *bytes, n;
	uint8_t *slot;

	soda_quick_enter_locked(job, &soda_msg_known);
	settle(job, lane);
	if (soda_lane_open_locked(lane) && !count_fitting(job, lane, size, count)) {
		soda_lane_close_locked(job, rank);
		if (!soda_msg_has_rings(job))
			wake_sender_locked(job, true);
	}
	if (lane->tail - lane->head >= job->lane_slots &&
	    soda_lane_used_locked(job, rank) >= job->lane_slots)
		return -EAGAIN;
	if (!lane->messages)
		begin_slot(job, lane);
	n = count_fitting(job, lane, size, count);
	slot = soda_lane_slot(job, rank, lane->tail);
	open_run(lane, slot, size);
	bytes = &lane->bytes[lane->tail % SODA_LANE_SLOTS];
	if (n == 1 && size == sizeof(uint64_t)) /* the most frequent case, without a call */
		memcpy(slot + *bytes, data, sizeof(uint64_t));
	else if (size)
		memcpy(slot + *bytes, data, (size_t)n * size);
	*bytes += n * size;
	lane->run_count += n;
	lane->messages += n;
	arm(job, lane, slot);
	return (int)n;
}

static void count_pushed(struct soda_msg_job *job, uint32_t size, int n)
{
	if (n <= 0)
		return;
	job->stats.pushed += (uint32_t)n;
	job->stats.pushed_bytes += (uint64_t)size * (uint32_t)n;
}

int soda_lane_push_locked(struct soda_msg_job *job, uint32_t rank, const void *data, uint32_t size,
			  uint32_t count)
{
	int n = push_small_locked(job, rank, data, size, count);

	count_pushed(job, size, n);
	return n;
}

/* One message of a thread beside others goes to its own buffer; what does not, to the lane. */
static int push_or_gather_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
				 uint32_t size, uint32_t count)
{
	int ret = 0;

	soda_quick_enter_locked(job, &soda_msg_known);
	if (job->quick.shared && count == 1 && size <= SODA_GATHER_MOST)
		ret = soda_gather_push_locked(job, rank, data, size);
	return ret ? ret : soda_lane_push_locked(job, rank, data, size, count);
}

/* A message that the sender cuts into parts. 1; -EAGAIN, -ENOMEM. */
static int push_large_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
			     uint32_t size)
{
	struct soda_lane *lane = &job->lanes[rank];

	if (lane->large)
		return -EAGAIN;
	lane->large = malloc(size);
	if (!lane->large)
		return soda_msg_failed(-ENOMEM, "no memory for a message of %u bytes", size);
	memcpy(lane->large, data, size);
	lane->large_bytes = size;
	lane->large_at = lane->large_loaded = 0;
	wake_sender_locked(job, true);
	count_pushed(job, size, 1);
	return 1;
}

/* As push_small_locked(), of any size. */
static int push_locked(struct soda_msg_job *job, uint32_t rank, const void *data, uint32_t size,
		       uint32_t count)
{
	int ret = soda_msg_error_locked(job);

	if (ret < 0)
		return ret;
	if (job->finish)
		return soda_msg_failed(-EPIPE, "this rank has said that it pushes no more"
					       " (soda_msg_finish)");
	if (size > SODA_MSG_LARGE ||
	    SODA_WIRE_MSG_PACKET_BYTES + RUN + padded(size) > job->packet_bytes)
		ret = push_large_locked(job, rank, data, size);
	else
		ret = push_or_gather_locked(job, rank, data, size, count);
	if (ret == -EAGAIN) {
		job->stats.stalls++;
		job->denied = rank;
	}
	return ret;
}

static int check_message(const struct soda_msg_job *job, unsigned rank, size_t bytes)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	if (rank >= job->ranks)
		return soda_msg_failed(-EINVAL, "there is no rank %u: the job has %u", rank,
				       job->ranks);
	if (bytes > SODA_MSG_BYTES_MAX)
		return soda_msg_failed(-EMSGSIZE, "a message has at most %u bytes, not %zu",
				       SODA_MSG_BYTES_MAX, bytes);
	return 0;
}

/* Whether the caller is the pusher, and not the child of a fork. */
static bool pushes_quickly(const struct soda_msg_job *job)
{
	return atomic_load_explicit(&job->quick.pusher, memory_order_relaxed) == &soda_msg_known &&
	       soda_msg_known == job->pid;
}

static struct soda_quick_run *quick_run(struct soda_msg_job *job, unsigned rank)
{
	return pushes_quickly(job) && rank < job->ranks ? &job->lanes[rank].quick : NULL;
}

static int push_with_lock(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes)
{
	int ret = check_message(job, rank, bytes);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = push_locked(job, rank, data, (uint32_t)bytes, 1);
	pthread_mutex_unlock(&job->lock);
	return ret < 0 ? ret : 0;
}

/* Any message. Apart, so that one of 8 bytes saves no registers for this. */
static int __attribute__((noinline))
push_any(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes)
{
	struct soda_quick_run *run = quick_run(job, rank);

	if (run && soda_quick_push(&job->quick, run, data, bytes))
		return 0;
	if (soda_msg_known == job->pid && soda_gather_push(job, rank, data, bytes))
		return 0;
	return push_with_lock(job, rank, data, bytes);
}

SODA_API int soda_msg_push(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes)
{
	if (bytes == sizeof(uint64_t)) {
		struct soda_quick_run *run = quick_run(job, rank);

		if (run && soda_quick_push_word(&job->quick, run, data))
			return 0;
	}
	return push_any(job, rank, data, bytes);
}

SODA_API int soda_msg_push_many(struct soda_msg_job *job, unsigned rank, const void *data,
				size_t bytes, size_t count, size_t *pushed_p)
{
	const uint32_t most = 1 << 20; /* at once: as many of no bytes */
	int ret = check_message(job, rank, bytes);
	size_t n = 0;

	if (ret < 0)
		return ret;
	if (!count) {
		*pushed_p = 0;
		return 0;
	}
	do { /* a slot a turn: other threads push meanwhile */
		size_t left = count - n;

		pthread_mutex_lock(&job->lock);
		ret = push_locked(job, rank, (const uint8_t *)data + n * bytes, (uint32_t)bytes,
				  left < most ? (uint32_t)left : most);
		pthread_mutex_unlock(&job->lock);
		n += ret > 0 ? (size_t)ret : 0;
	} while (ret > 0 && n < count);
	if (ret < 0 && !n)
		return ret;
	*pushed_p = n;
	return 0;
}

bool soda_msg_under_way_locked(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks; i++)
		if (soda_lane_used_locked(job, i))
			return true;
	return false;
}

void soda_msg_flush_locked(struct soda_msg_job *job)
{
	soda_gathers_empty_locked(job);
	if (!soda_msg_has_rings(job)) {
		job->flush = true;
		soda_msg_work_locked(job);
		return;
	}
	for (uint32_t i = 0; i < job->ranks; i++)
		if (soda_lane_open_locked(&job->lanes[i]))
			soda_lane_close_locked(job, i);
	soda_quick_open_locked(&job->quick);
}

SODA_API int soda_msg_progress(struct soda_msg_job *job)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	soda_msg_flush_locked(job);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

SODA_API int soda_msg_finish(struct soda_msg_job *job)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	if (ret == 0 && job->finish)
		ret = soda_msg_failed(-EPIPE, "this rank has finished already");
	if (ret == 0) {
		job->finish = true;
		soda_quick_bar_locked(&job->quick, &soda_msg_known);
		soda_lanes_settle_locked(job); /* so that the next push sees it */
		soda_quick_open_locked(&job->quick);
		soda_gathers_bar_locked(job); /* likewise, and it stays so */
		soda_msg_work_locked(job);
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}
