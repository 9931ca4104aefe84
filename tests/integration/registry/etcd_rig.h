/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real etcd of one to three nodes on loopback, for tests: started, killed node by node, started
 * again with its data, asked by its JSON gateway.  Behind <cmocka.h>.  Nodes end with the test.
 */
#ifndef SODA_TEST_ETCD_RIG_H
#define SODA_TEST_ETCD_RIG_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

enum { RIG_NODES = 3, RIG_LOOKS = 200, RIG_LOOK_US = 100000 }; /* waits end after 20 s */

struct rig {
	int n;
	bool mutual;
	const char *certificates; /* directory of ca.pem, cert.pem, key.pem: TLS; NULL: none */
	char dir[96];
	pid_t pid[RIG_NODES]; /* 0: it does not run */
	int port[RIG_NODES], peer_port[RIG_NODES];
	char list[128]; /* etcd://HOST:PORT,... */
};

/* Whether there is an etcd to be started. */
bool rig_possible(void);
/*
 * Start n nodes below the folder `below`, with TLS for clients where there are certificates, and
 * with `mutual` clients must have certificates of that ca.pem, too.
 */
void rig_open(struct rig *rig, int n, const char *below, const char *certificates, bool mutual);
void rig_start(struct rig *rig, int node); /* one that was killed */
void rig_kill(struct rig *rig, int node);
/* Until a call is answered. */
void rig_await(const struct rig *rig);
/* The node that leads. */
int rig_leader(const struct rig *rig);
/* POST /v3/PATH to that node: a new reference, or NULL; status_p may be NULL. */
json_t *rig_ask(const struct rig *rig, int node, const char *path, const char *body,
		long *status_p);
/* rig_ask() of the first node, which must do it. */
void rig_do(const struct rig *rig, const char *path, const char *body);
void rig_close(struct rig *rig);

#endif
