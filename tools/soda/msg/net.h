/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda msg run --links net`: a network namespace for each agent and its ranks, so that they are as
 * far from each other as machines are, but for the wire.  This process is the switch between them:
 * it has a namespace of its own with a bridge, and a veth pair joins each agent's to it.
 *
 * None of them has a name: a namespace is there as long as a process is in it, and all of them end
 * with this one.  So nothing is left behind, however it ends.
 */
#ifndef SODA_MSG_NET_H
#define SODA_MSG_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SODA_MSG_NET_ADDRESS = 16 };

/* Become the switch. False, after a line that says why: namespaces cannot be had here. */
bool soda_msg_net_make(void);
/* The address of an agent, by its number from 0. */
void soda_msg_net_address(uint32_t agent, char text[SODA_MSG_NET_ADDRESS]);
/* In a new process, for that agent: into a namespace of its own, with that address. 0, or -1. */
int soda_msg_net_begin(uint32_t agent);
/* In a new process, for a rank: into the namespace of that process. 0, or -1. */
int soda_msg_net_enter(pid_t agent);

#endif
