/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --seal with --seal-key-file: files that programs open through the agent are sealed at rest
 * (wire/sealed_file.h).  To the program they are any files: the agent opens them at the server with
 * SODA_WIRE_SEALED_BY_AGENT, and a program's region begins behind header and table.
 *
 *   opened ---- WRITE ----> changed ---- SYNC, CLOSE, BYE ----> committed
 *                              ^                                    |
 *                              +--------------- WRITE --------------+
 *
 * A commit, which one thread of the agent makes: WRITEs that were listed before are on the server;
 * then the region is closing, so that no WRITE is posted, and none is under way; the entries of
 * what has changed go into the table, its changed pages and the header to the server's memory; then
 * SYNC, by which the server changes all of the file or nothing.  Whatever fails on the way is made
 * again, as a whole, by the next commit: until then the file has the one before.
 *
 * Header and table travel on a channel that nobody else uses.
 */
#ifndef SODA_DPU_AGENT_SEALED_FILES_H
#define SODA_DPU_AGENT_SEALED_FILES_H

#include "dpu_agent/session/session.h"

struct soda_paging_region;

/*
 * What the server is asked for, instead of what the program asks for, if the agent seals the file.
 * 0; -EINVAL: its size.
 */
int soda_sealed_files_ask(struct soda_session *s, struct soda_wire_open *open,
			  struct soda_why *why);
/*
 * The server has opened r: read what the file is, or make it, and fill in r's own size, sealing
 * state and *opened_p as the program has them, who asked for so many bytes.  0; -EINVAL, -EACCES,
 * -EBADMSG: another size or key, or it was changed; -ENOMEM; errors of the connection.  On failure
 * the server has r open still, and r has no sealing state.
 */
int soda_sealed_files_open(struct soda_session *s, struct soda_paging_region *r, uint64_t asked,
			   struct soda_wire_opened *opened_p, struct soda_why *why);
/* A region that the server has listed: r's own size. 0, -EPROTO. */
int soda_sealed_files_measure(struct soda_paging_region *r);
/*
 * The session is up again: read the tables of files that may only be read, and that an agent before
 * this one has opened.  What cannot be read is lost to its program, with a line.
 */
void soda_sealed_files_learn(struct soda_session *s);

/* Whether SYNC is a commit. */
bool soda_sealed_files_commits(const struct soda_paging_region *r);
/*
 * A commit, if anything has changed; the region is closing, and its WRITEs are not under way.  0;
 * -EIO: what the server has of it is not known, or the keys are gone; -EBUSY: the program has to
 * write something again first; -ECONNRESET, and errors of a call.
 */
int soda_sealed_files_commit(struct soda_session *s, struct soda_paging_region *r,
			     struct soda_why *why);

#endif
