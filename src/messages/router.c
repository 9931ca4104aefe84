/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client is one control connection: of this rank, or of another rank's router.  A connection that
 * is lost is forgotten at once, because nothing but messages is known of it.
 */
#include "messages/router.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "routing/calls.h"
#include "transport/api/service.h"

struct soda_msg_router {
	struct soda_router router;
	struct soda_listener *listeners[2]; /* for other routers, and for this rank */
	unsigned listeners_n;
};

struct client {
	struct soda_router_client routed;
	struct soda_peer_info info;
};

/* The service */

static int hello(void *svc, struct soda_peer *peer, const struct soda_wire_hello *said,
		 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		 void **client_p, struct soda_why *why)
{
	struct soda_msg_router *r = svc;
	struct client *c;

	if (said->kind != SODA_CONN_CONTROL || said->chunk_bytes) {
		snprintf(why->text, sizeof(why->text),
			 "messages: a program's own router has no pages");
		return -ENOTSUP;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->info = *info;
	c->routed.router = &r->router;
	c->routed.info = &c->info;
	welcome->client_id = 1; /* who has no pages does not come back as the same client */
	*client_p = c;
	return 0;
}

static bool is_this_process(const struct soda_peer_info *info)
{
	return info->local && info->pid == getpid();
}

static int call(void *client, enum soda_msg type, const void *body, size_t bytes, bool shares,
		struct soda_reply *reply)
{
	struct client *c = client;

	reply->bytes = 0;
	reply->share = (struct soda_share){ .fd = -1 };
	reply->why = (struct soda_why){ "" };
	if (type == SODA_MSG_BYE) {
		soda_router_leave(&c->routed);
		return 0;
	}
	if ((int)type < SODA_MSG_MESSAGES_JOIN || (int)type > SODA_MSG_MESSAGES_LAST) {
		snprintf(reply->why.text, sizeof(reply->why.text),
			 "messages: a program's own router knows no request of type %d", (int)type);
		return -ENOTSUP;
	}
	/* a stranger's job would take the memory, and have this process connect where it says */
	if (type == (enum soda_msg)SODA_MSG_MESSAGES_JOIN && !is_this_process(&c->info)) {
		snprintf(reply->why.text, sizeof(reply->why.text),
			 "messages: this router is that of one rank's own process");
		return -EACCES;
	}
	return soda_router_call(&c->routed, (int)type, body, bytes, shares, reply);
}

static void gone(void *client, struct soda_peer *peer)
{
	struct client *c = client;

	soda_router_lose(&c->routed, false);
	soda_router_forget(&c->routed);
	free(c);
}

/* This program has no log for it. */
static void rejected(void *svc, const char *address, const char *why)
{
}

static const struct soda_service service = {
	.hello = hello,
	.call = call,
	.gone = gone,
	.rejected = rejected,
};

/* Life */

static int listen_at(struct soda_msg_router *r, const char *address, struct soda_why *why)
{
	const struct soda_listener_options how = { .workers = 1 };
	struct soda_listener **l = &r->listeners[r->listeners_n];
	int ret = soda_listener_open(address, &service, r, &how, l, why);

	if (ret < 0)
		return ret;
	r->listeners_n++;
	ret = soda_listener_start(*l);
	if (ret < 0)
		snprintf(why->text, sizeof(why->text), "%.100s: %s", address, soda_strerror(ret));
	return ret;
}

/* An address of this process's own; nobody else is told. */
static int own_address(char address[64])
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(address, 64, "shm://@soda-msg-router-%d-%016llx", (int)getpid(),
		 (unsigned long long)random);
	return 0;
}

static int open_listeners(struct soda_msg_router *r, const char *listen, struct soda_why *why)
{
	char own[64];
	int ret = own_address(own);

	if (ret == 0 && listen)
		ret = listen_at(r, listen, why);
	if (ret == 0 && (!listen || strncmp(listen, "shm://", 6) != 0))
		ret = listen_at(r, own, why);
	return ret;
}

static void stop(struct soda_msg_router *r)
{
	for (unsigned i = 0; i < r->listeners_n; i++)
		soda_listener_close(r->listeners[i]);
	soda_router_stop(&r->router);
	free(r);
}

int soda_msg_router_open(const char *listen, uint32_t ranks, struct soda_msg_router **router_p,
			 struct soda_why *why)
{
	struct soda_msg_router *r = calloc(1, sizeof(*r));
	sigset_t all, saved;
	int ret;

	if (!r)
		return -ENOMEM;
	sigfillset(&all); /* threads of a listener begin others */
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	ret = soda_router_start(&r->router, soda_router_budget(ranks), &soda_msg_tuning_usual);
	if (ret == 0)
		ret = open_listeners(r, listen, why);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (ret < 0) {
		stop(r);
		return ret;
	}
	*router_p = r;
	return 0;
}

const char *soda_msg_router_address(const struct soda_msg_router *r)
{
	return soda_listener_address(r->listeners[r->listeners_n - 1]);
}

void soda_msg_router_close(struct soda_msg_router *r)
{
	if (!r)
		return;
	soda_router_drain(&r->router);
	stop(r);
}
