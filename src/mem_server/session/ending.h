/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How clients end, and how long others wait for that.  Two threads free clients with all that they
 * have:
 *
 *   soda-reaper  takes a client that may be freed out of the list, and frees what waits for no disk
 *   soda-files   writes and closes the files of those that have some, one client after the other;
 *                it is there while there are any
 *
 * So a disk that does not answer keeps the files alone, and neither places nor other memory.
 *
 * Functions that end in _locked are called with the lock of soda_clients, which they may drop.
 */
#ifndef SODA_MEM_SERVER_ENDING_H
#define SODA_MEM_SERVER_ENDING_H

#include "mem_server/session/clients.h"

/* Close the client's regions; it has no data connection.  Counts files whose changes are lost. */
void soda_client_close_regions(struct soda_client *client);
/* The client is not in the list, and has no regions and no connections. */
void soda_client_destroy(struct soda_client *client);

/* Whose place among the clients it has. */
struct soda_holder soda_client_holder(const struct soda_client *client);
/* Take *at, which links of the list lead to, out of it; its place is free. Returns it. */
struct soda_client *soda_client_unlink_locked(struct soda_clients *clients,
					      struct soda_client **at);

/*
 * Wait for the next change, at most until end_ms, if a client's place is about to be free: because
 * the client may be freed, or has said goodbye less than SODA_SERVER_LEAVING_MS ago.  False: there
 * is none, or it is late.
 */
bool soda_clients_await_place_locked(struct soda_clients *clients, uint64_t end_ms);

/* Client processes may have ended, which tell nobody: it is to look now. */
void soda_reaper_wake_locked(struct soda_clients *clients);
/* 0, negative errno. */
int soda_reaper_start(struct soda_clients *clients);
/* Free all clients, which have no connection any more. */
void soda_reaper_stop(struct soda_clients *clients);

#endif
