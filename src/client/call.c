/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/call.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/failure.h"
#include "base/limits.h"
#include "trust/token.h"
#include "wire/field.h"
#include "wire/pool.h"

/* The call, on a control connection that is locked, or there is none; and the lock's release. */
static int make(struct soda_server *s, struct soda_conn *control, soda_call_fn *fn, void *arg,
		bool again, int timeout_ms, struct soda_why *why)
{
	int ret = control ? fn(control, arg, again, timeout_ms, why) : -ENOTCONN;

	if (control && soda_call_lost(ret)) /* locked: of this connection, and not of the next */
		soda_server_report(s, ret);
	soda_server_release(s);
	return ret;
}

/*
 * One attempt.  *reached_p: there was a connection, so that the server may have heard of it.
 * *still_ns_p: for so long the process did not run meanwhile, which no time-out counts.
 */
static int attempt(struct soda_server *s, soda_call_fn *fn, void *arg, bool again, int timeout_ms,
		   bool *reached_p, uint64_t *still_ns_p, struct soda_why *why)
{
	/* again: of two calls */
	uint64_t asked_ns = (again ? 2 : 1) * (uint64_t)timeout_ms * SODA_MS_NS;
	struct soda_conn *control = soda_server_acquire(s);
	uint64_t from = soda_now_ns();
	int ret = make(s, control, fn, arg, again, timeout_ms, why);

	*reached_p = control;
	*still_ns_p = soda_stood_still(asked_ns, soda_now_ns() - from);
	return ret;
}

int soda_call_once(struct soda_server *s, soda_call_fn *fn, void *arg, int timeout_ms,
		   struct soda_why *why)
{
	uint64_t still_ns;
	bool reached;

	return attempt(s, fn, arg, false, timeout_ms, &reached, &still_ns, why);
}

int soda_call_aside(struct soda_server *s, soda_call_fn *fn, void *arg, int wait_ms, int timeout_ms,
		    struct soda_why *why)
{
	uint64_t deadline_ns = soda_now_ns() + (uint64_t)wait_ms * SODA_MS_NS;
	struct soda_conn *control;

	if (!soda_server_acquire_until(s, deadline_ns, &control))
		return -EBUSY;
	return make(s, control, fn, arg, false, timeout_ms, why);
}

int soda_call_persist(struct soda_server *s, soda_call_fn *fn, void *arg, int timeout_ms,
		      struct soda_why *why)
{
	uint64_t deadline = soda_now_ns() + (uint64_t)timeout_ms * SODA_MS_NS, still_ns;
	bool again = false, reached;
	int ret;

	for (;;) {
		if (soda_server_wait(s, deadline, NULL)) {
			snprintf(why->text, sizeof(why->text), "%.250s", soda_server_trouble(s));
			return -ETIMEDOUT;
		}
		ret = attempt(s, fn, arg, again, timeout_ms, &reached, &still_ns, why);
		if (!soda_call_lost(ret))
			return ret;
		deadline += still_ns;
		if (ret == -ETIMEDOUT && soda_now_ns() >= deadline)
			break;
		again = again || reached;
		poll(NULL, 0, 1);
	}
	snprintf(why->text, sizeof(why->text),
		 "%.120s has not answered within %d ms (SODA_FAULT_TIMEOUT), and is connected to "
		 "anew; ask again, or give it more time",
		 s->address, timeout_ms);
	return ret;
}

struct plain {
	enum soda_msg type;
	const struct iovec *body;
	int body_n;
	void *reply;
	size_t capacity, *reply_bytes_p;
};

static int plain_call(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		      struct soda_why *why)
{
	struct plain *p = arg;

	return soda_conn_call(control, p->type, p->body, p->body_n, p->reply, p->capacity,
			      p->reply_bytes_p, timeout_ms, why);
}

int soda_call(struct soda_server *s, enum soda_msg type, const struct iovec *body, int body_n,
	      void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
	      struct soda_why *why)
{
	struct plain p = { type, body, body_n, reply, capacity, reply_bytes_p };

	return soda_call_once(s, plain_call, &p, timeout_ms, why);
}

int soda_call_members(struct soda_conn *control, char *text, size_t size, int timeout_ms,
		      struct soda_why *why)
{
	const struct soda_wire_tell tell = { .ask = SODA_WIRE_POOL_MEMBERS };
	uint8_t body[SODA_WIRE_TELL_BYTES];
	struct iovec iov = { body, sizeof(body) };
	size_t bytes = 0;
	int ret;

	soda_wire_put_tell(body, &tell);
	ret = soda_conn_call(control, SODA_MSG_POOL, &iov, 1, text, size - 1, &bytes, timeout_ms,
			     why);
	text[ret ? 0 : bytes] = '\0';
	return ret == -EPROTO ? 0 : ret;
}

int soda_call_token(struct soda_server *s, struct soda_conn *control, uint32_t held,
		    struct soda_wire_token *token_p, int timeout_ms, struct soda_why *why)
{
	uint8_t asked[SODA_WIRE_TOKEN_ASK_BYTES], answer[SODA_WIRE_TOKEN_ANSWER_BYTES];
	const struct iovec body = { asked, sizeof(asked) };
	size_t got = 0;
	int ret;

	soda_wire_put_u32(asked, held);
	ret = soda_conn_call(control, SODA_MSG_TOKEN, &body, 1, answer, sizeof(answer), &got,
			     timeout_ms, why);
	if (ret == -EMSGSIZE || (!ret && soda_wire_get_token(answer, got, token_p)))
		return -ECONNABORTED;
	return ret ? ret : soda_token_wrap(token_p->token, s->client_key, token_p->nonce);
}

/* The next is asked for after a quarter of the token's life: one that was lost can be had again. */
static int take_token(struct soda_server *s, struct soda_conn *control, int timeout_ms,
		      struct soda_why *why)
{
	struct soda_wire_token token;
	int ret = soda_call_token(s, control, s->token.number, &token, timeout_ms, why);

	if (!ret) {
		s->token.number = token.number;
		memcpy(s->token.bytes, token.token, sizeof(s->token.bytes));
		s->token.renew_ns = soda_now_ns() + token.left_ms / 4 * SODA_MS_NS;
	}
	soda_wipe(&token, sizeof(token));
	return ret;
}

int soda_call_renew_token(struct soda_server *s, struct soda_conn *control, int timeout_ms,
			  struct soda_why *why)
{
	uint32_t before = s->token.number;
	int ret;

	if (!s->proves || !(s->welcome.agent & SODA_WIRE_AGENT_TOKENS) ||
	    soda_now_ns() < s->token.renew_ns)
		return 0;
	ret = take_token(s, control, timeout_ms, why);
	if (!ret && before && s->token.number != before)
		ret = take_token(s, control, timeout_ms, why);
	if (!ret || soda_call_lost(ret))
		return ret;
	s->token.renew_ns = UINT64_MAX; /* not by this connection */
	return 0;
}
