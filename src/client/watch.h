/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a session's server answers while somebody's call has the control connection, which a
 * file's SYNC or OPEN may have for as long as a disk takes.  The question goes by a connection of
 * its own, as another client, which has nothing there.
 */
#ifndef SODA_CLIENT_WATCH_H
#define SODA_CLIENT_WATCH_H

#include <stdbool.h>

#include "client/server.h"

/*
 * Ask.  true: nothing was heard for timeout_ms.  A refusal is an answer, and an error of another
 * kind says nothing of the server. The driver of a session that is UP.
 */
bool soda_watch_is_silent(struct soda_server *server, int timeout_ms);
/* Nobody has had to ask for a while: say goodbye. The driver. */
void soda_watch_rest(struct soda_server *server);
/* Close the connection, if there is one; leaves: with a goodbye. The driver. */
void soda_watch_close(struct soda_server *server, bool leaves);

#endif
