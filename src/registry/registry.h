/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool's members in etcd, instead of a list: etcd://HOST:PORT[,HOST:PORT...]/POOL.  Each memory
 * server has a key there, with a lease, /soda/pools/POOL/INSTANCE, whose value is a JSON object:
 *
 *   {"format": "soda-member", "version": 1, "address", "instance", "capacity_bytes", "free_bytes",
 *    "domain", "state"}
 *
 * For daemons and tools, never for libsoda: what is here waits for the network, and loads libcurl.
 * Names and values (names.c, record.c), which members a program gets (resolve.c), and later ones
 * (follow.c); how a server keeps its key is in keep.h, the calls of etcd's JSON gateway in etcd.h.
 */
#ifndef SODA_REGISTRY_H
#define SODA_REGISTRY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/pool.h"
#include "transport/api/transport.h"

enum {
	SODA_REGISTRY_ENDPOINTS = 8, /* of one etcd */
	SODA_REGISTRY_HOST = 255,    /* bytes of HOST:PORT */
	SODA_REGISTRY_POOL = 63,     /* bytes of a pool's name */
	SODA_REGISTRY_KEY = 128,     /* a key, with its end */
	SODA_REGISTRY_DOMAIN = 63,
	SODA_REGISTRY_ASKED = 1024, /* members of a pool that a resolver looks at */
};

struct soda_registry_name {
	uint32_t n;
	char endpoint[SODA_REGISTRY_ENDPOINTS][SODA_REGISTRY_HOST + 1]; /* HOST:PORT */
	char pool[SODA_REGISTRY_POOL + 1];
};

/* How to speak with etcd: all may be NULL.  The strings are the caller's. */
struct soda_registry_login {
	const char *user_file; /* a line NAME:PASSWORD; nobody else may read the file */
	const char *ca;	       /* a PEM file: TLS, by a certificate of these */
	const char *cert;      /* a PEM file with our own certificate, with ca and key... */
	const char *key;       /* ...whose key this one has, which nobody else may read */
};

enum soda_registry_state {
	SODA_REGISTRY_UP,
	SODA_REGISTRY_DRAINING, /* what it has moves to others (soda pool drain) */
	SODA_REGISTRY_ENDING,	/* it has been told to end */
};

/*
 * The rows of all in a program's table of options; ENV: the environment variable's name, ...: the
 * initializer of the place of a `const char *` that the table's owner frees.
 */
#define SODA_ETCD_CA(ENV, ...)                                                                     \
	{                                                                                          \
		.name = "etcd-ca", .env = ENV, .type = SODA_OPT_STRING, __VA_ARGS__,               \
		.arg = "FILE",                                                                     \
		.help = "Speak TLS with etcd, and believe the certificates that one of this PEM "  \
			"file has signed, for the host in its address. Default: no TLS."           \
	}
#define SODA_ETCD_CERT(ENV, ...)                                                                   \
	{                                                                                          \
		.name = "etcd-cert", .env = ENV, .type = SODA_OPT_STRING, __VA_ARGS__,             \
		.arg = "FILE",                                                                     \
		.help = "The certificate, PEM, by which an etcd that wants one of its clients "    \
			"(--client-cert-auth) knows this one; with etcd-key and etcd-ca. "         \
			"Default: none."                                                           \
	}
#define SODA_ETCD_KEY(ENV, ...)                                                                    \
	{                                                                                          \
		.name = "etcd-key", .env = ENV, .type = SODA_OPT_STRING, __VA_ARGS__,              \
		.arg = "FILE",                                                                     \
		.help = "The key of that certificate, PEM, which nobody else may read. Default: "  \
			"none."                                                                    \
	}
#define SODA_ETCD_USER(ENV, ...)                                                                   \
	{                                                                                          \
		.name = "etcd-user", .env = ENV, .type = SODA_OPT_STRING, __VA_ARGS__,             \
		.arg = "FILE",                                                                     \
		.help = "Who asks etcd: a file with the line NAME:PASSWORD, which nobody else "    \
			"may "                                                                     \
			"read. Default: nobody, for an etcd without users."                        \
	}

/* What a server says of itself. */
struct soda_registry_member {
	char address[SODA_ADDRESS_MAX + 1];
	char domain[SODA_REGISTRY_DOMAIN + 1]; /* "": one of its own */
	uint64_t instance, capacity, free_bytes;
	enum soda_registry_state state;
};

/* Whether the text is meant as such a name. */
bool soda_registry_is_name(const char *text);
/* -EINVAL, with the reason in *why. */
int soda_registry_parse(const char *text, struct soda_registry_name *name_p, struct soda_why *why);
/* The key of an instance; with the length of `to`, without an end: all of the pool's begin so. */
void soda_registry_prefix(const struct soda_registry_name *name, char to[SODA_REGISTRY_KEY]);
void soda_registry_key(const struct soda_registry_name *name, uint64_t instance,
		       char to[SODA_REGISTRY_KEY]);

/* A string for the caller to free; NULL: no memory, or the member's texts are no UTF-8. */
char *soda_registry_encode(const struct soda_registry_member *member);
/* Of anybody's value.  -EINVAL: it is not one of a server of this version. */
int soda_registry_decode(const char *value, size_t bytes, struct soda_registry_member *member_p);

/*
 * The members of that pool that are up, and with `leaving` those that drain or end, at most
 * SODA_MEMBERS_MAX: of more those with most free memory, of as many failure domains as there are.
 * Of several with one address, a server that was started anew, the last that registered.  -EINVAL,
 * -ENOENT (no such server), -ENOTSUP (this build has no libcurl, or it is not installed), -EACCES,
 * -EIO (etcd), -ENOMEM, with *why.  Waits for the network, at most SODA_REGISTRY_CALL_MS for each
 * endpoint and call, of which there are three.
 */
int soda_registry_resolve(const char *text, const struct soda_registry_login *login, bool leaving,
			  struct soda_members *members_p, struct soda_why *why);
/* Those that are up as a list with commas between, for SODA_SERVER. */
int soda_registry_list(const char *text, const struct soda_registry_login *login,
		       char list[SODA_MEMBERS_TEXT_MAX + 1], struct soda_why *why);
struct soda_registry_follower;
/*
 * Have a thread look at the pool's members soon after each change, at most once each
 * SODA_REGISTRY_WATCH_MS, by etcd's watch; where etcd does not tell of changes, so often.  It calls
 * `changed` with those that soda_registry_resolve() would give, when they are others than before:
 * the first time, others than `known`, which may be NULL.  Of more than there is room for, those of
 * before stay, as long as they are there.  While etcd is away nothing is told.  *login and its
 * files are read now.  Errors of soda_registry_resolve(), but for those of etcd's answers.
 */
int soda_registry_follow(const char *text, const struct soda_registry_login *login, bool leaving,
			 const struct soda_members *known,
			 void (*changed)(void *arg, const struct soda_members *now), void *arg,
			 struct soda_registry_follower **follower_p, struct soda_why *why);
/* At once, but for a call of `changed` that is under way; NULL is fine. */
void soda_registry_unfollow(struct soda_registry_follower *follower);
/*
 * Which of `n` members: what soda_registry_resolve() does when etcd has answered.  Those of `keep`,
 * which may be NULL, come first.  Reorders them.
 */
void soda_registry_choose(struct soda_registry_member *members, uint32_t n,
			  const struct soda_members *keep, struct soda_members *members_p);

/* Write the reason to *why; returns ret. */
int soda_registry_fail(struct soda_why *why, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
