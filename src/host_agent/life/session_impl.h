/* SPDX-License-Identifier: BSD-3-Clause */
/* What session.c and session_calls.c share. */
#ifndef SODA_HOST_SESSION_IMPL_H
#define SODA_HOST_SESSION_IMPL_H

#include "host_agent/life/session.h"

/* The control connection, locked (SESSION) until it is released; NULL while DOWN. */
struct soda_conn *soda_session_control_acquire(void);
void soda_session_control_release(void);
/* Counts the times that all connections were closed. */
uint32_t soda_session_breaks(void);
/* Wait until they have been once more than `breaks`, or the session ends. */
void soda_session_await_break(uint32_t breaks);

/* The keeper tells the server of objects that were freed while nobody could tell it. */
void soda_session_close_late(void);
/* The server that is met has none of them. */
void soda_session_forget_closes(void);

#endif
