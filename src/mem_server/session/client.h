/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning and end of a client: for session.c and reaper.c. */
#ifndef SODA_MEM_SERVER_CLIENT_H
#define SODA_MEM_SERVER_CLIENT_H

#include "mem_server/session/session.h"

/* Not yet in the table. NULL: no memory. */
struct soda_client *soda_client_create(struct soda_sessions *sessions,
				       const struct soda_wire_hello *hello,
				       const struct soda_peer_info *info);
/* How many files' changes were lost. The client has no data connection. */
unsigned soda_client_close_regions(struct soda_client *client);
/* Not in the table any more, no regions, no connections. */
void soda_client_destroy(struct soda_client *client);

uint64_t soda_client_now_ms(void);
/* Wait for `changed`, at most until then; the lock is held. */
void soda_client_sleep_locked(struct soda_sessions *sessions, uint64_t until_ms);

#endif
