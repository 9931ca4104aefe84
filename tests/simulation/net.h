/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network: the project's transport contract with queues in memory, on both sides.
 *
 *   sim://agent, sim://server, sim://server2, ...    addresses; sim://agent:1 are the same
 *
 * A connection is two queues, each in order; two connections know nothing of each other's, so
 * that what travels on one overtakes the other. What is under way when a connection ends may
 * have come to the other side, may come there later, or never.
 */
#ifndef SODA_SIM_NET_H
#define SODA_SIM_NET_H

#include "fibers.h"
#include "transport/api/service.h"

enum sim_break {
	SIM_BREAK_RESET,  /* both sides know at once, nothing that is under way arrives */
	SIM_BREAK_LATE,	  /* the client knows; what it sent arrives later, then the end */
	SIM_BREAK_HALF,	  /* the server knows; the client hears of it later */
	SIM_BREAK_SILENT, /* nothing arrives any more, and nobody knows */
	SIM_BREAKS
};

/* A connection of which nobody hears any more ends at the latest after so long. */
#define SIM_NET_SILENCE_NS (41 * SIM_S)

/* Who connects to the server does it as a user of its machine. */
extern bool sim_net_local;
/* An agent before a pool keeps data of WRITEs, as by tcp. */
extern bool sim_net_keeps;

/* What the kernel says of those who connect. */
enum { SIM_NET_PID = 4711 }; /* of whom nothing else is said */
struct sim_net_who {
	unsigned user; /* 0: as whom the HELLO says */
	int pid;
	bool far; /* by the network, also where programs of the agent's machine share memory with it
		   */
};
extern struct sim_net_who sim_net_who[SIM_PROCESSES];

/* How long a message takes, and how much longer it may take. */
void sim_net_delay(uint64_t ns, uint64_t jitter_ns);
/* Break one connection, which the seed chooses, between them. False: there is none. */
bool sim_net_break(enum sim_process client, enum sim_process server, enum sim_break how);
/*
 * Until then a client waited for a peer of which nothing comes any more, or a server kept a client
 * that was killed before its welcome came: SIM_NEVER, one does so now.
 */
uint64_t sim_net_silent_until(void);
/* What is sent between them waits from now on (or goes on); connecting, too. */
void sim_net_cut(enum sim_process client, enum sim_process server, bool cut);
/* Like that for one connection of the seed's choice, for so long. */
bool sim_net_delay_one(enum sim_process client, enum sim_process server, uint64_t ns);
/* Of 1,000 READs, how many the server refuses from now on, for want of memory. */
void sim_net_refuse_reads(unsigned of_1000);
/* The process is gone: others hear of it (or do not), who connects is refused. */
void sim_net_kill(enum sim_process p, bool silently);
/*
 * At the end, when no process stands still: whoever has a connection is connected to somebody, or
 * will hear that it has ended.
 */
void sim_net_check(void);
/* The process goes on after a stop. */
void sim_net_continue(enum sim_process p);
/* Addresses have ports, before which the server's name is; else all are "localhost" to tenants. */
extern bool sim_net_ports;
const char *sim_net_name(enum sim_process p);
const char *sim_net_address(enum sim_process p);
/* The numbers that a host was told when the server welcomed its last control connection. */
struct sim_welcomed {
	uint64_t instance, client; /* of the server */
};
struct sim_welcomed sim_net_welcomed(enum sim_process client, enum sim_process server);
unsigned sim_net_connections(enum sim_process client, enum sim_process server);

#endif
