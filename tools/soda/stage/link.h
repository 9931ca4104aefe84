/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An emulated slow link: the memory server runs in a network namespace of its own, behind
 * a veth pair whose server's end lets a token bucket's rate through (what it sends; requests
 * and write-backs go the other way, unlimited).  The namespace has no name and
 * ends with the server, and the pair with it.  Needs root, and ip and tc of iproute2.
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
	pid_t owner;			 /* the process whose namespace our end is in */
};

/* What the end on our side has carried. */
struct soda_bench_link_bytes {
	uint64_t from_server, to_server;
};

/*
 * rate: "2gbit", "800mbit", "100kbit".  Names and addresses are made of `owner`, whose
 * namespace ours is.  0; -EINVAL: not a rate; -EPERM: not root; after a message.
 */
int soda_bench_link_plan(const char *rate, pid_t owner, struct soda_bench_link *link);
/* In the server's process, before it starts (soda_bench_daemon_start): arg is the link. */
int soda_bench_link_enter(void *arg);
/* In ours, once the server is there. */
int soda_bench_link_join(const struct soda_bench_link *link);
/* 0, or negative errno. */
int soda_bench_link_read(const struct soda_bench_link *link, struct soda_bench_link_bytes *out);

/*
 * What one plain TCP stream from the server's side gets, headers included:
 * a token bucket behind a virtual machine's clock stays below its rate.  Takes a second.
 * server: a process there.  0, or negative errno after a message.
 */
int soda_bench_link_carries(const struct soda_bench_link *link, pid_t server,
			    uint64_t *bits_per_s_p);

/* Remove the link of this owner, if it is there. */
void soda_bench_link_remove(pid_t owner);
/* Remove those of processes that are gone. */
void soda_bench_link_sweep(void);

#endif
