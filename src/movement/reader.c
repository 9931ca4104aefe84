/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Consumers.  A reader has a connection of its own, on which the program's thread makes the calls
 * itself: waiting for a step is a call that the agent answers late, again and again.
 *
 * By shm a step is the agent's memory, a memfd for each copy of the buffer, which is mapped when
 * the first step in it is met and stays so; else it is read into memory of the program's own.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "movement/mover.h"
#include "wire/field.h"

/* One copy of the buffer, as the reader knows it. */
struct copy {
	void *memory;  /* shared: its mapping, once there is one; else the step that is held */
	uint64_t step; /* that the reader holds; 0: none */
};

struct soda_move_reader {
	struct soda_conn *conn;
	pid_t pid;
	int error;
	uint64_t bytes;
	bool shared;
	unsigned copies_n;
	struct copy copies[SODA_MOVE_COPIES_MAX];
};

static int check_process(const struct soda_move_reader *r)
{
	soda_move_begun();
	if (r->pid != getpid())
		return soda_move_failed(-ENOTSUP,
					"this reader is that of the process %d, before"
					" its fork: the child needs one of its own",
					(int)r->pid);
	return r->error ? soda_move_failed(r->error, "the connection to the agent is lost") : 0;
}

/* As soda_conn_call(), with the errors of soda_move.h, remembered. */
static int call(struct soda_move_reader *r, enum soda_move_msg type, const struct iovec *body,
		int body_n, void *reply, size_t capacity, size_t *bytes_p, int *fd_p)
{
	struct soda_why why = { "" };
	int ret = soda_conn_call_fd(r->conn, (enum soda_msg)type, body, body_n, reply, capacity,
				    bytes_p, fd_p, SODA_MOVE_CALL_MS, &why);

	if (ret == 0)
		return 0;
	ret = soda_move_call_failed(ret == -EMSGSIZE ? -ECONNABORTED : ret, &why);
	if (ret == -ENOTCONN)
		r->error = ret;
	return ret;
}

static int makes_no_sense(struct soda_move_reader *r)
{
	r->error = -ENOTCONN;
	return soda_move_failed(-ENOTCONN, "the agent's answer makes no sense");
}

/* Time */

/* When timeout_ms from now is over, CLOCK_MONOTONIC; < 0: never. */
static uint64_t deadline_ms(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : soda_now_ms() + (uint64_t)timeout_ms;
}

/* How long the agent is to wait in one call. */
static uint32_t part_ms(uint64_t deadline)
{
	uint64_t now = soda_now_ms();

	if (now >= deadline)
		return 0;
	return deadline - now < SODA_MOVE_AWAIT_MS ? (uint32_t)(deadline - now)
						   : SODA_MOVE_AWAIT_MS;
}

/* Opening */

static int open_once(struct soda_move_reader *r, const char *name, uint32_t ms,
		     struct soda_wire_move_opened *opened_p)
{
	uint8_t head[sizeof(uint32_t)], reply[SODA_WIRE_MOVE_OPENED_BYTES];
	struct iovec iov[2] = { { head, sizeof(head) }, { (void *)(uintptr_t)name, strlen(name) } };
	size_t bytes = 0;
	int ret;

	soda_wire_put_u32(head, ms);
	ret = call(r, SODA_MSG_MOVE_OPEN, iov, 2, reply, sizeof(reply), &bytes, NULL);
	if (ret == -EPROTO || ret == -ENOTSUP)
		return soda_move_failed(-ENOTSUP,
					"%s has no named buffers: it needs to be a"
					" soda-dpu-agent with --move-memory",
					soda_conn_peer(r->conn));
	if (ret == 0 &&
	    (soda_wire_get_move_opened(reply, bytes, opened_p) < 0 ||
	     opened_p->bytes > SODA_MOVE_BYTES_MAX || opened_p->copies > SODA_MOVE_COPIES_MAX))
		return makes_no_sense(r);
	return ret;
}

static int open_by_name(struct soda_move_reader *r, const char *name, int timeout_ms)
{
	uint64_t deadline = deadline_ms(timeout_ms);
	struct soda_wire_move_opened opened = { 0 };
	int ret;

	do
		ret = open_once(r, name, part_ms(deadline), &opened);
	while (ret == 0 && !opened.bytes);
	if (ret < 0)
		return ret;
	r->bytes = opened.bytes;
	r->copies_n = opened.copies;
	r->shared = opened.shared;
	return 0;
}

SODA_API int soda_move_open(const char *agent, const char *name, int timeout_ms,
			    struct soda_move_reader **reader_p)
{
	struct soda_move_reader *r;
	int saved = errno, ret;

	soda_move_begun();
	if (!name || !soda_wire_name_ok(name, strlen(name)))
		return soda_move_failed(-EINVAL, "no buffer can have this name");
	r = calloc(1, sizeof(*r));
	if (!r)
		return soda_move_failed(-ENOMEM, "no memory for a reader");
	r->pid = getpid();
	ret = soda_move_join(agent, &r->conn);
	if (ret == 0)
		ret = open_by_name(r, name, timeout_ms);
	if (ret == 0)
		*reader_p = r;
	else
		soda_move_close(r);
	errno = saved;
	return ret;
}

SODA_API void soda_move_close(struct soda_move_reader *r)
{
	uint64_t page_mask = SODA_WIRE_PAGE - 1;

	if (!r)
		return;
	if (r->pid == getpid())
		soda_conn_close(r->conn);
	for (unsigned i = 0; i < r->copies_n; i++) {
		if (r->shared && r->copies[i].memory)
			munmap(r->copies[i].memory, (r->bytes + page_mask) & ~page_mask);
		else if (!r->shared)
			free(r->copies[i].memory);
	}
	free(r);
}

/* Steps */

/* Map a copy of the buffer, if it is not. */
static int map_copy(struct soda_move_reader *r, uint32_t i)
{
	uint8_t body[sizeof(uint32_t)], reply[sizeof(uint64_t)];
	struct iovec iov = { body, sizeof(body) };
	void *memory;
	size_t bytes = 0;
	int fd = -1, ret;

	if (r->copies[i].memory)
		return 0;
	soda_wire_put_u32(body, i);
	ret = call(r, SODA_MSG_MOVE_MAP, &iov, 1, reply, sizeof(reply), &bytes, &fd);
	if (ret < 0)
		return ret;
	ret = fd < 0 ? -EPROTO : soda_shared_map(fd, r->bytes, PROT_READ, &memory);
	if (fd >= 0)
		close(fd);
	if (ret == -EPROTO)
		return makes_no_sense(r);
	if (ret < 0)
		return soda_move_failed(ret, "cannot map a step of %llu bytes",
					(unsigned long long)r->bytes);
	r->copies[i].memory = memory;
	return 0;
}

/* Read a step that the reader holds into memory of its own. */
static int read_copy(struct soda_move_reader *r, uint64_t step, uint32_t i)
{
	uint8_t *memory = malloc(r->bytes);
	int ret = memory ? 0
			 : soda_move_failed(-ENOMEM, "no memory for a step of %llu bytes",
					    (unsigned long long)r->bytes);

	for (uint64_t at = 0; ret == 0 && at < r->bytes;) {
		uint64_t left = r->bytes - at;
		struct soda_wire_move_read ask = { step, at,
						   left < SODA_MOVE_PUT_MAX ? (uint32_t)left
									    : SODA_MOVE_PUT_MAX };
		uint8_t body[SODA_WIRE_MOVE_READ_BYTES];
		struct iovec iov = { body, sizeof(body) };
		size_t bytes = 0;

		soda_wire_put_move_read(body, &ask);
		ret = call(r, SODA_MSG_MOVE_READ, &iov, 1, memory + at, ask.bytes, &bytes, NULL);
		if (ret == 0 && bytes != ask.bytes)
			ret = makes_no_sense(r);
		at += ask.bytes;
	}
	if (ret < 0)
		free(memory);
	else
		r->copies[i].memory = memory;
	return ret;
}

/* One NEXT. found_p->step 0: none within ms. */
static int ask_next(struct soda_move_reader *r, uint64_t after, uint32_t ms,
		    struct soda_wire_move_found *found_p)
{
	struct soda_wire_move_next ask = { after, ms };
	uint8_t body[SODA_WIRE_MOVE_NEXT_BYTES], reply[SODA_WIRE_MOVE_FOUND_BYTES];
	struct iovec iov = { body, sizeof(body) };
	size_t bytes = 0;
	int ret;

	soda_wire_put_move_next(body, &ask);
	ret = call(r, SODA_MSG_MOVE_NEXT, &iov, 1, reply, sizeof(reply), &bytes, NULL);
	if (ret == -EBUSY)
		return soda_move_failed(ret, "this reader holds the next step already: release it,"
					     " or ask for one after it");
	if (ret == 0 &&
	    (soda_wire_get_move_found(reply, bytes, found_p) < 0 ||
	     (found_p->step && (found_p->step <= after || found_p->copy >= r->copies_n ||
				r->copies[found_p->copy].step))))
		return makes_no_sense(r);
	return ret;
}

static int give_back(struct soda_move_reader *r, uint64_t step)
{
	uint8_t body[sizeof(uint64_t)];
	struct iovec iov = { body, sizeof(body) };
	size_t bytes = 0;

	soda_wire_put_u64(body, step);
	return call(r, SODA_MSG_MOVE_RELEASE, &iov, 1, NULL, 0, &bytes, NULL);
}

/* Get at a step's data. Where that fails the step is given back. */
static int take(struct soda_move_reader *r, const struct soda_wire_move_found *found,
		struct soda_move_step *step_p)
{
	int ret = r->shared ? map_copy(r, found->copy) : read_copy(r, found->step, found->copy);
	struct soda_why why;

	if (ret < 0) {
		snprintf(why.text, sizeof(why.text), "%s", soda_move_last_error());
		if (!r->error)
			give_back(r, found->step);
		return soda_move_failed(ret, "%s", why.text);
	}
	r->copies[found->copy].step = found->step;
	*step_p = (struct soda_move_step){ found->step, r->bytes, r->copies[found->copy].memory };
	return 0;
}

SODA_API int soda_move_next(struct soda_move_reader *r, uint64_t after, int timeout_ms,
			    struct soda_move_step *step_p)
{
	uint64_t deadline = deadline_ms(timeout_ms);
	struct soda_wire_move_found found = { 0 };
	int saved = errno, ret = check_process(r);
	uint32_t ms = 1;

	while (ret == 0 && !found.step && !found.ended && ms) {
		ms = part_ms(deadline);
		ret = ask_next(r, after, ms, &found);
	}
	if (ret == 0 && found.step)
		ret = take(r, &found, step_p);
	else if (ret == 0 && found.ended)
		ret = soda_move_failed(-EPIPE,
				       "the producer has ended the buffer, and no step"
				       " after %llu is left",
				       (unsigned long long)after);
	else if (ret == 0)
		ret = soda_move_failed(-ETIMEDOUT, "no step after %llu came within %d ms",
				       (unsigned long long)after, timeout_ms);
	errno = saved;
	return ret;
}

SODA_API int soda_move_release(struct soda_move_reader *r, const struct soda_move_step *step)
{
	int saved = errno, ret = check_process(r);
	unsigned i = 0;

	if (ret == -ENOTSUP)
		return ret;
	soda_move_begun();
	while (i < r->copies_n && (!step->number || r->copies[i].step != step->number))
		i++;
	if (i == r->copies_n)
		return soda_move_failed(-EINVAL, "this reader does not hold step %llu",
					(unsigned long long)step->number);
	r->copies[i].step = 0;
	if (!r->shared) {
		free(r->copies[i].memory);
		r->copies[i].memory = NULL;
	}
	ret = r->error ? soda_move_failed(r->error, "the connection to the agent is lost")
		       : give_back(r, step->number);
	errno = saved;
	return ret;
}
