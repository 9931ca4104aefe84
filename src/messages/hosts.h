/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agents of a job that nobody named one by one: out of a host file (SODA_MSG_HOSTS), or one on
 * each of Slurm's nodes (SODA_MSG_PORT, and what srun says).  What comes out are texts as
 * SODA_MSG_AGENTS and SODA_MSG_PLACES have them (soda_msg.h).
 *
 * A host file has a line for each agent: its address, as ranks and the other agents reach it, and
 * how many ranks it has, all lines or none.  Ranks are dealt out from 0 on, line by line.  From #
 * on a line is a comment.
 *
 *   tcp://node1:7500  16
 *   tcp://node2:7500  16
 */
#ifndef SODA_MESSAGES_HOSTS_H
#define SODA_MESSAGES_HOSTS_H

#include <stdint.h>
#include <stdio.h>

#include "transport/api/transport.h"

struct soda_hosts {
	char *agents; /* addresses, joined by commas; NULL: none was named */
	char *places; /* "0*16,1*16"; NULL: as many for each, in a row */
};

/*
 * As the environment says, for so many ranks: agents that would have none are left out.  The caller
 * frees both texts. 0; -EINVAL: why says in which line, or variable, and what is wrong; -ENOMEM;
 * errors of open(2) and read(2).
 */
int soda_hosts_find(uint32_t ranks, struct soda_hosts *hosts_p, struct soda_why *why);

/* The same of a host file that is open; its name is for messages. */
int soda_hosts_read(FILE *file, const char *name, uint32_t ranks, struct soda_hosts *hosts_p,
		    struct soda_why *why);

/*
 * The same of nodes as Slurm lists them, "a[1-3,07],b", and tasks on them, "2(x3),1": an agent at
 * tcp://NODE:port on each.
 */
int soda_hosts_expand(const char *nodes, const char *tasks, uint32_t port, uint32_t ranks,
		      struct soda_hosts *hosts_p, struct soda_why *why);

/*
 * Where each rank's own router is, where programs route their messages themselves.  agents: their
 * list, each of which stands for its ranks' routers; places: which of them is that of each rank,
 * NULL: there is one.  Its first rank listens at the address itself, and the k-th behind that at
 * the k-th port behind it, or, of shm, at its name with .k behind it.  The caller frees *list_p,
 * which is as SODA_MSG_AGENTS.  -EINVAL, -ENOMEM.
 */
int soda_hosts_routers(const char *agents, const uint8_t *places, uint32_t ranks, char **list_p,
		       struct soda_why *why);
/*
 * The same where no address is named, and all ranks are on this machine: sockets in a directory
 * that only this user can enter, in TMPDIR or /tmp, with names that follow from the job's.
 * -EINVAL: a launcher says that ranks are on other machines, too; -EACCES: the directory is
 * another user's, or others may enter it; errors of mkdir(2).
 */
int soda_hosts_here(const char *job, uint32_t ranks, char **list_p, struct soda_why *why);

#endif
