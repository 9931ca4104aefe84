/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/tracepoint.h"

static void note_trouble(struct soda_server *s, int err, const char *text)
{
	char *to = s->troubles[atomic_fetch_add(&s->troubles_begun, 1) % SODA_SERVER_TROUBLES];

	snprintf(to, sizeof(s->troubles[0]), "%.255s: %s", s->address,
		 text && *text ? text : soda_strerror(err));
	atomic_store(&s->trouble, to);
}

const char *soda_server_trouble(const struct soda_server *s)
{
	const char *text = atomic_load(&s->trouble);

	return text ? text : s->address;
}

static void set_address(struct soda_server *s, const char *address)
{
	char *to = s->addresses[s->moves % SODA_SERVER_ADDRESSES];

	assert(strlen(address) <= SODA_ADDRESS_MAX); /* options are not longer */
	strcpy(to, address);
	atomic_store(&s->address, to);
}

void soda_server_move(struct soda_server *s, const char *address)
{
	s->moves++;
	set_address(s, address);
	if (!s->agent[0])
		s->place.bytes = 0;
	s->pause_ms = 0;
	s->next_ns = 0;
}

void soda_server_init(struct soda_server *s, const char *address, int connect_ms,
		      const struct soda_server_hooks *hooks, void *owner)
{
	memset(s, 0, sizeof(*s));
	s->hooks = hooks;
	s->owner = owner;
	s->connect_ms = connect_ms;
	set_address(s, address);
	s->hello.magic = SODA_WIRE_MAGIC;
	s->hello.version = SODA_WIRE_VERSION;
	soda_lock_init(&s->lock, SODA_RANK_SESSION);
}

void soda_server_behind(struct soda_server *s, const char *agent, const char *address, uint16_t tag)
{
	snprintf(s->agent, sizeof(s->agent), "%s", agent);
	s->moves++;
	set_address(s, address);
	s->hello.features &= ~SODA_FEATURE_MEMBER;
	s->hello.features |= (uint32_t)tag << SODA_FEATURE_MEMBER_SHIFT;
}

void soda_server_identify(struct soda_server *s, const struct soda_identity *identity)
{
	s->proves = identity;
	if (identity)
		s->identity = *identity;
	soda_secret_hide(s, sizeof(*s));
}

/* Threads that wait for the state look at it again. */
static void set_state(struct soda_server *s, enum soda_server_state state)
{
	atomic_store(&s->state, state);
	soda_futex_wake(&s->state, INT32_MAX);
}

static struct soda_conn *take_control(struct soda_server *s)
{
	struct soda_conn *control;

	soda_lock_acquire(&s->lock);
	control = s->control;
	s->control = NULL;
	soda_lock_release(&s->lock);
	return control;
}

void soda_server_leave(struct soda_server *s)
{
	atomic_store(&s->left, true);
}

void soda_server_stop(struct soda_server *s)
{
	atomic_store(&s->stopping, true);
	soda_futex_wake(&s->state, INT32_MAX);
	soda_futex_wake(&s->breaks, INT32_MAX);
}

static void wipe_keys(struct soda_server *s)
{
	soda_wipe(s->identity.key, sizeof(s->identity.key));
	soda_wipe(s->client_key, sizeof(s->client_key));
	soda_wipe(s->watch_key, sizeof(s->watch_key));
	soda_wipe(&s->token, sizeof(s->token));
}

void soda_server_end(struct soda_server *s)
{
	soda_server_stop(s);
	s->open = false;
	soda_conn_close(take_control(s));
	soda_watch_close(s, true);
	wipe_keys(s);
	set_state(s, SODA_SERVER_GONE);
}

void soda_server_forget(struct soda_server *s)
{
	int fd = s->control ? soda_conn_fd(s->control) : -1;
	int watch_fd = s->watch ? soda_conn_fd(s->watch) : -1;

	wipe_keys(s);
	atomic_store(&s->stopping, true);
	soda_fd_close(fd);
	soda_fd_close(watch_fd);
}

void soda_server_report(struct soda_server *s, int err)
{
	uint32_t up = SODA_SERVER_UP;

	/* seq_cst, and before the state: an attempt looks at it after it has set that */
	atomic_store(&s->failed, true);
	if (atomic_compare_exchange_strong(&s->state, &up, SODA_SERVER_AWAY)) {
		note_trouble(s, err, NULL);
		SODA_TP_DISCONNECT(atomic_load(&s->address), err);
	}
	s->hooks->failed(s, err);
}

/* In pieces, each of which says whether the process ran: at most a piece's time is lost. */
int soda_server_wait(struct soda_server *s, uint64_t deadline_ns, uint64_t *still_ns_p)
{
	const uint64_t look_ns = SODA_COLLECT_LOOK_MS * SODA_MS_NS;
	enum soda_server_state state;

	while ((state = soda_server_state(s)) != SODA_SERVER_UP) {
		uint64_t now = soda_now_ns(), left, still;

		if (now >= deadline_ns || atomic_load(&s->stopping) || atomic_load(&s->left))
			return -ETIMEDOUT;
		left = deadline_ns - now < look_ns ? deadline_ns - now : look_ns;
		soda_futex_wait(&s->state, state, (int64_t)left);
		still = soda_stood_still(left, soda_now_ns() - now);
		deadline_ns += still;
		if (still_ns_p)
			*still_ns_p += still;
	}
	return 0;
}

uint32_t soda_server_breaks(const struct soda_server *s)
{
	return atomic_load(&s->breaks);
}

void soda_server_await_break(struct soda_server *s, uint32_t breaks)
{
	while (atomic_load(&s->breaks) == breaks && !atomic_load(&s->stopping))
		soda_futex_wait(&s->breaks, breaks, SODA_KEEPER_TICK_MS * SODA_MS_NS);
}

struct soda_conn *soda_server_acquire(struct soda_server *s)
{
	soda_lock_acquire(&s->lock);
	/* not while an attempt is half done */
	return soda_server_up(s) ? s->control : NULL;
}

bool soda_server_acquire_until(struct soda_server *s, uint64_t deadline_ns,
			       struct soda_conn **control_p)
{
	if (!soda_lock_acquire_until(&s->lock, deadline_ns))
		return false;
	*control_p = soda_server_up(s) ? s->control : NULL;
	return true;
}

bool soda_server_acquire_at_end(struct soda_server *s, uint64_t deadline_ns)
{
	return soda_lock_mine() >> SODA_RANK_SESSION
		       ? soda_lock_try(&s->lock)
		       : soda_lock_acquire_until(&s->lock, deadline_ns);
}

void soda_server_release(struct soda_server *s)
{
	soda_lock_release(&s->lock);
}

/* The driver's part. */

static void close_all(struct soda_server *s)
{
	if (!s->open)
		return;
	s->open = false;
	soda_watch_close(s, false);
	if (s->control) /* a thread that is in a call has the lock */
		soda_conn_abort(s->control);
	s->hooks->away(s);
	soda_conn_close(take_control(s));
	atomic_fetch_add(&s->breaks, 1);
	soda_futex_wake(&s->breaks, INT32_MAX);
}

void soda_server_down(struct soda_server *s)
{
	uint32_t up = SODA_SERVER_UP;

	if (atomic_compare_exchange_strong(&s->state, &up, SODA_SERVER_AWAY)) {
		note_trouble(s, -ECONNABORTED, NULL);
		SODA_TP_DISCONNECT(atomic_load(&s->address), -ECONNABORTED);
	}
	close_all(s);
}

/* shown: instead of proving the client's key we show its token. */
static int say_hello(struct soda_server *s, bool shown, uint8_t client_key[SODA_KEY_BYTES],
		     struct soda_conn **conn_p, struct soda_wire_welcome *w, struct soda_why *why)
{
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = s->connect_ms,
					       .identity = soda_server_identity(s),
					       .client_key = client_key,
					       .place = soda_server_place(s),
					       .token = shown ? s->token.bytes : NULL };

	s->hello.epoch++;
	return soda_conn_connect(soda_server_peer(s), &s->hello, &opt, conn_p, w, why);
}

/*
 * Whether the peer will do, and knows us where it has to.  Else it may have made a new client,
 * which nobody wants.
 */
static int check_peer(struct soda_server *s, enum soda_server_as as, struct soda_conn *conn,
		      const struct soda_wire_welcome *w, struct soda_why *why)
{
	int ret = s->hooks->accepts ? s->hooks->accepts(s, conn, w, why) : 0;
	struct soda_why ignored;

	if (ret == 0 && !w->known && as == SODA_AS_KNOWN) {
		snprintf(why->text, sizeof(why->text), "%.200s does not know the client any more",
			 s->address);
		ret = -ESTALE;
	}
	if (ret && !w->known)
		soda_conn_call(conn, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, s->connect_ms, &ignored);
	return ret;
}

/*
 * The control connection; and from now on we are who the server says that we are.  An agent
 * between may be a known client of the server's, and not the one that we were.
 */
static int connect_control(struct soda_server *s, enum soda_server_as as,
			   enum soda_server_met *met_p, struct soda_why *why)
{
	uint64_t instance = s->welcome.instance_id;
	uint8_t client_key[SODA_KEY_BYTES];
	struct soda_wire_welcome w;
	struct soda_wire_hello known;
	struct soda_conn *conn;
	int ret;

	if (s->proves)
		soda_identity_refresh(&s->identity);
	memcpy(client_key, s->client_key, sizeof(client_key));
	ret = say_hello(s, s->adopts, client_key, &conn, &w, why);
	if (ret == -ESTALE && as == SODA_AS_AGAIN && s->token.number)
		ret = say_hello(s, true, client_key, &conn, &w, why);
	known = s->hello;
	if (ret == -ESTALE && as == SODA_AS_AGAIN) { /* it forgot us, or is another server */
		s->hello.client_id = s->hello.secret = 0;
		s->hello.epoch = 0;
		ret = say_hello(s, false, client_key, &conn, &w, why);
	}
	if (!ret) {
		w.known = w.known && w.client_id == s->hello.client_id;
		ret = check_peer(s, as, conn, &w, why);
		if (ret)
			soda_conn_close(conn);
	}
	if (ret) { /* our server knows us as before, wherever it is */
		s->hello = known;
		return ret;
	}
	*met_p = !instance				? SODA_MET_FIRST
		 : w.known && w.instance_id == instance ? SODA_MET_KNOWN
							: SODA_MET_FORGOTTEN;
	s->welcome = w;
	s->hello.client_id = w.client_id;
	s->hello.secret = w.secret;
	memcpy(s->client_key, client_key, sizeof(client_key));
	if (!w.known) /* it was of a client that we are not */
		s->token = (struct soda_client_token){ .number = 0 };
	s->adopts = false;
	soda_lock_acquire(&s->lock);
	s->control = conn;
	soda_lock_release(&s->lock);
	s->open = true;
	return 0;
}

static int connect_all(struct soda_server *s, enum soda_server_as as, struct soda_why *why)
{
	enum soda_server_met met;
	int ret = connect_control(s, as, &met, why);

	if (!ret)
		ret = s->hooks->met(s, s->control, met, why);
	if (ret)
		return ret;
	if (s->hooks->up)
		s->hooks->up(s);
	atomic_store(&s->state, SODA_SERVER_UP);
	if (atomic_load(&s->failed)) /* one of the new connections, already */
		return -ECONNRESET;
	soda_futex_wake(&s->state, INT32_MAX);
	return 0;
}

int soda_server_attempt(struct soda_server *s, enum soda_server_as as, struct soda_why *why)
{
	int ret;

	close_all(s);
	atomic_store(&s->failed, false);
	ret = connect_all(s, as, why);
	SODA_TP_RECONNECT(atomic_load(&s->address), s->hello.epoch, ret);
	if (!ret) {
		s->pause_ms = 0;
		s->next_ns = 0;
		return 0;
	}
	set_state(s, soda_is_refusal(ret) ? SODA_SERVER_REFUSED : SODA_SERVER_AWAY);
	note_trouble(s, ret, why->text);
	close_all(s);
	return ret;
}

static uint32_t longer(uint32_t pause_ms)
{
	if (!pause_ms)
		return SODA_RETRY_MIN_MS;
	return pause_ms * 2 < SODA_RETRY_MAX_MS ? pause_ms * 2 : SODA_RETRY_MAX_MS;
}

int soda_server_tick(struct soda_server *s, uint64_t now_ns, struct soda_why *why)
{
	int ret;

	if (soda_server_up(s))
		return 0;
	if (atomic_load(&s->stopping))
		return -ESHUTDOWN;
	if (atomic_load(&s->left))
		s->next_ns = now_ns + SODA_RETRY_MAX_MS * SODA_MS_NS;
	if (now_ns < s->next_ns)
		return -EAGAIN;
	ret = soda_server_attempt(s, SODA_AS_AGAIN, why);
	if (ret) {
		s->pause_ms = longer(s->pause_ms);
		s->next_ns = soda_now_ns() + s->pause_ms * SODA_MS_NS;
	}
	return ret;
}
