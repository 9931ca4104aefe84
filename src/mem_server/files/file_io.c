/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of reads or writes; a short read or write is continued where it stopped. */
#include "mem_server/files/file_io.h"

#include <errno.h>
#include <unistd.h>

#include "base/uring.h"

#define QUEUE_DEPTH 32

bool soda_file_io_plain_only;

/* A range of the file under way; moves on with each part that is done. */
struct file_transfer {
	uint64_t offset;
	uint32_t left; /* 0: the slot is free */
};

struct queue {
	const struct soda_file_io *io;
	struct io_uring ring;
	struct file_transfer slots[QUEUE_DEPTH];
	unsigned busy;	    /* slots; busy >= under_way */
	unsigned under_way; /* submitted and not completed */
	int status;	    /* the first error, after which no range is started */
	bool closed;	    /* io_uring takes no more entries: the rest is moved without it */
};

/* Move the rest of one range by pread or pwrite. 0 or negative errno. */
static int move(const struct soda_file_io *io, struct file_transfer *slot)
{
	while (slot->left) {
		uint8_t *at = io->memory + slot->offset;
		ssize_t n = io->write ? pwrite(io->fd, at, slot->left, (off_t)slot->offset)
				      : pread(io->fd, at, slot->left, (off_t)slot->offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		slot->offset += (uint64_t)n;
		slot->left -= (uint32_t)n;
	}
	return 0;
}

static void submit(struct queue *queue, struct file_transfer *slot)
{
	const struct soda_file_io *io = queue->io;
	/* never NULL: there are as many entries as slots */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&queue->ring);

	if (io->write)
		io_uring_prep_write(sqe, io->fd, io->memory + slot->offset, slot->left,
				    slot->offset);
	else
		io_uring_prep_read(sqe, io->fd, io->memory + slot->offset, slot->left,
				   slot->offset);
	io_uring_sqe_set_data(sqe, slot);
}

/* Start a range in each free slot. */
static void start_more(struct queue *queue)
{
	for (struct file_transfer *slot = queue->slots; slot < queue->slots + QUEUE_DEPTH; slot++) {
		if (slot->left)
			continue;
		if (queue->status || !queue->io->next(queue->io->arg, &slot->offset, &slot->left)) {
			slot->left = 0;
			return;
		}
		queue->busy++;
		submit(queue, slot);
	}
}

static void fail(struct queue *queue, int r)
{
	if (!queue->status)
		queue->status = r;
}

static void complete(struct queue *queue, struct file_transfer *slot, int r)
{
	if (r == -EINTR || r == -EAGAIN) {
		/* not submitted again, which might go on for ever */
		r = queue->status ? 0 : move(queue->io, slot);
		if (r)
			fail(queue, r);
		slot->left = 0;
	} else if (r <= 0) {
		fail(queue, r ? r : -EIO);
		slot->left = 0;
	} else {
		slot->offset += (uint32_t)r;
		slot->left -= (uint32_t)r;
	}
	if (slot->left && !queue->status) {
		if (!queue->closed)
			submit(queue, slot);
		return; /* if closed, finish() moves the rest */
	}
	slot->left = 0;
	queue->busy--;
}

/*
 * Submit the prepared entries and wait for a completion. False: nothing is under way, nor will be.
 */
static bool advance(struct queue *queue)
{
	struct io_uring_cqe *cqe;
	int r;

	if (!queue->closed) {
		r = io_uring_submit_and_wait(&queue->ring, 1);
		if (r >= 0)
			queue->under_way += (unsigned)r;
		if (r >= 0 || r == -EINTR)
			return true;
		queue->closed = true;
		if (r != -EAGAIN && r != -EBUSY)
			fail(queue, r);
	}
	/* Entries under way use the caller's memory: wait for them also after an error. */
	if (queue->under_way)
		io_uring_wait_cqe(&queue->ring, &cqe);
	return queue->under_way;
}

static int run_plain(const struct soda_file_io *io)
{
	struct file_transfer slot;
	int r = 0;

	while (!r && io->next(io->arg, &slot.offset, &slot.left))
		r = move(io, &slot);
	return r;
}

/* For a closed queue: move the ranges in its slots, and those that were not started. */
static int finish(struct queue *queue)
{
	for (struct file_transfer *slot = queue->slots; slot < queue->slots + QUEUE_DEPTH; slot++)
		if (!queue->status && slot->left)
			fail(queue, move(queue->io, slot));
	return queue->status ? queue->status : run_plain(queue->io);
}

static int run_queue(struct queue *queue)
{
	struct io_uring_cqe *cqe;

	start_more(queue);
	while (queue->busy && advance(queue)) {
		while (!io_uring_peek_cqe(&queue->ring, &cqe)) {
			struct file_transfer *slot = io_uring_cqe_get_data(cqe);
			int r = cqe->res;

			io_uring_cqe_seen(&queue->ring, cqe);
			queue->under_way--;
			complete(queue, slot, r);
		}
		if (!queue->closed)
			start_more(queue);
	}
	return queue->closed ? finish(queue) : queue->status;
}

int soda_file_io_run(const struct soda_file_io *io)
{
	struct queue queue = { .io = io };
	struct io_uring_params params = { 0 };
	int r;

	if (soda_file_io_plain_only || soda_uring_begin(&queue.ring, QUEUE_DEPTH, &params))
		return run_plain(io);
	r = run_queue(&queue);
	soda_uring_end(&queue.ring);
	return r;
}
