/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An emulated slow link: the memory server runs in a network namespace of its own, behind a pair of
 * veth devices.  A token bucket on the server's end limits what the server sends; requests and
 * write-backs, which go the other way, are not limited.  The namespace has no name: it ends with
 * the server, and so does the pair.  Needs root, and ip and tc of iproute2.
 */
#ifndef SODA_BENCH_LINK_H
#define SODA_BENCH_LINK_H

#include <stdint.h>
#include <sys/types.h>

struct soda_bench_link {
	char rate[32]; /* as tc takes it; "": no link */
	uint64_t bits_per_s;
	char host_name[32]; /* the end on our side */
	char server_name[32];
	char host_ip[20], server_ip[20]; /* 198.18.0.0/15 is for benchmarks (RFC 2544) */
	pid_t owner; /* the process whose network namespace has the host's end */
};

/* What the host's end has carried. */
struct soda_bench_link_bytes {
	uint64_t from_server, to_server;
};

/*
 * Fill *link.  rate: "2gbit", "800mbit", "100kbit"; owner: a process of this network namespace; the
 * devices' names and addresses are made of its number.  0; -EINVAL: not a rate; -EPERM: not root;
 * after a message.
 */
int soda_bench_link_plan(const char *rate, pid_t owner, struct soda_bench_link *link);
/* The same for several servers, each behind a link of its own: i from 0 to SODA_BENCH_LINKS. */
enum { SODA_BENCH_LINKS = 16 };
int soda_bench_link_plan_nth(const char *rate, pid_t owner, unsigned i,
			     struct soda_bench_link *link);
/* For soda_bench_daemon_start's `before`, in the server's process; arg is the link. */
int soda_bench_link_enter(void *arg);
/* In the benchmark's process, once the server runs: set the host's end up. */
int soda_bench_link_join(const struct soda_bench_link *link);
/* 0, or negative errno. */
int soda_bench_link_read(const struct soda_bench_link *link, struct soda_bench_link_bytes *out);

/*
 * Measure the rate of one plain TCP stream from the server's side, headers included: on a virtual
 * machine's clock a token bucket stays below the rate that it was given.  Takes a second.  server:
 * a process in the server's namespace.  0, or negative errno after a message.
 */
int soda_bench_link_carries(const struct soda_bench_link *link, pid_t server,
			    uint64_t *bits_per_s_p);

/* Remove the links of this owner that are there. */
void soda_bench_link_remove(pid_t owner);
/* Remove those of processes that are gone. */
void soda_bench_link_sweep(void);

#endif
