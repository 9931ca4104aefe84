/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "messages/job.h"
#include "wire/field.h"

/* One thread writes these; soda_msg_get_stats() reads them. */
static void count(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

bool soda_msg_pullable_locked(const struct soda_msg_job *job)
{
	return job->reading.open || job->reading.over || job->batch_head != job->batch_tail ||
	       (soda_msg_has_rings(job) && soda_rings_here(&job->rings));
}

/* The job cannot go on here, for this reason: what is being read is not read further. */
static int give_up(struct soda_msg_job *job, int err, const struct soda_why *why)
{
	job->reading.wrong = true;
	job->reading.run_left = 0;
	soda_msg_lose(job, err, why);
	return soda_msg_failed(err, "%s", why->text);
}

/* Another rank's library, or this one, is wrong. */
static int nonsense(struct soda_msg_job *job)
{
	struct soda_why why;

	snprintf(why.text, sizeof(why.text), "what rank %u has sent makes no sense",
		 job->reading.from);
	return give_up(job, -EIO, &why);
}

/* The batch that was being read is used up. The lock is held. */
static void end_batch_locked(struct soda_msg_job *job)
{
	job->reading.over = job->batches[job->batch_head % SODA_MSG_BATCHES].ended;
	job->reading.open = false;
	job->batch_head++;
	pthread_cond_signal(&job->room);
}

/* Open the next batch. 0, -EAGAIN, -ENODATA, or the job's error. */
static int next_batch(struct soda_msg_job *job)
{
	int ret = 0;

	pthread_mutex_lock(&job->lock);
	if (job->reading.open)
		end_batch_locked(job);
	if (job->reading.over)
		ret = -ENODATA;
	else if (job->batch_head == job->batch_tail)
		ret = job->error ? soda_msg_error_locked(job) : -EAGAIN;
	if (ret == 0) {
		struct soda_batch *b = &job->batches[job->batch_head % SODA_MSG_BATCHES];

		job->reading.open = true;
		job->reading.data = b->data;
		job->reading.bytes = b->bytes;
		job->reading.at = job->reading.packet_end = SODA_WIRE_MSG_PULLED_BYTES;
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* All that was read in the rings up to here is the agent's again. */
static void let_go(struct soda_msg_job *job)
{
	soda_rings_pulled(&job->rings, job->reading.base + job->reading.at);
}

static int none_here(struct soda_msg_job *job)
{
	int ret;

	pthread_mutex_lock(&job->lock);
	ret = job->error ? soda_msg_error_locked(job) : -EAGAIN;
	pthread_mutex_unlock(&job->lock);
	return ret;
}

static void count_transfer(struct soda_msg_job *job)
{
	count(&job->ranges, 1);
	count(&job->ranges_bytes, job->reading.bytes);
}

/* The same in the rings: no lock, unless there is nothing. */
static int next_range(struct soda_msg_job *job)
{
	struct soda_rings *r = &job->rings;

	if (job->reading.open && job->reading.at)
		let_go(job);
	if (job->reading.open && job->reading.ends) {
		soda_rings_ended(r);
		job->reading.over = true;
	}
	job->reading.open = false;
	if (job->reading.over)
		return -ENODATA;
	if (soda_rings_look(r, &job->reading.data, &job->reading.bytes, &job->reading.ends) < 0)
		return give_up(job, -EIO, &(struct soda_why){ "the agent's rings make no sense" });
	if (!job->reading.bytes && !job->reading.ends)
		return none_here(job);
	job->reading.open = true;
	job->reading.base = atomic_load_explicit(&r->at, memory_order_relaxed);
	job->reading.at = job->reading.packet_end = 0;
	count_transfer(job);
	return 0;
}

static int next_packet(struct soda_msg_job *job)
{
	struct soda_wire_msg_packet p;

	if (soda_msg_has_rings(job) && job->reading.at)
		let_go(job);
	if (soda_wire_get_msg_packet(job->reading.data + job->reading.at,
				     job->reading.bytes - job->reading.at, &p) < 0 ||
	    p.rank >= job->ranks) {
		return give_up(job, -EIO,
			       &(struct soda_why){ "the agent's answer makes no sense" });
	}
	job->reading.from = p.rank;
	job->reading.at += SODA_WIRE_MSG_PACKET_BYTES;
	job->reading.packet_end = job->reading.at + p.bytes;
	return 0;
}

/* The head of the next run, checked: all of it lies in its packet. */
static int next_run(struct soda_msg_job *job)
{
	uint32_t left = job->reading.packet_end - job->reading.at, size, count;

	if (left < 8)
		return nonsense(job);
	size = soda_wire_get_u32(job->reading.data + job->reading.at);
	count = soda_wire_get_u32(job->reading.data + job->reading.at + 4);
	job->reading.at += 8;
	left -= 8;
	job->reading.run_part = size & SODA_MSG_PART;
	size &= ~SODA_MSG_PART;
	job->reading.run_size = size;
	job->reading.run_left = count;
	if (!count || size > left || (!job->reading.run_part && (uint64_t)size * count > left) ||
	    (job->reading.run_part && (!size || count > SODA_MSG_SIZE_MAX)))
		return nonsense(job);
	return 0;
}

/* Behind a run, or a part, of so many bytes in all. */
static void pass(struct soda_msg_job *job, uint64_t bytes)
{
	uint64_t at = job->reading.at + ((bytes + 7) & ~7ull);

	job->reading.at = at < job->reading.packet_end ? (uint32_t)at : job->reading.packet_end;
}

/* A part of a large message. 1: it is complete, and in *out. */
static int take_part(struct soda_msg_job *job, struct soda_message_run *out)
{
	struct soda_part *part = &job->parts[job->reading.from];
	uint32_t size = job->reading.run_size, whole = job->reading.run_left;

	job->reading.run_left = 0;
	if (!part->data) {
		*part = (struct soda_part){ malloc(whole), whole, 0 };
		if (!part->data)
			return give_up(job, -ENOMEM,
				       &(struct soda_why){ "no memory for a message" });
	}
	if (whole != part->bytes || size > part->bytes - part->at)
		return nonsense(job);
	memcpy(part->data + part->at, job->reading.data + job->reading.at, size);
	part->at += size;
	pass(job, size);
	if (part->at < part->bytes)
		return 0;
	job->given = part->data;
	*out = (struct soda_message_run){ part->data, part->bytes, 1, job->reading.from, 0 };
	part->data = NULL;
	return 1;
}

/* Messages of the run that is being read, at most so many. */
static void take_messages(struct soda_msg_job *job, uint32_t most, struct soda_message_run *out)
{
	uint32_t size = job->reading.run_size, left = job->reading.run_left;
	uint32_t n = left < most ? left : most;

	*out = (struct soda_message_run){ job->reading.data + job->reading.at, size, n,
					  job->reading.from, 0 };
	job->reading.at += n * size;
	job->reading.run_left = left - n;
	if (left == n)
		job->reading.at = (job->reading.at + 7) & ~7u; /* packets have whole words */
}

/* The next messages of the open batch. 1: there are some; 0: none; or an error. */
static int next_messages(struct soda_msg_job *job, uint32_t most, struct soda_message_run *out)
{
	while (job->reading.run_left || job->reading.at < job->reading.bytes) {
		int ret = 0;

		if (job->reading.run_left) {
			take_messages(job, most, out);
			return 1;
		}
		if (job->reading.at == job->reading.packet_end) {
			ret = next_packet(job);
		} else {
			ret = next_run(job);
			if (ret == 0 && job->reading.run_part)
				ret = take_part(job, out);
		}
		if (ret)
			return ret;
	}
	return 0;
}

static int remembered(struct soda_msg_job *job)
{
	int ret;

	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

static inline int pull(struct soda_msg_job *job, uint32_t most, struct soda_message_run *out)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	if (job->given) {
		free(job->given);
		job->given = NULL;
	}
	if (job->reading.wrong)
		return remembered(job);
	do {
		ret = job->reading.open ? next_messages(job, most, out) : 0;
		if (ret > 0) {
			count(&job->pulled, out->count);
			count(&job->pulled_bytes, out->count * out->bytes);
			return 0;
		}
		if (ret == 0)
			ret = soda_msg_has_rings(job) ? next_range(job) : next_batch(job);
	} while (ret == 0);
	return ret;
}

/*
 * The next one of the run that is being read: nearly all messages of 8 bytes are that.  Behind a
 * large message, and what makes no sense, no run is left.
 */
static inline bool pull_quickly(struct soda_msg_job *job, struct soda_message *msg_p)
{
	uint32_t size = job->reading.run_size, left = job->reading.run_left, at = job->reading.at;

	if (soda_msg_known != job->pid || !left)
		return false;
	*msg_p = (struct soda_message){ job->reading.data + at, size, job->reading.from, 0 };
	at += size;
	job->reading.at = left > 1 ? at : (at + 7) & ~7u; /* packets have whole words */
	job->reading.run_left = left - 1;
	count(&job->pulled, 1);
	count(&job->pulled_bytes, size);
	return true;
}

/* Apart, so that a quick one saves no registers for this. */
static int __attribute__((noinline)) pull_one(struct soda_msg_job *job, struct soda_message *msg_p)
{
	struct soda_message_run one;
	int ret = pull(job, 1, &one);

	if (ret == 0)
		*msg_p = (struct soda_message){ one.data, one.bytes, one.from, 0 };
	return ret;
}

SODA_API int soda_msg_pull(struct soda_msg_job *job, struct soda_message *msg_p)
{
	return pull_quickly(job, msg_p) ? 0 : pull_one(job, msg_p);
}

SODA_API int soda_msg_pull_many(struct soda_msg_job *job, struct soda_message_run *run_p)
{
	struct soda_message_run some;
	int ret = pull(job, UINT32_MAX, &some);

	if (ret == 0)
		*run_p = some;
	return ret;
}

SODA_API int soda_msg_begin(struct soda_msg_job *job)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	if (ret == 0 && !job->reading.over)
		ret = soda_msg_failed(-EINVAL, "the phase is not over: pull until -ENODATA");
	if (ret == 0) {
		job->reading.over = false;
		job->finish = job->finish_sent = false;
		job->phase++;
		soda_gathers_open_locked(job);
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}
